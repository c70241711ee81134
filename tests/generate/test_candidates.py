"""Candidates: equal on any data, in their most general form, each once, and the ones that matter are there."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from taso.generate.candidates import Candidate, Equalities, find_candidates
from taso.generate.enumerate import enumerate_universe
from taso.generate.general import instance_of
from taso.spec import syntax as s
from taso.spec.lower import run_term
from taso.spec.parse import parse_rule, parse_term
from tests.generate.universes import HALVES, IMAGES, MATRICES, REALS, SPEC, universe

MODELS = {"matrices": (MATRICES, 2), "halves": (HALVES, 3), "images": (IMAGES, 3), "reals": (REALS, 2)}


@cache
def candidates_of(name: str) -> tuple[list[Candidate], Equalities]:
    if name in MODELS:
        text, ops = MODELS[name]
        return find_candidates(enumerate_universe(universe(text), SPEC, ops))
    return find_candidates(enumerate_universe(SPEC.universes[name], SPEC, 3))


@pytest.mark.parametrize("name", MODELS)
def test_both_sides_are_equal_on_fresh_data(name: str) -> None:
    rng = np.random.default_rng(99)
    found, _ = candidates_of(name)
    assert found
    for candidate in found:
        tensors = {n: rng.uniform(-2, 2, shape) for n, shape in candidate.shapes.items()}
        left = [run_term(term, SPEC, tensors) for term in candidate.source]
        for value, term in zip(left, candidate.target, strict=True):
            other = run_term(term, SPEC, tensors, result_shape=value.shape)
            np.testing.assert_allclose(value, other, rtol=1e-9, atol=1e-9, err_msg=str(candidate))


@pytest.mark.parametrize("name", MODELS)
def test_candidates_are_rules_and_written_as_such(name: str) -> None:
    for candidate in candidates_of(name)[0]:
        rule = parse_rule(str(candidate))
        assert (rule.source, rule.target) == (candidate.source, candidate.target)
        assert names(candidate.target) <= names(candidate.source) == set(candidate.shapes)


def names(terms: tuple[s.Term, ...]) -> set[str]:
    found: set[str] = set()
    for term in terms:
        found |= {term.name} if isinstance(term, s.Var) else names(term.args) if isinstance(term, s.Apply) else set()
    return found


@pytest.mark.parametrize("name", MODELS)
def test_no_candidate_is_an_instance_of_another(name: str) -> None:
    found = candidates_of(name)[0]
    assert len({str(c) for c in found}) == len(found)
    for one in found:
        for other in found:
            if one is not other:
                assert not instance_of(one.source, one.target, other.source, other.target)


def test_the_order_and_the_counts() -> None:
    found, counts = candidates_of("images")
    again, _ = find_candidates(enumerate_universe(universe(IMAGES), SPEC, 3))
    assert [str(c) for c in found] == [str(c) for c in again]
    assert [sum(c.cost) for c in found] == sorted(sum(c.cost) for c in found)
    assert counts.equal >= counts.confirmed >= counts.patterns >= counts.general >= counts.distinct == len(found)


def has(name: str, left: str, right: str) -> bool:
    """Whether the equality is a candidate or an instance of one, in either direction."""
    many = left.startswith("{")
    rule = parse_rule(f"{left} ==> {right}") if many else None
    a = rule.source if rule else (parse_term(left),)
    b = rule.target if rule else (parse_term(right),)
    swaps = {"add", "mul"}.__contains__
    return any(instance_of(a, b, c.source, c.target, swaps) for c in candidates_of(name)[0])


SAME = "before=[1, 1], after=[1, 1]"
FULL = "identity_kernel(; channels=4, per_group=4, kernel=[3, 3])"
DEPTH = "identity_kernel(; channels=4, per_group=1, kernel=[3, 3])"
PAD = "before=[0, 0, 1, 1], after=[0, 0, 1, 1]"
AFFINE = [
    (f"add(conv(x1, f1; {SAME}), conv(x1, f2; {SAME}))", f"conv(x1, add(f1, f2); {SAME})"),
    (f"add(conv(x1, f1; {SAME}), conv(x1, p1))", f"conv(x1, add(f1, pad(p1; {PAD})); {SAME})"),
    ("conv(x1, p1)", f"conv(x1, pad(p1; {PAD}); {SAME})"),
    ("conv(x1, e1; group=4)", f"conv(x1, pad(e1; {PAD}); {SAME}, group=4)"),
    (f"add(conv(x1, f1; {SAME}), x1)", f"conv(x1, add(f1, {FULL}); {SAME})"),
    (f"add(conv(x1, d1; {SAME}, group=4), x1)", f"conv(x1, add(d1, {DEPTH}); {SAME}, group=4)"),
    (
        f"add(conv(x1, f1; {SAME}), mul(x1, broadcast(v1; dims=[1])))",
        f"conv(x1, add(f1, mul({FULL}, broadcast(v1; dims=[0]))); {SAME})",
    ),
    (f"mul(conv(x1, f1; {SAME}), broadcast(v1; dims=[1]))", f"conv(x1, mul(f1, broadcast(v1; dims=[0])); {SAME})"),
    (f"conv(mul(x1, broadcast(v1; dims=[1])), f1; {SAME})", f"conv(x1, mul(f1, broadcast(v1; dims=[1])); {SAME})"),
    (
        f"mul(conv(x1, d1; {SAME}, group=4), broadcast(v1; dims=[1]))",
        f"conv(x1, mul(d1, broadcast(v1; dims=[0])); {SAME}, group=4)",
    ),
    (
        "mul(x1, broadcast(v1; dims=[1]))",
        "conv(x1, mul(identity_kernel(; channels=4, per_group=1, kernel=[1, 1]), broadcast(v1; dims=[0])); group=4)",
    ),
    (
        "add(add(x1, broadcast(v1; dims=[1])), add(x2, broadcast(v2; dims=[1])))",
        "add(add(x1, x2), broadcast(add(v1, v2); dims=[1]))",
    ),
    (
        "mul(add(x1, broadcast(v1; dims=[1])), broadcast(v2; dims=[1]))",
        "add(mul(x1, broadcast(v2; dims=[1])), broadcast(mul(v1, v2); dims=[1]))",
    ),
    ("mul(mul(x1, broadcast(v1; dims=[1])), broadcast(v2; dims=[1]))", "mul(x1, broadcast(mul(v1, v2); dims=[1]))"),
]
PARALLEL = [
    (
        f"{{conv(x1, f1; {SAME}), conv(x1, f2; {SAME})}}",
        (
            f"{{slice(conv(x1, concat(f1, f2; axis=0); {SAME}); axis=1, start=0, stop=4),"
            f" slice(conv(x1, concat(f1, f2; axis=0); {SAME}); axis=1, start=4, stop=8)}}"
        ),
    ),
    (
        f"add(conv(x1, f1; {SAME}), conv(x2, f2; {SAME}))",
        f"conv(concat(x1, x2; axis=1), concat(f1, f2; axis=1); {SAME})",
    ),
    (
        "{add(x1, t1), add(x2, t2)}",
        (
            "{slice(add(concat(x1, x2; axis=1), concat(t1, t2; axis=1)); axis=1, start=0, stop=4),"
            " slice(add(concat(x1, x2; axis=1), concat(t1, t2; axis=1)); axis=1, start=4, stop=8)}"
        ),
    ),
]
LINEAR = [
    (
        "{matmul(x1, w1), matmul(x1, w2)}",
        (
            "{slice(matmul(x1, concat(w1, w2; axis=1)); axis=1, start=0, stop=4),"
            " slice(matmul(x1, concat(w1, w2; axis=1)); axis=1, start=4, stop=8)}"
        ),
    ),
    ("add(matmul(x1, w1), matmul(x2, w2))", "matmul(concat(x1, x2; axis=1), concat(w1, w2; axis=0))"),
    ("transpose(matmul(w1, w2); perm=[1, 0])", "matmul(transpose(w2; perm=[1, 0]), transpose(w1; perm=[1, 0]))"),
    ("mul(matmul(x1, w1), broadcast(v1; dims=[1]))", "matmul(x1, mul(w1, broadcast(v1; dims=[1])))"),
    ("matmul(mul(x1, broadcast(s1; dims=[])), w1)", "matmul(x1, mul(w1, broadcast(s1; dims=[])))"),
]


@pytest.mark.parametrize(("left", "right"), AFFINE)
def test_what_folds_into_convolutions_is_found(left: str, right: str) -> None:
    assert has("affine", left, right)


@pytest.mark.parametrize(("left", "right"), PARALLEL)
def test_what_merges_branches_is_found(left: str, right: str) -> None:
    assert has("parallel", left, right)


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), LINEAR)
def test_what_merges_products_is_found(left: str, right: str) -> None:
    assert has("linear", left, right)


def test_what_is_false_is_not_found() -> None:
    assert not has("affine", "relu(add(x1, x2))", "add(relu(x1), relu(x2))")
    assert not has(
        "affine",
        f"conv(add(x1, broadcast(v1; dims=[1])), f1; {SAME})",
        f"add(conv(x1, f1; {SAME}), broadcast(v1; dims=[1]))",
    )
    assert not has("affine", f"conv(x1, f1; {SAME})", f"conv(x1, f2; {SAME})")


def test_instances() -> None:
    def sides(text: str) -> tuple[tuple[s.Term, ...], tuple[s.Term, ...]]:
        rule = parse_rule(text)
        return rule.source, rule.target

    general = sides("add(a, b) ==> add(b, a)")
    assert instance_of(*sides("add(relu(x), y) ==> add(y, relu(x))"), *general)
    assert not instance_of(*sides("add(relu(x), y) ==> add(relu(y), x)"), *general)
    assert not instance_of(
        *sides("concat(x, y; axis=0) ==> concat(y, x; axis=0)"), *sides("concat(x, y; axis=1) ==> concat(y, x; axis=1)")
    )
    doubled = sides("add(x, x) ==> mul(x, 2)")
    assert instance_of(*sides("mul(relu(y), 2) ==> add(relu(y), relu(y))"), *doubled)
    assert not instance_of(*sides("add(x, y) ==> mul(x, 2)"), *doubled)
    swapped = sides("add(y, mul(x, z)) ==> relu(x)")
    assert not instance_of(*swapped, *sides("add(mul(x, z), y) ==> relu(x)"))
    assert instance_of(*swapped, *sides("add(mul(x, z), y) ==> relu(x)"), lambda op: op == "add")
