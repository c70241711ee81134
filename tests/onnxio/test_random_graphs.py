"""Random graphs of the operators that are understood, in several opsets: written anew they compute the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, checker, helper, numpy_helper

from taso.hardware.runtime import Worker
from taso.onnxio.verify import compare
from tests.onnxio.models import outputs, rewritten

Shape = tuple[int, ...]


@dataclass
class Growing:
    """A model under construction: tensors by name with their shapes, each node a random choice."""

    draw: Any
    opset: int
    shapes: dict[str, Shape] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: list[onnx.TensorProto] = field(default_factory=list)

    def tensor(self, rank: int | None = None) -> str | None:
        names = [name for name, shape in self.shapes.items() if rank is None or len(shape) == rank]
        return self.draw(st.sampled_from(names)) if names else None

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        rng = np.random.default_rng(len(self.stored))
        return self.constant(0.3 + 0.5 * rng.random(shape))

    def node(self, op_type: str, inputs: list[str], shape: Shape, **attributes: Any) -> None:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        self.shapes[name] = shape

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))


def unary(g: Growing) -> None:
    x = g.tensor()
    assert x is not None
    g.node(g.one_of("Relu", "Sigmoid", "Tanh", "Neg", "Abs"), [x], g.shapes[x])


def clip(g: Growing) -> None:
    x = g.tensor()
    assert x is not None
    if g.opset < 11:
        g.node("Clip", [x], g.shapes[x], min=-0.5, max=0.75)
    else:
        low, high = g.constant(-0.5), g.constant(0.75)
        g.node("Clip", g.one_of([x, low], [x, "", high], [x, low, high]), g.shapes[x])


def binary(g: Growing) -> None:
    x = g.tensor()
    assert x is not None
    other = g.one_of("same", "scalar", "last", "channel", "stretched")
    shape = g.shapes[x]
    y = {
        "same": x, "scalar": g.weight(), "last": g.weight(shape[-1]),
        "channel": g.weight(*([shape[1]] + [1] * (len(shape) - 2))) if len(shape) > 1 else x,
        "stretched": g.weight(*[1 if k % 2 else n for k, n in enumerate(shape)]),
    }[other]  # fmt: skip
    g.node(g.one_of("Add", "Sub", "Mul", "Div", "Max" if g.opset >= 8 else "Add"), g.one_of([x, y], [y, x]), shape)


def convolution(g: Growing) -> None:
    x = g.tensor(4)
    if x is None:
        return
    n, c, h, w = g.shapes[x]
    group, k, pad = g.one_of(1, c), g.one_of(1, 3), g.one_of(0, 1)
    if h + 2 * pad < k or w + 2 * pad < k:
        return
    out = 2 * c
    inputs = [x, g.weight(out, c // group, k, k), *g.one_of([], [g.weight(out)])]
    g.node("Conv", inputs, (n, out, h + 2 * pad - k + 1, w + 2 * pad - k + 1), group=group, pads=[pad] * 4)


def pool(g: Growing) -> None:
    x = g.tensor(4)
    if x is None or min(g.shapes[x][2:]) < 2:
        return
    n, c, h, w = g.shapes[x]
    g.node(g.one_of("MaxPool", "AveragePool"), [x], (n, c, h // 2, w // 2), kernel_shape=[2, 2], strides=[2, 2])


def transpose(g: Growing) -> None:
    x = g.tensor()
    assert x is not None
    perm = g.draw(st.permutations(range(len(g.shapes[x]))))
    g.node("Transpose", [x], tuple(g.shapes[x][k] for k in perm), perm=perm)


def reshape(g: Growing) -> None:
    x = g.tensor()
    assert x is not None
    shape = g.shapes[x]
    target = g.one_of((shape[0], -1), (-1,), (0, -1, 1), (*shape, 1))
    concrete = [shape[k] if n == 0 else n for k, n in enumerate(target)]
    left = int(np.prod(shape)) // int(np.prod([n for n in concrete if n > 0]))
    g.node("Reshape", [x, g.constant(target, np.int64)], tuple(left if n == -1 else n for n in concrete))


def concat(g: Growing) -> None:
    x = g.tensor()
    assert x is not None
    axis, shape = g.one_of(0, -1), list(g.shapes[x])
    count = g.one_of(2, 3)
    shape[axis] *= count
    g.node("Concat", [x] * count, tuple(shape), axis=axis)


def slices(g: Growing) -> None:
    x = g.tensor()
    assert x is not None
    shape = list(g.shapes[x])
    if shape[-1] < 3:
        return
    shape[-1] -= 2
    if g.opset < 10:
        g.node("Slice", [x], tuple(shape), axes=[len(shape) - 1], starts=[1], ends=[-1])
    else:
        numbers = [g.constant([number], np.int64) for number in (1, -1, -1)]
        g.node("Slice", [x, *numbers], tuple(shape))


def reduce_mean(g: Growing) -> None:
    x = g.tensor()
    assert x is not None
    shape, keep = g.shapes[x], g.one_of(0, 1)
    if len(shape) < 2:
        return
    result = (*shape[:-1], 1) if keep else shape[:-1]
    if g.opset < 18:
        g.node("ReduceMean", [x], result, axes=[-1] if g.opset >= 11 else [len(shape) - 1], keepdims=keep)
    else:
        g.node("ReduceMean", [x, g.constant([-1], np.int64)], result, keepdims=keep)


def matmul(g: Growing) -> None:
    x = g.tensor()
    assert x is not None
    shape = g.shapes[x]
    if len(shape) >= 2:
        g.node("MatMul", [x, g.weight(shape[-1], 3)], (*shape[:-1], 3))


def gemm(g: Growing) -> None:
    x = g.tensor(2)
    if x is not None:
        n, m = g.shapes[x]
        g.node("Gemm", [x, g.weight(3, m), g.weight(3)], (n, 3), transB=1, alpha=0.5)


def batch_norm(g: Growing) -> None:
    x = g.tensor(4)
    if x is not None:
        c = g.shapes[x][1]
        g.node("BatchNormalization", [x, *(g.weight(c) for _ in range(4))], g.shapes[x], epsilon=0.01)


def softmax(g: Growing) -> None:
    x = g.tensor()
    assert x is not None
    rank = len(g.shapes[x])
    g.node("Softmax", [x], g.shapes[x], axis=-1 if g.opset >= 13 else rank - 1)


STEPS: list[Callable[[Growing], None]] = [
    unary, clip, binary, convolution, pool, transpose, reshape, concat, slices, reduce_mean, matmul, gemm, batch_norm,
    softmax,
]  # fmt: skip


@st.composite
def graphs(draw: Any) -> onnx.ModelProto:
    g = Growing(draw, draw(st.sampled_from([9, 11, 13, 17, 20])))
    g.shapes = {"x": (1, 4, 6, 5), "z": (3, 4)}
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6)):
        step(g)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, g.shapes[name]) for name in "xz"]
    read = {name for node in g.nodes for name in node.input}
    ends = [name for name in g.shapes if name not in read and name not in "xz"]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, g.shapes[name]) for name in ends or "x"]
    graph = helper.make_graph(g.nodes, "random", inputs, results, g.stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=8)


@pytest.mark.parametrize("origins", [True, False])
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(source=graphs())
def test_written_again_it_computes_the_same(origins: bool, worker: Worker, source: onnx.ModelProto) -> None:
    checker.check_model(source)
    written = rewritten(source, worker, origins=origins, fold=not origins, growth=10.0)
    checker.check_model(written)
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("x", (1, 4, 6, 5)), ("z", (3, 4)))
    }
    feeds = {one.name: feeds[one.name] for one in source.graph.input}
    before, after = outputs(source, feeds, worker), outputs(written, feeds, worker)
    differences = compare(before, after, rtol=1e-4)
    assert all(one.ok for one in differences), differences
    if origins:
        assert all(np.array_equal(before[name], after[name], equal_nan=True) for name in before)
