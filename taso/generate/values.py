"""What an enumeration knows: values, the terms that have them, and their data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from taso.generate.universe import Concrete, World
from taso.spec import syntax as s

_BLOCK = 1 << 21  # numbers computed at a time
Ids = np.ndarray  # int32 value numbers


@dataclass
class Values:
    """All values, and their alternates, by number, one array per column.

    A leaf has no instance (-1) and its number among the leaves as `a`.
    """

    instance: np.ndarray
    a: np.ndarray
    b: np.ndarray  # -1 for instances of one tensor
    kind: np.ndarray  # number of the shape
    row: np.ndarray  # place among the values of its shape; -1 if its data is not kept
    level: np.ndarray
    top: np.ndarray  # the operator that computes it: the two outputs of one operator share it
    nodes: np.ndarray  # (count, levels): its operators, ascending, padded with -1 in front
    mask: np.ndarray  # the inputs that it uses, one bit each
    of: np.ndarray  # for an alternate the value that it computes, else its own number

    def __len__(self) -> int:
        return len(self.instance)


@dataclass
class Terms:
    """All terms found, by columns: instance, arguments, level, value (-1: undefined on the samples)."""

    instance: np.ndarray
    a: np.ndarray
    b: np.ndarray
    level: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.instance)


@dataclass
class Enumeration:
    """What was found. `counts` has one line (level, terms, new values) per level."""

    world: World
    ops: int
    seed: int
    shapes: list[Concrete]
    table: Values
    found: Terms
    data: dict[int, np.ndarray]  # shape number -> (count, samples, *shape)
    counts: list[tuple[int, int, int]] = field(default_factory=list)
    largest: float = 0.0

    @property
    def universe(self) -> s.Universe:
        return self.world.universe

    @property
    def terms(self) -> int:
        """How many terms of one to `ops` operators were looked at."""
        return len(self.found)

    @property
    def values(self) -> int:
        """How many distinct values they have."""
        return sum(new for _, _, new in self.counts)


def compute(
    world: World,
    shapes: list[Concrete],
    data: dict[int, np.ndarray],
    row: np.ndarray,
    instance: int,
    kinds: tuple[int, ...],
    a: Ids,
    b: Ids,
) -> Iterator[tuple[slice, np.ndarray]]:
    """The data of terms of one instance and one choice of argument shapes, as rows, block by block."""
    applied = world.applied(instance, tuple(shapes[k] for k in kinds))
    assert applied is not None
    width = world.options.samples * max(math.prod(shape) for shape in (applied.shape, *(shapes[k] for k in kinds)))
    step = max(1, _BLOCK // max(1, width))
    for start in range(0, len(a), step):
        block = slice(start, start + step)
        args = [data[kinds[0]][row[a[block]]]]
        if len(kinds) == 2:
            args.append(data[kinds[1]][row[b[block]]])
        with np.errstate(all="ignore"):
            result = applied.run(args, 2)
        yield block, result.reshape(len(args[0]), -1)


def compute_all(
    world: World,
    shapes: list[Concrete],
    data: dict[int, np.ndarray],
    values: Values,
    instance: np.ndarray,
    a: Ids,
    b: Ids,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The data of any terms, given by columns: their places in the columns and their rows, block by block."""
    kinds = np.stack([instance.astype(np.int32), values.kind[a], np.where(b >= 0, values.kind[b], -1)])
    order = np.lexsort(kinds[::-1])
    kinds = kinds[:, order]
    starts = np.concatenate([np.ones(min(1, len(a)), bool), (kinds[:, 1:] != kinds[:, :-1]).any(axis=0)])
    bounds: list[int] = np.nonzero(starts)[0].tolist()
    for start, stop in zip(bounds, [*bounds[1:], len(a)]):
        part = order[start:stop]
        first, second = int(kinds[1, start]), int(kinds[2, start])
        given = (first,) if second < 0 else (first, second)
        for block, rows in compute(world, shapes, data, values.row, int(kinds[0, start]), given, a[part], b[part]):
            yield part[block], rows
