"""No axiom of the specification is believed: each is proved by index terms, wherever both of its sides are defined."""

from __future__ import annotations

import pytest

from taso.prove.prover import prove_rule
from taso.spec import syntax as s
from taso.spec.spec import load_spec


@pytest.mark.parametrize("number", range(len(load_spec().axioms)))
def test_axioms_are_proved(number: int) -> None:
    axiom = load_spec().axioms[number]
    rule = s.Rule(f"axiom{number}", (axiom.left,), (axiom.right,), axiom.where, axiom.ranks, (), axiom.pos)
    verdict = prove_rule(rule, load_spec(), max_rank=3 if axiom.ranks is None else 4)
    if verdict.ranks is None and axiom.ranks is None:  # it is about tensors of a higher rank
        verdict = prove_rule(rule, load_spec())
    assert verdict.status == "proved", verdict.reason
