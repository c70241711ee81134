"""The benchmark networks are valid, run, keep their activations of order 1, and have their well-known structure."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

from bench.networks import NETWORKS, bert, main, nasrnn, network_inputs, resnet50, resnext50, training_form


def run(model: onnx.ModelProto, seed: int = 0) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs: list[np.ndarray] = session.run(None, network_inputs(model, seed))
    return outputs


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("name", NETWORKS)
def test_small_network_runs_and_depends_on_its_input(name: str) -> None:
    model = NETWORKS[name](small=True)
    first, other = run(model), run(model, seed=1)
    declared = [[d.dim_value for d in output.type.tensor_type.shape.dim] for output in model.graph.output]
    assert [list(output.shape) for output in first] == declared
    for a, b in zip(first, other, strict=True):
        assert np.isfinite(a).all()
        assert 0.01 < np.sqrt(np.mean(a**2)) < 10
        assert not np.allclose(a, b)


@pytest.mark.parametrize("name", NETWORKS)
def test_seed_decides_the_weights(name: str) -> None:
    build = NETWORKS[name]
    assert build(small=True, seed=5).SerializeToString() == build(small=True, seed=5).SerializeToString()
    first, other = build(small=True, seed=5), build(small=True, seed=6)
    assert operators(first) == operators(other)
    assert first.SerializeToString() != other.SerializeToString()


def test_small_and_full_are_made_of_the_same_operators() -> None:
    for build in (nasrnn, training_form):
        assert operators(build(small=True)).keys() == operators(build()).keys()


def test_resnet50_has_its_convolutions() -> None:
    model = resnet50()
    assert operators(model) == {"Conv": 3 * 16 + 4, "Relu": 3 * 16 + 4, "Add": 16}
    assert [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == [1, 2048, 7, 7]


def test_resnext50_keeps_32_groups() -> None:
    groups = Counter(
        attribute.i for node in resnext50().graph.node for attribute in node.attribute if attribute.name == "group"
    )
    assert groups == {1: 1 + 2 * 16 + 4, 32: 16}


def test_nasrnn_has_16_products_a_step() -> None:
    assert operators(nasrnn())["MatMul"] == 5 * 16


def test_training_form_has_16_blocks() -> None:
    counts = operators(training_form())
    assert counts["Relu"] == 16
    assert counts["Conv"] == 2 * 16
    assert counts["BatchNormalization"] == 3 * 16 - 4  # a block that changes the size has no identity


def test_bert_activation_is_chosen() -> None:
    assert operators(bert(small=True))["Erf"] == 1
    assert "Erf" not in operators(bert(small=True, activation="relu"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_full_network_runs(name: str) -> None:
    for output in run(NETWORKS[name]()):
        assert np.isfinite(output).all()
        assert 0.01 < np.sqrt(np.mean(output**2)) < 10


def test_command_line_writes_and_refuses(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main([str(tmp_path / "nets"), "shared_matmuls_narrow"]) == 0
    onnx.checker.check_model(str(tmp_path / "nets" / "shared_matmuls_narrow.onnx"), full_check=True)
    assert main([str(tmp_path), "resnet51"]) == 2
    assert "resnet50" in capsys.readouterr().err
