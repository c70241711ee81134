"""The terms of one level, in shards that can be computed apart.

Level n applies each operator instance to arguments whose operators together, shared ones counted once, are n - 1:

- `tops`: a block of terms of level n - 1, alone, with each leaf, or with one of its own subterms. Their data is
  computed once for the block and forgotten afterwards.
- `outer`: every term of one level with every term of another that has no operator in common with it.
- `joined`: pairs with some operators in common, neither inside the other, by a join on the common ones.

At the last level terms that are renamings of others are left out: the inputs of a term must be the first ones of each
class of interchangeable inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from types import ModuleType
from typing import Literal

import numpy as np

from taso.generate.hashing import Hasher, Rows
from taso.generate.universe import Applied, Concrete
from taso.generate.values import Base, Ids

_TOPS = 1 << 22  # numbers of data in a block of terms
_PAIRS = 1 << 21  # pairs in a shard
_JOIN = 1 << 17  # terms for each part of a join


@dataclass(frozen=True)
class Shard:
    """A part of a level. `weight` is about how many terms it makes."""

    way: Literal["tops", "outer", "joined"]
    weight: int
    start: int = 0
    stop: int = 0
    instance: int = -1
    kinds: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()


@dataclass
class Part:
    """Terms of one instance and one result shape: their keys and arguments."""

    instance: int
    shape: Concrete
    keys: np.ndarray
    a: Ids
    b: Ids

    def __len__(self) -> int:
        return len(self.keys)


class Level:
    """One level over what is known of the lower ones.

    Args:
        last: leave out renamings.
        narrow: leave out what no term of the last level is made of, if this is the level below.
    """

    def __init__(
        self, base: Base, level: int, *, last: bool = False, narrow: bool = False, xp: ModuleType = np
    ) -> None:
        self.base, self.level, self.last, self.narrow = base, level, last, narrow
        self.world, self.table, self.shapes = base.world, base.table, base.shapes
        self.hasher = Hasher(self.world, base.seed, xp)
        self.kinds = np.unique(self.table.kind).tolist()
        self.leaf_kinds = np.unique(self.table.kind[self.table.level == 0]).tolist()
        self._known: dict[tuple[int, ...], Applied | None] = {}
        self._rows: dict[tuple[int, int], Ids] = {}

    def shards(self) -> list[Shard]:
        """All of the level, in an order that does not depend on who computes it."""
        return [*self._tops(), *self._outers(), *self._joins()]

    def run(self, shard: Shard) -> list[Part]:
        """The terms of a shard."""
        way = {"tops": self._run_tops, "outer": self._run_outer, "joined": self._run_joined}[shard.way]
        return [part for part in way(shard) if len(part)]

    # --- which terms
    def wanted(self, masks: np.ndarray) -> np.ndarray:
        """Which sets of inputs to enumerate: at the last level the first of each class, and some input at all."""
        wanted = np.full(masks.shape, True) if self.world.options.ground else masks != 0
        if self.last:
            return np.asarray(wanted & self.world.first_inputs(masks))
        return np.asarray(wanted & self._useful(masks)) if self.narrow else wanted

    def rows(self, kind: int, level: int) -> Ids:
        """The terms of a shape and level, equal ones side by side."""
        key = kind, level
        if key not in self._rows:
            ids = np.nonzero((self.table.kind == kind) & (self.table.level == level))[0].astype(np.int32)
            if self.last and level == self.level - 1:
                ids = ids[self._useful(self.table.mask[ids])]
            self._rows[key] = ids[np.argsort(self.table.of[ids], kind="stable")]
        return self._rows[key]

    def _useful(self, masks: np.ndarray) -> np.ndarray:
        """Sets of inputs that are the first of each class, alone or together with one more."""
        useful = self.world.first_inputs(masks)
        for bit in np.unique(self.table.mask[self.table.level == 0]):
            useful = useful | self.world.first_inputs(masks | bit)
        return useful

    def _applied(self, instance: int, *kinds: int) -> Applied | None:
        key = instance, *kinds
        if key not in self._known:
            fits = len(self.world.instances[instance].params) == len(kinds)
            self._known[key] = self.world.applied(instance, tuple(self.shapes[k] for k in kinds)) if fits else None
        return self._known[key]

    def _commutes(self, instance: int, ka: int, kb: int) -> bool:
        return ka == kb and self.world.commutes(instance, self.shapes[ka])

    # --- blocks of terms of the level below, with what they can be applied to
    def _tops(self) -> Iterator[Shard]:
        instances = range(len(self.world.instances))
        for kind in self.kinds:
            rows = self.rows(kind, self.level - 1)
            if not len(rows):
                continue
            uses = int(self.level > 1)  # for the subterms
            uses += sum(self._applied(k, kind) is not None for k in instances)
            for leaf in self.leaf_kinds:
                pairs = [(kind, leaf)] if self.level == 1 else [(kind, leaf), (leaf, kind)]
                count = len(self.rows(leaf, 0)) + 1
                uses += count * sum(self._applied(k, *pair) is not None for k in instances for pair in pairs)
            step = max(64, _TOPS // (self.hasher.samples * math.prod(self.shapes[kind])))
            for start in range(0, len(rows) if uses else 0, step):
                stop = min(start + step, len(rows))
                yield Shard("tops", uses * (stop - start), start, stop, kinds=(kind,))

    def _run_tops(self, shard: Shard) -> Iterator[Part]:
        (kind,) = shard.kinds
        rows = self.rows(kind, self.level - 1)[shard.start : shard.stop]
        values, place = np.unique(self.table.of[rows], return_inverse=True)
        block = Rows(self.base.data_of(values, self.hasher), self.hasher.fingerprint)
        for instance in range(len(self.world.instances)):
            applied = self._applied(instance, kind)
            if applied is not None:
                yield self._alone(instance, applied, rows, place, block)
            for leaf in self.leaf_kinds:
                yield from self._with_leaves(instance, kind, leaf, rows, place, block)
        if self.level > 1:
            yield from self._with_subterms(kind, rows, place, block)

    def _alone(self, instance: int, applied: Applied, rows: Ids, place: np.ndarray, block: Rows) -> Part:
        kept = self.wanted(self.table.mask[rows])
        values, at = np.unique(place[kept], return_inverse=True)
        if self.hasher.form(applied) == "linear":
            keys = self.hasher.unary(applied, block)[place[kept]]
        elif len(values):
            keys = self.hasher.unary(applied, self.hasher.some(block, values))[at]
        else:
            return Part(instance, applied.shape, np.zeros(0), rows[:0], rows[:0])
        return Part(instance, applied.shape, keys, rows[kept], np.full(int(kept.sum()), -1, np.int32))

    def _with_leaves(
        self, instance: int, kind: int, leaf: int, rows: Ids, place: np.ndarray, block: Rows
    ) -> Iterator[Part]:
        leaves = self.rows(leaf, 0)
        if all(self._applied(instance, *pair) is None for pair in ((leaf, kind), (kind, leaf))):
            return
        wanted = self.wanted(self.table.mask[rows][:, None] | self.table.mask[leaves][None])
        if self._commutes(instance, kind, leaf):
            wanted &= rows[:, None] >= leaves[None]
        i, j = np.nonzero(wanted)
        once = self.level == 1 or self._commutes(
            instance, kind, leaf
        )  # the other order comes of itself, or is no other
        for flipped in ([True] if once else [True, False]) if len(i) else []:
            applied = self._applied(instance, leaf, kind) if flipped else self._applied(instance, kind, leaf)
            if applied is None:
                continue
            needed = np.zeros((len(block), len(leaves)), bool)
            needed[place[i], j] = True
            given = Rows(self.base.data_of(self.table.of[leaves], self.hasher), self.hasher.fingerprint)
            if flipped:
                keys = self.hasher.outer(applied, given, block, needed.T)[j, place[i]]
                yield Part(instance, applied.shape, keys, leaves[j], rows[i])
            else:
                keys = self.hasher.outer(applied, block, given, needed)[place[i], j]
                yield Part(instance, applied.shape, keys, rows[i], leaves[j])

    @cached_property
    def _by_top(self) -> tuple[np.ndarray, Ids]:
        """The operators that compute terms, in order, and which terms these are."""
        order = np.argsort(self.table.top, kind="stable").astype(np.int32)
        order = order[self.table.level[order] > 0]
        return self.table.top[order], order

    def _with_subterms(self, kind: int, rows: Ids, place: np.ndarray, block: Rows) -> Iterator[Part]:
        """Each term with each term inside it, itself included, and with the other output of its operator."""
        kept = np.nonzero(self.wanted(self.table.mask[rows]))[0]
        tops, by_top = self._by_top
        nodes = self.table.nodes[rows[kept]]
        at, column = np.nonzero(nodes >= 0)
        first = np.searchsorted(tops, nodes[at, column], "left")
        count = np.searchsorted(tops, nodes[at, column], "right") - first
        whole = np.repeat(kept[at], count)
        inner = by_top[np.repeat(first, count) + _ranges(count)]
        for other in np.unique(self.table.kind[inner]):
            here = self.table.kind[inner] == other
            yield from self._subterms_of(kind, int(other), rows, place, block, whole[here], inner[here])

    def _subterms_of(
        self, kind: int, other: int, rows: Ids, place: np.ndarray, block: Rows, whole: np.ndarray, inner: Ids
    ) -> Iterator[Part]:
        values, at = np.unique(self.table.of[inner], return_inverse=True)
        given: Rows | None = None
        for instance in range(len(self.world.instances)):
            for flipped in (False, True):
                kinds = (other, kind) if flipped else (kind, other)
                applied = self._applied(instance, *kinds)
                if applied is None:
                    continue
                outer = rows[whole]
                if flipped:
                    keep = self.table.level[inner] < self.level - 1  # else the other has its own turn
                else:
                    keep = outer <= inner if self._commutes(instance, kind, other) else np.full(len(inner), True)
                if not keep.any():
                    continue
                given = given or Rows(self.base.data_of(values, self.hasher), self.hasher.fingerprint)
                if flipped:
                    keys = self.hasher.pairs(applied, given, block, at[keep], place[whole[keep]])
                    yield Part(instance, applied.shape, keys, inner[keep], outer[keep])
                else:
                    keys = self.hasher.pairs(applied, block, given, place[whole[keep]], at[keep])
                    yield Part(instance, applied.shape, keys, outer[keep], inner[keep])

    # --- pairs without a common operator, of lower levels
    def _outers(self) -> Iterator[Shard]:
        for la in range(1, self.level - 1):
            lb = self.level - 1 - la
            for instance in range(len(self.world.instances)):
                for ka in (k for k in self.kinds if len(self.rows(k, la))):
                    for kb in (k for k in self.kinds if len(self.rows(k, lb))):
                        if self._applied(instance, ka, kb) is None or (self._commutes(instance, ka, kb) and la > lb):
                            continue
                        left, right = len(self.rows(ka, la)), len(self.rows(kb, lb))
                        step = max(1, _PAIRS // right)
                        for start in range(0, left, step):
                            stop = min(start + step, left)
                            yield Shard("outer", right * (stop - start), start, stop, instance, (ka, kb), (la, lb))

    def _run_outer(self, shard: Shard) -> Iterator[Part]:
        (ka, kb), (la, lb) = shard.kinds, shard.levels
        applied = self._applied(shard.instance, ka, kb)
        assert applied is not None
        lefts, rights = self.rows(ka, la)[shard.start : shard.stop], self.rows(kb, lb)
        commutes = la == lb and self._commutes(shard.instance, ka, kb)
        masks = self.table.mask[rights]
        for mask in np.unique(masks):  # which left terms fit depends on the inputs of the right one alone
            a, b = lefts[self.wanted(self.table.mask[lefts] | mask)], rights[masks == mask]
            if not len(a):
                continue
            fits = self._apart(a, b)
            if commutes:
                fits &= a[:, None] <= b[None]
            i, j = np.nonzero(fits)
            if not len(i):
                continue
            (va, pa), (vb, pb) = (np.unique(self.table.of[ids], return_inverse=True) for ids in (a, b))
            left, right = (Rows(self.base.data_of(values, self.hasher), self.hasher.fingerprint) for values in (va, vb))
            keys = self.hasher.outer(applied, left, right)[pa[i], pb[j]]
            yield Part(shard.instance, applied.shape, keys, a[i], b[j])

    def _apart(self, a: Ids, b: Ids) -> np.ndarray:
        """Which pairs have no operator in common: (len(a), len(b))."""
        left, right = self.table.nodes[a], self.table.nodes[b]
        apart = np.full((len(a), len(b)), True)
        for k in range(left.shape[1]):
            for j in range(right.shape[1]):
                if (left[:, k] >= 0).any() and (right[:, j] >= 0).any():
                    apart &= (left[:, k][:, None] != right[:, j][None]) | (left[:, k] < 0)[:, None]
        return apart

    # --- pairs with common operators, of lower levels
    def _joins(self) -> Iterator[Shard]:
        for la in range(2, self.level - 1):
            for lb in range(2, self.level - 1):
                common = la + lb - (self.level - 1)
                if not 1 <= common < min(la, lb):
                    continue
                count = sum(len(self.rows(kind, level)) for kind in self.kinds for level in (la, lb))
                parts = 1 + count // _JOIN
                for part in range(parts if count else 0):
                    yield Shard("joined", 8 * count // parts, part, parts, levels=(la, lb, common))

    def _run_joined(self, shard: Shard) -> Iterator[Part]:
        la, lb, common = shard.levels
        sides = []
        for level in (la, lb):
            ids = np.concatenate([self.rows(kind, level) for kind in self.kinds])
            nodes = self.table.nodes[ids][:, -level:]
            rows = np.concatenate([nodes[:, list(chosen)] for chosen in combinations(range(level), common)])
            owners = np.tile(ids, len(rows) // max(1, len(ids)))
            here = rows[:, 0] % shard.stop == shard.start
            sides.append((rows[here], owners[here]))
        a, b = _equal_pairs(*sides)
        kept = self.wanted(self.table.mask[a] | self.table.mask[b])
        a, b = a[kept], b[kept]
        exact = (self.table.below(a, b) >= 0).sum(axis=1) == self.level - 1
        a, b = a[exact], b[exact]
        kinds = self.table.kind[a].astype(np.int64) * len(self.shapes) + self.table.kind[b]
        order = np.argsort(kinds, kind="stable")
        bounds = np.nonzero(np.diff(kinds[order], prepend=-1, append=-1))[0]
        for start, stop in pairwise(bounds):
            part = order[start:stop]
            yield from self._joined(a[part], b[part])

    def _joined(self, a: Ids, b: Ids) -> Iterator[Part]:
        ka, kb = int(self.table.kind[a[0]]), int(self.table.kind[b[0]])
        (va, pa), (vb, pb) = (np.unique(self.table.of[ids], return_inverse=True) for ids in (a, b))
        sides: tuple[Rows, Rows] | None = None
        for instance in range(len(self.world.instances)):
            applied = self._applied(instance, ka, kb)
            if applied is None:
                continue
            keep = a <= b if self._commutes(instance, ka, kb) else np.full(len(a), True)
            if not keep.any():
                continue
            if sides is None:
                left, right = (self.base.data_of(values, self.hasher) for values in (va, vb))
                sides = Rows(left, self.hasher.fingerprint), Rows(right, self.hasher.fingerprint)
            keys = self.hasher.pairs(applied, *sides, pa[keep], pb[keep])
            yield Part(instance, applied.shape, keys, a[keep], b[keep])


def _ranges(count: np.ndarray) -> np.ndarray:
    """0..count[0]-1, 0..count[1]-1, and so on."""
    return np.asarray(np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count))


def _equal_pairs(left: tuple[np.ndarray, Ids], right: tuple[np.ndarray, Ids]) -> tuple[Ids, Ids]:
    """All pairs of a left and a right term whose rows of operators are equal: a sort-merge join."""
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
    return np.repeat(left[1], count), right[1][by_group[np.repeat(low, count) + _ranges(count)]]
