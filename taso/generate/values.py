"""What an enumeration knows: terms by number, the values that they have, and their data.

A *row* of the table is a term; its value is the first row that computes the same. Data is kept once for each value of
the lower levels; that of the level below the last is computed again where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from taso.generate.count import Counts
from taso.generate.fingerprint import Array
from taso.generate.hashing import Hasher
from taso.generate.universe import Concrete, World
from taso.spec import syntax as s

Ids = np.ndarray  # int32 row numbers
_BLOCK = 1 << 12  # terms whose data is computed at a time


@dataclass
class Values:
    """All terms that are arguments of others, by number, one array per column.

    A leaf has no instance (-1) and its number among the leaves as `a`.
    """

    instance: np.ndarray
    a: np.ndarray
    b: np.ndarray  # -1 for instances of one tensor
    kind: np.ndarray  # number of the shape
    row: np.ndarray  # place among the kept values of its shape; -1 if its data is not kept
    level: np.ndarray  # its operators, shared ones counted once
    top: np.ndarray  # the operator that computes it: the two outputs of one operator share it
    nodes: np.ndarray  # (count, levels): its operators, ascending, padded with -1 in front
    mask: np.ndarray  # the inputs that it uses, one bit each
    of: np.ndarray  # its value: the first term that computes it

    def __len__(self) -> int:
        return len(self.instance)

    def extended(self, **columns: np.ndarray) -> Values:
        """A table with more rows."""
        joined = {f.name: np.concatenate([getattr(self, f.name), columns[f.name]]) for f in fields(self)}
        return Values(**{name: column.astype(getattr(self, name).dtype) for name, column in joined.items()})

    def below(self, a: Ids, b: Ids) -> np.ndarray:
        """The operators of pairs of arguments: one row each, ascending, -1 in front and for repetitions."""
        nodes = np.concatenate([self.nodes[a], self.nodes[np.where(b >= 0, b, a)]], axis=1)
        nodes.sort(axis=1)
        nodes[:, 1:][nodes[:, 1:] == nodes[:, :-1]] = -1
        nodes.sort(axis=1)
        return nodes


@dataclass
class Terms:
    """Terms that have the value of another, by columns: instance, arguments, level, value."""

    instance: np.ndarray
    a: np.ndarray
    b: np.ndarray
    level: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.instance)


def joined(terms: Sequence[Terms]) -> Terms:
    """Several tables of terms as one."""
    none = [np.zeros(0, dtype) for dtype in (np.int16, np.int32, np.int32, np.int8, np.int32)]
    return Terms(
        *(np.concatenate([empty, *(getattr(t, f.name) for t in terms)]) for f, empty in zip(fields(Terms), none))
    )


@dataclass
class Base:
    """What the terms of a level are made from: a table of terms and the data of values.

    data: by shape number, (count, samples, *shape).
    """

    world: World
    seed: int
    shapes: list[Concrete]
    table: Values
    data: dict[int, np.ndarray]

    def data_of(self, values: Ids, hasher: Hasher) -> Array:
        """Data (count, samples, *shape) of values of one shape, on the device; computed where it is not kept."""
        table, kind = self.table, int(self.table.kind[values[0]])
        place = table.row[values]
        if (place >= 0).all():
            return hasher.xp.asarray(self.data[kind][place])
        out = np.empty((len(values), hasher.samples, *self.shapes[kind]))
        out[place >= 0] = self.data[kind][place[place >= 0]] if kind in self.data else 0
        rest = np.nonzero(place < 0)[0]
        for at, rows in self.computed(
            table.instance[values[rest]], table.a[values[rest]], table.b[values[rest]], hasher
        ):
            out[rest[at]] = rows
        return hasher.xp.asarray(out)

    def computed(self, instance: np.ndarray, a: Ids, b: Ids, hasher: Hasher) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The data of any terms, given by columns: their places in the columns and their data, block by block."""
        kinds = np.stack([instance.astype(np.int64), self.table.kind[a], np.where(b >= 0, self.table.kind[b], -1)])
        order = np.lexsort(kinds[::-1])
        starts = np.nonzero((np.diff(kinds[:, order], prepend=-2) != 0).any(axis=0))[0].tolist()
        blocks = [
            order[at : min(at + _BLOCK, stop)]
            for start, stop in zip(starts, [*starts[1:], len(order)])
            for at in range(start, stop, _BLOCK)
        ]
        for part in blocks:
            given = (
                [self.table.of[a[part]]] if kinds[2, part[0]] < 0 else [self.table.of[a[part]], self.table.of[b[part]]]
            )
            shapes = tuple(self.shapes[int(self.table.kind[ids[0]])] for ids in given)
            applied = self.world.applied(int(kinds[0, part[0]]), shapes)
            assert applied is not None
            yield part, hasher.computed(applied, [self.data_of(ids, hasher) for ids in given])


@dataclass
class Enumeration:
    """What was found.

    found: terms that have the value of another one, made of arguments that are as small as can be.
    counts: how many terms, graphs and values were covered, by level.
    largest: the largest number that was hashed; exact universes need it below 2^52.
    work: a folder, if there is one, with what the same enumeration would go on with.
    """

    base: Base
    ops: int
    found: Terms
    counts: list[Counts] = field(default_factory=list)
    largest: float = 0.0
    work: Path | None = None

    @property
    def world(self) -> World:
        """The universe over its specification."""
        return self.base.world

    @property
    def universe(self) -> s.Universe:
        """What was enumerated."""
        return self.world.universe

    @property
    def table(self) -> Values:
        """The terms by number."""
        return self.base.table

    @property
    def shapes(self) -> list[Concrete]:
        """Shapes by number."""
        return self.base.shapes

    @property
    def terms(self) -> int:
        """How many terms of one to `ops` operators were looked at."""
        return sum(counts.terms for counts in self.counts)

    @property
    def values(self) -> int:
        """How many distinct values they have that no leaf has."""
        return sum(counts.values for counts in self.counts)
