"""What single kernels cost on a target: known from the store, measured, or estimated for an absent device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from taso.errors import MeasureError, ModelError
from taso.hardware.roofline import Work, estimate, work_of
from taso.hardware.runtime import Value, Worker, load_with_fallback, runtime_version
from taso.hardware.store import Entry, Store, Where, now
from taso.hardware.target import Target, attached, device_name
from taso.hardware.timing import half_interquartile_range

# Called as progress(done, total, known): kernels ready so far, all that were asked for, those known beforehand.
Progress = Callable[[int, int, int], None]

FAILED = float("inf")
SHORT_US = 3000.0

YARDSTICK = "yardstick"
YARDSTICK_ROWS, YARDSTICK_SIZE = 96, 256

# A core's own caches hold about 2 MB today; twice that is surely out of them.
FAST_CACHE_BYTES = 8_000_000
SMALL_WEIGHTS = 100_000
LEAST_COPIES = 3
MOST_COPIES = 16


@dataclass(frozen=True)
class Kernel:
    """One kernel to cost: a model of that operator alone, with static shapes and constant weights as initializers.

    `key` names the configuration completely (operator, attributes, shapes, dtypes, which inputs are constant); equal
    keys share a latency. `model` is only built when the kernel has to be measured. `flops` and `bytes_moved`, where
    given, make the estimate for absent devices better. `inputs` are random unless given.
    """

    key: str
    model: bytes | Callable[[], bytes] = field(compare=False)
    flops: float | None = field(default=None, compare=False)
    bytes_moved: float | None = field(default=None, compare=False)
    inputs: Mapping[str, Value] | None = field(default=None, compare=False)

    def built(self) -> bytes:
        """The model, serialized."""
        return self.model if isinstance(self.model, bytes) else self.model()


@dataclass
class LatencyModel:
    """Latencies of kernels on one target with a given number of threads, in microseconds.

    A kernel's latency is the median over about `budget_s` of runs (for short ones the smallest of some that lie apart
    in time), with onnxruntime at its full level, inputs in place and constant weights prepacked: the calling thread's
    CPU time at one thread on the CPU, else wall time. The fixed price of calling the runtime (about 3 us) is part of
    it.
    """

    target: Target
    threads: int = 1
    store: Store | None = None
    progress: Progress | None = None
    budget_s: float = 0.03
    limit_s: float = 30.0
    failures: dict[str, str] = field(init=False, default_factory=dict)  # kernel key -> why it does not run
    estimated: set[str] = field(init=False, default_factory=set)  # keys of kernels whose latency is an estimate
    measured: set[str] = field(init=False, default_factory=set)  # keys of kernels that were measured now
    _known: dict[str, float] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.attached = attached(self.target)
        self.where = Where(device_name(self.target), runtime_version(), self.threads)

    @property
    def source(self) -> str:
        """`measured` on this machine's device; else `imported` if the store knew all, or `estimated` if any was not."""
        if self.attached:
            return "measured"
        return "imported" if self._known and not self.estimated else "estimated"

    def latency(self, kernels: Sequence[Kernel]) -> list[float]:
        """The latency of each kernel, microseconds; infinite for a kernel that the runtime cannot run (`failures`)."""
        asked = {kernel.key: kernel for kernel in kernels}
        missing = [kernel for kernel in asked.values() if kernel.key not in self._known]
        if missing and self.store is not None:
            for key, entry in self._stored([kernel.key for kernel in missing]).items():
                self._known[key] = entry.median_us
            missing = [kernel for kernel in missing if kernel.key not in self._known]
        if missing and self.attached:
            self._measure(missing, known=len(asked) - len(missing))
        elif missing:
            self._estimate(missing)
        return [self._known[kernel.key] for kernel in kernels]

    def _stored(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Stored entries for keys: this runtime's, or for an absent device those of any runtime, the newest first."""
        assert self.store is not None
        if self.attached:
            return self.store.get(self.where, keys)
        found: dict[str, Entry] = {}
        for place in self.store.like(self.target.device, self.threads):
            found |= self.store.get(place, [key for key in keys if key not in found])
        return found

    def _measure(self, kernels: Sequence[Kernel], known: int) -> None:
        """Measure all kernels, then the short ones again in reverse, and believe the faster measurement.

        What slows a machine down for a while would else make one kernel look worse than its like, which is what rules
        are chosen by. Long ones see the machine's good and bad moments in one measurement.
        """
        with Worker(threads=self.threads, provider=self.target.provider, limit_s=self.limit_s) as worker:
            pace = self._pace(worker)
            for done, kernel in enumerate(kernels, start=1):
                self._measure_one(kernel, worker, pace)
                self.measured.add(kernel.key)
                if self.progress is not None:
                    self.progress(known + done, known + len(kernels), known)
            again = [kernel for kernel in reversed(kernels) if self._known[kernel.key] < SHORT_US]
            for kernel in again if self.threads == 1 else [*again, *reversed(again)]:
                self._measure_one(kernel, worker, pace)

    def _pace(self, worker: Worker) -> float | None:
        """How long the yardstick takes here, microseconds, as measured once and for all; None with several threads.

        With several, how they come to lie decides more than how fast the machine is, and the yardstick would only add
        its own luck: there a kernel is measured once more instead.
        """
        if self.threads > 1:
            return None
        stored = self.store.get(self.where, [YARDSTICK]) if self.store is not None else {}
        if YARDSTICK not in stored:
            entries = [measure(Kernel(YARDSTICK, yardstick()), worker, budget_s=self.budget_s) for _ in range(5)]
            stored = {YARDSTICK: min(entries, key=lambda entry: entry.median_us)}
            if self.store is not None:
                self.store.put(self.where, stored)
        return stored[YARDSTICK].median_us

    def _measure_one(self, kernel: Kernel, worker: Worker, pace: float | None) -> None:
        try:
            entry = measure(kernel, worker, budget_s=self.budget_s, pace_us=pace)
        except (MeasureError, ModelError) as error:
            if kernel.key in self._known:  # it ran before
                return
            self.failures[kernel.key], self._known[kernel.key] = str(error), FAILED
            return
        if entry.median_us < self._known.get(kernel.key, FAILED):
            self._known[kernel.key] = entry.median_us
            if self.store is not None:  # at once: an interrupted run has not measured in vain
                self.store.put(self.where, {kernel.key: entry})

    def _estimate(self, kernels: Sequence[Kernel]) -> None:
        import onnx

        for kernel in kernels:
            flops, size, dtype = kernel.flops, kernel.bytes_moved, "float32"
            if flops is None or size is None:
                counted = work_of(onnx.load_model_from_string(kernel.built()))
                flops, size = counted.flops if flops is None else flops, counted.bytes if size is None else size
                dtype = counted.dtype
            self.estimated.add(kernel.key)
            self._known[kernel.key] = estimate(Work(flops, size, dtype), self.target)


def measure(kernel: Kernel, worker: Worker, *, budget_s: float = 0.03, pace_us: float | None = None) -> Entry:
    """Measure one kernel in a worker; raises MeasureError where it does not run there.

    With `pace_us`, the yardstick runs in between: as much slower (or faster) than that as it is, the machine is just
    now, and the latency is corrected by it. Latencies are compared with those of other hours.

    In a whole model a kernel's weights have left the fast caches by the time it runs again. So a kernel with weights
    is loaded several times and the copies run in turn: together they are larger than those caches. Every kernel is
    loaded `LEAST_COPIES` times at least and the copy with the smallest median counts: where a session's threads come
    to lie stays with it for its life and can cost a third, and other work on the machine only ever adds.
    """
    import onnx

    from taso.onnxio.verify import random_inputs

    content = kernel.built()
    model = onnx.load_model_from_string(content)
    inputs = kernel.inputs
    if inputs is None:
        inputs = random_inputs(model, {}, seed=0)
    names = [f"kernel {copy}" for copy in range(_copies(sum(one.ByteSize() for one in model.graph.initializer)))]
    sticks = [] if pace_us is None else [f"{YARDSTICK} {copy}" for copy in range(LEAST_COPIES)]
    feeds = {**inputs, YARDSTICK: np.full((YARDSTICK_ROWS, YARDSTICK_SIZE), 0.5, np.float32)}
    try:
        for name in names:
            load_with_fallback(worker, name, content)
        for name in sticks:
            worker.load(name, yardstick())
        rounds = max(11 // len(names), 3)
        raw = worker.time([*names, *sticks], feeds, min_runs=rounds, max_runs=2000, warmup=2, budget_s=budget_s)
    finally:
        for name in [*names, *sticks]:
            worker.drop(name)
    on_one_thread = worker.threads == 1 and worker.provider == "CPUExecutionProvider"
    samples = {key: [ns / 1000 for ns in (one.cpu_ns if on_one_thread else one.wall_ns)] for key, one in raw.items()}
    slow = 1.0 if pace_us is None else min(statistics.median(samples[name]) for name in sticks) / pace_us
    copies = [samples[name] for name in names]
    best = min(copies, key=statistics.median)
    return Entry(statistics.median(best) / slow, half_interquartile_range(best) / slow, sum(map(len, copies)), now())


@cache
def yardstick() -> bytes:
    """A model that takes a few hundred microseconds of arithmetic: how fast the machine is just now."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.full((YARDSTICK_SIZE, YARDSTICK_SIZE), 0.5, np.float32)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (YARDSTICK_ROWS, YARDSTICK_SIZE))
        for name in (YARDSTICK, "product")
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", [YARDSTICK, "weight"], ["product"])],
        YARDSTICK, ends[:1], ends[1:], [numpy_helper.from_array(weight, "weight")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    content: bytes = made.SerializeToString()
    return content


def _copies(weights: int) -> int:
    """How many copies of a kernel with so many bytes of weights are larger than the fast caches, within limits."""
    if weights < SMALL_WEIGHTS:
        return LEAST_COPIES
    return max(LEAST_COPIES, min(MOST_COPIES, math.ceil(FAST_CACHE_BYTES / weights)))
