"""Equal terms become candidate rules: instances with concrete attributes, still to be proved and generalised.

Every term is compared with the representative of its value, and the two outputs of one operator (such as the halves
of a split) with the representatives of their values. What is pruned:

- renamings: inputs are numbered in the order in which they appear, commutative arguments are put in one order;
- super-graphs: a term is only built from representatives, so an equality inside an argument is never repeated;
- common subgraphs: sides with the same operator on top and equal arguments; and a subterm that could be anything (the
  sides stay equal with a fresh tensor in its place) becomes an input, so that the most general form is left;
- instances of a candidate that is already there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from taso.generate.fingerprint import Exact, Real
from taso.generate.general import Cutter, instance_of, sides_congruent, tensors
from taso.generate.universe import Applied, Concrete
from taso.generate.values import Enumeration, compute_all
from taso.generate.write import Writer, renamed, show
from taso.spec import syntax as s
from taso.spec.elaborate import Typed

_FRESH_SEED = 1


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

    equal: int = 0  # terms that share a value with another
    renamed: int = 0  # after leaving out renamings
    confirmed: int = 0  # still equal on fresh samples
    general: int = 0  # after cutting off what could be anything, each form once
    distinct: int = 0  # that are no instance of another
    tangled: int = 0  # some tensor stands more than three times on one side: consequences of simpler ones
    unbound: int = 0  # neither side has all tensors of the other: no rule
    pairs: int = 0  # equalities of two outputs at once, of the distinct ones

    def __str__(self) -> str:
        return (
            f"{self.equal} equal terms, {self.renamed} after renaming, {self.confirmed} on fresh samples;"
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
        self.fresh = self._reevaluate()
        self.cutter = Cutter(self.world, self.fingerprint, self.found.seed + 2)
        self.writer = Writer(self.world.spec)
        self.trees: dict[int, Typed] = {}

    def run(self) -> list[Candidate]:
        pairs = sorted(self._distinct(), key=lambda item: (item[1].level, len(item[0]), item[0]))
        self.counts.renamed = len(pairs)
        forms: dict[str, Candidate] = {}
        for _, pair in pairs:
            if not self._equal(pair):
                continue
            self.counts.confirmed += 1
            self._form(pair, forms)
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

    def _form(self, pair: _Pair, forms: dict[str, Candidate]) -> None:
        """Add the most general form of an equality, if it is a rule and not there yet."""
        left, right = [tuple(map(self._typed, side)) for side in (pair.left, pair.right)]
        if sides_congruent(left, right, self.cutter):
            return
        left, right = self.cutter.general(left, right)
        if left == right:
            return
        key = self.writer.key(left, right)
        if key in forms:
            return
        candidate = self._candidate(left, right, pair.level)
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

    # --- equalities
    def _distinct(self) -> Iterator[tuple[str, _Pair]]:
        """The equalities, one of those that are renamings of each other, with the text that they share."""
        seen: set[str] = set()
        for pair in self._pairs():
            self.counts.equal += 1
            key = self._key(pair)
            if key not in seen:
                seen.add(key)
                yield key, pair

    def _pairs(self) -> Iterator[_Pair]:
        terms, table = self.found.found, self.table
        equal = terms.value >= 0
        value = np.where(equal, terms.value, 0)
        own = (table.instance[value] == terms.instance) & (table.a[value] == terms.a) & (table.b[value] == terms.b)
        other = np.where(terms.b >= 0, terms.b, terms.a)
        mask = table.mask[terms.a] | table.mask[other] | table.mask[value]
        ground = self._ground()
        computed = ground[terms.a] | ground[other] | ground[value]  # constants are folded, not rewritten
        for k in np.nonzero(equal & ~own & ~computed & self._prefix(mask))[0]:
            args = (int(terms.a[k]),) if terms.b[k] < 0 else (int(terms.a[k]), int(terms.b[k]))
            node = Node(int(terms.instance[k]), args)
            yield _Pair((node,), (self._representative(int(terms.value[k])),), int(terms.level[k]))
        for first, second in self.world.pairs:
            yield from self._two_outputs(first, second)

    def _two_outputs(self, first: int, second: int) -> Iterator[_Pair]:
        terms, table = self.found.found, self.table
        at = np.nonzero((terms.instance == second) & (terms.value >= 0))[0]
        seconds = {int(terms.a[k]): int(terms.value[k]) for k in at}
        for k in np.nonzero((terms.instance == first) & (terms.value >= 0))[0]:
            whole, v0 = int(terms.a[k]), int(terms.value[k])
            v1 = seconds.get(whole)
            if v1 is None or not self._prefix(table.mask[[whole]])[0] or v0 == v1:
                continue
            if (
                table.level[v0] == 0 or table.level[v1] == 0
            ):  # one output is an input: two equalities of one output say it
                continue
            if table.mask[v0] == table.mask[whole] == table.mask[v1]:  # likewise: each output alone has all tensors
                continue
            i0, i1 = int(table.instance[v0]), int(table.instance[v1])
            if (i0 == first and table.a[v0] == whole) or (i1 == second and table.a[v1] == whole):
                continue
            if i0 == first and i1 == second and table.a[v0] == table.a[v1]:
                continue
            halves = (Node(first, (whole,)), Node(second, (whole,)))
            yield _Pair((self._representative(v0), self._representative(v1)), halves, int(terms.level[k]))

    def _ground(self) -> np.ndarray:
        """Which values contain an operator whose arguments are all constants."""
        table = self.table
        ground = (table.mask == 0) & (table.level > 0)
        for level in range(1, self.found.ops + 1):
            ids = np.nonzero(table.level == level)[0]
            ground[ids] |= ground[table.a[ids]] | (ground[table.b[ids]] & (table.b[ids] >= 0))
        return np.asarray(ground)

    def _prefix(self, masks: np.ndarray) -> np.ndarray:
        groups = [leaf.group for leaf in self.world.leaves if leaf.group >= 0]
        low = sum(1 << k for k in range(len(groups) - 1) if groups[k] == groups[k + 1])
        return np.asarray(((masks >> 1) & ~masks & low) == 0)

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

    # --- fresh samples
    def _reevaluate(self) -> dict[int, np.ndarray]:
        """All kept values on other samples."""
        table, samples = self.table, self.world.samples(self.found.seed + _FRESH_SEED)
        data = {kind: np.zeros_like(rows) for kind, rows in self.found.data.items()}
        for k, sample in enumerate(samples):
            data[int(table.kind[k])][int(table.row[k])] = sample
        for level in range(1, self.found.ops):
            ids = np.nonzero(table.level == level)[0]
            columns = table.instance[ids], table.a[ids], table.b[ids]
            for at, rows in compute_all(self.world, self.found.shapes, data, table, *columns):
                here = ids[at]
                kept = data[int(table.kind[here[0]])]
                kept[table.row[here]] = rows.reshape(len(here), *kept.shape[1:])
        return data

    def _equal(self, pair: _Pair) -> bool:
        """Whether both sides are equal on the fresh samples too."""
        for left, right in zip(pair.left, pair.right):
            a, b = self._evaluate(left), self._evaluate(right)
            if not self.fingerprint.same(a.reshape(len(a), -1), b.reshape(len(b), -1)).all():
                return False
        return True

    def _evaluate(self, node: Node) -> np.ndarray:
        if node.value >= 0 and self.table.row[node.value] >= 0:
            return np.asarray(self.fresh[int(self.table.kind[node.value])][self.table.row[node.value]])
        args = [self._evaluate(self._representative(arg)) for arg in node.args]
        with np.errstate(all="ignore"):
            return np.asarray(self._applied(node).run(args, 1))


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
