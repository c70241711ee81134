"""Timing whole models against each other, fairly: interleaved in one process, the noise level measured alongside."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from taso.hardware.runtime import RawTiming, Value, Worker, load_with_fallback

MIN_RUNS = 11
CONFIDENCE = 0.95

_T = TypeVar("_T")


@dataclass(frozen=True)
class Timing:
    """How long one model takes. Samples in microseconds, in the order of the rounds (round i of every model is a pair).

    `clock` says which samples `median_us` and `spread_us` are of: `cpu`, the time of the one thread that computes
    (steadier, as other processes do not count), or `wall` where several threads or another device compute.
    """

    name: str
    wall_us: tuple[float, ...]
    cpu_us: tuple[float, ...]
    clock: str
    level: str  # onnxruntime's optimisation level that the model ran at
    blocks: tuple[int, ...]  # how many rounds each block had; the model was loaded anew for each block

    @property
    def samples_us(self) -> tuple[float, ...]:
        """The samples of `clock`."""
        return self.cpu_us if self.clock == "cpu" else self.wall_us

    @property
    def median_us(self) -> float:
        """The median of the samples."""
        return statistics.median(self.samples_us)

    @property
    def spread_us(self) -> float:
        """Half the interquartile range of the samples: the ± that is printed."""
        return half_interquartile_range(self.samples_us)

    @property
    def wall_median_us(self) -> float:
        """The median of the wall-clock samples."""
        return statistics.median(self.wall_us)


@dataclass(frozen=True)
class Comparison:
    """How many times faster `after` is than `before`.

    `speedup` is the median over rounds of time before / time after, both of the same round, so that a slow stretch of
    the machine strikes both. `low` and `high` bound it at 95 %: order statistics by the sign test, which assumes no
    distribution. `null` is the same ratio for `before` against a second session of the very same model (1 in a quiet
    world), with bounds `null_low` and `null_high`; all three are 1 where none was measured. `by_block` holds the median
    ratio of each block of rounds.
    """

    speedup: float
    low: float
    high: float
    null: float
    null_low: float
    null_high: float
    by_block: tuple[float, ...]
    rounds: int
    clock: str

    @property
    def noise(self) -> float:
        """The ratio that noise alone gives: how far the null's median is from 1, as a factor of at least 1."""
        return max(self.null, 1 / self.null)


def interleaved(
    models: Sequence[tuple[str, bytes | Path]],
    inputs: Mapping[str, Value],
    *,
    threads: int,
    runs: int = 1000,
    blocks: int = 4,
    warmup: int = 2,
    time_budget_s: float = 10.0,
    null: bool = False,
    seed: int = 0,
    worker: Worker | None = None,
    provider: str = "CPUExecutionProvider",
    limit_s: float | None = None,
) -> list[Timing]:
    """Time models on the same inputs, in one process, every round running each once in shuffled order.

    Each model runs at onnxruntime's full level, or the next lower one that works (see `Timing.level`). There are at
    least 11 rounds, at most `runs`, in between until `time_budget_s` is over. They come in `blocks` (fewer where
    loading is slow), and all models are loaded anew for each. With `null`, a second session of the first model is
    timed too and comes last: how much that differs from the first is noise. An input that a model does not have is not
    given to it. Raises MeasureError where a model does not run.
    """
    entries = [*models, *([(_again(models[0][0]), models[0][1])] if null else [])]
    keys = [f"timed {position}" for position in range(len(entries))]
    parts: list[dict[str, RawTiming]] = []
    with nullcontext(worker) if worker else Worker(threads=threads, provider=provider) as process:
        process.start()
        try:
            start = time.perf_counter()
            levels = [
                load_with_fallback(process, key, model, threads=threads, inputs=inputs).level
                for key, (_, model) in zip(keys, entries)
            ]
            loading_s = time.perf_counter() - start
            count = max(1, min(blocks, int(time_budget_s / (2 * loading_s))))
            for block in range(count):
                if block > 0:
                    for key, (_, model), level in _rotated(list(zip(keys, entries, levels)), block):
                        process.load(key, model, level=level, threads=threads)
                raw = process.time(
                    keys,
                    inputs,
                    min_runs=math.ceil(MIN_RUNS / count),
                    max_runs=math.ceil(runs / count),
                    warmup=warmup,
                    budget_s=time_budget_s / count,
                    seed=seed + block,
                    limit_s=limit_s,
                )
                parts.append(raw)
        finally:
            for key in keys:
                process.drop(key)
        on_cpu = process.provider == "CPUExecutionProvider"
    clock = "cpu" if threads == 1 and on_cpu else "wall"
    return [
        _timing(name, [part[key] for part in parts], clock, level)
        for key, (name, _), level in zip(keys, entries, levels)
    ]


