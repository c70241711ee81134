"""What follows from kept rules and what does not."""

from __future__ import annotations

from taso.generate.minimise import Derivation
from taso.spec.parse import parse_rule
from taso.spec.spec import load_spec
from taso.spec.value import Shape

SPEC = load_spec()
DISTRIBUTE = parse_rule("rule d1 matmul(a, add(b, c)) ==> add(matmul(a, b), matmul(a, c))")
ASSOCIATE = parse_rule("rule a1 matmul(matmul(a, b), c) ==> matmul(a, matmul(b, c))")
COMPOSED = "matmul(matmul(a, b), add(c, d)) ==> add(matmul(a, matmul(b, c)), matmul(a, matmul(b, d)))"
SHAPES: dict[str, Shape] = {name: (2, 2) for name in "abcd"}


def derives(derivation: Derivation, text: str, shapes: dict[str, Shape] = SHAPES) -> bool:
    rule = parse_rule(text)
    return derivation.derives(rule.source, rule.target, shapes)


def test_what_follows_from_two_rules_is_derived_and_from_neither_alone() -> None:
    assert derives(Derivation(SPEC, [DISTRIBUTE, ASSOCIATE]), COMPOSED)
    assert not derives(Derivation(SPEC, [DISTRIBUTE]), COMPOSED)
    assert not derives(Derivation(SPEC, [ASSOCIATE]), COMPOSED)


def test_a_rule_counts_from_when_it_is_added() -> None:
    derivation = Derivation(SPEC, [DISTRIBUTE])
    assert not derives(derivation, COMPOSED)
    derivation.add(ASSOCIATE)
    assert derives(derivation, COMPOSED)


def test_what_does_not_follow_is_not_derived() -> None:
    derivation = Derivation(SPEC, [DISTRIBUTE, ASSOCIATE])
    assert not derives(derivation, "relu(matmul(a, b)) ==> matmul(relu(a), b)")
    assert not derives(derivation, "matmul(a, b) ==> matmul(b, a)")
    assert not derives(derivation, "add(matmul(a, b), matmul(a, c)) ==> matmul(a, add(b, c))")  # the other way round


def test_equal_graphs_need_no_rule() -> None:
    assert derives(Derivation(SPEC), "add(a, b) ==> add(b, a)")


def test_the_length_of_a_chain_is_bounded() -> None:
    rules = [DISTRIBUTE, ASSOCIATE]
    assert not derives(Derivation(SPEC, rules, steps=1), COMPOSED)
    assert not derives(Derivation(SPEC, rules, graphs=1), COMPOSED)


def test_a_rule_is_used_only_where_its_conditions_hold() -> None:
    narrow = parse_rule("rule n1 relu(relu(a)) ==> relu(a) where dim(a, 0) == 3 ranks (a) in [(2)]")
    derivation = Derivation(SPEC, [narrow])
    assert not derives(derivation, "relu(relu(a)) ==> relu(a)")
    assert derives(derivation, "relu(relu(a)) ==> relu(a)", {"a": (3, 2)})
    assert not derives(derivation, "relu(relu(a)) ==> relu(a)", {"a": (3, 2, 2)})
