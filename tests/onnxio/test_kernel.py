"""Single nodes as models to be measured."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import checker

from taso.hardware.latency import Kernel
from taso.hardware.runtime import Worker
from taso.onnxio.tile import Tiler
from taso.onnxio.verify import random_inputs
from tests.onnxio.models import imported, model


def kernels(source: onnx.ModelProto, **shapes: list[int]) -> list[Kernel | None]:
    found = imported(source, shapes)
    tiler = Tiler(found.context, found.context.arena)
    return [tiler.kernel(tile, found.context.sizes) for tile in tiler.cover(found.graph)]


def only(source: onnx.ModelProto, **shapes: list[int]) -> Kernel:
    [kernel] = kernels(source, **shapes)
    assert kernel is not None
    return kernel


def conv(name: str = "", seed: int = 0) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    text = f"agraph (float[n, 3, 8, 8] x) => (float[n, 4, 6, 6] y) {{ [{name or 'c'}] y = Conv(x, w, b) }}"
    return model(text, w=rng.standard_normal((4, 3, 3, 3), np.float32), b=rng.standard_normal(4, np.float32))


def test_the_key_says_what_is_measured_and_nothing_else() -> None:
    kernel = only(conv(), x=[2, 3, 8, 8])
    assert kernel.key == "Conv@17(float[2,3,8,8], float[4,3,3,3]*, float[4]*; ) y"
    assert kernel == only(conv("another", seed=1), x=[2, 3, 8, 8])  # weights and names do not matter
    assert kernel != only(conv(), x=[1, 3, 8, 8])


def test_work_is_counted_by_the_declared_meaning() -> None:
    assert only(conv(), x=[1, 3, 8, 8]).flops == 4 * 36 * (27 * 2 + 1)  # a product and a sum per weight, and the bias


def test_a_kernel_runs(worker: Worker) -> None:
    kernel = only(conv(), x=[2, 3, 8, 8])
    built = onnx.load_model_from_string(kernel.built())
    checker.check_model(built, full_check=True)
    assert len(built.graph.initializer) == 2 and len(built.graph.input) == 1
    worker.load("k", kernel.built())
    [result] = worker.run("k", random_inputs(built, {}, 0)).values()
    assert result.shape == (2, 4, 6, 6)
    assert kernel.built() == kernel.built()


@pytest.mark.parametrize(("number", "same"), [(2.0, False), (2.5, True)])
def test_special_exponents_are_kernels_of_their_own(number: float, same: bool) -> None:
    text = "agraph (float[4] x) => (float[4] y) { y = Pow(x, p) }"
    first = only(model(text, p=np.array(number, np.float32)))
    assert (first == only(model(text, p=np.array(3.7, np.float32)))) == same


def test_constants_cost_nothing() -> None:
    found = kernels(
        model("agraph (float[3] x) => (float[3] y) { s = Sqrt(w) y = Mul(x, s) }", w=np.ones(3, np.float32))
    )
    assert [kernel is None for kernel in found] == [True, False]


def test_unknown_sizes_and_subgraphs_cannot_be_measured() -> None:
    found = kernels(model("agraph (float[4] x) => (int64[a, b] y) { y = NonZero(x) }"))
    assert found == [None]
    text = """agraph (bool c) => (float y) {
        y = If (c) <then_branch = a () => (float p) { p = Constant<value_float = 1.0>() },
                    else_branch = b () => (float p) { p = Constant<value_float = 2.0>() }> }"""
    assert kernels(model(text)) == [None]


def test_numbers_that_steer_a_node_are_the_real_ones(worker: Worker) -> None:
    text = """agraph (float[n, 2, 4, 4] x) => (float[a, b, c, d] y) {
        s = Shape(x) front = Slice(s, zero, two) target = Concat<axis = 0>(front, eight, eight)
        y = Resize<mode = "nearest">(x, , , target) }"""
    found = kernels(model(text, zero=np.array([0]), two=np.array([2]), eight=np.array([8])), x=[3, 2, 4, 4])
    resize = found[-1]
    assert resize is not None and resize.inputs is not None and "[3, 2, 8, 8]" in resize.key
    worker.load("k", resize.built())
    [result] = worker.run("k", resize.inputs).values()
    assert result.shape == (3, 2, 8, 8)


def test_before_ir_4_weights_are_inputs_too() -> None:
    source = model("agraph (float[2, 3] x) => (float[2, 3] y) { "
                   "w = Constant<value = float[3] {1, 2, 3}>() y = Mul(x, w) }", opset=8, ir_version=3)  # fmt: skip
    kernel = kernels(source)[-1]
    assert kernel is not None
    checker.check_model(onnx.load_model_from_string(kernel.built()))
