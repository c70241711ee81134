from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper

from taso.errors import MeasureError, ModelError, UsageError
from taso.hardware.runtime import Worker
from taso.onnxio.verify import Difference, compare, input_sets, random_inputs, verify
from tests.hardware.models import CASES, case, model, scaled, unary

NAN, INF = float("nan"), float("inf")
RUNNABLE = [path.stem.split("_")[0] for path in sorted(CASES.glob("*.npz"))]
X = {"x": np.linspace(-2, 2, 8, dtype=np.float32)}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as process:
        yield process


def one(reference: Any, candidate: Any, **tolerance: float) -> Difference:
    [difference] = compare({"y": reference}, {"y": candidate}, **tolerance)
    return difference


# ---- random inputs


def inputs_of(*values: tuple[str, int, Any], shapes: dict[str, tuple[int, ...]] | None = None, **options: Any) -> Any:
    proto = model([helper.make_node("Identity", [values[0][0]], ["y"])], values, [("y", values[0][1], None)])
    return random_inputs(proto, shapes or {}, 7, **options)


@pytest.mark.parametrize("kind", [kind for kind in TensorProto.DataType.values() if kind not in (0, 25, 26)])
def test_every_element_type_gets_values(kind: int) -> None:
    for shape in [(3, 4), ()]:
        value = inputs_of(("x", kind, shape))["x"]
        assert value.dtype == helper.tensor_dtype_to_np_dtype(kind) and value.shape == shape
        if value.dtype.kind not in "Oc":
            assert np.isfinite(value.astype(np.float64)).all()


def test_values_are_as_told() -> None:
    values = inputs_of(
        ("n", TensorProto.FLOAT, (1000,)), ("i", TensorProto.INT64, (1000,)), ("b", TensorProto.BOOL, (99,))
    )
    assert abs(values["n"].mean()) < 0.2 and values["n"].min() < -1
    assert set(values["i"]) == {0, 1} and set(values["b"]) == {False, True}
    uniform = inputs_of(
        ("n", TensorProto.FLOAT, (1000,)), ("i", TensorProto.INT32, (1000,)), kind="uniform", highest_int=9
    )
    assert uniform["n"].min() >= 0 and uniform["n"].max() < 1
    assert set(uniform["i"]) == set(range(10))


def test_the_seed_settles_the_values() -> None:
    proto = onnx.load_model_from_string(scaled(2))
    first, again, other = (random_inputs(proto, {}, seed)["x"] for seed in (1, 1, 2))
    assert (first == again).all() and (first != other).any()


def test_free_dims_come_from_given_shapes_then_names_then_the_default() -> None:
    values = ("x", 1, ("n", "m", 3)), ("z", 1, ("n", "m")), ("w", 1, (None, None))
    assert [one.shape for one in inputs_of(*values).values()] == [(1, 64, 3), (1, 64), (1, 64)]
    given_shape = inputs_of(*values, shapes={"z": (2, 5)}, free_dim=9)
    assert [one.shape for one in given_shape.values()] == [(2, 5, 3), (2, 5), (1, 9)]


def test_wrong_shapes_and_names_are_refused() -> None:
    value = ("images", 1, ("n", 3, 8))
    for wrong in [(1, 3), (1, 4, 8), (1, 3, 8, 1)]:
        with pytest.raises(UsageError, match=r"\[n, 3, 8\]"):
            inputs_of(value, shapes={"images": wrong})
    with pytest.raises(UsageError, match=r'no input named "imges"; its inputs are: images \(did you mean "images"\?\)'):
        inputs_of(value, shapes={"imges": (1, 3, 8)})


def test_inputs_with_a_default_are_left_out() -> None:
    data, inputs = case("31")
    assert set(random_inputs(onnx.load_model_from_string(data), {}, 0)) == set(inputs)


def test_sequences_get_tensors_and_other_values_are_refused() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, (2,))
    proto = onnx.load_model_from_string(unary("Identity"))
    proto.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(tensor))
    assert [value.shape for value in random_inputs(proto, {}, 0)["x"]] == [(2,), (2,)]
    proto.graph.input[0].type.CopyFrom(helper.make_optional_type_proto(tensor))
    with pytest.raises(ModelError, match='"x"'):
        random_inputs(proto, {}, 0)


