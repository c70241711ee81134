"""The networks of the TASO paper (Jia et al., SOSP 2019, section 7) and a few that show one effect each.

Every builder takes `small` (a tiny version of the same structure, for tests) and `seed` (of the weights), and returns a
checked model in float32 whose activations stay of order 1 through the depth.

usage: python -m bench.networks OUTDIR [NAME ...]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from bench.builder import RELU_GAIN, Builder, Value

Network = Callable[..., onnx.ModelProto]
BRANCH_GAIN = 0.3  # of the last weights of a residual branch, so that sums of many of them do not grow


# ResNet-50 and ResNeXt-50


def resnet50(small: bool = False, seed: int = 1) -> onnx.ModelProto:
    """ResNet-50 without its stem: bottleneck blocks 3/4/6/3 of width 64 to 512, times 4 at their ends."""
    build = Builder("resnet50", seed)
    x = build.input("x", 1, 8, 14, 14) if small else build.input("x", 1, 64, 56, 56)
    blocks, width = ((1, 2), 8) if small else ((3, 4, 6, 3), 64)
    return build.model([_bottlenecks(build, x, blocks, width, expansion=4, groups=1)])


def resnext50(small: bool = False, seed: int = 2) -> onnx.ModelProto:
    """ResNeXt-50: a 7x7 stem, then bottleneck blocks of width 128 to 1024 in 32 groups, times 2 at their ends."""
    build = Builder("resnext50", seed)
    x = _stem(build, build.input("x", 1, 3, 28, 28) if small else build.input("x", 1, 3, 224, 224), 8 if small else 64)
    blocks, width, groups = ((1, 2), 16, 4) if small else ((3, 4, 6, 3), 128, 32)
    return build.model([_bottlenecks(build, x, blocks, width, expansion=2, groups=groups)])


def _stem(build: Builder, x: Value, out: int) -> Value:
    """A quarter of the size: a 7x7 convolution and a max-pooling, both with stride 2."""
    return build.max_pool(build.conv_relu(x, out, 7, stride=2), 3, stride=2)


def _bottlenecks(
    build: Builder, x: Value, blocks: tuple[int, ...], width: int, *, expansion: int, groups: int
) -> Value:
    """Stages of residual blocks; each stage after the first halves the size and doubles the width."""
    for stage, count in enumerate(blocks):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            x = _bottleneck(build, x, width << stage, expansion, stride, groups)
    return x


def _bottleneck(build: Builder, x: Value, width: int, expansion: int, stride: int, groups: int) -> Value:
    out = width * expansion
    y = build.conv_relu(x, width, 1)
    y = build.conv_relu(y, width, 3, stride=stride, groups=groups)
    y = build.conv(y, out, 1, gain=BRANCH_GAIN)
    shortcut = x if stride == 1 and x.shape[1] == out else build.conv_relu(x, out, 1, stride=stride)
    return build.relu(build.add(shortcut, y))


# NasRNN


def nasrnn(small: bool = False, seed: int = 3) -> onnx.ModelProto:
    """The recurrent cell found by architecture search (Zoph and Le 2017), unrolled over 5 steps from a constant state.

    Every step has 8 gates x @ W1 + h @ W2 and a tree of activations over them. As in every recurrent network the steps
    share their weights (16 MB in all).
    """
    return _nasrnn("nasrnn", small, seed, shared=True)


def nasrnn_fresh(small: bool = False, seed: int = 3) -> onnx.ModelProto:
    """`nasrnn` with weights of its own at each step, as TASO's script draws them: 84 MB, mostly reading time."""
    return _nasrnn("nasrnn_fresh", small, seed, shared=False)


def _nasrnn(name: str, small: bool, seed: int, shared: bool) -> onnx.ModelProto:
    build = Builder(name, seed)
    steps, hidden = (2, 16) if small else (5, 512)
    inputs = [build.input(f"x{step}", 1, hidden) for step in range(steps)]
    state = build.weight(1, hidden, fan_in=1)
    weights = _gate_weights(build, hidden)
    for step, x in enumerate(inputs):
        if step > 0 and not shared:
            weights = _gate_weights(build, hidden)
        state = _nas_cell(build, x, state, weights)
    return build.model([state])


