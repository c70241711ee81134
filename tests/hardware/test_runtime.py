from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from taso.errors import MeasureError
from taso.hardware.runtime import Worker, WorkerLost, load_with_fallback, node_output_shapes, runtime_version
from tests.hardware.models import case, endless, model, scaled, unary

X = {"x": np.arange(8, dtype=np.float32)}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as process:
        yield process


def test_a_model_runs_and_tells_its_interface(worker: Worker) -> None:
    loaded = worker.load("m", scaled(3, 1))
    assert loaded.inputs == (("x", "tensor(float)", (8,)),)
    assert loaded.outputs == (("y", "tensor(float)", (8,)),)
    assert loaded.providers[0] == "CPUExecutionProvider"
    np.testing.assert_allclose(worker.run("m", X)["y"], 3 * X["x"] + 1)
    assert worker.output_shapes("m", X) == {"y": ("float32", (8,))}


def test_a_model_runs_from_a_file(worker: Worker, tmp_path: object) -> None:
    path = f"{tmp_path}/m.onnx"
    onnx.save(onnx.load_model_from_string(scaled(2)), path)
    worker.load("file", path)
    np.testing.assert_allclose(worker.run("file", X)["y"], 2 * X["x"])


def test_sessions_have_names_and_can_be_replaced_and_dropped(worker: Worker) -> None:
    worker.load("a", scaled(2))
    worker.load("b", scaled(5))
    worker.load("a", scaled(7))
    np.testing.assert_allclose(worker.run("a", X)["y"], 7 * X["x"])
    np.testing.assert_allclose(worker.run("b", X)["y"], 5 * X["x"])
    worker.drop("a")
    with pytest.raises(MeasureError):
        worker.run("a", X)


def test_an_error_of_the_runtime_leaves_the_process_alive(worker: Worker) -> None:
    worker.load("m", scaled(2))
    before = worker._process
    with pytest.raises(MeasureError, match="x"):
        worker.run("m", {"x": np.zeros(3, np.float32)})
    with pytest.raises(MeasureError):
        worker.load("broken", b"not a model")
    assert worker._process is before
    np.testing.assert_allclose(worker.run("m", X)["y"], 2 * X["x"])


def test_a_model_that_never_ends_is_stopped_and_others_come_back() -> None:
    with Worker() as worker:
        worker.load("good", scaled(2))
        worker.load("endless", endless())
        start = time.monotonic()
        with pytest.raises(WorkerLost, match="longer than 0.5 s"):
            worker.run("endless", {"x": np.zeros(1, np.float32)}, limit_s=0.5)
        assert time.monotonic() - start < 60
        np.testing.assert_allclose(worker.run("good", X)["y"], 2 * X["x"])


@pytest.mark.parametrize(("number", "words"), [(signal.SIGSEGV, "SIGSEGV"), (signal.SIGKILL, "memory")])
def test_a_crash_is_an_error_and_not_our_end(number: signal.Signals, words: str) -> None:
    with Worker() as worker:
        worker.load("endless", endless())
        assert worker._process is not None
        threading.Timer(0.3, os.kill, (worker._process.pid, number)).start()
        with pytest.raises(WorkerLost, match=words):
            worker.run("endless", {"x": np.zeros(1, np.float32)}, limit_s=30)
        worker.load("good", scaled(2))
        np.testing.assert_allclose(worker.run("good", X)["y"], 2 * X["x"])


def test_the_process_ends_with_its_worker() -> None:
    with Worker() as worker:
        worker.start()
        process = worker._process
    assert process is not None and process.poll() == 0


def test_what_the_runtime_prints_does_not_reach_us(capfd: pytest.CaptureFixture[str]) -> None:
    with Worker() as worker, pytest.raises(MeasureError):
        worker.load("broken", b"not a model")
    assert capfd.readouterr() == ("", "")


def test_the_level_falls_back_where_the_full_one_fails(worker: Worker) -> None:
    broken_at_full, inputs = case("02")
    with pytest.raises(MeasureError):
        worker.load("m", broken_at_full, level="full")
    assert load_with_fallback(worker, "m", broken_at_full, inputs=inputs).level == "disabled"
    assert "y" in worker.run("m", inputs)
    assert load_with_fallback(worker, "m", scaled(2)).level == "full"


def test_a_model_that_no_level_takes_is_an_error_with_the_reason(worker: Worker) -> None:
    with pytest.raises(MeasureError, match="Nonsense"):
        load_with_fallback(worker, "m", unary("Nonsense"))


@pytest.mark.parametrize("kind", ["STRING", "BFLOAT16", "FLOAT16", "BOOL", "INT64", "DOUBLE", "FLOAT8E4M3FN"])
def test_values_of_every_type_survive_the_way(worker: Worker, kind: str) -> None:
    element = TensorProto.DataType.Value(kind)
    dtype = helper.tensor_dtype_to_np_dtype(element)
    raw = ["a", "", "ü"] if kind == "STRING" else [0, 1, 2]
    for shape in [(3,), (3, 1)]:
        value = np.array(raw, dtype).reshape(shape)
        nodes = [helper.make_node("Identity", ["x"], ["y"])]
        proto = model(nodes, [("x", element, shape)], [("y", element, shape)])
        proto.opset_import[0].version = 21
        proto.ir_version = 10
        worker.load("m", proto.SerializeToString())
        result = worker.run("m", {"x": value})["y"]
        assert result.dtype == value.dtype and result.shape == shape
        assert (result == value).all()


def test_timing_gives_one_sample_a_round_and_session(worker: Worker) -> None:
    worker.load("a", scaled(2))
    worker.load("b", scaled(3))
    raw = worker.time(["a", "b"], X, min_runs=5, max_runs=5)
    assert set(raw) == {"a", "b"}
    for samples in raw.values():
        assert len(samples.wall_ns) == len(samples.cpu_ns) == 5
        assert min(samples.wall_ns) > 0


def test_node_output_shapes_tells_what_only_a_run_can_tell(worker: Worker) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Transpose", ["where"], ["turned"]),
        helper.make_node("Cast", ["turned"], ["y"], to=TensorProto.FLOAT),
    ]
    proto = model(nodes, [("x", TensorProto.FLOAT, (2, 3))], [("y", TensorProto.FLOAT, None)])
    before = proto.SerializeToString(deterministic=True)
    inputs = {"x": np.array([[1, 0, 2], [0, 0, 3]], np.float32)}
    shapes = node_output_shapes(proto, inputs, worker)
    assert shapes == {"where": ("int64", (2, 3)), "turned": ("int64", (3, 2)), "y": ("float32", (3, 2))}
    assert proto.SerializeToString(deterministic=True) == before


def test_the_runtime_version_is_known_without_importing_it() -> None:
    name, version = runtime_version().split()
    assert name.startswith("onnxruntime") and version[0].isdigit()
