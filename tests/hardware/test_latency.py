from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from taso.hardware.latency import YARDSTICK, Kernel, LatencyModel, measure
from taso.hardware.roofline import Work, estimate, work_of
from taso.hardware.runtime import RawTiming, Worker
from taso.hardware.store import Entry, Store, Where
from taso.hardware.target import load_target
from tests.hardware.models import model, unary

CPU = load_target("cpu")


def matmul(size: int) -> bytes:
    weight = {"w": np.ones((size, size), np.float32)}
    values = [("x", TensorProto.FLOAT, (size, size))], [("y", TensorProto.FLOAT, (size, size))]
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], *values, weight).SerializeToString()


def never() -> bytes:
    raise AssertionError("a known kernel was built")


def test_kernels_are_measured_once_and_more_work_takes_longer(tmp_path: Path) -> None:
    calls: list[tuple[int, int, int]] = []
    small, large = Kernel("small", matmul(16)), Kernel("large", lambda: matmul(256))
    with Store(tmp_path / "s.sqlite") as store:
        costs = LatencyModel(CPU, 1, store, lambda *counts: calls.append(counts))
        one, two, again = costs.latency([small, large, small])
        assert 0 < one == again < two
        assert costs.source == "measured" and calls == [(1, 2, 0), (2, 2, 0)]
        assert costs.latency([Kernel("large", never)]) == [two]
        third = Kernel("third", matmul(8))
        costs.latency([small, third])
        assert calls[2:] == [(2, 2, 1)]
        fresh = LatencyModel(CPU, 1, store)
        assert fresh.latency([Kernel("small", never), Kernel("large", never)]) == [one, two]
        [(place, count)] = store.devices()
        assert count == 3 + 1 and place.threads == 1 and place.runtime.startswith("onnxruntime")


def test_a_kernel_that_fails_is_infinite_remembered_and_not_stored(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        costs = LatencyModel(CPU, 1, store)
        bad, good = costs.latency([Kernel("bad", unary("Nonsense")), Kernel("good", unary("Relu"))])
        assert bad == math.inf and math.isfinite(good)
        assert "Nonsense" in costs.failures["bad"]
        assert costs.latency([Kernel("bad", never)]) == [math.inf]
        assert [count for _, count in store.devices()] == [1 + 1]  # and the yardstick


def test_a_latency_is_corrected_by_how_fast_the_machine_is_just_now() -> None:
    class Slow(Worker):
        """A machine on which everything takes `factor` times as long as it does."""

        factor = 1.0

        def time(self, *args: Any, **kwargs: Any) -> dict[str, RawTiming]:
            def stretched(ns: tuple[int, ...]) -> tuple[int, ...]:
                return tuple(int(self.factor * 1000) for _ in ns)

            raw = super().time(*args, **kwargs)
            return {name: RawTiming(stretched(one.wall_ns), stretched(one.cpu_ns)) for name, one in raw.items()}

    kernel = Kernel("k", unary("Relu"))
    with Slow(threads=1) as worker:
        worker.factor = 7.0
        assert measure(kernel, worker).median_us == pytest.approx(7.0)
        assert measure(kernel, worker, pace_us=1.0).median_us == pytest.approx(1.0)
        worker.factor = 0.5
        assert measure(kernel, worker, pace_us=1.0).median_us == pytest.approx(1.0)


def test_the_yardstick_is_measured_once_and_kept(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        first = LatencyModel(CPU, 1, store)
        first.latency([Kernel("a", unary("Relu"))])
        kept = store.get(first.where, [YARDSTICK])[YARDSTICK]
        LatencyModel(CPU, 1, store).latency([Kernel("b", unary("Exp"))])
        assert store.get(first.where, [YARDSTICK])[YARDSTICK] == kept


def test_inputs_can_be_given_where_random_ones_do_not_do() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    values = [("x", TensorProto.FLOAT, (6,)), ("s", TensorProto.INT64, (2,))], [("y", TensorProto.FLOAT, None)]
    built = model(nodes, *values).SerializeToString()
    inputs = {"x": np.zeros(6, np.float32), "s": np.array([2, 3])}
    without, with_inputs = LatencyModel(CPU).latency([Kernel("a", built), Kernel("b", built, inputs=inputs)])
    assert without == math.inf and math.isfinite(with_inputs)


def test_several_threads_are_measured_by_the_wall_clock_and_apart(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        LatencyModel(CPU, 1, store).latency([Kernel("k", matmul(64))])
        LatencyModel(CPU, 2, store).latency([Kernel("k", matmul(64))])
        assert [place.threads for place, _ in store.devices()] == [1, 2]


def test_an_absent_device_is_estimated_and_says_so(tmp_path: Path) -> None:
    absent = load_target("v100")
    small, large = Kernel("small", matmul(64)), Kernel("large", matmul(2048), flops=2 * 2048.0**3)
    with Store(tmp_path / "s.sqlite") as store:
        costs = LatencyModel(absent, 1, store)
        one, two = costs.latency([small, large])
        assert costs.source == "estimated" and costs.estimated == {"small", "large"}
        assert 0 < one < two
        assert store.devices() == []


def test_imported_latencies_stand_for_an_absent_device(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.put(Where("Tesla V100-SXM2-16GB", "onnxruntime-gpu 1.0", 1), {"k": Entry(42.0, 1.0, 11, 1.0)})
        store.put(Where("Tesla V100-SXM2-16GB", "onnxruntime-gpu 2.0", 1), {"k": Entry(40.0, 1.0, 11, 2.0)})
        costs = LatencyModel(load_target("v100"), 1, store)
        assert costs.latency([Kernel("k", never)]) == [40.0]
        assert costs.source == "imported"
        costs.latency([Kernel("other", matmul(8))])
        assert costs.source == "estimated" and costs.estimated == {"other"}


def test_the_roofline_is_the_larger_of_arithmetic_and_memory() -> None:
    target = load_target("a100")
    idle = estimate(Work(0, 0), target)
    assert idle == target.launch_us
    compute = estimate(Work(1e12, 1), target)
    assert compute == estimate(Work(1e12, 1e3), target)
    assert compute - idle == pytest.approx(1e6 * 1e12 / (0.5 * target.peak["float32"]))
    assert estimate(Work(1e12, 1, "float16"), target) < compute
    memory = estimate(Work(1, 1e9), target)
    assert memory - idle == pytest.approx(1e6 * 1e9 / (0.7 * target.bandwidth))


def test_work_counts_tensors_once() -> None:
    work = work_of(onnx.load_model_from_string(matmul(16)))
    assert (work.flops, work.bytes, work.dtype) == (256.0, 3 * 256 * 4.0, "float32")