def test_input_sets_are_such_that_the_model_runs(worker: Worker) -> None:
    table = {"table": np.arange(20, dtype=np.float32).reshape(4, 5)}
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"])]
    proto = model(nodes, [("i", TensorProto.INT64, (50,))], [("y", TensorProto.FLOAT, None)], table)
    sets = input_sets(proto, {}, 3, 0, worker)
    assert len(sets) == 3 and max(values["i"].max() for values in sets) == 1
    with pytest.raises(MeasureError, match="input shapes"):
        input_sets(onnx.load_model_from_string(case("04")[0]), {}, 1, 0, worker)


# ---- comparing


def test_the_error_is_relative_to_the_scale_of_the_tensor() -> None:
    reference = np.array([1000.0, 1.0, 2.0], np.float32)
    assert one(reference, reference + np.float32(0.5)).ok  # half a unit in a tensor of a thousand
    bad = one(reference, reference + np.array([0, 0, 5], np.float32))
    assert not bad.ok and bad.where == (2,)
    assert bad.max_abs == pytest.approx(5) and bad.scale == 1000 and bad.max_rel == pytest.approx(0.005)
    assert "[2]" in bad.problem and "off by 5" in bad.problem
    assert one(reference, reference * 1.005, rtol=1e-2).ok
    assert not one(reference, reference * 1.005, rtol=1e-3, atol=0).ok


def test_a_mask_of_huge_values_does_not_hide_errors() -> None:
    reference = np.array([[0.5, -1.0, -1e9], [0.25, 1.0, -3e38]], np.float32)
    candidate = reference.copy()
    assert one(reference, candidate).ok
    candidate[1, 0] += 0.01
    assert one(reference, candidate).where == (1, 0)
    assert not one(reference, candidate).ok
    candidate = reference.copy()
    candidate[0, 2] *= 1.0001  # itself compared relative to its own size
    assert one(reference, candidate).ok


@pytest.mark.parametrize(
    ("reference", "candidate", "ok"),
    [
        ([1, NAN, INF, -INF], [1, NAN, INF, -INF], True),
        ([1, NAN], [1, 2], False),
        ([1, 2], [1, NAN], False),
        ([1, INF], [1, -INF], False),
        ([1, INF], [1, 3e38], False),
        ([1, 2], [1, INF], False),
        ([NAN, INF], [INF, NAN], False),
        ([NAN, NAN], [NAN, NAN], True),
        ([0.0, -0.0], [-0.0, 0.0], True),
        ([], [], True),
    ],
)
def test_nan_and_infinities_must_be_in_the_same_places(reference: Any, candidate: Any, ok: bool) -> None:
    for dtype in (np.float32, np.float16 if ok else np.float64):
        assert one(np.array(reference, dtype), np.array(candidate, dtype)).ok is ok


@pytest.mark.parametrize(
    ("reference", "candidate", "words"),
    [
        (np.zeros((2, 1), np.float32), np.zeros(2, np.float32), r"float32\[2, 1\].*float32\[2\]"),
        (np.float32(1), np.ones(1, np.float32), r"float32\[\].*float32\[1\]"),
        (np.zeros(2, np.float32), np.zeros(2, np.float64), "float64"),
        (np.array([1, 2]), np.array([1, 3]), r"at \[1\] .*2.*3"),
        (np.array([10**17]), np.array([10**17 + 1]), "at"),
        (np.array([True, False]), np.array([True, True]), "False"),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), "'c'"),
        ([np.zeros(1)], [np.zeros(1), np.zeros(1)], "number"),
        ([np.zeros(1)], [np.ones(1)], "off by"),
        ([{1: 0.5}], [{1: 0.75}], "off by"),
        ([{1: 0.5}], [{2: 0.5}], "keys"),
        (None, np.zeros(1), "only one side"),
    ],
)
def test_what_is_not_the_same_is_said(reference: Any, candidate: Any, words: str) -> None:
    assert one(reference, reference).ok
    difference = one(reference, candidate)
    assert not difference.ok
    assert re.search(words, difference.problem)


def test_the_tolerance_depends_on_the_dtype() -> None:
    values = np.linspace(1, 2, 5)
    for dtype, rtol in [("float32", 1e-3), ("float16", 1e-2), ("bfloat16", 5e-2)]:
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        reference = values.astype(kind)
        assert one(reference, (values * (1 + rtol / 3)).astype(kind)).ok
        assert not one(reference, (values * (1 + rtol * 3)).astype(kind)).ok


def test_a_missing_output_is_a_difference() -> None:
    [difference] = compare({"y": np.zeros(1)}, {"z": np.zeros(1)})
    assert not difference.ok and "missing" in difference.problem


