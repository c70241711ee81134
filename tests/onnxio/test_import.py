"""From a model to a graph: what is understood, what stays opaque and why, and what is known of shapes and numbers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from taso.algebra.poly import Poly
from taso.graph.graph import CONSTANT, OPAQUE, Arena
from taso.hardware.runtime import Worker
from taso.onnxio.import_ import import_model
from taso.spec.spec import load_spec
from tests.onnxio.models import imported, model

ONES = np.ones((4, 3, 1, 1), np.float32)


def ops(found: object) -> list[str]:
    return [node.op for node in found.graph.nodes() if node.op != CONSTANT]  # type: ignore[attr-defined]


def reasons(found: object) -> list[str]:
    return [reason for _, reason in found.context.reasons]  # type: ignore[attr-defined]


def test_a_convolution_with_bias_is_three_operators() -> None:
    found = imported(
        model(
            "agraph (float[1, 3, 8, 8] x) => (float[1, 4, 4, 4] y) { y = Conv<strides = [2, 2]>(x, w, b) }",
            w=ONES, b=np.zeros(4, np.float32),
        )
    )  # fmt: skip
    assert ops(found) == ["<input>", "conv", "broadcast", "add"]
    conv = next(node for node in found.graph.nodes() if node.op == "conv")
    assert conv.attr("stride") == (2, 2) and conv.attr("before") == (0, 0)
    assert not reasons(found)


def test_free_dimensions_are_symbols_with_sizes() -> None:
    source = model("agraph (float[batch, 3, h, w] x) => (float[batch, 4, h, w] y) { y = Conv(x, k) }", k=ONES)
    found = imported(source, {"x": [2, 3, 16, 24]})
    shape = found.graph.outputs[0].shape
    assert shape is not None and [str(n) for n in shape] == ["batch", "4", "h", "w"]
    assert found.context.sizes == {"batch": 2, "h": 16, "w": 24}


def test_nameless_dimensions_are_told_apart() -> None:
    found = imported(model("agraph (float[?, ?] x, float[?, ?] z) => (float[?, ?] y) { y = Add(x, z) }"))
    assert [node.op for node in found.graph.nodes()][-1] == OPAQUE  # whether they are equal is not known


def test_a_pad_with_unknown_pads_stays() -> None:
    found = imported(model("agraph (float[2, 2] x, int64[4] p) => (float[a, b] y) { y = Pad(x, p) }"))
    assert ops(found)[-1] == OPAQUE
    assert reasons(found) == ["Pad: input pads is not known"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agraph (float16[2] x) => (float16[2] y) { y = Relu(x) }", "arithmetic in float16 is not touched"),
        ("agraph (int32[2] x) => (int32[2] y) { y = Mul(x, x) }", "arithmetic in int32 is not touched"),
        ("agraph (float[2] x) => (float[2] y) { y = Cos(x) }", "not specified"),
        ("agraph (float[2, 0] x) => (float[2, 0] y) { y = Relu(x) }", "an input has no elements"),
        ("agraph (float x) => (float y) { y = Dropout(x, r, t) }", "has 3 inputs"),
    ],
)
def test_what_is_not_understood_stays_and_says_why(text: str, said: str) -> None:
    found = imported(model(text, r=np.array(0.5, np.float32), t=np.array(True)))
    assert ops(found)[-1] == OPAQUE
    assert said in reasons(found)[0]


@pytest.mark.parametrize("dtype", ["int64", "float16", "bool", "string", "bfloat16"])
def test_data_movement_is_understood_for_every_type(dtype: str) -> None:
    text = f"agraph ({dtype}[2, 3] x) => ({dtype}[a, b] y) "
    text += "{ t = Transpose<perm = [1, 0]>(x) y = Concat<axis = 0>(t, t) }"
    assert ops(imported(model(text))) == ["<input>", "transpose", "concat"]


def test_an_undeclared_attribute_keeps_a_node_opaque() -> None:
    found = imported(model("agraph (float[1, 3, 8, 8] x) => (float[1, 3, 4, 4] y) { y = MaxPool<kernel_shape = [2, 2], "
                           "strides = [2, 2], ceil_mode = 1>(x) }"))  # fmt: skip
    assert ops(found)[-1] == OPAQUE


def test_further_outputs_that_are_used_keep_a_node_opaque() -> None:
    text = "agraph (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y, int64[1, 1, 4, 4] i) "
    text += "{ y, i = MaxPool<kernel_shape = [1, 1]>(x) }"
    assert ops(imported(model(text)))[-1] == OPAQUE


def test_split_is_slices_and_all_of_them_have_one_origin() -> None:
    found = imported(model("agraph (float[2, 6] x) => (float[2, 2] a, float[2, 4] b) { a, b = Split<axis = 1>(x, s) }",
                           s=np.array([2, 4], np.int64)))  # fmt: skip
    assert ops(found) == ["<input>", "slice", "slice"]
    first, second = (found.context.origins[out] for out in found.graph.outputs)
    assert first == second and first[0].outputs == found.graph.outputs


def test_an_overridable_initializer_is_an_input() -> None:
    source = model("agraph (float[3] x, float[3] w) => (float[3] y) { y = Add(x, w) }", w=np.ones(3, np.float32))
    found = imported(source)
    assert [value.node.op for value in found.graph.outputs[0].node.args] == ["<input>", "<input>"]
    assert not found.context.initializers


def test_a_large_weight_is_not_copied_but_can_be_read() -> None:
    weight = np.random.default_rng(0).standard_normal((600, 600), np.float32)
    found = imported(model("agraph (float[2, 600] x) => (float[2, 600] y) { y = MatMul(x, w) }", w=weight))
    constant = found.graph.outputs[0].node.args[1].node
    assert constant.op == CONSTANT and not isinstance(constant.payload, np.ndarray)
    assert np.array_equal(np.asarray(constant.payload), weight)


def test_large_constants_in_nodes_are_told_apart() -> None:
    source = model("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
    for name, value in (("a", 1.0), ("b", 2.0)):
        tensor = numpy_helper.from_array(np.full((600, 600), value, np.float32))
        source.graph.node.insert(0, helper.make_node("Constant", [], [name], value=tensor))
        source.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [600, 600]))
    found = imported(source)
    assert [float(np.asarray(out.node.payload).max()) for out in found.graph.outputs[1:]] == [1.0, 2.0]


def test_attributes_are_short_decimals() -> None:
    found = imported(model("agraph (float[3] x) => (float[3] y) { y = HardSigmoid<alpha = 0.1>(x) }"))
    numbers = [float(node.payload) for node in found.graph.nodes() if node.op == CONSTANT]
    assert np.float32(0.1) in [np.float32(number) for number in numbers]


# --- numbers that describe shapes

DYNAMIC = """agraph (float[batch, length, 12] x) => (float[a, b, c, d] y) {
    s = Shape(x)
    n = Gather<axis = 0>(s, zero)
    m = Gather<axis = 0>(s, one)
    n1 = Unsqueeze(n, axes)
    m1 = Unsqueeze(m, axes)
    target = Concat<axis = 0>(n1, m1, heads, width)
    y = Reshape(x, target)
}"""
NUMBERS = {
    "zero": np.array(0), "one": np.array(1), "axes": np.array([0]), "heads": np.array([3]), "width": np.array([-1]),
}  # fmt: skip


def test_a_computed_reshape_target_is_known_with_symbols() -> None:
    found = imported(model(DYNAMIC, **NUMBERS))
    shape = found.graph.outputs[0].shape
    assert ops(found) == ["<input>", "reshape"]
    assert shape is not None and [str(n) for n in shape] == ["batch", "length", "3", "4"]


def test_constants_are_computed_where_a_number_is_asked_for() -> None:
    text = """agraph (float[6] x) => (float[2, 3] y) { t = Div(twelve, six) u = Cos(z) c = Cast<to = 7>(u)
        r = Add(c, one) s = Concat<axis = 0>(t, r) y = Reshape(x, s) }"""
    numbers = {"twelve": np.array([12]), "six": np.array([6]), "z": np.zeros(1, np.float32), "one": np.array([2])}
    found = imported(model(text, **numbers))
    assert found.graph.outputs[0].shape == (2, 3)


def test_random_numbers_are_never_known() -> None:
    found = imported(
        model(
            "agraph (float[6] x) => (float[a] y) "
            "{ t = RandomUniform<shape = [1]>() c = Cast<to = 7>(t) y = Reshape(x, c) }"
        )
    )
    assert ops(found)[-1] == OPAQUE


@pytest.mark.parametrize(
    ("node", "tensors", "shape"),
    [
        ("Resize(x, none, scales)", {"none": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 3], np.float32)},
         ["n", "3", "2*h", "3*w"]),
        ("Resize(x, , , sizes)", {"sizes": np.array([1, 3, 20, 30])}, ["1", "3", "20", "30"]),
    ],
)  # fmt: skip
def test_shapes_of_opaque_nodes_keep_symbols(node: str, tensors: dict[str, np.ndarray], shape: list[str]) -> None:
    found = imported(model(f"agraph (float[n, 3, h, w] x) => (float[a, b, c, d] y) {{ y = {node} }}", **tensors))
    assert [str(n) for n in found.graph.outputs[0].shape or ()] == shape


def test_inference_keeps_polynomials() -> None:
    found = imported(model("agraph (float[n, 3, h] x) => (float16[a, b, c] y) { "
                           "t = Slice(x, a0, b0, c0) y = Cast<to = 10>(t) }",
                           a0=np.array([1]), b0=np.array([3]), c0=np.array([1])))  # fmt: skip
    assert [str(n) for n in found.graph.outputs[0].shape or ()] == ["n", "2", "h"]
    assert found.graph.outputs[0].type.dtype == "float16"


def test_unknown_sizes_are_found_by_running(worker: Worker) -> None:
    source = model("agraph (float[4] x) => (int64[a, b] y) { t = Relu(x) y = NonZero(t) }")
    found = import_model(source, Arena(load_spec()), worker=worker)
    unknown = [n for n in found.graph.outputs[0].shape or () if isinstance(n, Poly)]
    assert len(unknown) == 1 and 0 <= found.context.sizes[str(unknown[0])] <= 4


def test_old_sizes_of_custom_operators_are_not_believed_where_the_batch_is_free() -> None:
    source = model("agraph (float[n, 4] x) => (float[n, 4] y) <float[1, 4] t> { t = Mine(x) y = Relu(t) }")
    found = imported(source)
    shape = found.context.values["t"].shape
    assert shape is not None and len(shape) == 2 and not any(isinstance(n, int) for n in shape)


# --- merging


def test_equal_opaque_nodes_merge_and_random_ones_do_not() -> None:
    found = imported(model("agraph (float[2] x) => (float[2] y) { a = Cos(x) b = Cos(x) y = Add(a, b) }"))
    assert ops(found).count(OPAQUE) == 1
    found = imported(
        model(
            "agraph () => (float[2] y) "
            "{ a = RandomNormal<shape = [2]>() b = RandomNormal<shape = [2]>() y = Sub(a, b) }"
        )
    )
    assert ops(found).count(OPAQUE) == 2


def test_custom_operators_do_not_merge() -> None:
    source = model("agraph (float[2] x) => (float[2] y) { a = Relu(x) y = Relu(a) }")
    source.opset_import.append(helper.make_opsetid("mine", 1))
    del source.graph.node[:]
    for name in "ab":
        source.graph.node.append(helper.make_node("Foo", ["x"], [name], domain="mine"))
        source.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]))
    source.graph.node.append(helper.make_node("Add", ["a", "b"], ["y"]))
    assert ops(imported(source)).count(OPAQUE) == 2


def test_a_subgraph_with_a_random_node_is_random() -> None:
    text = """agraph (bool c) => (float[2] y) {
        a = If (c) <then_branch = t () => (float[2] r) { r = RandomNormal<shape = [2]>() },
                    else_branch = e () => (float[2] r) { r = RandomNormal<shape = [2]>() }>
        b = If (c) <then_branch = t () => (float[2] r) { r = RandomNormal<shape = [2]>() },
                    else_branch = e () => (float[2] r) { r = RandomNormal<shape = [2]>() }>
        y = Sub(a, b) }"""
    assert ops(imported(model(text))).count(OPAQUE) == 2


def test_captured_values_are_arguments() -> None:
    text = """agraph (bool c, float[2] x) => (float[2] y) {
        t = Relu(x)
        y = If (c) <then_branch = t1 () => (float[2] r) { r = Abs(t) },
                    else_branch = e1 () => (float[2] r) { r = Neg(x) }> }"""
    found = imported(model(text))
    node = found.graph.outputs[0].node
    assert [arg.node.op for arg in node.args] == ["<input>", "relu", "<input>"]


def test_quantized_weights_are_no_constants_to_fold() -> None:
    found = imported(model("agraph (float[2] x) => (float[2] y) { w = DequantizeLinear(q, s) y = Add(x, w) }",
                           q=np.array([1, 2], np.int8), s=np.array(0.5, np.float32)))  # fmt: skip
    assert not any(arg.node.constant for arg in found.graph.outputs[0].node.args)


def test_the_model_is_not_changed() -> None:
    source = model(DYNAMIC, **NUMBERS)
    before = source.SerializeToString()
    imported(source)
    assert source.SerializeToString() == before
