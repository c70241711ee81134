"""Rules against whole graphs: every place where one applies and the values that it puts there."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from taso.errors import ShapeError, SpecError
from taso.graph.graph import Arena, Graph, Node, Value
from taso.search.match import NOTHING, Bindings, match
from taso.search.sketch import Sketches
from taso.spec import syntax as s
from taso.spec.evaluate import holds
from taso.spec.spec import Spec
from taso.spec.traits import commutative, moves_data

Users = Mapping[Value, Sequence[Node]]

ARITHMETIC = ("float", "double", "float16")  # element types on which rules that compute may be used


@dataclass(frozen=True)
class Pattern:
    """A rule made ready for matching.

    paths:     for every source term but the first, how to get there: (a tensor that an earlier term has bound, the
               operators on the way up from it, the term's root last).
    symmetric: the two source terms are the same up to the names of tensors, so that their order carries no meaning.
    moves:     the target only moves data, so that it may be used on any element type.
    parts:     the source as a list of terms of its root operator, those that can be looked for first; empty where one
               is a tensor that nothing else says anything about, or where the rule has several outputs.
    sketches:  what each source term looks like (`Sketches`); `part_sketches` the same for each part.
    """

    rule: s.Rule
    root: str
    paths: tuple[tuple[str, tuple[str, ...]], ...]
    symmetric: bool
    moves: bool
    parts: tuple[s.Term, ...]
    sketches: tuple[int, ...]
    part_sketches: tuple[int, ...]


@dataclass(frozen=True)
class Rewrite:
    """One rule at one place: `changes` says which value becomes which."""

    rule: s.Rule
    changes: Mapping[Value, Value]
    bindings: Bindings = field(compare=False)
    also: tuple[str, ...] = ()  # rules that were used besides: the associativity of a chain

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that the rule has met."""
        return self.bindings.nodes

    @cached_property
    def roots(self) -> tuple[Value, ...]:
        """The values that are replaced."""
        return tuple(self.changes)


class RuleIndex:
    """Rules by the operator at the root of their first source term."""

    def __init__(self, rules: Iterable[s.Rule], spec: Spec) -> None:
        self.spec = spec
        self.sketches = Sketches(spec)
        self.by_root: dict[str, list[Pattern]] = {}
        self.regroups: dict[str, s.Rule] = {}  # for symmetric operators the rule that says they are associative
        self.unused: list[tuple[s.Rule, str]] = []  # rules that cannot be matched, and why
        self._built: dict[tuple[object, ...], dict[Value, Value] | None] = {}
        for rule in rules:
            self._add(rule)
        self.looks = {op: {p.sketches[0] for p in found} for op, found in self.by_root.items()}
        self.part_looks = {op: {k for p in found for k in p.part_sketches} for op, found in self.by_root.items()}
        self._reorder = {
            id(p.rule) for found in self.by_root.values() for p in found if _reorders(p.rule, self.regroups)
        }

    def reorders(self, rule: s.Rule) -> bool:
        """Whether a rule of this index only says in another way that an operator is associative and symmetric."""
        return id(rule) in self._reorder

    def _add(self, rule: s.Rule) -> None:
        first = rule.source[0]
        if not isinstance(first, s.Apply) or any(not isinstance(term, s.Apply) for term in rule.source):
            self.unused.append((rule, "a source term is only a tensor or a number, which would match everywhere"))
            return
        paths: list[tuple[str, tuple[str, ...]]] = []
        bound = set(_tensors(first))
        for term in rule.source[1:]:
            path = _path(term, bound)
            if path is None:
                self.unused.append((rule, "its source terms share no tensor"))
                return
            paths.append(path)
            bound |= set(_tensors(term))
        unknown = {name for term in rule.target for name in _tensors(term)} - bound
        if unknown:
            self.unused.append((rule, f"its target has tensors that its source has not: {', '.join(sorted(unknown))}"))
            return
        symmetric = len(rule.source) == 2 and _numbered(rule.source[0]) == _numbered(rule.source[1])
        moves = all(_moves(term, self.spec) for term in rule.target)
        for root in _roots(first, self.spec):
            parts = _parts(rule, self.spec)
            sketches = tuple(self.sketches.of(term) for term in rule.source)
            part_sketches = tuple(self.sketches.of(part) for part in parts)
            pattern = Pattern(rule, root, tuple(paths), symmetric, moves, parts, sketches, part_sketches)
            self.by_root.setdefault(root, []).append(pattern)
        if regroups(rule, self.spec):
            self.regroups.setdefault(first.op, rule)

    def matches(
        self, node: Node, users: Users, alive: Container[Node], outputs: int | None = None
    ) -> Iterator[tuple[Pattern, list[Value], Bindings]]:
        """Every rule whose first source term is this node, with the values of all its source terms.

        outputs: 1 for rules of one output only, 2 for rules of several only.
        """
        if not node.types or node.types[0].shape is None:
            return
        root = Value(node)
        looks = self.sketches.fitting(f"root {node.op}", self.looks.get(node.op, ()), root)
        for pattern in self.by_root.get(node.op, ()) if looks else ():
            if outputs is not None and (outputs == 1) is not (len(pattern.rule.source) == 1):
                continue
            if not pattern.moves and node.types[0].dtype not in ARITHMETIC:
                continue
            if pattern.sketches[0] not in looks:
                continue
            for first in match(pattern.rule.source[0], root, self.spec, NOTHING, root=True):
                for values, bindings in self._others(pattern, [root], first, users, alive):
                    settled = bindings.settled()
                    if settled is not None and allowed(pattern.rule, settled):
                        yield pattern, values, settled

    def changes(
        self, pattern: Pattern, values: Sequence[Value], b: Bindings, arena: Arena
    ) -> dict[Value, Value] | None:
        """As `build`, remembered: the same match is met again in every graph that has it."""
        key = (id(pattern.rule), *values, *b.tensors.values(), *b.attrs.values())
        if key not in self._built:
            self._built[key] = build(pattern.rule, values, b, arena)
        return self._built[key]

    def forget(self) -> None:
        """Let go of the graphs whose matches are remembered; to be called between arenas."""
        self._built.clear()
        self.sketches.forget()

    def _others(
        self, pattern: Pattern, values: list[Value], b: Bindings, users: Users, alive: Container[Node]
    ) -> Iterator[tuple[list[Value], Bindings]]:
        """The further source terms of a rule, each found by going up from a tensor that is bound already."""
        number = len(values)
        if number == len(pattern.rule.source):
            yield values, b
            return
        name, ops = pattern.paths[number - 1]
        for node in _climb([b.tensors[name]], ops, users):
            value = Value(node)
            if value in values or node not in alive or (pattern.symmetric and node.uid < values[0].node.uid):
                continue
            if not self.sketches.fits(pattern.sketches[number], value):
                continue
            for found in match(pattern.rule.source[number], value, self.spec, b, root=True):
                yield from self._others(pattern, [*values, value], found, users, alive)


def allowed(rule: s.Rule, b: Bindings) -> bool:
    """Whether a match is one that the rule was proved for: ranks, sizes of at least 1, and its conditions."""
    shapes = {name: value.shape for name, value in b.tensors.items()}
    for shape in shapes.values():
        if shape is None or any(isinstance(size, int) and size < 1 for size in shape):
            return False
    if rule.ranks is not None:
        ranks = tuple(len(shapes[name] or ()) if name in shapes else None for name in rule.ranks.names)
        if not any(all(r is None or r == c for r, c in zip(ranks, choice)) for choice in rule.ranks.choices):
            return False
    try:
        return all(holds(condition, b.scope) is True for condition in rule.where)
    except SpecError:
        return False


def rewrites(
    nodes: Iterable[Node],
    users: Users,
    alive: Container[Node],
    index: RuleIndex,
    arena: Arena,
    outputs: int | None = None,
) -> Iterator[Rewrite]:
    """All rewrites whose first root is one of the nodes, in the order of nodes and rules; none that changes nothing.

    Args:
        users: for each value the nodes that read it (`Graph.users`); where second outputs are looked for.
        alive: the nodes of the graph.
        outputs: 1 for rules of one output only, 2 for rules of several only.
    """
    for node in nodes:
        seen: set[frozenset[tuple[Value, Value]]] = set()
        for pattern, values, bindings in index.matches(node, users, alive, outputs):
            changes = index.changes(pattern, values, bindings, arena)
            if changes and frozenset(changes.items()) not in seen:
                seen.add(frozenset(changes.items()))
                yield Rewrite(pattern.rule, changes, bindings)


def build(rule: s.Rule, values: Sequence[Value], b: Bindings, arena: Arena) -> dict[Value, Value] | None:
    """What a rule puts in the place of its roots; None where its target does not fit or nothing would change."""
    changes: dict[Value, Value] = {}
    for term, old in zip(rule.target, values, strict=True):
        try:
            new = arena.build(term, b.tensors, b.attrs, old.type.dtype, result=old.shape)
        except (ShapeError, SpecError):
            return None
        if new.type != old.type:
            return None
        if new != old:
            changes[old] = new
    return changes


def apply(graph: Graph, rewrite: Rewrite, arena: Arena) -> Graph | None:
    """The graph after a rewrite, or None if a value would come to depend on itself."""
    return graph.replace(rewrite.changes, arena)


# --- preparing rules -----------------------------------------------------------------------------------------------


def regroups(rule: s.Rule, spec: Spec) -> bool:
    """Whether a rule says that a symmetric operator is associative, in any order: (x + y) + z ==> x + (y + z)."""
    source, target = rule.source[0], rule.target[0]
    if len(rule.source) != 1 or rule.where or not (isinstance(source, s.Apply) and isinstance(target, s.Apply)):
        return False
    op = spec.operators.get(source.op)
    if op is None or source.op != target.op or source.attrs or target.attrs or not commutative(op):
        return False
    both = [_flat(term, source.op) for term in (source, target)]
    names = [[part.name for part in parts if isinstance(part, s.Var)] for parts in both]
    return all(len(parts) == 3 == len(set(found)) for parts, found in zip(both, names)) and set(names[0]) == set(
        names[1]
    )


def _reorders(rule: s.Rule, regroups: Mapping[str, s.Rule]) -> bool:
    """Whether both sides are nests of one operator, which is known to be associative, over the same terms."""
    source, target = rule.source[0], rule.target[0]
    if len(rule.source) != 1 or not (isinstance(source, s.Apply) and isinstance(target, s.Apply)):
        return False
    if source.op not in regroups or source.op != target.op:
        return False
    return sorted(map(repr, _flat(source, source.op))) == sorted(map(repr, _flat(target, source.op)))


def _flat(term: s.Term, op: str) -> list[s.Term]:
    """The terms of a nest of one operator without attributes."""
    if isinstance(term, s.Apply) and term.op == op and not term.attrs:
        return [part for arg in term.args for part in _flat(arg, op)]
    return [term]


def _parts(rule: s.Rule, spec: Spec) -> tuple[s.Term, ...]:
    source = rule.source[0]
    if len(rule.source) != 1 or not isinstance(source, s.Apply) or source.op not in spec.operators:
        return ()
    if not commutative(spec.operators[source.op]):
        return ()
    parts = _flat(source, source.op)
    found = [part for part in parts if isinstance(part, s.Apply)]
    known = {name for part in found for name in _tensors(part)}
    later = [part for part in parts if not isinstance(part, s.Apply)]
    if not found or any(isinstance(part, s.Var) and part.name not in known for part in later):
        return ()
    return (*found, *later)


def _tensors(term: s.Term) -> Iterator[str]:
    if isinstance(term, s.Var):
        yield term.name
    elif isinstance(term, s.Apply):
        for arg in term.args:
            yield from _tensors(arg)


def _roots(term: s.Term, spec: Spec) -> list[str]:
    """The operators that a pattern may have at its root: several for a macro with several forms."""
    if isinstance(term, s.Choose):
        return list(dict.fromkeys([*_roots(term.then, spec), *_roots(term.otherwise, spec)]))
    if not isinstance(term, s.Apply):
        return []
    if term.op in spec.operators:
        return [term.op]
    macro = spec.declared(term.op, term.pos)
    assert isinstance(macro, s.Macro)
    return list(dict.fromkeys(op for form in (macro.body, *macro.forms) for op in _roots(form, spec)))


def _path(term: s.Term, bound: set[str]) -> tuple[str, tuple[str, ...]] | None:
    """The shortest way up from a bound tensor to the root of a term."""
    level: list[tuple[s.Term, tuple[str, ...]]] = [(term, ())]
    while level:
        for inner, ops in level:
            if isinstance(inner, s.Var) and inner.name in bound:
                return inner.name, ops
        level = [(arg, (t.op, *ops)) for t, ops in level if isinstance(t, s.Apply) for arg in t.args]
    return None


def _climb(values: Iterable[Value], ops: tuple[str, ...], users: Users) -> list[Node]:
    """The nodes reached from values by going up through users with the given operators; a macro's name stops it."""
    found: dict[Node, None] = {}
    for value in values:
        for node in users.get(value, ()):
            if node.op == ops[0]:
                found[node] = None
    return list(found) if len(ops) == 1 else _climb([Value(node) for node in found], ops[1:], users)


def _numbered(term: s.Term) -> object:
    """A term with its tensors numbered in the order in which they occur."""
    numbers: dict[str, int] = {}

    def walk(t: s.Term) -> object:
        if isinstance(t, s.Var):
            return numbers.setdefault(t.name, len(numbers))
        if isinstance(t, s.Apply):
            return t.op, tuple(walk(arg) for arg in t.args), t.attrs
        return t

    return walk(term)


def _moves(term: s.Term, spec: Spec) -> bool:
    if isinstance(term, s.Var):
        return True
    if not isinstance(term, s.Apply) or term.op not in spec.operators:
        return False
    return moves_data(spec.operators[term.op]) and all(_moves(arg, spec) for arg in term.args)
