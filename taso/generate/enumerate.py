"""Every graph of up to n operators over a universe, level by level, by value numbering.

A *value* is what a term computes on the random samples of the inputs; equal terms share a value, whose smallest term
found first is its representative. Level n applies each operator instance to all arguments whose operators together,
shared ones counted once, are n - 1. Arguments are representatives; and where arguments share operators also the
*alternates* of a value: terms as small as the representative, made of other operators, which may be shared with the
other argument. The last level is not kept as data: its terms are hashed and grouped only. At the last level, terms
that are renamings of others are left out: the inputs that a term uses must be the first ones of each class of
interchangeable inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import combinations, pairwise

import numpy as np

from taso.errors import SpecError, TasoError
from taso.generate.fingerprint import Exact, Fingerprint, Real
from taso.generate.universe import Concrete, Progress, World
from taso.generate.values import Enumeration, Ids, Terms, Values, compute, compute_all
from taso.spec import syntax as s
from taso.spec.spec import Spec

SEED = 20191027
_PAIRS = 1 << 21  # pairs of arguments looked at at a time


def enumerate_universe(
    universe: s.Universe, spec: Spec, ops: int, *, progress: Progress | None = None, seed: int = SEED
) -> Enumeration:
    """Enumerate all terms of up to `ops` operators.

    Args:
        progress: called with what is being done, how much of it is done and how much there is.

    Raises:
        SpecError: an impossible universe.
        TasoError: a fingerprint collision (choose another seed).
    """
    return _Enumerator(World(universe, spec), ops, seed, progress).run()


class _Enumerator:
    def __init__(self, world: World, ops: int, seed: int, progress: Progress | None) -> None:
        if ops < 1:
            raise SpecError(f"cannot enumerate graphs of {ops} operators; at least 1 is needed")
        self.world, self.ops, self.seed, self.progress = world, ops, seed, progress
        options = world.options
        self.fingerprint: Fingerprint = Real(seed) if options.real else Exact(seed, options.denominator)
        self.kinds: dict[Concrete, int] = {}
        self.shapes: list[Concrete] = []
        self.data: dict[int, np.ndarray] = {}
        self.keys: dict[int, np.ndarray] = {}  # of the values of a shape, in the order of `members`
        self.members: dict[int, np.ndarray] = {}
        self.twins = {second: first for first, second in world.pairs}
        bits = [leaf.group for leaf in world.leaves if leaf.group >= 0]
        self.low = sum(1 << k for k in range(len(bits) - 1) if bits[k] == bits[k + 1])
        self.table = self._leaves()
        self._joined: dict[int, dict[tuple[int, int], list[tuple[Ids, Ids]]]] = {}

    def kind(self, shape: Concrete) -> int:
        if shape not in self.kinds:
            self.kinds[shape] = len(self.shapes)
            self.shapes.append(shape)
        return self.kinds[shape]

    def _leaves(self) -> Values:
        leaves, samples = self.world.leaves, self.world.samples(self.seed)
        if len(leaves) > 62:
            raise SpecError(
                f"universe `{self.world.universe.name}` has {len(leaves)} inputs and constants; 62 can be enumerated"
            )
        kinds = np.array([self.kind(leaf.shape) for leaf in leaves], np.int32)
        row = np.zeros(len(leaves), np.int32)
        for kind in range(len(self.shapes)):
            ids = np.nonzero(kinds == kind)[0].astype(np.int32)
            row[ids] = np.arange(len(ids))
            self.data[kind] = np.stack([samples[k] for k in ids])
            self.keys[kind] = self.fingerprint.keys(self.data[kind].reshape(len(ids), -1))
            self.members[kind] = ids
        none = np.full(len(leaves), -1, np.int32)
        masks = np.array([1 << k if leaf.group >= 0 else 0 for k, leaf in enumerate(leaves)], np.int64)
        return Values(
            none, np.arange(len(leaves), dtype=np.int32), none, kinds, row, np.zeros(len(leaves), np.int8), none,
            np.full((len(leaves), self.ops), -1, np.int32), masks, np.arange(len(leaves), dtype=np.int32),
        )  # fmt: skip

    def run(self) -> Enumeration:
        counts: list[tuple[int, int, int]] = []
        everything: list[Terms] = []
        for level in range(1, self.ops + 1):
            terms = self._level(level)
            new = self._number(terms, level)
            everything.append(terms)
            counts.append((level, len(terms), new))
        found = Terms(*(np.concatenate([getattr(t, column.name) for t in everything]) for column in fields(Terms)))
        return Enumeration(
            self.world, self.ops, self.seed, self.shapes, self.table, found, self.data, counts, self.fingerprint.largest
        )

    # --- arguments
    def _wanted(self, masks: np.ndarray, last: bool) -> np.ndarray:
        """Which sets of inputs to enumerate: at the last level the first of each class, and some input at all."""
        wanted = np.full(len(masks), True) if self.world.options.ground else masks != 0
        return wanted & (((masks >> 1) & ~masks & self.low) == 0) if last else wanted

    def _arguments(self, instance: int, level: int) -> Iterator[tuple[tuple[int, ...], Ids, Ids]]:
        """The argument lists of one instance at a level: shape numbers, first and second arguments (-1: none)."""
        last, values = level == self.ops, self.table
        if len(self.world.instances[instance].params) == 1:
            for kind in self.members:
                ids = self._of_level(kind, level - 1, last)
                if self.world.applied(instance, (self.shapes[kind],)) is not None:
                    ids = ids[self._wanted(values.mask[ids], last)]
                    yield (kind,), ids, np.full(len(ids), -1, np.int32)
            return
        for ka in list(self.members):
            for kb in list(self.members):
                if self.world.applied(instance, (self.shapes[ka], self.shapes[kb])) is None:
                    continue
                commutes = ka == kb and level > 1 and self.world.commutes(instance, self.shapes[ka])
                for a, b in [*self._disjoint(ka, kb, level, last), *self._sharing(ka, kb, level)]:
                    keep = self._wanted(values.mask[a] | values.mask[b], last)
                    if commutes:
                        keep &= a <= b
                    yield (ka, kb), a[keep], b[keep]

    def _of_level(self, kind: int, level: int, last: bool) -> Ids:
        """The values of a shape and level; below the last level their alternates too, to be shared further up."""
        values = self.table
        if last:
            members = self.members[kind]
            return np.asarray(members[values.level[members] == level])
        return np.nonzero((values.kind == kind) & (values.level == level))[0].astype(np.int32)

    def _disjoint(self, ka: int, kb: int, level: int, last: bool) -> Iterator[tuple[Ids, Ids]]:
        """Pairs without a common operator, `level` - 1 operators together."""
        for la in range(level):
            lb = level - 1 - la
            left, right = self._of_level(ka, la, last), self._of_level(kb, lb, last)
            step = max(1, _PAIRS // max(1, len(right)))
            for start in range(0, len(left), step):
                part = left[start : start + step]
                a, b = np.repeat(part, len(right)), np.tile(right, len(part))
                if la and lb:
                    apart = self._common(a, b) == 0
                    a, b = a[apart], b[apart]
                yield a, b

    def _common(self, a: Ids, b: Ids) -> np.ndarray:
        """How many operators two values have in common."""
        left, right = self.table.nodes[a], self.table.nodes[b]
        count = np.zeros(len(a), np.int32)
        for k in range(left.shape[1]):
            for j in range(right.shape[1]):
                count += (left[:, k] == right[:, j]) & (left[:, k] >= 0)
        return count

    def _sharing(self, ka: int, kb: int, level: int) -> Iterator[tuple[Ids, Ids]]:
        if level not in self._joined:
            self._joined = {level: self._join(level)}
        yield from self._joined[level].get((ka, kb), [])

    def _join(self, level: int) -> dict[tuple[int, int], list[tuple[Ids, Ids]]]:
        """Pairs with common operators and `level` - 1 operators together, by shapes: a join on the common ones."""
        values = self.table
        by_level = [np.nonzero(values.level == k)[0].astype(np.int32) for k in range(level)]
        lefts, rights = [], []
        for la in range(1, level):
            for lb in range(1, level):
                common = la + lb - (level - 1)
                if not 1 <= common <= min(la, lb):
                    continue
                a, b = _equal_pairs(self._subsets(by_level[la], la, common), self._subsets(by_level[lb], lb, common))
                exact = self._common(a, b) == common
                lefts.append(a[exact])
                rights.append(b[exact])
        found: dict[tuple[int, int], list[tuple[Ids, Ids]]] = {}
        if lefts:
            a, b = np.concatenate(lefts), np.concatenate(rights)
            kinds = values.kind[a].astype(np.int64) * len(self.shapes) + values.kind[b]
            order = np.lexsort((b, a, kinds))
            a, b, kinds = a[order], b[order], kinds[order]
            bounds = np.nonzero(np.diff(kinds, prepend=-1, append=-1))[0]
            for start, stop in pairwise(bounds):
                key = int(values.kind[a[start]]), int(values.kind[b[start]])
                found[key] = [(a[start:stop], b[start:stop])]
        return found

    def _subsets(self, ids: Ids, size: int, common: int) -> tuple[np.ndarray, Ids]:
        """All subsets of `common` of the `size` operators of each value, as rows, and whose they are."""
        nodes = self.table.nodes[ids][:, -size:] if size else self.table.nodes[ids][:, :0]
        rows = [nodes[:, list(chosen)] for chosen in combinations(range(size), common)]
        return np.concatenate(rows), np.tile(ids, len(rows))

    # --- a level
    def _level(self, level: int) -> Terms:
        """All terms of a level with the value numbers still to come; their keys are kept by shape."""
        self.fresh: dict[int, list[np.ndarray]] = {}
        columns: dict[int, list[tuple[np.ndarray, ...]]] = {}
        self._joined = {}
        for instance in range(len(self.world.instances)):
            if self.progress is not None:
                self.progress(f"{self.world.universe.name}, {level} operators", instance, len(self.world.instances))
            for kinds, a, b in self._arguments(instance, level):
                if not len(a):
                    continue
                applied = self.world.applied(instance, tuple(self.shapes[k] for k in kinds))
                assert applied is not None
                kind = self.kind(applied.shape)
                blocks = compute(self.world, self.shapes, self.data, self.table.row, instance, kinds, a, b)
                keys = [self.fingerprint.keys(rows) for _, rows in blocks]
                self.fresh.setdefault(kind, []).extend(keys)
                columns.setdefault(kind, []).append((np.full(len(a), instance, np.int16), a, b))
        self.order = sorted(columns)
        none = np.zeros(0, np.int16), np.zeros(0, np.int32), np.zeros(0, np.int32)
        listed = [none, *(part for kind in self.order for part in columns[kind])]
        instances, a, b = (np.concatenate([part[k] for part in listed]) for k in range(3))
        return Terms(instances, a, b, np.full(len(a), level, np.int8), np.full(len(a), -1, np.int32))

    def _number(self, terms: Terms, level: int) -> int:
        """Give every term its value; new values join the table. Returns how many they are."""
        start = 0
        new: list[np.ndarray] = []  # the first term of each new value
        owners: list[int] = []
        for kind in self.order:
            fresh = np.concatenate(self.fresh[kind])
            members = self.members.get(kind, np.zeros(0, np.int32))
            known = self.keys.get(kind, fresh[:0])
            groups = self.fingerprint.group(np.concatenate([known, fresh]))
            number = np.full(int(groups.max(initial=-1)) + 1, -1, np.int64)
            number[groups[: len(known)]] = members
            here = groups[len(known) :]
            defined = np.nonzero(here >= 0)[0]
            first = np.full(len(number), len(fresh), np.int64)
            np.minimum.at(first, here[defined], defined)
            opened = np.nonzero((number < 0) & (first < len(fresh)))[0]
            opened = opened[np.argsort(first[opened])]  # in the order of their first terms
            number[opened] = len(self.table) + sum(map(len, new)) + np.arange(len(opened))
            terms.value[start + defined] = number[here[defined]]
            new.append(start + first[opened])
            owners.extend([kind] * len(opened))
            if level < self.ops:
                self.keys[kind] = np.concatenate([known, fresh[first[opened]]])
            start += len(fresh)
        firsts = np.concatenate(new) if new else np.zeros(0, np.int64)
        self.fresh = {}
        if level == self.ops:
            self._extend(terms, firsts, np.array(owners, np.int32), level)
            return len(firsts)
        others = self._alternates(terms, firsts)
        kinds = np.concatenate([self.table.kind, np.array(owners, np.int32)])
        added = np.concatenate([firsts, others])
        self._extend(terms, added, kinds[terms.value[added]], level)
        self._materialise(terms, firsts)
        return len(firsts)

    def _below(self, terms: Terms, which: np.ndarray) -> np.ndarray:
        """The operators below the top of some terms: one row each, ascending, -1 in front and for repetitions."""
        a, b = terms.a[which], terms.b[which]
        nodes = np.concatenate([self.table.nodes[a], self.table.nodes[np.where(b >= 0, b, a)]], axis=1)
        nodes.sort(axis=1)
        nodes[:, 1:][nodes[:, 1:] == nodes[:, :-1]] = -1
        nodes.sort(axis=1)
        return nodes

    def _alternates(self, terms: Terms, firsts: np.ndarray) -> np.ndarray:
        """Terms that are made of other operators than the representative, one for each value and set of operators.

        If the value is known with a single operator, or is a leaf, its representative serves as well.
        """
        count = len(self.table)
        useful = (terms.value >= count) | (
            (terms.value >= 0) & (self.table.level[np.minimum(terms.value, count - 1)] > 1)
        )
        others = np.setdiff1d(np.nonzero(useful)[0], firsts)
        which = np.concatenate([firsts, others])
        rows = np.concatenate([terms.value[which][:, None], self._below(terms, which)], axis=1)
        _, kept = np.unique(rows, axis=0, return_index=True) if len(rows) else (rows, which)
        return np.sort(which[kept[kept >= len(firsts)]])

    def _extend(self, terms: Terms, added: np.ndarray, kinds: np.ndarray, level: int) -> None:
        """Add terms to the table: the first of each new value in the order of their numbers, then alternates."""
        values, count = self.table, len(added)
        ids = np.arange(len(values), len(values) + count, dtype=np.int32)
        instance, a, b, of = terms.instance[added], terms.a[added], terms.b[added], terms.value[added]
        top = ids.copy()
        for second, first in self.twins.items():  # the second output is computed by the operator of the first
            siblings = {int(a[k]): int(ids[k]) for k in np.nonzero(instance == first)[0]}
            for k in np.nonzero(instance == second)[0]:
                top[k] = siblings.get(int(a[k]), int(ids[k]))
        nodes = np.sort(np.concatenate([self._below(terms, added), top[:, None]], axis=1), axis=1)
        assert ((nodes >= 0).sum(axis=1) == level).all()
        row = np.full(count, -1, np.int32)
        if level < self.ops:
            for kind in np.unique(kinds[of == ids]):
                at = np.nonzero((kinds == kind) & (of == ids))[0]
                members = self.members.get(int(kind), np.zeros(0, np.int32))
                row[at] = len(members) + np.arange(len(at))
                self.members[int(kind)] = np.concatenate([members, ids[at]])
            row = np.concatenate([values.row, row])[of]  # an alternate's data is that of its value
        mask = values.mask[a] | values.mask[np.where(b >= 0, b, a)]
        columns = (
            instance.astype(np.int32),
            a,
            b,
            kinds,
            row,
            np.full(count, level, np.int8),
            top,
            nodes[:, -self.ops :],
            mask,
            of,
        )
        names = [field.name for field in fields(Values)]
        self.table = Values(
            *(np.concatenate([getattr(values, name), new]) for name, new in zip(names, columns, strict=True))
        )

    def _materialise(self, terms: Terms, firsts: np.ndarray) -> None:
        """Compute and keep the data of new values, then compare every term of the level with its value as data."""
        for kind, members in self.members.items():
            shape = self.shapes[kind]
            old = self.data.get(kind, np.zeros((0, self.world.options.samples, *shape)))
            self.data[kind] = np.concatenate([old, np.zeros((len(members) - len(old), *old.shape[1:]))])
        for at, rows in self._again(terms, firsts):
            ids = terms.value[at]
            kind = int(self.table.kind[ids[0]])
            self.data[kind][self.table.row[ids]] = rows.reshape(len(ids), *self.data[kind].shape[1:])
        rest = np.setdiff1d(np.nonzero(terms.value >= 0)[0], firsts)
        for at, rows in self._again(terms, rest):
            ids = terms.value[at]
            kept = self.data[int(self.table.kind[ids[0]])][self.table.row[ids]].reshape(len(ids), -1)
            if not self.fingerprint.same(rows, kept).all():
                raise TasoError(f"two different values got one fingerprint; use another seed than {self.seed}")

    def _again(self, terms: Terms, which: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The data of some terms: their numbers and rows, block by block."""
        columns = terms.instance[which], terms.a[which], terms.b[which]
        for at, rows in compute_all(self.world, self.shapes, self.data, self.table, *columns):
            yield which[at], rows


def _equal_pairs(left: tuple[np.ndarray, Ids], right: tuple[np.ndarray, Ids]) -> tuple[Ids, Ids]:
    """All pairs of a left and a right value whose rows are equal: a sort-merge join."""
    rows = np.concatenate([left[0], right[0]])
    if not len(rows):
        return left[1][:0], right[1][:0]
    order = np.lexsort(rows.T)
    starts = np.concatenate([[False], (rows[order][1:] != rows[order][:-1]).any(axis=1)])
    group = np.empty(len(rows), np.int64)
    group[order] = np.cumsum(starts)
    gl, gr = group[: len(left[1])], group[len(left[1]) :]
    by_group = np.argsort(gr, kind="stable")
    low = np.searchsorted(gr[by_group], gl, "left")
    count = np.searchsorted(gr[by_group], gl, "right") - low
    first = np.repeat(low, count)
    within = np.arange(len(first)) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(left[1], count), right[1][by_group[first + within]]
