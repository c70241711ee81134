"""Comparison with ONNX: the shipped specification agrees, and every kind of wrong meaning is found."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from taso.spec import syntax as s
from taso.spec.axioms import check_axioms
from taso.spec.conform import Conformance, SpecReport, check_all, conform, difference
from taso.spec.conform_imports import conform_import, import_title
from taso.spec.lower import run_term
from taso.spec.node import NodeCase, NotRun, legal, model_of, newest_opset, run_reference, run_runtime, schema
from taso.spec.parse import parse_term
from taso.spec.sample import draw, draw_shape, draw_tensor
from taso.spec.shapes import solve
from taso.spec.spec import Spec, load_spec
from tests.spec import corrupt

SPEC = load_spec()
DECLARED = [*SPEC.operators, *SPEC.macros]
IMPORTS = [line for lines in SPEC.imports.values() for line in lines]

# What the language must have, and what each must be written as in ONNX.
REQUIRED = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "min": "Min", "max": "Max", "neg": "Neg",
    "abs": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal", "relu": "Relu",
    "sigmoid": "Sigmoid", "tanh": "Tanh", "erf": "Erf", "clip": "Clip", "matmul": "MatMul", "transpose": "Transpose",
    "reshape": "Reshape", "concat": "Concat", "slice": "Slice", "pad": "Pad", "broadcast": "Expand",
    "reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_max": "ReduceMax", "conv": "Conv",
    "max_pool": "MaxPool", "avg_pool": "AveragePool", "avg_pool_padded": "AveragePool",
    "global_average_pool": "GlobalAveragePool", "batch_norm": "BatchNormalization", "gemm": "Gemm", "conv_bias": "Conv",
    "leaky_relu": "LeakyRelu", "hard_sigmoid": "HardSigmoid", "hard_swish": "HardSwish", "gelu": "Gelu",
    "gelu_tanh": "Gelu", "softmax": "Softmax", "layer_norm": "LayerNormalization", "rms_norm": "RMSNormalization",
}  # fmt: skip


@pytest.mark.parametrize("name", DECLARED)
def test_operators_and_macros_mean_what_onnx_means(name: str) -> None:
    found = conform(SPEC, name, tries=6, seed=1)
    assert found.failures == []
    assert found.ok and found.cases >= 6 * found.forms


@pytest.mark.parametrize("line", IMPORTS, ids=import_title)
def test_imports_read_nodes_as_onnx_means_them(line: s.Import) -> None:
    found = conform_import(SPEC, line, tries=5, seed=1)
    assert found.failures == []
    assert found.ok and found.cases >= 5


def test_what_is_required_is_there() -> None:
    for name, op_type in REQUIRED.items():
        assert op_type in {form.op_type for form in SPEC.declared(name).onnx}, name
        assert ("", op_type) in SPEC.imports, op_type


def test_constants() -> None:
    def value(text: str) -> np.ndarray:
        return run_term(parse_term(text), SPEC, {})

    np.testing.assert_array_equal(value("zeros(; shape = [2, 3])"), np.zeros((2, 3)))
    np.testing.assert_array_equal(value("ones(; shape = [])"), np.ones(()))
    np.testing.assert_array_equal(value("identity_matrix(; size = 3)"), np.eye(3))
    kernel = value("identity_kernel(; channels = 4, per_group = 2, kernel = [3, 1])")
    assert kernel.shape == (4, 2, 3, 1) and kernel.sum() == 4
    image = np.arange(2.0 * 4 * 5 * 5).reshape(2, 4, 5, 5)
    same = parse_term("conv(x, f; before = [1, 0], after = [1, 0], group = 2)")
    np.testing.assert_array_equal(run_term(same, SPEC, {"x": image, "f": kernel}), image)


# --- wrong meanings are found --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("out[*i] = x[*i] - y[*i]", "out[*i] = y[*i] - x[*i]", "sub"),
        ("out[*i] = x[*i] * y[*i]", "out[*i] = x[*i] + y[*i]", "mul"),
        ("out[*i] = max(x[*i], 0)", "out[*i] = max(x[*i], 1)", "relu"),
        ("min(max(x[*i], low), high)", "max(min(x[*i], high), low)", "clip"),
        ("a[*b, i, l] * c[*b, l, j]", "a[*b, i, l] * c[*b, l, j] * 2", "matmul"),
        ("x[*select(i, inverse(perm))]", "x[*select(i, perm)]", "transpose"),
        ("onnx Transpose(x; perm = perm)", "onnx Transpose(x; perm = inverse(perm))", "transpose"),
        ("if j < m then a[*i, j, *k] else b[*i, j - m, *k]",
         "if j < n then b[*i, j, *k] else a[*i, j - n, *k]", "concat"),
        ("x[*i, start + j * step, *k]", "x[*i, stop - 1 - j * step, *k]", "slice"),
        ("out[*i] = x[*(i - before) | value]", "out[*i] = x[*(i - before) | 0]", "pad"),
        ("onnx Pad(x, ints(before ++ after)", "onnx Pad(x, ints(after ++ before)", "pad"),
        ("*(y*stride + r*dilation - before) | 0] * f[p, q, *r]",
         "*(y*stride + r*dilation - after) | 0] * f[p, q, *r]", "conv"),
        ("(p / o)*c + q", "q", "conv"),
        ("onnx Conv(x, f; strides = stride", "onnx Conv(x, f; strides = dilation", "conv"),
        ("max(*r < kernel) x[b, p, *(y*stride + r*dilation - before) | -inf]",
         "max(*r < kernel) x[b, p, *(y*stride + r*dilation - before) | 0]", "max_pool"),
        ("before ++ after, count_include_pad = 1)", "before ++ after)", "avg_pool_padded"),
        (" / product(select(s, axes))", " / product(s)", "reduce_mean"),
        ("onnx ReduceMax(x; axes = axes, keepdims = 0) since 1 until 17 when len(axes) > 0",
         "onnx ReduceMax(x; axes = axes, keepdims = 0) since 1 until 17", "reduce_max"),
        ("sub(shift, mul(mean,", "add(shift, mul(mean,", "batch_norm"),
        ("add(erf(mul(x, `1 / sqrt(2)`)), 1)", "add(erf(x), 1)", "gelu"),
        ("onnx Gemm(a, c, bias) since 7", "onnx Gemm(a, c, bias; alpha = 2) since 7", "gemm"),
    ],
)  # fmt: skip
def test_wrong_meanings_are_found(old: str, new: str, name: str) -> None:
    found = conform(changed(old, new), name, tries=20)
    assert not found.ok and found.failures and found.status == "differs"


@pytest.mark.parametrize(
    ("old", "new", "op_type"),
    [
        ("= sub(expand(x; shape", "= add(expand(x; shape", "Sub"),
        ("transA != 0 then transpose", "transB != 0 then transpose", "Gemm"),
        ("import LeakyRelu(x; alpha = 0.01)", "import LeakyRelu(x; alpha = 0.1)", "LeakyRelu"),
        ("reverse(range(rank(x)))", "range(rank(x))", "Transpose"),
        ("merge(shape(x), fill(len(axes), 1), normalize(axes, rank(x) + len(axes)))",
         "merge(shape(x), fill(len(axes), 1), normalize(axes, rank(x)))", "Unsqueeze"),
        ("stop = sum(take(split, output + 1))", "stop = sum(take(split, output)) + 1", "Split"),
        ("import Softmax(x; axis = -1) since 13", "import Softmax(x; axis = -1) since 1", "Softmax"),
        ("before = take(pads, rank(x)), after = skip(pads, rank(x)), value = value)",
         "before = take(pads, rank(x)), after = skip(pads, rank(x)))", "Pad"),
    ],
)  # fmt: skip
def test_wrong_imports_are_found(old: str, new: str, op_type: str) -> None:
    lines = changed(old, new).imports["", op_type]
    assert any(not conform_import(changed(old, new), line, tries=25).ok for line in lines)


def changed(old: str, new: str) -> Spec:
    """The shipped specification with a text replaced everywhere it stands."""
    hits = [(path, text) for path, (text, _) in corrupt.shipped().items() if old in text]
    assert hits, old
    path, text = hits[0]
    return corrupt.spec_with(path, text.replace(old, new))


def test_a_meaning_without_a_value_is_a_failure() -> None:
    spec = Spec()
    spec.add("op f(x[n]) -> [n] out[i] = x[i + 1] onnx Relu(x) since 6", "f.op")
    found = conform(spec, "f", tries=3)
    assert "read outside its bounds" in found.failures[0]


def test_a_form_that_never_fits_is_a_failure() -> None:
    spec = Spec()
    spec.add("op f(x[n]) -> [n] out[i] = x[i] onnx Relu(x) since 6 when n > 1000", "f.op")
    found = conform(spec, "f", tries=3)
    assert not found.ok and "nothing was compared" in found.failures[0]


def test_the_same_seed_gives_the_same_comparison() -> None:
    assert conform(SPEC, "conv", tries=4, seed=3) == conform(SPEC, "conv", tries=4, seed=3)


# --- the parts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECLARED)
def test_samples_satisfy_the_declaration(name: str) -> None:
    import random

    declared = SPEC.declared(name)
    rng = random.Random(name)
    samples = [draw(declared, rng) for _ in range(10)]
    assert any(sample is not None for sample in samples)
    for sample in samples:
        if sample is not None:
            assert solve(declared, sample.shapes, sample.attrs).result == sample.result


def test_samples_vary() -> None:
    import random

    rng = random.Random(1)
    samples = [sample for _ in range(60) if (sample := draw(SPEC.declared("conv"), rng)) is not None]
    assert {len(sample.shapes[0]) for sample in samples} >= {3, 4}
    assert {sample.attrs["group"] for sample in samples} >= {1, 2}
    assert any(any(n > 1 for n in sample.attrs["stride"]) for sample in samples)
    assert any(any(n > 1 for n in sample.attrs["dilation"]) for sample in samples)
    assert any(sample.attrs["before"] != sample.attrs["after"] for sample in samples)
    assert any(len(set(sample.shapes[1][2:])) > 1 for sample in samples)


def test_drawn_shapes_and_tensors() -> None:
    import random

    from taso.spec.sample import Sizes

    rng = random.Random(2)
    shapes = {draw_shape([(2, 3, 4)], Sizes(rng), rng) for _ in range(200)}
    assert any(math.prod(shape) == 24 and shape != (2, 3, 4) for shape in shapes)
    whole = draw_tensor((50,), rng, "whole")
    assert (whole == np.round(whole)).all() and (whole == 0).any() and (whole < 0).any()
    assert (draw_tensor((50,), rng, "positive") > 0).all()


def test_difference() -> None:
    a = np.array([1.0, math.inf, math.nan])
    assert difference(a, a) == 0
    assert difference(a, np.array([1.0, math.inf, 0.0])) == math.inf
    assert difference(a, np.array([1.0, -math.inf, math.nan])) == math.inf
    assert difference(np.zeros(2), np.zeros((2, 1))) == math.inf
    assert difference(np.array([3.0]), np.array([1.0])) == 1
    assert difference(np.zeros((0,)), np.zeros((0,))) == 0


def test_nodes_run_by_both() -> None:
    x = np.array([[-1.0, 2.0]])
    case = NodeCase("LeakyRelu", "", 16, (x,), {"alpha": 0.5})
    np.testing.assert_allclose(run_reference(case)[0], [[-0.5, 2.0]])
    outputs, precision = run_runtime(case)
    np.testing.assert_allclose(outputs[0], [[-0.5, 2.0]])
    assert precision in (np.float64, np.float32) and legal(case)
    assert str(case) == "LeakyRelu([1, 2]; alpha = 0.5) in opset 16"


def test_nodes_that_cannot_run() -> None:
    bad = NodeCase("MatMul", "", 13, (np.ones((2, 3)), np.ones((2, 3))))
    with pytest.raises(NotRun):
        run_reference(bad)
    with pytest.raises(NotRun):
        run_runtime(bad)
    assert not legal(bad)


def test_empty_slots_and_constants_of_a_node() -> None:
    case = NodeCase("Clip", "", 13, (np.ones(3), None, np.asarray(0.5)), {}, 1, frozenset({2}))
    model, feeds = model_of(case)
    assert list(model.graph.node[0].input) == ["x0", "", "x2"] and feeds.keys() == {"x0"}
    assert [one.name for one in model.graph.initializer] == ["x2"]


def test_schemas() -> None:
    assert schema("Relu", "", 6) is not None and schema("Relu", "no.such.domain", 6) is None
    assert schema("Upsample", "", 10) is None  # deprecated
    assert newest_opset("") >= 20 and newest_opset("no.such.domain") == 0


# --- the whole report ----------------------------------------------------------------------------------------------

SMALL = """
op double(x[*s]) -> [*s]
    out[*i] = 2 * x[*i]
