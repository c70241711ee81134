"""Equal terms become candidate rules: instances with concrete attributes, still to be proved and generalised.

Every term is compared with the first term of its value, and the two outputs of one operator (such as the halves of a
split) with those of their values. What is pruned:

- super-graphs: an equality inside an argument is not repeated, since a term counts only with its smallest arguments;
- renamings and common subgraphs: `patterns` collapses the equalities to the patterns that they are instances of;
- sides with the same operator on top and equal arguments; and a subterm that could be anything (the sides stay equal
  with a fresh tensor in its place) becomes an input, so that the most general form is left;
- instances of a candidate that is already there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

import numpy as np

from taso.generate.fingerprint import Exact, Real
from taso.generate.general import Cutter, instance_of, sides_congruent, tensors
from taso.generate.patterns import Patterns
from taso.generate.universe import Applied, Concrete
from taso.generate.values import Enumeration, Terms
from taso.generate.write import Writer, renamed, show
from taso.spec import syntax as s
from taso.spec.elaborate import Typed


@dataclass(frozen=True)
class Candidate:
    """Two sides that were equal on all samples; `target` uses no tensor that `source` does not.

    shapes: of all tensors of the source, in the order in which they appear.
    level: the operators of the larger enumerated term before anything was cut off.
    cost: operators of source and target, shared ones counted once.
    """

    source: tuple[s.Term, ...]
    target: tuple[s.Term, ...]
    universe: str
    level: int
    cost: tuple[int, int]
    shapes: dict[str, Concrete] = field(hash=False)
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass
class Equalities:
    """How many equalities were left after each step."""

    equal: int = 0  # terms that have the value of another, made of arguments that are as small as can be
    confirmed: int = 0  # of these still equal on fresh samples
    patterns: int = 0  # that they are instances of: without renamings, super-graphs and common subgraphs
    general: int = 0  # in the most general form, each once
    distinct: int = 0  # that are no instance of another
    tangled: int = 0  # some tensor stands more than three times on one side: consequences of simpler ones
    unbound: int = 0  # neither side has all tensors of the other: no rule
    pairs: int = 0  # equalities of two outputs at once, of the distinct ones

    def __str__(self) -> str:
        return (
            f"{self.equal} equal terms, {self.confirmed} of them on fresh samples, of {self.patterns} patterns;"
            f" {self.general} in their most general form, {self.distinct} no instance of another"
            f" ({self.pairs} of them of two outputs); {self.tangled} with a tensor too many times,"
            f" {self.unbound} without all tensors on one side"
        )


@dataclass(frozen=True)
class Node:
    """A term by value numbers: an instance of values. `value` is its own number (-1: not a representative)."""

    instance: int
    args: tuple[int, ...]
    value: int = -1


@dataclass(frozen=True)
class _Pair:
    """Two sides to be equal, output by output. `level` is that of the larger."""

    left: tuple[Node, ...]
    right: tuple[Node, ...]
    level: int


def candidates(enumeration: Enumeration) -> list[Candidate]:
    """The candidate rules of an enumeration, fewest operators first."""
    return find_candidates(enumeration)[0]


def find_candidates(enumeration: Enumeration) -> tuple[list[Candidate], Equalities]:
    """The candidate rules, and how many equalities were left after each step of finding them."""
    finder = _Finder(enumeration)
    return finder.run(), finder.counts


class _Finder:
    def __init__(self, enumeration: Enumeration) -> None:
        self.found, self.world, self.table = enumeration, enumeration.world, enumeration.table
        self.counts = Equalities()
        options = self.world.options
        self.fingerprint = Real(0) if options.real else Exact(0, options.denominator)
        self.cutter = Cutter(self.world, self.fingerprint, self.found.base.seed + 2)
        self.writer = Writer(self.world.spec)
        self.trees: dict[int, Typed] = {}

    def run(self) -> list[Candidate]:
        forms: dict[str, Candidate] = {}
        patterns = Patterns(
            self.world,
            self.table,
            self.found.shapes,
            self.found.ops,
            self._holds,
            self.cutter.sample,
            self.fingerprint.same,
        )
        terms = self._equal_terms()
        self.counts.equal = len(self.found.found)
        for pattern in sorted(patterns.find(terms), key=lambda p: p.level):
            self.counts.patterns += 1
            self._form((pattern.left,), (pattern.right,), pattern.level, forms)
        self.counts.confirmed = patterns.settled
        for _, pair in sorted(self._distinct(), key=lambda item: (item[1].level, item[0])):
            left, right = (tuple(map(self._typed, side)) for side in (pair.left, pair.right))
            if self.cutter.equal(left, right):
                self.counts.patterns += 1
                self._form(left, right, pair.level, forms)
        self.counts.general = len(forms)
        kept: list[Candidate] = []
        by_tops: dict[tuple[str, ...], list[Candidate]] = {}
        for candidate in sorted(forms.values(), key=lambda c: (_size(c), -len(c.shapes), len(c.text), c.text)):
            tops = tuple(sorted(_top(term) for term in (*candidate.source, *candidate.target)))
            general = [
                *by_tops.get(tops, []),
                *by_tops.get(tuple(sorted(["", *tops[1:]])), []),
                *self._bare(by_tops, tops),
            ]
            sides = candidate.source, candidate.target
            if any(instance_of(*sides, known.source, known.target, self.writer.swaps) for known in general):
                continue
            kept.append(candidate)
            by_tops.setdefault(tops, []).append(candidate)
        self.counts.distinct = len(kept)
        self.counts.pairs = sum(len(candidate.source) > 1 for candidate in kept)
        return sorted(kept, key=lambda c: (sum(c.cost), -len(c.shapes), len(c.text), c.text))

    def _bare(self, by_tops: dict[tuple[str, ...], list[Candidate]], tops: tuple[str, ...]) -> list[Candidate]:
        """Candidates with a bare tensor on one side, which may stand for any operator."""
        return [c for top in tops if top for c in by_tops.get(("", top), [])] if len(tops) == 2 else []

    def _holds(self, left: Typed, right: Typed) -> bool:
        return self.cutter.equal((left,), (right,))

    def _equal_terms(self) -> Terms:
        """The terms that are equal to another, without those that compute with constants alone, which are folded."""
        terms, table = self.found.found, self.table
        ground = (table.mask == 0) & (table.level > 0)
        for level in range(1, self.found.ops + 1):
            ids = np.nonzero(table.level == level)[0]
            ground[ids] |= ground[table.a[ids]] | (ground[table.b[ids]] & (table.b[ids] >= 0))
        other = np.where(terms.b >= 0, terms.b, terms.a)
        mask = table.mask[terms.a] | table.mask[other] | table.mask[terms.value]
        kept = ~(ground[terms.a] | ground[other] | ground[terms.value]) & self.world.first_inputs(mask)
        return Terms(*(getattr(terms, f.name)[kept] for f in fields(Terms)))

    def _distinct(self) -> Iterator[tuple[str, _Pair]]:
        """The equalities of two outputs, one of those that are renamings of each other, with their common text."""
        seen: set[str] = set()
        for first, second in self.world.pairs:
            for pair in self._two_outputs(first, second):
                key = self._key(pair)
                if key not in seen:
                    seen.add(key)
                    yield key, pair

    def _form(self, left: tuple[Typed, ...], right: tuple[Typed, ...], level: int, forms: dict[str, Candidate]) -> None:
        """Add the most general form of an equality, if it is a rule and not there yet."""
        if sides_congruent(left, right, self.cutter):
            return
        left, right = self.cutter.general(left, right)
        if left == right:
            return
        key = self.writer.key(left, right)
        if key in forms:
            return
        candidate = self._candidate(left, right, level)
        if candidate is None:
            self.counts.unbound += 1
        elif _tangled(candidate):
            self.counts.tangled += 1
        elif candidate.shapes:  # else both sides are constants, which are computed and not rewritten
            forms[key] = candidate

    def _candidate(self, left: tuple[Typed, ...], right: tuple[Typed, ...], level: int) -> Candidate | None:
        sides = left, right
        names = [tensors(side) for side in sides]
        written = [tuple(map(self.writer.term, side)) for side in sides]
        texts = [show(side) for side in written]
        costs = [self._cost(side) for side in sides]
        options = [(-costs[a], texts[a], a, b) for a, b in ((0, 1), (1, 0)) if names[a].keys() >= names[b].keys()]
        if not options:
            return None
        _, _, a, b = min(options)
        text = f"{texts[a]} ==> {texts[b]}"
        return Candidate(written[a], written[b], self.world.universe.name, level, (costs[a], costs[b]), names[a], text)

    def _cost(self, side: tuple[Typed, ...]) -> int:
        """Operators that do work at run time: not those of constants, nor the repetition of a smaller tensor."""
        found: set[Typed] = set()

        def walk(node: Typed) -> bool:  # whether it depends on a tensor
            below = [walk(arg) for arg in node.args]
            depends = node.kind == "var" or any(below)
            if depends and node.kind == "apply" and not self.writer.implicit(node.head):
                found.add(node)
            return depends

        for node in side:
            walk(node)
        return len(found)

    # --- two outputs at once
    def _two_outputs(self, first: int, second: int) -> Iterator[_Pair]:
        """Both outputs of an operator, where each is equal to a term that does not have all tensors."""
        terms, table = self.found.found, self.table
        ones, twos = (np.nonzero(terms.instance == k)[0] for k in (first, second))
        if not len(ones) or not len(twos):
            return
        twos = twos[np.argsort(terms.a[twos], kind="stable")]
        place = np.minimum(np.searchsorted(terms.a[twos], terms.a[ones]), len(twos) - 1)
        ones, twos = (side[terms.a[twos[place]] == terms.a[ones]] for side in (ones, twos[place]))
        whole, v0, v1 = terms.a[ones], terms.value[ones], terms.value[twos]
        told = (table.level[v0] == 0) | (table.level[v1] == 0)  # one is an input: two equalities of one output say it
        told |= (table.mask[v0] == table.mask[whole]) & (table.mask[v1] == table.mask[whole])  # each has all tensors
        same = (table.instance[v0] == first) & (table.instance[v1] == second) & (table.a[v0] == table.a[v1])
        for k in np.nonzero(~told & ~same & (v0 != v1) & self.world.first_inputs(table.mask[whole]))[0]:
            halves = Node(first, (int(whole[k]),)), Node(second, (int(whole[k]),))
            others = self._representative(int(v0[k])), self._representative(int(v1[k]))
            yield _Pair(others, halves, int(terms.level[ones[k]]))

    def _representative(self, value: int) -> Node:
        table = self.table
        if table.instance[value] < 0:
            return Node(-1, (), value)
        args = (int(table.a[value]),) if table.b[value] < 0 else (int(table.a[value]), int(table.b[value]))
        return Node(int(table.instance[value]), args, value)

    # --- text, for telling renamings apart
    def _text(self, node: Node, *, names: bool) -> str:
        """The term as text, inputs as $name (or, without `names`, as $); commutative arguments in one order."""
        if node.instance < 0:
            leaf = self.world.leaves[node.value]
            return leaf.name if leaf.group < 0 else f"${leaf.name}" if names else "$"
        args = [self._representative(arg) for arg in node.args]
        shown = [self._text(arg, names=names) for arg in args]
        applied = self._applied(node)
        if len(args) == 2 and self._commutes(node):
            blank = [self._text(arg, names=False) for arg in args]
            shown = [text for _, text in sorted(zip(blank, shown), key=lambda item: item[0])]
        return f"{applied.text}({', '.join(shown)})"

    def _commutes(self, node: Node) -> bool:
        kinds = [int(self.table.kind[arg]) for arg in node.args]
        return kinds[0] == kinds[1] and self.world.commutes(node.instance, self.found.shapes[kinds[0]])

    def _key(self, pair: _Pair) -> str:
        left = "; ".join(self._text(node, names=True) for node in pair.left)
        right = "; ".join(self._text(node, names=True) for node in pair.right)
        return min(renamed(f"{left} == {right}"), renamed(f"{right} == {left}"))

    def _applied(self, node: Node) -> Applied:
        shapes = tuple(self.found.shapes[int(self.table.kind[arg])] for arg in node.args)
        applied = self.world.applied(node.instance, shapes)
        assert applied is not None
        return applied

    def _typed(self, node: Node) -> Typed:
        """The tree of core operators of a term."""
        if node.value in self.trees:
            return self.trees[node.value]
        if node.instance < 0:
            tree = self.world.leaves[node.value].typed
        else:
            tree = self._applied(node).tree([self._typed(self._representative(arg)) for arg in node.args])
        if node.value >= 0:
            self.trees[node.value] = tree
        return tree


def _size(candidate: Candidate) -> int:
    """Operators of both sides, shared ones as often as they are written."""

    def count(term: s.Term) -> int:
        return 1 + sum(map(count, term.args)) if isinstance(term, s.Apply) else 0

    return sum(map(count, (*candidate.source, *candidate.target)))


def _tangled(candidate: Candidate) -> bool:
    def count(term: s.Term, found: dict[str, int]) -> dict[str, int]:
        if isinstance(term, s.Var):
            found[term.name] = found.get(term.name, 0) + 1
        elif isinstance(term, s.Apply):
            for arg in term.args:
                count(arg, found)
        return found

    return any(times > 3 for term in (*candidate.source, *candidate.target) for times in count(term, {}).values())


def _top(term: s.Term) -> str:
    return term.op if isinstance(term, s.Apply) else ""
