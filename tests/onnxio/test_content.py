"""The declared contents and extents of ONNX operators against onnx's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from taso.errors import ShapeError, SpecError
from taso.onnxio.content import run_node
from taso.onnxio.reading import NotRead, applies, bind
from taso.spec import syntax as s
from taso.spec.evaluate import evaluate
from taso.spec.spec import load_spec
from tests.onnxio.models import Array, imported

FLOATS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
LIST = [5, 7, 9]

# (operator, opset, inputs, attributes): every declaration must apply to at least one.
CASES: list[tuple[str, int, list[Any], dict[str, Any]]] = [
    ("Shape", 13, [FLOATS], {}),
    ("Shape", 15, [FLOATS], {"start": 1}),
    ("Shape", 15, [FLOATS], {"start": -2, "end": -1}),
    ("Size", 13, [FLOATS], {}),
    ("Identity", 13, [4], {}),
    ("Identity", 13, [LIST], {}),
    ("Cast", 13, [4], {"to": TensorProto.INT32}),
    ("Cast", 13, [LIST], {"to": TensorProto.INT64}),
    ("Gather", 13, [LIST, -1], {"axis": 0}),
    ("Gather", 13, [LIST, [2, 0]], {}),
    ("Concat", 13, [LIST, [1], [2, 3]], {"axis": 0}),
    ("Slice", 13, [LIST, [-2], [9]], {}),
    ("Slice", 13, [LIST, [0], [-1], [0]], {}),
    ("Slice", 13, [LIST, [1], [3], [0], [1]], {}),
    ("Slice", 9, [LIST], {"starts": [1], "ends": [1000]}),
    ("Unsqueeze", 11, [4], {"axes": [0]}),
    ("Unsqueeze", 13, [4, [0]], {}),
    ("Squeeze", 13, [[4]], {}),
    ("Squeeze", 11, [[4]], {"axes": [0]}),
    ("Squeeze", 13, [[4], [0]], {}),
    ("Reshape", 13, [4, [1]], {}),
    ("Reshape", 13, [4, [-1]], {}),
    ("Reshape", 13, [LIST, [-1]], {}),
    *((op, 13, inputs, {}) for op in ("Add", "Sub", "Mul") for inputs in ([4, 3], [LIST, 3], [3, LIST], [LIST, LIST])),
    ("Div", 13, [7, 2], {}),
    ("Div", 13, [LIST, 2], {}),
    ("Div", 13, [LIST, [2, 3, 4]], {}),
]
EXTENTS: list[tuple[str, int, list[Any], dict[str, Any]]] = [
    ("Reshape", 13, [FLOATS, [0, -1]], {}),
    ("Expand", 13, [FLOATS, [5, 1, 1, 1]], {}),
    ("ConstantOfShape", 13, [LIST], {"value": numpy_helper.from_array(np.array([1], np.float32))}),
    ("Upsample", 9, [FLOATS, np.array([1, 2, 1.5], np.float32)], {"mode": "nearest"}),
    ("Resize", 10, [FLOATS, np.array([1, 2, 1.5], np.float32)], {"mode": "nearest"}),
    ("Resize", 13, [FLOATS, np.zeros(0, np.float32), np.array([1, 2, 0.7], np.float32)], {"mode": "nearest"}),
    ("Resize", 13, [FLOATS, None, np.array([1, 2, 1], np.float32)], {"mode": "nearest"}),
    ("Resize", 13, [FLOATS, None, None, LIST], {"mode": "nearest"}),
    ("Resize", 13, [FLOATS, np.zeros(0, np.float32), np.zeros(0, np.float32), LIST], {"mode": "nearest"}),
]
NOT_IN_THE_REFERENCE = {("Upsample", 9), ("Resize", 10)}  # of long ago


def node_of(op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> tuple[onnx.NodeProto, dict[str, Array]]:
    feeds = {f"x{k}": np.asarray(one) for k, one in enumerate(inputs) if one is not None}
    names = ["" if one is None else f"x{k}" for k, one in enumerate(inputs)]
    return helper.make_node(op_type, names, ["y"], **attributes), feeds


def told(what: str, op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Every declaration that applies, with what it says."""
    node, feeds = node_of(op_type, inputs, attributes)
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["a"], ["b"])], "g", [helper.make_tensor_value_info("a", 1, [1])],
            [helper.make_tensor_value_info("b", 1, [1])], [numpy_helper.from_array(x, n) for n, x in feeds.items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
    )  # fmt: skip
    values = imported(model).context.values
    spec = load_spec()
    found = []
    for declaration in (spec.contents if what == "content" else spec.extents)[("", op_type)]:
        if applies(declaration, opset):
            try:
                bound = bind(declaration, node, values, feeds.get)
                found.append((declaration, evaluate(declaration.body, bound.scope)))
            except (NotRead, ShapeError, SpecError):
                continue
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{len(case[2])}")
def test_contents_are_what_the_reference_computes(case: tuple[str, int, list[Any], dict[str, Any]]) -> None:
    op_type, opset, inputs, attributes = case
    node, feeds = node_of(op_type, inputs, attributes)
    [computed] = run_node(node, feeds, {"": opset})
    found = told("content", *case)
    assert found
    for _, content in found:
        assert np.array_equal(np.asarray(content), computed) and np.asarray(content).ndim == computed.ndim


@pytest.mark.parametrize("case", EXTENTS, ids=lambda case: f"{case[0]}-{case[1]}-{len(case[2])}")
def test_extents_are_what_the_reference_computes(case: tuple[str, int, list[Any], dict[str, Any]]) -> None:
    op_type, opset, inputs, attributes = case
    found = told("extent", *case)
    assert found
    if (op_type, opset) in NOT_IN_THE_REFERENCE:
        assert [shape for _, shape in found] == [(2, 6, 6)]
        return
    node, feeds = node_of(op_type, inputs, attributes)
    [computed] = run_node(node, feeds, {"": opset})
    assert all(shape == computed.shape for _, shape in found)


@pytest.mark.parametrize(("what", "cases"), [("content", CASES), ("extent", EXTENTS)])
def test_every_declaration_is_tested(what: str, cases: list[tuple[str, int, list[Any], dict[str, Any]]]) -> None:
    spec = load_spec()
    declared: list[s.Content] = [
        one for group in (spec.contents if what == "content" else spec.extents).values() for one in group
    ]
    seen = {id(declaration) for case in cases for declaration, _ in told(what, *case)}
    assert [f"{one.op_type}, line {one.pos.line}" for one in declared if id(one) not in seen] == []