def _gate_weights(build: Builder, hidden: int) -> list[tuple[Value, Value]]:
    """W1 and W2 of the 8 gates; scaled so that the sum of their products is of order 1."""
    return [
        (build.weight(hidden, hidden, fan_in=2 * hidden), build.weight(hidden, hidden, fan_in=2 * hidden))
        for _ in range(8)
    ]


def _nas_cell(build: Builder, x: Value, state: Value, weights: list[tuple[Value, Value]]) -> Value:
    def sigmoid(v: Value) -> Value:
        return build.unary("Sigmoid", v)

    def tanh(v: Value) -> Value:
        return build.unary("Tanh", v)

    def mul(a: Value, b: Value) -> Value:
        return build.binary("Mul", a, b)

    t = [build.add(build.matmul(x, w1), build.matmul(state, w2)) for w1, w2 in weights]
    m0 = build.add(build.relu(t[0]), sigmoid(t[3]))
    m1 = build.add(sigmoid(t[1]), tanh(t[2]))
    m2 = mul(sigmoid(t[4]), tanh(t[5]))
    m3 = mul(sigmoid(t[6]), build.relu(t[7]))
    m4 = build.add(sigmoid(m1), tanh(m2))
    m5 = mul(tanh(m0), tanh(m3))
    m6 = mul(tanh(m4), tanh(m5))
    return tanh(m6)


# NasNet-A


