"""Value numbering: which of the terms of a level compute the same, and which of them are arguments of the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from taso.errors import SpecError, TasoError
from taso.generate.count import renamings
from taso.generate.fingerprint import UNDEFINED, Exact, Fingerprint, mixed
from taso.generate.hashing import Hasher
from taso.generate.level import Part
from taso.generate.universe import Concrete, World
from taso.generate.values import Base, Terms, Values, joined


@dataclass
class Fresh:
    """The new terms of one shape at a level, by columns."""

    keys: np.ndarray
    instance: np.ndarray
    a: np.ndarray
    b: np.ndarray

    @staticmethod
    def of(parts: Sequence[Part]) -> Fresh:
        """The terms of parts of one shape."""
        columns = [np.concatenate([getattr(p, name) for p in parts]) for name in ("keys", "a", "b")]
        instance = np.concatenate([np.full(len(p), p.instance, np.int16) for p in parts])
        return Fresh(columns[0], instance, columns[1], columns[2])

    def take(self, which: np.ndarray) -> Fresh:
        """Some of them."""
        return Fresh(self.keys[which], self.instance[which], self.a[which], self.b[which])

    def __len__(self) -> int:
        return len(self.keys)


@dataclass
class Numbered:
    """What became of a level: terms, the same with all renamings, their operators, new values, and the equal terms."""

    terms: int = 0
    named: int = 0
    operators: int = 0
    values: int = 0
    equal: Terms | None = None


class Spool(Protocol):
    """Where the new terms of a level are."""

    def shapes(self) -> list[Concrete]:
        """The shapes of all terms, in order."""

    def take(self, shape: Concrete) -> Fresh:
        """All terms of a shape."""


class Numbering:
    """The values found so far, and how new terms get theirs.

    Attributes:
        base: the table of terms and the data of values, which grow.
        kinds: numbers of shapes.
    """

    def __init__(self, world: World, ops: int, hasher: Hasher, *, keep_all: bool, keep_last: bool) -> None:
        self.world, self.ops, self.hasher = world, ops, hasher
        self.keep_all, self.keep_last = keep_all, keep_last
        self.fingerprint: Fingerprint = (
            hasher.fingerprint if hasher.xp is np else Hasher(world, hasher.seed).fingerprint
        )
        self.kinds: dict[Concrete, int] = {}
        self.twins = {second: first for first, second in world.pairs}
        self.keys: dict[int, np.ndarray] = {}  # of the values of a shape, in the order of `members`
        self.members: dict[int, np.ndarray] = {}
        self.base = self._leaves()

    def kind(self, shape: Concrete) -> int:
        """The number of a shape."""
        if shape not in self.kinds:
            self.kinds[shape] = len(self.kinds)
        return self.kinds[shape]

    def _leaves(self) -> Base:
        leaves, samples = self.world.leaves, self.world.samples(self.hasher.seed)
        if len(leaves) > 62:
            raise SpecError(
                f"universe `{self.world.universe.name}` has {len(leaves)} inputs and constants; 62 can be enumerated"
            )
        count = len(leaves)
        kinds = np.array([self.kind(leaf.shape) for leaf in leaves], np.int32)
        row, data = np.zeros(count, np.int32), {}
        for kind in range(len(self.kinds)):
            ids = np.nonzero(kinds == kind)[0].astype(np.int32)
            row[ids] = np.arange(len(ids))
            data[kind] = np.stack([samples[k] for k in ids])
            self.keys[kind] = self.hasher.host(
                self.hasher.fingerprint.keys(self.hasher.rows(data[kind].reshape(len(ids), -1)).data)
            )
            self.members[kind] = ids
        none, numbers = np.full(count, -1, np.int32), np.arange(count, dtype=np.int32)
        masks = np.array([1 << k if leaf.group >= 0 else 0 for k, leaf in enumerate(leaves)], np.int64)
        table = Values(
            none, numbers, none, kinds, row, np.zeros(count, np.int8), none,
            np.full((count, self.ops), -1, np.int32), masks, numbers,
        )  # fmt: skip
        return Base(self.world, self.hasher.seed, list(self.kinds), table, data)

    def number(self, spool: Spool, level: int, *, last: bool, renamed: bool) -> Numbered:
        """Give every term of a level its value, and add the terms that are kept to the table.

        Args:
            renamed: terms that are renamings of others were left out.
        """
        table, next_id = self.base.table, len(self.base.table)
        done = Numbered()
        columns: list[tuple[np.ndarray, ...]] = []  # instance, a, b, kind, of
        equal: list[Terms] = []
        for shape in spool.shapes():
            kind, new = self.kind(shape), spool.take(shape)
            self._count(new, done, renamed)
            known = self.members.get(kind, np.zeros(0, np.int32))
            new, group, number, opened = self._grouped(new, kind, known, last)
            done.values += opened
            kept = self._kept(new, group, number, last)
            rows, first_row = np.unique(group[kept], return_index=True)
            firsts = np.full(len(number), -1, np.int64)
            firsts[rows] = next_id + first_row  # new values get the number of their first kept row
            number = np.where(number < 0, firsts, number)
            of = number[group]
            columns.append((new.instance[kept], new.a[kept], new.b[kept], np.full(len(kept), kind, np.int32), of[kept]))
            here = kept[of[kept] == next_id + np.arange(len(kept))]
            others = of >= 0
            others[here] = False
            equal.append(self._equal_terms(new.take(np.nonzero(others)[0]), of[others], level))
            if not last:
                self.keys[kind] = np.concatenate([self.keys.get(kind, new.keys[:0]), new.keys[here]])
                self.members[kind] = np.concatenate([known, of[here].astype(np.int32)])
            next_id += len(kept)
        self.base.shapes = list(self.kinds)
        done.equal = joined(equal)
        none = np.zeros(0, np.int64)
        instance, a, b, kinds, of = (np.concatenate([none, *(c[k] for c in columns)]) for k in range(5))
        self._extend(instance, a, b, kinds, of, level)
        if level <= self.ops - 2:
            self._keep_data(len(table))
        return done

    def _count(self, new: Fresh, done: Numbered, renamed: bool) -> None:
        """Add to the counts: terms, terms with all renamings, operators (the two outputs of one are one) with these."""
        table = self.base.table
        masks = table.mask[new.a] | table.mask[np.where(new.b >= 0, new.b, new.a)]
        second = np.zeros(len(new), bool)
        for number, first in self.twins.items():
            for kind in np.unique(table.kind[new.a[new.instance == number]]):
                if self.world.applied(first, (self.base.shapes[kind],)) is not None:
                    second |= (new.instance == number) & (table.kind[new.a] == kind)
        first_inputs = self.world.first_inputs(masks) if renamed else None
        counts = []
        for chosen in (np.full(len(new), True), second):
            if first_inputs is None:
                counts.append(int(chosen.sum()))
            else:
                counts.append(renamings(self.world, *np.unique(masks[chosen & first_inputs], return_counts=True)))
        done.terms += len(new)
        done.named += counts[0]
        done.operators += counts[0] - counts[1]

    def _grouped(
        self, new: Fresh, kind: int, known: np.ndarray, last: bool
    ) -> tuple[Fresh, np.ndarray, np.ndarray, int]:
        """The terms of a shape in order, the group of each, the value of each group (-1: new), and how many are new.

        At the last level terms that nothing else equals are only counted.
        """
        known_keys = self.keys.get(kind, new.keys[:0])
        opened = -1
        if last and isinstance(self.fingerprint, Exact) and not self.keep_last:
            new, opened = _shared(new, known_keys)
        else:
            new = new.take(
                np.nonzero(new.keys != UNDEFINED)[0] if new.keys.ndim == 1 else np.isfinite(new.keys).all(axis=1)
            )
        new = new.take(np.lexsort((new.b, new.a, new.instance)))
        groups = self.fingerprint.group(np.concatenate([known_keys, new.keys]))
        number = np.full(int(groups.max(initial=-1)) + 1, -1, np.int64)
        number[groups[: len(known)]] = known
        group = groups[len(known) :]
        if opened < 0:
            opened = int((number[np.unique(group)] < 0).sum())
        return new, group, number, opened

    def _kept(self, new: Fresh, group: np.ndarray, number: np.ndarray, last: bool) -> np.ndarray:
        """Which terms become rows of the table, in order."""
        if not last and self.keep_all:
            return np.arange(len(new))
        _, first = np.unique(group, return_index=True)
        firsts = first[number[group[first]] < 0]
        if last:
            return np.sort(firsts)
        # an alternate: as small as the first term and of other operators, for each value and set of operators
        below = self.base.table.below(new.a, new.b)
        useful = number[group] < 0
        useful[firsts] = False
        order = np.concatenate([firsts, np.nonzero(useful)[0]])
        code = mixed([group[order], *below[order].T])
        _, kept = np.unique(code, return_index=True)
        return np.sort(order[kept])

    def _extend(
        self, instance: np.ndarray, a: np.ndarray, b: np.ndarray, kind: np.ndarray, of: np.ndarray, level: int
    ) -> None:
        table, count = self.base.table, len(instance)
        ids = np.arange(len(table), len(table) + count)
        top = ids.copy()
        for second, first in self.twins.items():  # the second output is computed by the operator of the first
            at_first, at_second = np.nonzero(instance == first)[0], np.nonzero(instance == second)[0]
            order = at_first[np.argsort(a[at_first], kind="stable")]
            place = np.searchsorted(a[order], a[at_second])
            place = np.minimum(place, max(0, len(order) - 1))
            if len(order):
                same = a[order[place]] == a[at_second]
                top[at_second[same]] = ids[order[place[same]]]
        nodes = np.sort(np.concatenate([table.below(a, b), top[:, None]], axis=1), axis=1)
        assert ((nodes >= 0).sum(axis=1) == level).all()
        self.base.table = table.extended(
            instance=instance, a=a, b=b, kind=kind, row=np.full(count, -1), level=np.full(count, level), top=top,
            nodes=nodes[:, -self.ops :], mask=table.mask[a] | table.mask[np.where(b >= 0, b, a)], of=of,
        )  # fmt: skip

    def _equal_terms(self, new: Fresh, of: np.ndarray, level: int) -> Terms:
        """Those of equal terms that say something new: their arguments could not be replaced by smaller or other ones.

        An argument that is not the first term of its value is of use only for the operators that it shares.
        """
        table = self.base.table
        second = np.where(new.b >= 0, new.b, new.a)
        shares = (new.b >= 0) & (table.level[new.a].astype(int) + table.level[second] + 1 > level)
        own = (table.of[new.a] == new.a) & (table.of[second] == second)
        minimal = [table.level[arg] == table.level[table.of[arg]] for arg in (new.a, second)]
        kept = np.nonzero(minimal[0] & minimal[1] & (own | shares))[0]
        new = new.take(kept)
        return Terms(new.instance, new.a, new.b, np.full(len(kept), level, np.int8), of[kept].astype(np.int32))

    def _keep_data(self, start: int) -> None:
        """Keep the data of the values that were added from `start` on, and compare all terms with them as data."""
        base, table = self.base, self.base.table
        ids = np.arange(start, len(table))
        values = ids[table.of[ids] == ids]
        for kind in np.unique(table.kind[values]):
            here = values[table.kind[values] == kind]
            old = base.data.get(int(kind), np.zeros((0, self.hasher.samples, *base.shapes[kind])))
            table.row[here] = len(old) + np.arange(len(here))
            base.data[int(kind)] = np.concatenate([old, np.zeros((len(here), *old.shape[1:]))])
        for at, rows in base.computed(table.instance[values], table.a[values], table.b[values], self.hasher):
            base.data[int(table.kind[values[at[0]]])][table.row[values[at]]] = rows
        rest = ids[table.of[ids] != ids]
        for at, rows in base.computed(table.instance[rest], table.a[rest], table.b[rest], self.hasher):
            of = table.of[rest[at]]
            known = base.data[int(table.kind[of[0]])][table.row[of]]
            if not self.fingerprint.same(rows.reshape(len(at), -1), known.reshape(len(at), -1)).all():
                raise TasoError("two different values have the same fingerprint; enumerate again with another --seed")


def _shared(new: Fresh, known: np.ndarray) -> tuple[Fresh, int]:
    """The terms whose key is known or is that of another term, and how many keys are not known."""
    ordered = np.sort(new.keys)
    ordered = ordered[: np.searchsorted(ordered, UNDEFINED)]
    starts = np.concatenate([np.ones(min(1, len(ordered)), bool), ordered[1:] != ordered[:-1]])
    distinct = ordered[starts]
    several = np.diff(np.append(np.nonzero(starts)[0], len(ordered))) > 1
    old = np.isin(distinct, known, assume_unique=False, kind="sort") if len(known) else np.zeros(len(distinct), bool)
    wanted = distinct[several | old]
    if not len(wanted):
        return new.take(np.zeros(0, np.int64)), int((~old).sum())
    place = np.minimum(np.searchsorted(wanted, new.keys), len(wanted) - 1)
    return new.take(np.nonzero(wanted[place] == new.keys)[0]), int((~old).sum())
