"""The corpus: what is fed, what is fetched (never from the network here), and random weights in place of constants."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bench import corpus
from bench.corpus import CorpusError, Entry, Feed, entries, fetch, inputs_for, with_random_weights

MODEL = b"not really a model"
ENTRY = Entry(
    "tiny__model", "pypi", "tiny==1", "m.onnx", hashlib.sha256(MODEL).hexdigest(), len(MODEL), "MIT", "", {}, False
)


def test_manifest_is_complete() -> None:
    everything = entries()
    assert len({entry.name for entry in everything}) == len(everything) > 20
    for entry in everything:
        assert len(entry.sha256) == 64
        assert {name: array.shape for name, array in inputs_for(entry).items()} == {
            name: feed.shape for name, feed in entry.feeds.items()
        }


def test_prefix_selects_and_unknown_prefix_lists_the_names() -> None:
    assert [entry.name for entry in entries(["magika"])] == ["magika__model"]
    with pytest.raises(CorpusError, match="magika__model"):
        entries(["nosuch"])


@given(st.integers(-50, 50), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_integers_stay_below_the_upper_bound(low: int, width: int, seed: int) -> None:
    drawn = Feed("int64", (7, 3), f"int({low},{low + width})").draw(np.random.default_rng(seed))
    assert drawn.dtype == np.int64
    assert drawn.shape == (7, 3)
    assert low <= drawn.min() <= drawn.max() < low + width


def test_fills() -> None:
    rng = np.random.default_rng(0)
    assert (Feed("int32", (2,), "const(1)").draw(rng) == [1, 1]).all()
    assert Feed("float32", (1000,), "normal").draw(rng).std() == pytest.approx(1, abs=0.1)
    uniform = Feed("float32", (1000,), "uniform(-120,130)").draw(rng)
    assert -120 <= uniform.min() < -100
    assert 110 < uniform.max() <= 130
    for wrong in ("int(1)", "gamma(1,2)", "normal(0,1", ""):
        with pytest.raises(CorpusError, match="fill"):
            Feed("float32", (1,), wrong).draw(rng)


def test_fetch_keeps_what_is_there_and_replaces_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def package(source: str, spec: str, scratch: Path):  # type: ignore[no-untyped-def]
        asked.append(spec)
        return lambda path: MODEL

    monkeypatch.setattr(corpus, "_package", package)
    (path,) = fetch([ENTRY], tmp_path)
    assert path.read_bytes() == MODEL
    fetch([ENTRY], tmp_path)
    assert asked == ["tiny==1"]
    path.write_bytes(b"damaged")
    fetch([ENTRY], tmp_path)
    assert path.read_bytes() == MODEL
    assert list(tmp_path.iterdir()) == [path]


def test_fetch_refuses_another_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_package", lambda source, spec, scratch: lambda path: MODEL)
    with pytest.raises(CorpusError, match="sha256"):
        fetch([replace(ENTRY, sha256="0" * 64)], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_fetch_without_the_package_path_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def package(source: str, spec: str, scratch: Path):  # type: ignore[no-untyped-def]
        return {}.__getitem__

    monkeypatch.setattr(corpus, "_package", package)
    with pytest.raises(CorpusError, match="m.onnx"):
        fetch([ENTRY], tmp_path)


def constant_weight_model() -> onnx.ModelProto:
    """One 1x1 convolution with bias and a scale, all of them constants, in the way of the light models."""
    value = numpy_helper.from_array(np.array([0.02], np.float32))
    nodes = [
        helper.make_node("ConstantOfShape", ["w_shape"], ["w"], value=value),
        helper.make_node("ConstantOfShape", ["b_shape"], ["b"], value=value),
        helper.make_node("Conv", ["x", "w", "b"], ["y"]),
        helper.make_node("Unsqueeze", ["s"], ["s1"], axes=[1, 2]),
        helper.make_node("Mul", ["y", "s1"], ["z"]),
    ]
    shapes = [
        numpy_helper.from_array(np.array(shape, np.int64), f"{name}_shape")
        for name, shape in {"w": [4, 3, 1, 1], "b": [4]}.items()
    ]
    stored = [*shapes, numpy_helper.from_array(np.ones(4, np.float32), "s")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 5, 5])]
    inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in stored]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 4, 5, 5])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=3)


def test_random_weights_replace_constants_and_leave_the_original_alone() -> None:
    model = constant_weight_model()
    before = model.SerializeToString()
    changed = with_random_weights(model, 0)
    assert model.SerializeToString() == before
    onnx.checker.check_model(changed, full_check=True)
    assert [node.op_type for node in changed.graph.node] == ["Conv", "Unsqueeze", "Mul"]
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in changed.graph.initializer}
    assert {name: array.shape for name, array in weights.items()} == {"w": (4, 3, 1, 1), "b": (4,), "s": (4,)}
    assert all(len(np.unique(array)) == array.size for array in weights.values())
    assert (weights["s"] >= 0.5).all()  # a scale, found through the reshape
    assert (abs(weights["b"]) <= 0.1).all()
    x = np.random.default_rng(0).standard_normal((1, 3, 5, 5), dtype=np.float32)
    (y,) = ReferenceEvaluator(changed).run(None, {"x": x})
    expected = np.einsum("bihw,oi->bohw", x, weights["w"][:, :, 0, 0]) + weights["b"][:, None, None]
    np.testing.assert_allclose(y, expected * weights["s"][:, None, None], rtol=1e-5, atol=1e-6)


def test_random_weights_follow_the_seed() -> None:
    model = constant_weight_model()
    assert with_random_weights(model, 1) == with_random_weights(model, 1)
    assert with_random_weights(model, 1) != with_random_weights(model, 2)
