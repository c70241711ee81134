"""The main job from model to report; nothing here depends on how fast this machine is."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from bench.networks import NETWORKS
from taso.errors import CheckError, ModelError, UsageError
from taso.hardware.latency import Kernel, LatencyModel
from taso.optimize import optimize
from taso.result import Result
from tests.search.graphs import RULES

module = sys.modules["taso.optimize"]  # `taso.optimize` itself is the function


class ByCounting(LatencyModel):
    """Latencies that are the same on every machine: a microsecond, and what the arithmetic takes at 1 GFLOP/s."""

    def latency(self, kernels: Sequence[Kernel]) -> list[float]:
        return [1.0 + (kernel.flops or 0.0) / 1000 for kernel in kernels]


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "LatencyModel", ByCounting)
    monkeypatch.setattr(module, "TIMING_SECONDS", 0.2)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "test.rules"
    path.write_text(RULES)
    return path


@pytest.fixture
def always_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "faster_beyond_noise", lambda comparison, min_speedup: True)


def relus() -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="first"), helper.make_node("Neg", ["y"], ["z"], name="second")]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xz"]
    graph = helper.make_graph(nodes, "relus", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_better_model_is_given_back_with_everything_that_was_done(rules: Path, always_faster: None) -> None:
    model = NETWORKS["training_form"](small=True)
    before = model.SerializeToString()
    result = optimize(model, rules=[rules], threads=1, budget=20)
    assert model.SerializeToString() == before
    report = result.report
    assert report.improved and report.nodes_after < report.nodes_before == len(model.graph.node)
    assert report.nodes_after == len(result.model.graph.node)
    assert report.estimated_after_us < report.estimated_before_us
    used = {rule.name: rule for rule in report.rules}
    assert used["scale"].times >= 2 and used["scale"].text.startswith("rule scale")
    assert 0 < report.largest_difference < 1e-4 and report.checked == 3
    assert report.latency_before is not None and report.latency_before.runs >= 11
    assert report.understood == 1.0
    onnx.checker.check_model(result.model, full_check=True)
    assert json.loads(json.dumps(report.to_dict()))["rules"][0]["name"] in used


def test_without_a_better_graph_the_model_is_the_original(rules: Path) -> None:
    model = relus()
    result = optimize(model.SerializeToString(), rules=[rules], threads=1)
    assert not result.report.improved and result.report.reason == "no cheaper graph was found"
    assert result.model.SerializeToString() == model.SerializeToString()
    assert result.report.rules == [] and result.report.latency_after == result.report.latency_before


def test_what_is_not_measured_to_be_faster_is_not_kept(rules: Path) -> None:
    model = NETWORKS["conv_bn_chain"](small=True)
    result = optimize(model, rules=[rules], threads=1, budget=0, min_speedup=1000.0)
    assert not result.report.improved and "not faster beyond noise" in result.report.reason
    assert result.model.SerializeToString() == model.SerializeToString()
    assert result.report.operators_after == result.report.operators_before


def test_a_wrong_rule_is_caught_by_the_numbers(tmp_path: Path, always_faster: None) -> None:
    wrong = tmp_path / "wrong.rules"
    wrong.write_text("rule wrong relu(x) ==> x")
    with pytest.raises(CheckError, match="output z"):
        optimize(relus(), rules=[wrong], threads=1)


def test_only_the_rules_that_are_asked_for_are_used(rules: Path, always_faster: None) -> None:
    def names(result: Result) -> set[str]:
        return {rule.name for rule in result.report.rules}

    model = NETWORKS["conv_bn_chain"](small=True)
    assert names(optimize(model, rules=[rules], only_rules=["scale"], threads=1, budget=0)) == {"scale"}
    assert names(optimize(model, rules=[rules], skip_rules=["scale"], threads=1, budget=0)) == set()
    assert names(optimize(model, rules=[rules], exact=True, threads=1, budget=0)) == set()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only_rules": ["scael"]}, "did you mean `scale`"),
        ({"hw": "v1000"}, "v100"),
        ({"input_shapes": {"imput": (1, 8)}}, "no input named"),
        ({"input_shapes": {"x": (1, 8, 1)}}, "dimensions"),
    ],
)
def test_what_does_not_exist_is_said_before_any_work(rules: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        optimize(relus(), rules=[rules], **options)  # type: ignore[arg-type]


def test_what_is_no_model_is_said(rules: Path) -> None:
    with pytest.raises(ModelError):
        optimize(b"no model at all", rules=[rules])


def test_free_dimensions_stay_free(rules: Path, tmp_path: Path, always_faster: None) -> None:
    path = tmp_path / "idempotent.rules"
    path.write_text("rule gone relu(neg(relu(neg(x)))) ==> relu(neg(relu(neg(x))))\nrule negs neg(neg(x)) ==> x")
    model = relus()
    model.graph.node[0].op_type = "Neg"
    result = optimize(model, rules=[path], threads=1, input_shapes={"x": (5, 8)})
    assert result.report.improved
    assert result.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_with_measured_latencies_it_ends_well(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LatencyModel", LatencyModel)
    model = NETWORKS["shared_matmuls"](small=True)
    report = optimize(model, rules=[rules], threads=1, budget=5).report
    assert report.source == "measured" and report.kernels >= 1 and report.estimated_before_us > 0
    assert report.kernels_known < report.kernels
    assert optimize(model, rules=[rules], threads=1, budget=0).report.kernels_known >= 1
