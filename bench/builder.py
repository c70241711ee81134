"""A small builder of ONNX models with seeded random weights: one method an operator, shapes tracked along the way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8
RELU_GAIN = math.sqrt(2.0)  # relu halves the mean square, so weights after which it stands are this much larger


@dataclass(frozen=True)
class Value:
    """One float32 tensor of the graph that is being built."""

    name: str
    shape: tuple[int, ...]


class Builder:
    """Collects nodes and initializers; `model` closes the graph.

    Weights are normal with deviation gain / sqrt(fan in), which keeps the mean square of what flows through them.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, *shape: int) -> Value:
        """Declare a graph input."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return Value(name, shape)

    def constant(self, data: NDArray[Any]) -> Value:
        """Store an array (float32 or int64) as an initializer."""
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(data, name))
        return Value(name, data.shape)

    def scalar(self, number: float) -> Value:
        """Store one float32 number."""
        return self.constant(np.array(number, np.float32))

    def weight(self, *shape: int, fan_in: int, gain: float = 1.0) -> Value:
        """Draw a weight tensor."""
        return self.constant(self.rng.standard_normal(shape, dtype=np.float32) * np.float32(gain / math.sqrt(fan_in)))

    def node(self, op_type: str, inputs: list[Value], shape: tuple[int, ...], **attributes: Any) -> Value:
        """Append one node with one output of the given shape."""
        name = f"{op_type.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, [v.name for v in inputs], [name], name=name, **attributes))
        return Value(name, shape)

    def model(self, outputs: list[Value]) -> onnx.ModelProto:
        """Close the graph. The model is checked in full (schemas and shapes) before it is returned.

        Raises onnx.checker.ValidationError or onnx.shape_inference.InferenceError if a builder made something invalid.
        """
        infos = [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, infos, initializer=self.initializers)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="taso-bench")
        onnx.checker.check_model(model, full_check=True)
        return model

    # Elementwise. Shapes follow NumPy's broadcasting.

    def unary(self, op_type: str, x: Value) -> Value:
        """Apply an operator that keeps the shape."""
        return self.node(op_type, [x], x.shape)

    def binary(self, op_type: str, a: Value, b: Value) -> Value:
        """Apply a broadcasting operator."""
        return self.node(op_type, [a, b], np.broadcast_shapes(a.shape, b.shape))

    def relu(self, x: Value) -> Value:
        return self.unary("Relu", x)

    def add(self, a: Value, b: Value) -> Value:
        return self.binary("Add", a, b)

    def total(self, terms: list[Value]) -> Value:
        """Add up from the left."""
        result = terms[0]
        for term in terms[1:]:
            result = self.add(result, term)
        return result

    # Convolution, pooling and normalisation. Tensors are [batch, channel, height, width].

    def conv(self, x: Value, out: int, kernel: int, *, stride: int = 1, groups: int = 1, gain: float = 1.0) -> Value:
        """Convolve without bias; padded so that stride 1 keeps the size."""
        fan_in = x.shape[1] // groups * kernel * kernel
        weight = self.weight(out, x.shape[1] // groups, kernel, kernel, fan_in=fan_in, gain=gain)
        shape = (x.shape[0], out, *_windows(x.shape[2:], stride))
        attributes = _window_attributes(kernel, stride)
        return self.node("Conv", [x, weight], shape, group=groups, **attributes)

    def conv_relu(
        self, x: Value, out: int, kernel: int, *, stride: int = 1, groups: int = 1, gain: float = 1.0
    ) -> Value:
        """Convolve and rectify; gain 1 keeps the mean square through both."""
        return self.relu(self.conv(x, out, kernel, stride=stride, groups=groups, gain=gain * RELU_GAIN))

    def batch_norm(self, x: Value, scale: float = 1.0) -> Value:
        """Normalise with statistics as training leaves them: small means, variances about 1, scales about `scale`."""
        channels = x.shape[1]
        draws = [
            self.rng.uniform(0.75, 1.25, channels) * scale,
            self.rng.normal(0.0, 0.1, channels),
            self.rng.normal(0.0, 0.1, channels),
            self.rng.uniform(0.5, 1.5, channels),
        ]
        parameters = [self.constant(draw.astype(np.float32)) for draw in draws]
        return self.node("BatchNormalization", [x, *parameters], x.shape, epsilon=1e-5)

    def max_pool(self, x: Value, kernel: int, *, stride: int = 1) -> Value:
        return self._pool("MaxPool", x, kernel, stride)

    def average_pool(self, x: Value, kernel: int, *, stride: int = 1) -> Value:
        return self._pool("AveragePool", x, kernel, stride)

    def _pool(self, op_type: str, x: Value, kernel: int, stride: int) -> Value:
        shape = (*x.shape[:2], *_windows(x.shape[2:], stride))
        return self.node(op_type, [x], shape, **_window_attributes(kernel, stride))

    def concat(self, parts: list[Value], axis: int) -> Value:
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.node("Concat", parts, tuple(shape), axis=axis)

    # Linear algebra and movement.

    def matmul(self, a: Value, b: Value) -> Value:
        """Multiply the last two axes; those before are the same on both sides or missing on one."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return self.node("MatMul", [a, b], (*batch, a.shape[-2], b.shape[-1]))

    def linear(self, x: Value, out: int, *, gain: float = 1.0, bias: bool = False) -> Value:
        """Multiply by a drawn [in, out] matrix, with a drawn bias or without."""
        y = self.matmul(x, self.weight(x.shape[-1], out, fan_in=x.shape[-1], gain=gain))
        return self.add(y, self.weight(out, fan_in=100)) if bias else y

    def reshape(self, x: Value, *shape: int) -> Value:
        return self.node("Reshape", [x, self.constant(np.array(shape, np.int64))], shape)

    def transpose(self, x: Value, *perm: int) -> Value:
        return self.node("Transpose", [x], tuple(x.shape[axis] for axis in perm), perm=perm)

    def layer_norm(self, x: Value) -> Value:
        """Normalise over the last axis."""
        width = x.shape[-1]
        scale = self.constant(self.rng.uniform(0.75, 1.25, width).astype(np.float32))
        shift = self.constant(self.rng.normal(0.0, 0.1, width).astype(np.float32))
        return self.node("LayerNormalization", [x, scale, shift], x.shape, axis=-1)


def _windows(size: tuple[int, ...], stride: int) -> tuple[int, ...]:
    """How many windows an odd kernel padded by half its size has along each axis."""
    return tuple((length - 1) // stride + 1 for length in size)


def _window_attributes(kernel: int, stride: int) -> dict[str, list[int]]:
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
