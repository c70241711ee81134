"""From millions of equal terms to the few patterns that they are instances of.

An equality of two terms is looked at from the top: at first only the operators on top are taken as they are, and what
stands below could be anything, as long as equal arguments stay equal. If the sides are still equal with fresh tensors
in these places, the equality is one instance of a pattern; otherwise one more operator of either side is taken in, and
so on. Many equalities share a pattern, so each pattern is evaluated once. This prunes renamings (names are not looked
at), super-graphs (what is equal in an argument is one value) and common subgraphs (they become tensors) in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from taso.generate.fingerprint import mixed
from taso.generate.universe import Concrete, World
from taso.generate.values import Terms, Values
from taso.spec.elaborate import Typed
from taso.spec.lower import run_typed
from taso.spec.plan import concrete

_CHUNK = 1 << 20  # equalities looked at at a time
_Known = tuple[int, np.ndarray]  # a tree's number and value
_CACHE = 1 << 28  # bytes of values that are kept
_GLANCE = 3  # samples


@dataclass(frozen=True)
class Pattern:
    """Two trees that are equal whatever their tensors are; `level` is the number of operators of the larger graph."""

    left: Typed
    right: Typed
    level: int


@dataclass
class Patterns:
    """Finds patterns.

    holds: whether two trees are equal on fresh samples.
    sample, same: samples of a tensor by name and shape, and whether rows are equal: a glance before `holds` is asked.
    tried: patterns that were evaluated; settled: equalities that are instances of one that holds.
    """

    world: World
    table: Values
    shapes: list[Concrete]
    ops: int
    holds: Callable[[Typed, Typed], bool]
    sample: Callable[[str, Concrete], np.ndarray]
    same: Callable[[np.ndarray, np.ndarray], np.ndarray]
    tried: int = 0
    settled: int = 0
    known: dict[int, bool] = field(default_factory=dict)
    _numbers: dict[tuple[object, ...], int] = field(default_factory=dict)  # of trees, by instance and those below
    _values: list[np.ndarray | None] = field(default_factory=list)
    _bytes: int = 0

    def find(self, terms: Terms) -> Iterator[Pattern]:
        """The patterns of terms that are equal to the first term of their value, those with fewest operators first."""
        for start in range(0, len(terms), _CHUNK):
            part = slice(start, start + _CHUNK)
            yield from self._find(
                terms.instance[part], terms.a[part], terms.b[part], terms.value[part], terms.level[part]
            )

    def _find(
        self, instance: np.ndarray, a: np.ndarray, b: np.ndarray, value: np.ndarray, level: np.ndarray
    ) -> Iterator[Pattern]:
        left = _Side(self, instance.astype(np.int32), a, b)
        right = _Side(self, self.table.instance[value], self.table.a[value], self.table.b[value], value)
        rest = np.arange(len(a))
        bits = left.expandable(rest, self.ops), right.expandable(rest, self.ops)
        for cut in _cuts(self.ops):
            if not len(rest):
                break
            fits = np.nonzero(((bits[0][rest] & cut[0]) == cut[0]) & ((bits[1][rest] & cut[1]) == cut[1]))[0]
            if not len(fits):
                continue
            done = np.zeros(len(rest), bool)
            for which, pattern in self._settle(rest[fits], left, right, cut, level):
                done[fits[which]] = True
                if pattern is not None:
                    yield pattern
            self.settled += int(done.sum())
            rest = rest[~done]
        # what shares operators can be a larger tree than its number of operators: take all of it
        whole = np.stack([bits[0][rest], bits[1][rest]], axis=1)
        for full in np.unique(whole, axis=0) if len(rest) else []:
            here = rest[(whole == full).all(axis=1)]
            for which, pattern in self._settle(here, left, right, (int(full[0]), int(full[1])), level):
                self.settled += len(which)
                if pattern is not None:
                    yield pattern

    def _settle(
        self, at: np.ndarray, left: _Side, right: _Side, cut: tuple[int, int], level: np.ndarray
    ) -> Iterator[tuple[np.ndarray, Pattern | None]]:
        """The equalities that are instances of patterns of this cut, and these patterns where they are new."""
        heads: list[np.ndarray] = []
        frontier: list[np.ndarray] = []
        for side, taken in ((left, cut[0]), (right, cut[1])):
            side_heads, side_frontier = side.cut(at, taken)
            heads.extend(side_heads)
            frontier.append(side_frontier)
        split = frontier[0].shape[0]
        values = np.concatenate(frontier)  # (places, equalities)
        first = np.zeros(values.shape, np.int64)
        for k in range(len(values) - 1, -1, -1):
            first[(values == values[k]) & (np.arange(len(values)) >= k)[:, None]] = k
        constant = (values < 0) | ((self.table.mask[values] == 0) & (self.table.level[values] == 0))
        bound = [_only(first, constant, split, left_over) for left_over in (True, False)]
        useful = np.nonzero(bound[0] | bound[1])[0]
        if not len(useful):
            return
        columns = [np.full(len(useful), cut[0]), np.full(len(useful), cut[1]), *(head[useful] for head in heads)]
        for k in range(len(values)):
            columns.append(np.where(constant[k, useful], -1 - values[k, useful], first[k, useful]))
            columns.append(np.where(values[k, useful] < 0, -1, self.table.kind[values[k, useful]]))
        distinct, where, inverse = np.unique(mixed(columns), return_index=True, return_inverse=True)
        holds = np.zeros(len(distinct), bool)
        for k, code in enumerate(distinct.tolist()):
            known = self.known.get(code)
            if known is None:
                places = useful[where[k]]
                names = self._tensors(values[:, places], first[:, places], constant[:, places])
                parts = (left, cut[0], names[:split]), (right, cut[1], names[split:])
                self.tried += 1
                known = self._glance(*(side.value(int(at[places]), taken, part) for side, taken, part in parts))
                if known:
                    sides = [side.tree(int(at[places]), taken, part) for side, taken, part in parts]
                    known = self.holds(sides[0], sides[1])
                self.known[code] = known
                if known:
                    yield np.zeros(0, np.int64), Pattern(sides[0], sides[1], int(level[at[places]]))
            holds[k] = known
        yield useful[holds[inverse]], None

    def _glance(self, left: _Known, right: _Known) -> bool:
        """Whether two trees are equal on a few samples."""
        if left[0] == right[0]:
            return True
        a, b = left[1], right[1]
        return a.shape == b.shape and bool(self.same(a.reshape(len(a), -1), b.reshape(len(b), -1)).all())

    def number(self, key: tuple[object, ...], compute: Callable[[], np.ndarray]) -> _Known:
        """The number and the value of a tree; the value is kept, or computed now."""
        number = self._numbers.setdefault(key, len(self._values))
        if number == len(self._values):
            self._values.append(None)
        value = self._values[number]
        if value is None:
            if self._bytes > _CACHE:
                self._values = [None] * len(self._values)
                self._bytes = 0
            with np.errstate(all="ignore"):
                value = compute()
            self._values[number] = value
            self._bytes += value.nbytes
        return number, value

    def tensor(self, tensor: Typed) -> _Known:
        """The number and the value of a tensor or constant."""
        if tensor.kind == "var":
            shape = concrete(tensor.shape)
            return self.number((tensor.head, shape), lambda: self.sample(tensor.head, shape)[:_GLANCE])
        value = run_typed(tensor, self.world.spec, {})
        return self.number((tensor,), lambda: np.broadcast_to(value, (_GLANCE, *value.shape)))

    def _tensors(self, values: np.ndarray, first: np.ndarray, constant: np.ndarray) -> list[Typed]:
        """What stands in the places of a pattern: constants, and a tensor for each value."""
        found: list[Typed] = []
        taken: dict[Concrete, int] = {}
        for k, value in enumerate(values.tolist()):
            if first[k] < k:
                found.append(found[first[k]])
                continue
            if value < 0:  # the second argument of an operator that takes one
                found.append(Typed("var", ""))
                continue
            shape = self.shapes[int(self.table.kind[value])]
            if constant[k]:
                found.append(self.world.leaves[value].typed)
                continue
            count = taken[shape] = taken.get(shape, 0) + 1
            names = [leaf.name for leaf in self.world.leaves if leaf.group >= 0 and leaf.shape == shape]
            name = names[count - 1] if count <= len(names) else f"t{'x'.join(map(str, shape))}_{count}"
            found.append(Typed("var", name, shape=shape))
        return found


def _only(first: np.ndarray, constant: np.ndarray, split: int, left: bool) -> np.ndarray:
    """Whether one side has all the tensors of the other, for each equality."""
    here, other = (first[:split], first[split:]) if left else (first[split:], first[:split])
    skip = constant[split:] if left else constant[:split]
    found = np.full(first.shape[1], True)
    for column, constants in zip(other, skip):
        found &= constants | (here == column).any(axis=0)
    return found


@cache
def _cuts(ops: int) -> list[tuple[int, int]]:
    """What to take of both sides, as sets of places, fewest operators first; of the right side perhaps nothing."""
    trees = sorted(_trees(1, ops), key=lambda tree: (tree.bit_count(), tree))
    pairs = [(a, b) for a in trees for b in [0, *trees]]
    return sorted(pairs, key=lambda pair: (pair[0].bit_count() + pair[1].bit_count(), *pair))


def _trees(place: int, ops: int) -> set[int]:
    """Sets of places of up to `ops` operators of a tree with its top at `place`; below k are 2k and 2k + 1."""
    found = {1 << place}
    if ops > 1:
        lefts, rights = ([0, *_trees(2 * place + k, ops - 1)] for k in (0, 1))
        for a in lefts:
            for b in rights:
                if a.bit_count() + b.bit_count() < ops:
                    found.add(1 << place | a | b)
    return found


@dataclass
class _Side:
    """One side of many equalities: the operators on top with their arguments, and the rows if they are rows."""

    patterns: Patterns
    instance: np.ndarray
    a: np.ndarray
    b: np.ndarray
    row: np.ndarray | None = None

    def _child(self, rows: np.ndarray, second: int) -> np.ndarray:
        table = self.patterns.table
        leaf = (rows < 0) | (table.instance[rows] < 0)
        return np.where(leaf, -1, (table.b if second else table.a)[rows])

    def expandable(self, at: np.ndarray, ops: int) -> np.ndarray:
        """The places of each tree where an operator stands, as bits."""
        table = self.patterns.table
        bits = np.where(self.instance[at] >= 0, 2, 0).astype(np.int64)
        level = {2: np.where(bits > 0, self.a[at], -1), 3: np.where(bits > 0, self.b[at], -1)}
        for _ in range(ops - 1):
            below: dict[int, np.ndarray] = {}
            for place, rows in level.items():
                inner = (rows >= 0) & (table.instance[rows] >= 0)
                if not inner.any():
                    continue
                bits |= np.where(inner, 1 << place, 0)
                below[2 * place], below[2 * place + 1] = self._child(rows, 0), self._child(rows, 1)
            level = below
        return bits

    def cut(self, at: np.ndarray, taken: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The operators at the taken places, and the values below them (places, equalities); -1 is no argument."""
        table = self.patterns.table
        if not taken:
            assert self.row is not None
            return [], table.of[self.row[at]][None]
        heads = [self.instance[at]]
        frontier: list[np.ndarray] = []

        def walk(place: int, rows: np.ndarray) -> None:
            if not taken >> place & 1:
                frontier.append(np.where(rows >= 0, table.of[rows], -1))
                return
            heads.append(table.instance[rows])
            for k in (0, 1):
                walk(2 * place + k, self._child(rows, k))

        walk(2, self.a[at])
        walk(3, self.b[at])
        return heads, np.stack(frontier)

    def value(self, at: int, taken: int, tensors: list[Typed]) -> _Known:
        """The number and the value of one of the trees, with tensors for what is not taken."""
        table, patterns = self.patterns.table, self.patterns
        left = iter(tensors)

        def walk(place: int, row: int) -> _Known | None:
            if not taken >> place & 1:
                tensor = next(left)
                return None if row < 0 else patterns.tensor(tensor)
            return build(int(table.instance[row]), place, int(table.a[row]), int(table.b[row]))

        def build(instance: int, place: int, a: int, b: int) -> _Known:
            args = [arg for arg in (walk(2 * place, a), walk(2 * place + 1, b)) if arg is not None]
            applied = patterns.world.applied(instance, tuple(value.shape[1:] for _, value in args))
            assert applied is not None
            key = instance, *(number for number, _ in args)
            return patterns.number(key, lambda: applied.run([value for _, value in args], 1))

        if not taken:
            return patterns.tensor(next(left))
        return build(int(self.instance[at]), 1, int(self.a[at]), int(self.b[at]))

    def tree(self, at: int, taken: int, tensors: list[Typed]) -> Typed:
        """One of the trees, with tensors for what is not taken."""
        table, patterns = self.patterns.table, self.patterns
        left = iter(tensors)

        def walk(place: int, row: int) -> tuple[Typed, Concrete] | None:
            if not taken >> place & 1:
                tensor = next(left)
                return None if row < 0 else (tensor, patterns.shapes[int(table.kind[row])])
            return build(int(table.instance[row]), place, int(table.a[row]), int(table.b[row]))

        def build(instance: int, place: int, a: int, b: int) -> tuple[Typed, Concrete]:
            args = [arg for arg in (walk(2 * place, a), walk(2 * place + 1, b)) if arg is not None]
            applied = patterns.world.applied(instance, tuple(shape for _, shape in args))
            assert applied is not None
            return applied.tree([tree for tree, _ in args]), applied.shape

        if not taken:
            return next(left)
        return build(int(self.instance[at]), 1, int(self.a[at]), int(self.b[at]))[0]
