"""Tiny ONNX models for the tests of this folder and of onnxio."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CASES = Path(__file__).resolve().parents[1] / "cases"


def case(name: str) -> tuple[bytes, dict[str, np.ndarray[Any, Any]]]:
    """Model and inputs of the case whose file name starts with `name`."""
    path = next(CASES.glob(f"{name}_*.onnx"))
    stored = np.load(path.with_suffix(".npz"), allow_pickle=True)
    return path.read_bytes(), {key.replace("__SLASH__", "/"): value for key, value in stored.items()}


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, int, Sequence[int | str] | None]],
    outputs: Sequence[tuple[str, int, Sequence[int | str] | None]],
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
) -> onnx.ModelProto:
    """A model at opset 17 with values given as (name, element type, shape)."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(*one) for one in outputs],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def unary(operator: str, shape: Sequence[int | str] = (4,), kind: int = TensorProto.FLOAT, count: int = 1) -> bytes:
    """`count` times the operator in a chain, from x to y."""
    names = ["x", *(f"h{position}" for position in range(count - 1)), "y"]
    nodes = [helper.make_node(operator, [one], [two]) for one, two in itertools.pairwise(names)]
    return model(nodes, [("x", kind, shape)], [("y", kind, shape)]).SerializeToString()


def scaled(factor: float, offset: float = 0.0, shape: Sequence[int] = (8,)) -> bytes:
    """y = x * factor + offset."""
    nodes = [helper.make_node("Mul", ["x", "f"], ["m"]), helper.make_node("Add", ["m", "o"], ["y"])]
    weights = {"f": np.array(factor, np.float32), "o": np.array(offset, np.float32)}
    values = [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, shape)]
    return model(nodes, *values, weights).SerializeToString()


def endless() -> bytes:
    """A loop that goes on for days: y = x + 1 + 1 + ..."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Add", ["a", "one"], ["b"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [1]),
        ],
    )
    loop = helper.make_node("Loop", ["trips", "always", "x"], ["y"], body=body)
    weights = {
        "trips": np.array(10**12, np.int64),
        "always": np.array(True),
        "one": np.ones(1, np.float32),
    }
    values = [("x", TensorProto.FLOAT, [1])], [("y", TensorProto.FLOAT, [1])]
    return model([loop], *values, weights).SerializeToString()