op plus(x[*s], y[*s]) -> [*s]
    out[*i] = x[*i] + y[*i]
    onnx Add(x, y) since 7
import Add(x, y) since 7 when shape(x) == shape(y) = plus(x, y)
axiom double(plus(x, y)) == plus(double(x), double(y))
"""


def report(text: str) -> SpecReport:
    spec = Spec()
    spec.add(text, "small.op")
    seen: list[tuple[str, int, int]] = []
    found = check_all(spec, progress=lambda what, done, total: seen.append((what, done, total)), tries=5)
    assert [done for _, done, _ in seen] == list(range(seen[-1][2]))
    return found


def test_a_report_of_everything() -> None:
    found = report(SMALL)
    assert found.ok and [row.status for row in found.rows] == ["no form", "same", "same"]
    assert [axiom.status for axiom in found.axioms] == ["proved"]
    assert json.loads(json.dumps(found.to_dict()))["ok"] is True


def test_a_report_of_something_wrong() -> None:
    found = report(SMALL.replace("x[*i] + y[*i]", "x[*i] + y[*i] + 1"))
    assert not found.ok and [row.status for row in found.rows] == ["no form", "differs", "differs"]
    (axiom,) = found.axioms
    assert axiom.status == "refuted" and "the left side is" in axiom.detail and axiom.place == "small.op:8"


def test_the_shipped_axioms_are_not_refuted() -> None:
    results = check_axioms(SPEC)
    assert len(results) == len(SPEC.axioms) and all(result.status == "proved" for result in results)


def test_a_conformance_without_cases_is_not_ok() -> None:
    assert not Conformance("f", forms=1).ok and Conformance("f", forms=0).ok
