from __future__ import annotations

import pytest

from taso.errors import UsageError
from taso.hardware import target as module
from taso.hardware.target import attached, detect_target, device_name, list_targets, load_target


def test_the_shipped_targets_are_complete() -> None:
    assert [target.name for target in list_targets()] == ["cpu", "a100", "h100", "h200", "t4", "v100"]
    for target in list_targets():
        assert target.kind in ("cpu", "gpu") and target.provider.endswith("ExecutionProvider")
        assert target.bandwidth > 0 and target.launch_us > 0
        assert target.peak_for("float32") > 0 and target.peak_for("int64") == target.peak_for("float32")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA RTX A1000", None),
        ("NVIDIA GH200 480GB", None),
    ],
)
def test_devices_are_recognised_by_their_names(name: str, target: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_gpus", lambda: (name,))
    monkeypatch.setattr(module, "_has_provider", lambda provider: True)
    found = [one.name for one in list_targets() if one.kind == "gpu" and attached(one)]
    assert found == ([target] if target else [])
    assert detect_target.__wrapped__().name == (target or "cpu")


def test_a_gpu_without_a_runtime_for_it_is_not_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_gpus", lambda: ("NVIDIA H200",))
    monkeypatch.setattr(module, "_has_provider", lambda provider: provider == "CPUExecutionProvider")
    assert not attached(load_target("h200"))
    assert detect_target.__wrapped__().name == "cpu"


def test_the_processor_is_attached_and_has_a_name() -> None:
    cpu = load_target("cpu")
    assert attached(cpu)
    assert device_name(cpu) not in ("", "cpu")


def test_an_unknown_target_is_refused_with_the_valid_names() -> None:
    with pytest.raises(
        UsageError, match=r'no hardware target "v10"; the targets are: auto, cpu, .*did you mean "v100"'
    ):
        load_target("v10")
    with pytest.raises(UsageError) as refusal:
        load_target("zzzzzz")
    assert "did you mean" not in str(refusal.value)


def test_auto_is_one_of_the_targets() -> None:
    assert load_target("auto") in list_targets()
