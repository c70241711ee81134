"""Reading and writing model files, and the shapes of free inputs."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper, numpy_helper

from taso.errors import ModelError, UsageError
from taso.onnxio import load
from taso.onnxio.load import (
    ModelWarning,
    check_shapes,
    default_sizes,
    free_dims,
    load_model,
    save_model,
    with_static_inputs,
)
from tests.onnxio.models import model

CASES = Path(__file__).parents[1] / "cases"
RELU = "agraph (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"
FREE = (
    "agraph (float[batch, 3, height, width] x, int64[batch, length] ids) => (float[batch, 3, h, w] y) { y = Relu(x) }"
)


def test_reads_path_bytes_and_proto(tmp_path: Path) -> None:
    source = model(RELU)
    path = tmp_path / "relu.onnx"
    save_model(source, path)
    assert load_model(path) == load_model(str(path)) == load_model(source.SerializeToString()) == source
    assert load_model(source) is source
    assert [one.name for one in tmp_path.iterdir()] == ["relu.onnx"]  # nothing temporary is left


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"not a model at all", "not an ONNX model"),
        (model(RELU).SerializeToString()[:-20], "cut off"),
    ],
)
def test_refuses_what_is_no_model(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=said) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        load_model(tmp_path / "absent.onnx")


def test_refuses_a_name_that_nothing_computes() -> None:
    with pytest.raises(ModelError, match='reads "z", which nothing computes'):
        load_model(model("agraph (float[2] x) => (float[2] y) { y = Add(x, z) }"))


def test_refuses_a_name_computed_twice() -> None:
    with pytest.raises(ModelError, match='"y" is computed twice'):
        load_model(model("agraph (float[2] x) => (float[2] y) { y = Relu(x) y = Abs(x) }"))


def test_refuses_a_wrong_attribute() -> None:
    with pytest.raises(ModelError, match="not a valid ONNX model"):
        load_model(model('agraph (float[2] x) => (float[2] y) { y = Concat<axis = "one">(x, x) }'))


def test_sorts_nodes_and_says_so() -> None:
    source = model("agraph (float[2] x) => (float[2] y) { y = Relu(t) t = Abs(x) }")
    before = source.SerializeToString()
    with pytest.warns(ModelWarning, match="not sorted"):
        found = load_model(source)
    assert [node.op_type for node in found.graph.node] == ["Abs", "Relu"]
    assert source.SerializeToString() == before


def test_refuses_a_circle() -> None:
    with pytest.raises(ModelError, match="depends on itself"):
        load_model(model("agraph (float[2] x) => (float[2] y) { y = Add(x, t) t = Relu(y) }"))


@pytest.mark.parametrize("path", sorted(CASES.glob("*.onnx")), ids=lambda path: path.stem)
def test_reads_every_case_silently(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_model(path).graph.node


def test_external_data(tmp_path: Path) -> None:
    weight = np.arange(600, dtype=np.float32).reshape(2, 300)
    source = model("agraph (float[2, 300] x) => (float[2, 300] y) { y = Add(x, w) }", w=weight)
    external_data_helper.convert_model_to_external_data(source, location="w.bin", size_threshold=10)
    onnx.save(source, tmp_path / "m.onnx")
    found = load_model(tmp_path / "m.onnx")
    assert np.array_equal(numpy_helper.to_array(found.graph.initializer[0]), weight)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match="external data cannot be read"):
        load_model(tmp_path / "m.onnx")


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    source, pipe = model(RELU), tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        save_model(source, pipe)
        assert os.read(reader, 1 << 16) == source.SerializeToString()
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_large_models_are_written_with_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.arange(600, dtype=np.float32).reshape(2, 300)
    source = model("agraph (float[2, 300] x) => (float[2, 300] y) { y = Add(x, w) }", w=weight)
    before = source.SerializeToString()
    monkeypatch.setattr(load, "PROTOBUF_LIMIT", 1000)
    save_model(source, tmp_path / "m.onnx")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert np.array_equal(numpy_helper.to_array(load_model(tmp_path / "m.onnx").graph.initializer[0]), weight)
    assert source.SerializeToString() == before


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(load.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        save_model(model(RELU), path)
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["m.onnx"]


def test_free_dims_and_default_sizes() -> None:
    source = model(FREE)
    assert free_dims(source) == {"x": ["batch", 3, "height", "width"], "ids": ["batch", "length"]}
    assert default_sizes(source) == {"x": (1, 3, 320, 320), "ids": (1, 128)}
    assert default_sizes(source, {"ids": [4, 7]}) == {"x": (4, 3, 320, 320), "ids": (4, 7)}


def test_minus_one_and_question_marks_are_nameless() -> None:
    source = model(FREE)
    for axis, dim in enumerate(source.graph.input[0].type.tensor_type.shape.dim):
        if axis > 1:
            dim.dim_param = "?"
    source.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert free_dims(source)["x"] == [None, 3, None, None]
    assert default_sizes(source, {"x": [2, 3, 8, 16]})["x"] == (2, 3, 8, 16)


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (
            {"imput": [1]},
            r'no input named "imput"; its inputs are: x \[batch, 3, height, width\], ids \[batch, length\]',
        ),
        ({"idz": [1, 2]}, r'did you mean "ids"\?'),
        ({"x": [1, 3, 4]}, "has 4 dimensions, .* but 3 were given"),
        ({"x": [1, 4, 8, 8]}, "3 cannot be 4"),
        ({"x": [0, 3, 8, 8]}, "at least 1"),
        ({"x": [2, 3, 8, 8], "ids": [3, 5]}, 'the dimension "batch" is 2 in input "x" and 3 in input "ids"'),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, list[int]], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_shapes(model(FREE), shapes)


def test_with_static_inputs() -> None:
    source = model(FREE)
    static = with_static_inputs(source, {"x": [1, 3, 4, 5]})
    assert free_dims(static) == {"ids": ["batch", "length"]}
    assert "x" in free_dims(source)
