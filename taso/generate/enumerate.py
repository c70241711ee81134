"""Every graph of up to n operators over a universe, level by level, by value numbering.

A *value* is what a term computes on the random samples of the inputs; equal terms share it. Up to `KEEP_ALL`
operators no term is left out, so that every graph is hashed. Beyond, a value keeps only its first term and those that
are as small and made of other operators, since these may be shared with another argument. The last level is hashed,
grouped and forgotten.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from taso.errors import SpecError, TasoError
from taso.generate.count import MOST_GRAPHS, Counts, graphs, sequences
from taso.generate.device import array_module
from taso.generate.executor import Executor, Serial
from taso.generate.fingerprint import LARGEST
from taso.generate.hashing import Hasher
from taso.generate.level import Level, Part, Shard
from taso.generate.number import Numbering
from taso.generate.spool import Folder, Memory
from taso.generate.universe import Concrete, Progress, World
from taso.generate.values import Base, Enumeration, Terms, Values, joined
from taso.spec import syntax as s
from taso.spec.spec import Spec

SEED = 20191027
KEEP_ALL = 4  # operators up to which nothing is pruned before it is hashed
SIDE_BY_SIDE = 1 << 20  # terms of a level from which on it is worth while to start processes
SPOOLED = 1 << 22  # terms of a level from which on they are kept in files
MEMORY = 4 << 30
_FORMAT = 1  # of the files
_TERM = 19  # bytes of a new term


def enumerate_universe(
    universe: s.Universe,
    spec: Spec,
    ops: int,
    *,
    progress: Progress | None = None,
    seed: int = SEED,
    device: str = "cpu",
    executor: Executor | None = None,
    work: Path | None = None,
    memory: int = MEMORY,
    keep_last: bool = False,
) -> Enumeration:
    """Enumerate all terms of up to `ops` operators.

    Args:
        progress: called with what is being done, how much of it is done and how much there is.
        device: `cpu`, `cuda` or `auto`.
        executor: where the shards of large levels run; by default in this process. The result does not depend on it.
        work: a folder for the terms of large levels, from which an enumeration that was stopped goes on.
        memory: bytes that may be used at a time, about.
        keep_last: the table also gets the values of the last level that a single term has.

    Raises:
        SpecError: an impossible universe.
        TasoError: a fingerprint collision (choose another seed), numbers too large to be exact, too little memory, or
            the terms cannot be written.
    """
    return _Enumerator(World(universe, spec), ops, seed, progress, device, executor, work, memory, keep_last).run()


@dataclass
class Work:
    """One level as processes share it; the world is made again from its texts, since it holds code."""

    files: Mapping[str, str]
    universe: s.Universe
    seed: int
    shapes: list[Concrete]
    table: Values
    data: dict[int, object]
    level: int
    last: bool
    narrow: bool
    device: str
    opened: Level | None = None

    def open(self) -> Level:
        """The level; once in each process."""
        if self.opened is None:
            spec = Spec()
            for path, text in self.files.items():
                spec.add(text, path)
            world = World(self.universe, spec)
            base = Base(world, self.seed, self.shapes, self.table, self.data)  # type: ignore[arg-type]
            self.opened = Level(base, self.level, last=self.last, narrow=self.narrow, xp=array_module(self.device))
        return self.opened


def hash_shard(work: Work, shard: Shard) -> tuple[list[Part], float]:
    """The terms of a shard, and the largest number that was met so far."""
    level = work.open()
    return level.run(shard), level.hasher.fingerprint.largest


class _Enumerator:
    def __init__(
        self,
        world: World,
        ops: int,
        seed: int,
        progress: Progress | None,
        device: str,
        executor: Executor | None,
        work: Path | None,
        memory: int,
        keep_last: bool,
    ) -> None:
        if ops < 1:
            raise SpecError(f"cannot enumerate graphs of {ops} operators; at least 1 is needed")
        self.world, self.ops, self.seed, self.progress, self.device = world, ops, seed, progress, device
        self.executor, self.memory = executor or Serial(), memory
        self.xp = array_module(device)
        key = (_FORMAT, world.spec.hash, repr(world.universe), ops, seed)
        self.work = work / hashlib.sha256(repr(key).encode()).hexdigest()[:16] if work is not None else None
        self.numbering = Numbering(
            world, ops, Hasher(world, seed, self.xp), keep_all=ops <= KEEP_ALL, keep_last=keep_last
        )
        self.largest = 0.0

    def run(self) -> Enumeration:
        counts: list[Counts] = []
        found: list[Terms] = []
        ordered: list[int] = []
        for level in range(1, self.ops + 1):
            last = level == self.ops
            if last and self.ops <= MOST_GRAPHS:
                base = self.numbering.base
                fewest = {
                    shape: int(base.table.level[base.table.kind == k].min()) for k, shape in enumerate(base.shapes)
                }
                ordered = sequences(self.world, fewest, self.ops)
            spool = self._hashed(level, last)
            before = self.numbering.base.table
            done = self.numbering.number(spool, level, last=last, renamed=last or not self._whole(level))
            complete = self.ops <= KEEP_ALL and not self.world.options.real
            covered = graphs(before, level, done.operators) if complete else None
            counts.append(Counts(level, done.terms, done.named, done.values, None, covered))
            if done.equal is not None:
                found.append(done.equal)
        counts = [replace(c, sequences=ordered[k] if ordered else None) for k, c in enumerate(counts)]
        if self.largest > LARGEST:
            raise TasoError(
                f"universe `{self.world.universe.name}` reaches numbers of {self.largest:.2g} at {self.ops} operators;"
                f" whole numbers are exact up to {LARGEST:.2g}. Enumerate fewer operators, or smaller sums."
            )
        return Enumeration(self.numbering.base, self.ops, joined(found), counts, self.largest, self.work)

    def _whole(self, level: int) -> bool:
        """Whether a level is enumerated with all renamings."""
        return level < self.ops - 1 or (level < self.ops <= KEEP_ALL)

    def _hashed(self, level: int, last: bool) -> Memory | Folder:
        """All terms of a level, by shape."""
        base = self.numbering.base
        here = Level(base, level, last=last, narrow=not last and not self._whole(level), xp=self.xp)
        shards = here.shards()
        total = sum(shard.weight for shard in shards)
        self._fits(total)
        spool: Memory | Folder = Memory()
        if self.work is not None and total > SPOOLED and not self.world.options.real:
            spool = Folder(self.work / str(level), len(shards))
        done = sum(shard.weight for shard in shards[: spool.done])
        for shard, (parts, largest) in zip(shards[spool.done :], self._run(here, shards[spool.done :], total)):
            spool.put(parts, largest)
            done += shard.weight
            if self.progress is not None:
                self.progress(f"{self.world.universe.name}, {level} operators", done, total)
        self.largest = max(self.largest, spool.largest)
        return spool

    def _run(self, level: Level, shards: list[Shard], total: int) -> Iterator[tuple[list[Part], float]]:
        """The shards in order, here or in other processes."""
        if self.executor.processes == 1 or total < SIDE_BY_SIDE or self.xp is not np:  # a GPU is busy enough
            for shard in shards:
                yield level.run(shard), level.hasher.fingerprint.largest
            return
        base = level.base
        work = Work(
            self.world.spec.files, self.world.universe, self.seed, base.shapes, base.table, dict(base.data),
            level.level, level.last, level.narrow, self.device,
        )  # fmt: skip
        shared = self.executor.share(work)
        ahead = deque(
            self.executor.submit(hash_shard, shared, shard) for shard in shards[: 3 * self.executor.processes]
        )
        following = len(ahead)
        while ahead:
            result = ahead.popleft().result()
            if following < len(shards):
                ahead.append(self.executor.submit(hash_shard, shared, shards[following]))
                following += 1
            yield result

    def _fits(self, terms: int) -> None:
        """Complain if the memory is too small for what is kept and, at worst, a third of the new terms at a time."""
        base = self.numbering.base
        kept = sum(rows.nbytes for rows in base.data.values()) + len(base.table) * (40 + 4 * self.ops)
        needed = kept + (terms // 3 if self.work is not None else terms) * _TERM * 2 + (64 << 20)
        if needed > self.memory:
            raise TasoError(
                f"universe `{self.world.universe.name}` at {self.ops} operators needs about {needed / 2**30:.1f} GB of"
                f" memory; {self.memory / 2**30:.1f} GB are allowed. Give more with --memory, or enumerate fewer"
                " operators."
            )