@given(arrays(np.float32, st.integers(0, 6), elements=st.floats(width=32)))
def test_everything_equals_itself(value: np.ndarray[Any, Any]) -> None:
    assert one(value, value.copy(), rtol=0, atol=0).ok


@given(
    arrays(np.float32, st.integers(1, 6), elements=st.floats(-100, 100, width=32)),
    st.data(),
)
def test_a_large_change_anywhere_is_found(value: np.ndarray[Any, Any], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(value) - 1))
    changed = value.copy()
    changed[position] += np.float32(10)
    difference = one(value, changed)
    assert not difference.ok and difference.where == (position,)


# ---- whole models


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_case_equals_itself(name: str, worker: Worker) -> None:
    data, inputs = case(name)
    result = verify(data, data, input_sets=[inputs], worker=worker)
    assert result.ok, result
    assert result.original_level == "disabled"
    assert result.candidate_level == ("disabled" if name == "02" else "full")
    assert (result.nondeterministic != ()) == (name in ("34", "35"))
    assert result.worst is not None and result.worst.ok


def test_models_that_differ_are_found(worker: Worker) -> None:
    result = verify(scaled(2), scaled(2.1), input_sets=[X], worker=worker)
    assert not result.ok and result.worst is not None
    assert result.worst.name == "y" and result.worst.max_abs == pytest.approx(0.2, rel=1e-5)
    assert verify(scaled(2), scaled(2.1), input_sets=[X], worker=worker, rtol=0.1).ok


def test_a_difference_on_any_of_the_inputs_counts(worker: Worker) -> None:
    positive, negative = {"x": np.ones(4, np.float32)}, {"x": -np.ones(4, np.float32)}
    relu, same = unary("Relu"), unary("Identity")
    assert verify(relu, same, input_sets=[positive], worker=worker).ok
    for sets in ([positive, negative], [negative, positive]):
        result = verify(relu, same, input_sets=sets, worker=worker)
        assert not result.ok and result.input_sets == 2


def test_models_may_be_files(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(scaled(2))
    assert verify(tmp_path / "m.onnx", scaled(2), input_sets=[X], worker=worker).ok


def test_a_changed_interface_is_a_difference_even_where_values_agree(worker: Worker) -> None:
    renamed = onnx.load_model_from_string(scaled(2))
    renamed.graph.output[0].name = "z"
    renamed.graph.node[-1].output[0] = "z"
    result = verify(scaled(2), renamed.SerializeToString(), input_sets=[X], worker=worker)
    assert not result.ok and "outputs differ" in result.problem and "z" in result.problem
    extra = onnx.load_model_from_string(scaled(2))
    extra.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, (1,)))
    inputs = {**X, "more": np.zeros(1, np.float32)}
    result = verify(scaled(2), extra.SerializeToString(), input_sets=[inputs], worker=worker)
    assert not result.ok and "inputs differ" in result.problem


def test_random_outputs_are_recognised_and_the_others_still_checked(worker: Worker) -> None:
    def noisy(factor: float, noise_shape: tuple[int, ...]) -> bytes:
        nodes = [
            helper.make_node("RandomNormal", [], ["noise"], shape=noise_shape),
            helper.make_node("Mul", ["x", "f"], ["y"]),
        ]
        outputs = [("noise", TensorProto.FLOAT, None), ("y", TensorProto.FLOAT, (8,))]
        weights = {"f": np.array(factor, np.float32)}
        return model(nodes, [("x", TensorProto.FLOAT, (8,))], outputs, weights).SerializeToString()

    same = verify(noisy(2, (3,)), noisy(2, (3,)), input_sets=[X], worker=worker)
    assert same.ok and same.nondeterministic == ("noise",)
    assert not verify(noisy(2, (3,)), noisy(3, (3,)), input_sets=[X], worker=worker).ok
    assert not verify(noisy(2, (3,)), noisy(2, (4,)), input_sets=[X], worker=worker).ok


def test_a_candidate_that_does_not_run_is_not_ok_and_says_why(worker: Worker) -> None:
    result = verify(unary("Relu", (8,)), unary("Nonsense", (8,)), input_sets=[X], worker=worker)
    assert not result.ok and "candidate does not run" in result.problem and "Nonsense" in result.problem
    with pytest.raises(MeasureError):
        verify(unary("Nonsense", (8,)), unary("Relu", (8,)), input_sets=[X], worker=worker)
    assert worker._sessions == {}
