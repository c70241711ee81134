"""Every rule under tests/rules: those that hold are proved as they stand, the others refuted by a counterexample."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from taso.prove.prover import prove_rule
from taso.prove.refute import compare_sides
from taso.spec import syntax as s
from taso.spec.parse import parse_file
from taso.spec.spec import Spec, load_spec

FOLDER = Path(__file__).parent.parent / "rules"


def rules(kind: str) -> list[object]:
    found = []
    for path in sorted((FOLDER / kind).glob("*.rules")):
        for rule in parse_file(path):
            assert isinstance(rule, s.Rule)
            found.append(pytest.param(rule, id=f"{path.stem}-{rule.name}"))
    return found


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load_spec()


@pytest.mark.parametrize("rule", rules("proved"))
def test_proved(rule: s.Rule, spec: Spec) -> None:
    verdict = prove_rule(rule, spec)
    assert verdict.status == "proved", verdict.reason
    assert verdict.conditions == ()
    assert verdict.ranks is not None
    if rule.ranks is not None:
        where = [verdict.ranks.names.index(name) for name in rule.ranks.names]
        assert sorted(tuple(choice[k] for k in where) for choice in verdict.ranks.choices) == sorted(rule.ranks.choices)


@pytest.mark.parametrize("rule", rules("refuted"))
def test_refuted(rule: s.Rule, spec: Spec) -> None:
    verdict = prove_rule(rule, spec)
    assert verdict.status == "refuted", (verdict.status, verdict.reason, verdict.conditions)
    found = verdict.counterexample
    assert found is not None
    assert "the left side" in str(found) or "is not defined" in str(found)
    again = compare_sides(rule, spec, {name: np.array(t) for name, t in found.tensors.items()}, found.attrs)
    assert again is not None
    assert again.place == found.place


@pytest.mark.parametrize("rule", rules("refuted"))
def test_false_rules_are_not_proved_when_nobody_tried_to_refute_them(
    rule: s.Rule, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof itself fails; it is not only saved by the counterexamples."""
    monkeypatch.setattr(sys.modules[prove_rule.__module__], "refute_instances", lambda *_, **__: None)
    verdict = prove_rule(rule, spec)
    assert verdict.status == "unknown"
