"""Graphs back to models: names, order, everything around the nodes, and constants that are computed on the way."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import checker, helper, numpy_helper

from taso.graph.graph import Value
from taso.hardware.runtime import Worker
from taso.onnxio.context import Imported
from taso.onnxio.export import export_model, rename
from taso.onnxio.tile import Tiler
from taso.spec.parse import parse_term
from tests.onnxio.models import imported, model, operators, outputs, random_feeds, rewritten

RNG = np.random.default_rng(0)
KERNELS = {name: RNG.standard_normal((4, 4, 3, 3), np.float32) for name in ("f", "g")}
TWO_CONVS = """agraph (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) {
    [left] a = Conv<pads = [1, 1, 1, 1]>(x, f)
    [right] b = Conv<pads = [1, 1, 1, 1]>(x, g)
    [sum] s = Add(a, b)
    [end] y = Relu(s) }"""


def with_change(source: onnx.ModelProto, old: str, term: str, **names: str) -> tuple[Imported, onnx.ModelProto]:
    """The model with one tensor replaced by a term over others, as a search would do it."""
    found = imported(source)
    arena, values = found.context.arena, found.context.values
    new = arena.build(parse_term(term), {name: values[tensor] for name, tensor in names.items()}, {}, "float")
    graph = found.graph.replace({values[old]: new}, arena)
    assert graph is not None
    return found, export_model(graph, found.context, Tiler(found.context, arena))


def test_a_rewrite_is_written_with_a_new_weight(worker: Worker) -> None:
    source = model(TWO_CONVS, **KERNELS)
    _, written = with_change(source, "s", "conv(x, add(f, g); before = 1, after = 1)", x="x", f="f", g="g")
    assert operators(written) == ["Conv", "Relu"]
    checker.check_model(written, full_check=True)
    [weight] = written.graph.initializer
    assert np.allclose(numpy_helper.to_array(weight), KERNELS["f"] + KERNELS["g"])
    assert list(written.graph.node[0].output) == ["s"]  # equal to what `s` was
    assert [node.name for node in written.graph.node] == ["taso_conv_1", "end"]
    assert [entry.key for entry in written.metadata_props] == ["taso"]
    feeds = random_feeds(source, worker)
    assert np.allclose(outputs(source, feeds, worker)["y"], outputs(written, feeds, worker)["y"], atol=1e-4)


def test_an_output_that_changes_keeps_its_name() -> None:
    source = model(TWO_CONVS.replace("(float[1, 4, 6, 6] y)", "(float[1, 4, 6, 6] s, float[1, 4, 6, 6] y)"), **KERNELS)
    _, written = with_change(source, "s", "conv(x, add(f, g); before = 1, after = 1)", x="x", f="f", g="g")
    assert written.graph.node[0].output[0] == "s"
    assert written.graph.output == source.graph.output and written.graph.input == source.graph.input


def test_constants_of_the_specification_are_stored() -> None:
    source = model("agraph (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) { t = Sigmoid(x) y = Neg(t) }")
    kernel = "identity_kernel(; channels = 4, per_group = 4, kernel = [3, 3])"
    _, written = with_change(source, "t", f"conv(relu(x), {kernel}; before = 1, after = 1)", x="x")
    [weight] = written.graph.initializer
    assert numpy_helper.to_array(weight).sum() == 4 and numpy_helper.to_array(weight)[2, 2, 1, 1] == 1


def test_everything_around_the_nodes_is_kept() -> None:
    source = model(TWO_CONVS, **KERNELS)
    source.producer_name, source.doc_string, source.graph.doc_string = "me", "what it does", "a graph"
    source.metadata_props.add(key="ünicode", value="värde")
    source.graph.node[3].doc_string = "the last"
    source.graph.node[3].metadata_props.add(key="k", value="v")
    source.graph.value_info.append(helper.make_tensor_value_info("s", 1, [1, 4, 6, 6]))
    source.graph.value_info.append(helper.make_tensor_value_info("a", 1, [1, 4, 6, 6]))
    source.functions.append(
        helper.make_function(
            "local", "Twice", ["x"], ["y"], [helper.make_node("Add", ["x", "x"], ["y"])], source.opset_import
        )
    )
    source.opset_import.append(helper.make_opsetid("local", 1))
    assert rewritten(source) == source
    _, changed = with_change(source, "s", "conv(x, add(f, g); before = 1, after = 1)", x="x", f="f", g="g")
    assert (
        changed.producer_name == "me" and changed.doc_string == "what it does" and changed.functions == source.functions
    )
    assert changed.graph.node[-1].doc_string == "the last" and changed.opset_import == source.opset_import
    assert changed.graph.node[-1].metadata_props == source.graph.node[3].metadata_props
    assert [info.name for info in changed.graph.value_info] == ["s"]  # `a` is gone
    kept = changed.metadata_props[0]
    assert (kept.key, kept.value) == ("ünicode", "värde")


def test_new_names_do_not_collide() -> None:
    text = (
        TWO_CONVS.replace(" a = ", " taso_conv_1 = ")
        .replace("Add(a, b)", "Add(taso_conv_1, b)")
        .replace("[end]", "[taso_conv_2]")
    )
    found, written = with_change(
        model(text, **KERNELS), "s", "add(conv(x, mul(f, 2); before = 1, after = 1), "
        "conv(x, g; before = 1, after = 1))",
        x="x", f="f", g="g",
    )  # fmt: skip
    del found
    made = [name for node in written.graph.node for name in (*node.output, node.name)]
    assert len(made) == len(set(made))
    checker.check_model(written)


def test_outputs_that_are_inputs_or_twice_the_same_are_copied(worker: Worker) -> None:
    source = model(
        "agraph (float[2] x) => (float[2] a, float[2] b, float[2] c) { a = Identity(x) b = Relu(x) c = Relu(x) }"
    )
    written = rewritten(source)
    assert sorted(operators(written)) == ["Identity", "Identity", "Relu"]
    checker.check_model(written, full_check=True)
    feeds = {"x": np.array([-1, 1], np.float32)}
    before, after = outputs(source, feeds, worker), outputs(written, feeds, worker)
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)


def test_subgraphs_see_renamed_values(worker: Worker) -> None:
    source = model("""agraph (bool c, float[2] x) => (float[2] t, float[2] y) {
        inner = Relu(x)
        t = Identity(inner)
        y = If (c) <then_branch = t1 () => (float[2] r) { r = Abs(inner) }, else_branch = e1 () => (float[2] q) {
            q = If (c) <then_branch = t2 () => (float[2] r2) { r2 = Neg(inner) },
                        else_branch = e2 () => (float[2] s2) { s2 = Neg(x) }> }> }""")
    written = rewritten(source)
    assert operators(written) == ["Relu", "If"]
    checker.check_model(written, full_check=True)
    for condition in (True, False):
        feeds = {"c": np.array(condition), "x": np.array([-1, 1], np.float32)}
        before, after = outputs(source, feeds, worker), outputs(written, feeds, worker)
        assert all(np.array_equal(before[name], after[name]) for name in before)


def test_renaming_respects_names_of_the_subgraph() -> None:
    inner = model("agraph (float[2] x) => (float[2] y) { z = Relu(x) y = Add(z, w) }").graph
    rename(inner, {"z": "other", "w": "weight", "x": "no"})
    assert list(inner.node[1].input) == ["z", "weight"] and inner.node[0].input[0] == "x"


def test_before_ir_4_new_constants_are_nodes() -> None:
    source = model("agraph (float[1, 4, 6, 6] x, float[4, 4, 3, 3] f) => (float[1, 4, 4, 4] y) { "
                   "t = Conv(x, f) y = Add(t, t) }", opset=8, ir_version=3, f=KERNELS["f"])  # fmt: skip
    _, written = with_change(source, "y", "mul(conv(x, f), 2)", x="x", f="f")
    assert operators(written) == ["Constant", "Conv", "Mul"]
    checker.check_model(written)
    assert written.graph.initializer == source.graph.initializer


def test_sparse_initializers_stay() -> None:
    source = model("agraph (float[4] x) => (float[4] y) { y = Add(x, w) }")
    values = numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    source.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 2]), "w_indices"), [4])
    )
    assert rewritten(source) == source


# --- folding

GROWING = """agraph (float[200, 200] x) => (float[200, 200] y) {
    t = Expand(row, shape)
    y = Add(x, t) }"""
GROWING_TENSORS = {"row": np.ones((1, 200), np.float32), "shape": np.array([200, 200])}


def test_what_the_model_leaves_to_the_runtime_is_not_blown_up() -> None:
    source = model(GROWING, **GROWING_TENSORS)
    assert operators(rewritten(source, fold=True)) == ["Expand", "Add"]


@pytest.mark.parametrize(("growth", "folds"), [(0.0, False), (1000.0, True)])
def test_new_constants_fold_within_the_growth(growth: float, folds: bool, worker: Worker) -> None:
    source = model(
        "agraph (float[200, 200] x) => (float[200, 200] y) { y = Sub(x, row) }", row=np.ones((1, 200), np.float32)
    )
    found = imported(source)
    arena = found.context.arena
    row = found.context.values["row"]
    term = parse_term(
        "matmul(x, transpose(broadcast(reshape(r; shape = [200]); dims = [1], shape = [200, 200]); perm = [1, 0]))"
    )
    value = arena.build(term, {"x": found.graph.inputs[0], "r": row}, {}, "float")
    graph = found.graph.replace({found.graph.outputs[0]: value}, arena)
    assert graph is not None
    written = export_model(graph, found.context, Tiler(found.context, arena), max_growth=growth, worker=worker)
    assert (operators(written) == ["MatMul"]) == folds
    stored = sum(len(tensor.raw_data) for tensor in written.graph.initializer)
    assert (stored >= 160_000) == folds


def test_small_constant_computations_are_folded(worker: Worker) -> None:
    source = model(
        "agraph (float[3] x) => (float[3] y) { s = Sqrt(four) y = Mul(x, s) }", four=np.full(3, 4, np.float32)
    )
    written = rewritten(source, worker, fold=True)
    assert operators(written) == ["Mul"]
    assert numpy_helper.to_array(written.graph.initializer[0]).tolist() == [2, 2, 2]
    assert written.graph.initializer[0].name == "s"


def test_a_constant_that_no_runtime_computes_stays(worker: Worker) -> None:
    source = model(
        "agraph (float[3] x) => (float[3] y) { s = Mystery(four) y = Mul(x, s) }", four=np.full(3, 4, np.float32)
    )
    assert operators(rewritten(source, worker, fold=True)) == ["Mystery", "Mul"]


def test_quantized_weights_stay_small(worker: Worker) -> None:
    source = model("agraph (float[2, 3] x) => (float[2, 4] y) { w = DequantizeLinear(q, s) y = MatMul(x, w) }",
                   q=np.ones((3, 4), np.int8), s=np.array(0.5, np.float32))  # fmt: skip
    assert operators(rewritten(source, worker, fold=True)) == ["DequantizeLinear", "MatMul"]


def test_values_keep_their_names_when_only_their_node_changes() -> None:
    found, written = with_change(
        model(TWO_CONVS, **KERNELS), "b", "conv(x, neg(g); before = 1, after = 1)", x="x", g="g"
    )
    value: Value = found.context.values["a"]
    assert value in found.context.origins
    assert [node.output[0] for node in written.graph.node if node.name == "left"] == ["a"]
    assert [tensor.name for tensor in written.graph.initializer] == ["f", "taso_constant_1"]