def compare(before: Timing, after: Timing, null: Timing | None = None) -> Comparison:
    """Compare two timings of one `interleaved` call; `null` is the second session of the model of `before`."""
    if null is not None and null.name != _again(before.name):
        raise ValueError(f"{null.name!r} was not timed as the second session of {before.name!r}")
    speedup, low, high = paired_ratio(before.samples_us, after.samples_us)
    quiet, quiet_low, quiet_high = (1.0, 1.0, 1.0) if null is None else paired_ratio(before.samples_us, null.samples_us)
    ends = list(itertools.accumulate(before.blocks, initial=0))
    by_block = tuple(
        paired_ratio(before.samples_us[one:two], after.samples_us[one:two])[0] for one, two in itertools.pairwise(ends)
    )
    return Comparison(speedup, low, high, quiet, quiet_low, quiet_high, by_block, sum(before.blocks), before.clock)


def faster_beyond_noise(comparison: Comparison, min_speedup: float = 1.0) -> bool:
    """Whether `after` is faster, by at least `min_speedup`, and by more than noise explains.

    Three conditions: the speedup reaches `min_speedup`; its lower bound exceeds the null's median ratio (either way
    round); and it exceeds 1 in at least three quarters of the blocks, since where the system happens to place a
    session's threads can slow that session down for as long as it lives. A tie is not faster.
    """
    wins = sum(ratio > 1 for ratio in comparison.by_block)
    beyond = comparison.low > comparison.noise and 4 * wins >= 3 * len(comparison.by_block)
    return beyond and comparison.speedup >= min_speedup


def paired_ratio(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """(median, low, high) of the ratios before[i] / after[i]: the sign test's 95 % bounds of the median.

    With fewer than six pairs no such bounds exist; then low and high are the extremes.
    """
    ratios = sorted(first / max(second, 1e-9) for first, second in zip(before, after))
    rank = sign_test_rank(len(ratios))
    return statistics.median(ratios), ratios[rank], ratios[-1 - rank]


def sign_test_rank(count: int, confidence: float = CONFIDENCE) -> int:
    """How many of `count` sorted values may be left out at each end so that the rest still bounds the median.

    The median lies below the (r+1)-th smallest with probability P(Binomial(count, 1/2) <= r).
    0 where even the extremes do not reach the confidence.
    """
    tail = 0
    for rank in range(count // 2 + 1):
        tail += math.comb(count, rank)
        if 2 * tail > (1 - confidence) * 2**count:
            return max(rank - 1, 0)
    return 0


def half_interquartile_range(samples: Sequence[float]) -> float:
    """Half the distance between the quartiles; 0 for fewer than two samples."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / 2


def _again(name: str) -> str:
    return f"{name} (again)"


def _rotated(items: list[_T], by: int) -> list[_T]:
    return items[by % len(items) :] + items[: by % len(items)]


def _timing(name: str, parts: Sequence[RawTiming], clock: str, level: str) -> Timing:
    wall = tuple(ns / 1000 for part in parts for ns in part.wall_ns)
    cpu = tuple(ns / 1000 for part in parts for ns in part.cpu_ns)
    return Timing(name, wall, cpu, clock, level, tuple(len(part.wall_ns) for part in parts))
