"""Small real models for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def two_convolutions(path: Path, *, channels: int = 8, size: int = 16, scale: float = 1.0) -> Path:
    """relu(conv(x, f) + scale * conv(x, g)): the sum is one convolution."""
    rng = np.random.default_rng(0)
    kernels = [rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) * 0.1 for _ in range(2)]
    return _save(
        path,
        [
            helper.make_node("Conv", ["x", "f"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Conv", ["x", "g"], ["b"], pads=[1, 1, 1, 1]),
            helper.make_node("Add", ["a", "b"], ["c"]),
            helper.make_node("Relu", ["c"], ["y"]),
        ],
        {"x": ["batch", channels, size, size]},
        {"y": ["batch", channels, size, size]},
        {"f": kernels[0], "g": kernels[1] * np.float32(scale)},
    )


def one_matmul(path: Path, *, factor: float = 1.0) -> Path:
    """x @ w: nothing to improve."""
    weight = np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32) * np.float32(factor)
    return _save(path, [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [4, 32]}, {"y": [4, 32]}, {"w": weight})


def joined_softsigns(path: Path, *, pairs: int = 4, size: int = 64) -> Path:
    """concat(softsign(a), softsign(b)), several times over: each needs one softsign only."""
    nodes = []
    for k in range(pairs):
        inputs = ["a", "b"] if k == 0 else [f"y{k - 1}", "b"]
        nodes.append(helper.make_node("Softsign", [inputs[0]], [f"s{k}"]))
        nodes.append(helper.make_node("Softsign", [inputs[1]], [f"t{k}"]))
        nodes.append(helper.make_node("Concat", [f"s{k}", f"t{k}"], [f"y{k}"], axis=1))
    last, width = f"y{pairs - 1}", size * (pairs + 1)
    return _save(path, nodes, {"a": [2, size], "b": [2, size]}, {last: [2, width]}, {})


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    outputs: dict[str, list[int | str]],
    weights: dict[str, np.ndarray],
) -> Path:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path