def nasnet_a(small: bool = False, seed: int = 4) -> onnx.ModelProto:
    """NasNet-A (Zoph et al. 2018): 3 times 5 normal cells and a reduction cell, from 128 channels, doubling each time.

    Each cell squeezes its two inputs to one width and adds five pairs of separable convolutions and poolings.
    """
    build = Builder("nasnet_a", seed)
    channels, repeats, normals = (8, 1, 2) if small else (128, 3, 5)
    x = build.input("x", 1, 3, 32, 32) if small else build.input("x", 1, 3, 224, 224)
    x = _stem(build, x, channels // 2)
    for _ in range(repeats):
        previous = current = x
        for _ in range(normals):
            previous, current = current, _normal_cell(build, previous, current, channels)
        channels *= 2
        x = _reduction_cell(build, previous, current, channels)
    return build.model([x])


def _separable(build: Builder, x: Value, kernel: int, stride: int = 1) -> Value:
    """A depthwise convolution and a pointwise one; scaled so that the sum of two such branches keeps its size."""
    channels = x.shape[1]
    return build.conv(build.conv(x, channels, kernel, stride=stride, groups=channels), channels, 1, gain=0.7)


def _cell_inputs(build: Builder, previous: Value, current: Value, channels: int) -> tuple[Value, Value]:
    """Squeeze both to one width; the previous one may still have twice the size."""
    kernel, stride = (1, 1) if previous.shape[2] == current.shape[2] else (3, 2)
    return (
        build.conv_relu(previous, channels, kernel, stride=stride, gain=0.75),
        build.conv_relu(current, channels, 1, gain=0.75),
    )


def _normal_cell(build: Builder, previous: Value, current: Value, channels: int) -> Value:
    previous, current = _cell_inputs(build, previous, current, channels)
    pairs = [
        (_separable(build, current, 3), current),
        (_separable(build, previous, 3), _separable(build, current, 5)),
        (build.average_pool(current, 3), previous),
        (build.average_pool(previous, 3), build.average_pool(previous, 3)),
        (_separable(build, previous, 5), _separable(build, previous, 3)),
    ]
    return build.concat([build.add(a, b) for a, b in pairs], axis=1)


def _reduction_cell(build: Builder, previous: Value, current: Value, channels: int) -> Value:
    previous, current = _cell_inputs(build, previous, current, channels)
    first = build.add(_separable(build, previous, 7, 2), _separable(build, current, 5, 2))
    second = build.add(build.max_pool(current, 3, stride=2), _separable(build, previous, 7, 2))
    third = build.add(build.average_pool(current, 3, stride=2), _separable(build, previous, 5, 2))
    fourth = build.add(build.max_pool(current, 3, stride=2), _separable(build, first, 3))
    fifth = build.add(build.average_pool(first, 3), second)
    return build.concat([first, second, third, fourth, fifth], axis=1)


# BERT


def bert(small: bool = False, seed: int = 5, activation: str = "gelu") -> onnx.ModelProto:
    """BERT's encoder on 64 tokens of 1024, 8 layers, 16 heads, without a batch axis; activation is "gelu" or "relu"."""
    build = Builder("bert", seed)
    tokens, width, layers, heads = (8, 32, 1, 4) if small else (64, 1024, 8, 16)
    x = build.input("x", tokens, width)
    for _ in range(layers):
        x = build.layer_norm(build.add(x, _attention(build, x, heads)))
        hidden = build.linear(x, 4 * width, bias=True)
        hidden = build.relu(hidden) if activation == "relu" else _gelu(build, hidden)
        x = build.layer_norm(build.add(x, build.linear(hidden, width, bias=True)))
    return build.model([x])


def _attention(build: Builder, x: Value, heads: int) -> Value:
    tokens, width = x.shape
    depth = width // heads
    q, k, v = (build.reshape(build.linear(x, width, bias=True), tokens, heads, depth) for _ in range(3))
    scores = build.matmul(build.transpose(q, 1, 0, 2), build.transpose(k, 1, 2, 0))
    scores = build.binary("Div", scores, build.scalar(math.sqrt(depth)))
    weights = build.node("Softmax", [scores], scores.shape, axis=-1)
    context = build.transpose(build.matmul(weights, build.transpose(v, 1, 0, 2)), 1, 0, 2)
    return build.linear(build.reshape(context, tokens, width), width, bias=True)


def _gelu(build: Builder, x: Value) -> Value:
    """x * (1 + erf(x / sqrt 2)) / 2, as exporters write it."""
    erf = build.unary("Erf", build.binary("Div", x, build.scalar(math.sqrt(2.0))))
    return build.binary("Mul", build.binary("Mul", x, build.add(erf, build.scalar(1.0))), build.scalar(0.5))


# Training forms: blocks of parallel linear branches that inference can run as one convolution


def training_form(small: bool = False, seed: int = 6) -> onnx.ModelProto:
    """16 blocks of 3x3 convolution, 1x1 convolution and identity, each normalised, summed, relu; 48 to 192 channels.

    As in RepVGG (Ding et al. 2021): a block that changes the size has no identity.
    """
    build = Builder("training_form", seed)
    x = build.input("x", 1, 3, 16, 16) if small else build.input("x", 1, 3, 224, 224)
    stages = [(8, 1), (16, 2)] if small else [(48, 1), (48, 4), (96, 6), (192, 5)]
    for width, count in stages:
        for index in range(count):
            stride = 2 if index == 0 else 1
            branches = [_conv_norm(build, x, width, kernel, stride, branches=3) for kernel in (3, 1)]
            if stride == 1:
                branches.append(build.batch_norm(x, scale=0.5))
            x = build.relu(build.total(branches))
    return build.model([x])


def training_form_pointwise(small: bool = False, seed: int = 7) -> onnx.ModelProto:
    """16 blocks of four parallel 1x1 convolutions, each normalised, summed, relu; 48 to 192 channels."""
    build = Builder("training_form_pointwise", seed)
    x = build.conv_relu(build.input("x", 1, 3, 16, 16) if small else build.input("x", 1, 3, 224, 224), 8, 3, stride=2)
    stages = [(8, 1), (16, 1)] if small else [(48, 4), (96, 4), (192, 8)]
    for width, count in stages:
        x = build.max_pool(x, 3, stride=2)
        for _ in range(count):
            x = build.relu(build.total([_conv_norm(build, x, width, 1, branches=4) for _ in range(4)]))
    return build.model([x])


def training_form_depthwise(small: bool = False, seed: int = 8) -> onnx.ModelProto:
    """16 blocks of parallel depthwise branches, as in MobileOne (Vasu et al. 2023); 48 to 192 channels.

    The branches are four 3x3 kernels, a 1x1 kernel and the identity, each normalised; their sum, relu.
    A 1x1 convolution widens each stage.
    """
    build = Builder("training_form_depthwise", seed)
    x = build.conv_relu(build.input("x", 1, 3, 16, 16) if small else build.input("x", 1, 3, 224, 224), 8, 3, stride=2)
    stages = [(8, 1), (16, 1)] if small else [(48, 4), (96, 4), (192, 8)]
    for width, count in stages:
        x = build.conv_relu(build.max_pool(x, 3, stride=2), width, 1)
        for _ in range(count):
            branches = [_conv_norm(build, x, width, k, groups=width, branches=6) for k in (3, 3, 3, 3, 1)]
            branches.append(build.batch_norm(x, scale=0.4))
            x = build.relu(build.total(branches))
    return build.model([x])


def _conv_norm(
    build: Builder, x: Value, out: int, kernel: int, stride: int = 1, *, branches: int, groups: int = 1
) -> Value:
    """A normalised convolution, one of so many branches whose sum is to stay of order 1 after relu."""
    y = build.conv(x, out, kernel, stride=stride, groups=groups, gain=RELU_GAIN)
    return build.batch_norm(y, scale=0.85 / math.sqrt(branches))


# One effect each


def shared_matmuls(
    small: bool = False, seed: int = 9, m: int = 1, k: int = 512, n: int = 512, count: int = 3
) -> onnx.ModelProto:
    """`count` products of one [m, k] input with [k, n] weights, each an output."""
    build = Builder("shared_matmuls", seed)
    k, n = (16, min(n, 16)) if small else (k, n)
    x = build.input("x", m, k)
    return build.model([build.linear(x, n) for _ in range(count)])


def shared_matmuls_big(small: bool = False, seed: int = 10) -> onnx.ModelProto:
    """Three products of one 256x1024 input with 1024x1024 weights."""
    return shared_matmuls(small, seed, m=4 if small else 256, k=1024, n=1024)


def shared_matmuls_narrow(small: bool = False, seed: int = 12) -> onnx.ModelProto:
    """Three products of one 1024x256 input with 256x4 weights: each leaves most of a kernel's width idle."""
    return shared_matmuls(small, seed, m=8 if small else 1024, k=256, n=4)


def conv_bn_chain(small: bool = False, seed: int = 11) -> onnx.ModelProto:
    """8 times convolution, normalisation, relu: what every runtime folds."""
    build = Builder("conv_bn_chain", seed)
    x = build.input("x", 1, 8, 8, 8) if small else build.input("x", 1, 64, 56, 56)
    for _ in range(2 if small else 8):
        x = build.relu(_conv_norm(build, x, x.shape[1], 3, branches=1))
    return build.model([x])


NETWORKS: dict[str, Network] = {
    build.__name__: build
    for build in (
        resnet50,
        resnext50,
        nasrnn,
        nasrnn_fresh,
        nasnet_a,
        bert,
        training_form,
        training_form_pointwise,
        training_form_depthwise,
        shared_matmuls,
        shared_matmuls_big,
        shared_matmuls_narrow,
        conv_bn_chain,
    )
}


def network_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Standard normal float32 values for every input of a model built here, drawn in the order of the inputs."""
    rng = np.random.default_rng(seed)
    shapes = {info.name: [d.dim_value for d in info.type.tensor_type.shape.dim] for info in model.graph.input}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def main(arguments: list[str]) -> int:
    """Write the named networks, or all, as OUTDIR/NAME.onnx."""
    if not arguments or unknown(arguments[1:]):
        print(__doc__.strip().splitlines()[-1], f"names: {', '.join(NETWORKS)}", sep="\n", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments[1:] or NETWORKS:
        path = folder / f"{name}.onnx"
        onnx.save(NETWORKS[name](), path)
        print(path)
    return 0


def unknown(names: list[str]) -> list[str]:
    """Which of these are not networks."""
    return [name for name in names if name not in NETWORKS]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
