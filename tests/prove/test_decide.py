"""Decisions about integers agree with trying numbers."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from taso.algebra.poly import Quantity, evaluate, floordiv, var
from taso.prove.decide import Limits, World
from taso.prove.facts import Fact, eq, ge, reduced, sign, tightened
from taso.prove.maxima import eliminate
from taso.prove.models import satisfies

NAMES = ("m", "n", "~i", "~j")
QUANTITIES = st.recursive(
    st.one_of(st.integers(-3, 3), st.sampled_from([var(name) for name in NAMES])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, st.sampled_from([2, var("m"), var("n")])).map(lambda p: floordiv(p[0], p[1])),
    ),
    max_leaves=5,
)
FACTS = st.tuples(st.booleans(), QUANTITIES).map(lambda p: Fact(*p))


def assignments() -> list[dict[str, int]]:
    return [
        dict(zip(NAMES, (m, n, i, j), strict=True))
        for m, n, i, j in itertools.product((1, 2, 3), (1, 2), (-2, -1, 0, 1, 3), (-1, 0, 2))
    ]


@given(QUANTITIES)
def test_sign(value: Quantity) -> None:
    found = sign(value, {})
    if found is not None:
        assert all((evaluate(value, a) >= 0) is found for a in assignments())


@given(FACTS)
def test_tightened_means_the_same(fact: Fact) -> None:
    tight = tightened(fact, {})
    assert all(satisfies(a, fact) == satisfies(a, tight) for a in assignments())


@given(QUANTITIES)
def test_reduced_has_the_same_zeros(value: Quantity) -> None:
    small = reduced(value, {})
    assert all((evaluate(value, a) == 0) == (evaluate(small, a) == 0) for a in assignments())


@settings(max_examples=60, deadline=None)
@given(st.lists(FACTS, max_size=3), FACTS)
def test_what_is_implied_holds(facts: list[Fact], goal: Fact) -> None:
    context = World(limits=Limits(50_000)).context(facts)
    if context.implies(goal, hard=True):
        assert all(satisfies(a, goal) for a in assignments() if all(satisfies(a, f) for f in facts))


@settings(max_examples=60, deadline=None)
@given(st.lists(FACTS, max_size=2), st.lists(FACTS, min_size=1, max_size=2))
def test_what_is_contradicted_never_holds(facts: list[Fact], more: list[Fact]) -> None:
    context = World(limits=Limits(50_000)).context(facts)
    if context.contradicts(more):
        assert not any(all(satisfies(a, f) for f in [*facts, *more]) for a in assignments())


@settings(max_examples=60, deadline=None)
@given(st.lists(FACTS, max_size=3), QUANTITIES)
def test_settled_quantities_are_equal_in_the_context(facts: list[Fact], value: Quantity) -> None:
    context = World(limits=Limits(50_000)).context(facts)
    settled = context.settle(value)
    for a in assignments():
        if all(satisfies(a, f) for f in facts):
            assert evaluate(settled, a) == evaluate(value, a)


@settings(max_examples=40, deadline=None)
@given(st.lists(FACTS, max_size=3))
def test_models_are_models(facts: list[Fact]) -> None:
    context = World().context(facts)
    assert all(satisfies(model, f) for model in context.models for f in context.facts)


def test_elimination_is_exact_for_unit_coefficients() -> None:
    rng = random.Random(1)
    r = var("~r")
    for _ in range(200):
        facts = []
        for _ in range(rng.randint(1, 3)):
            value = rng.choice((1, -1)) * r + rng.randint(-2, 2) * var("~i") + rng.randint(-3, 3)
            facts.append(Fact(rng.random() < 0.2, value))
        left = eliminate("~r", facts)
        assert left is not None
        for i in range(-4, 5):
            exists = any(all(satisfies({"~r": k, "~i": i}, f) for f in facts) for k in range(-40, 41))
            assert exists == all(satisfies({"~i": i}, f) for f in left)


def test_a_product_of_inequalities_is_found_without_nonlinear_arithmetic() -> None:
    i, s, h = var("~i"), var("s"), var("h")
    context = World().context([ge(i), ge(floordiv(h, s) - i)])
    assert context.implies(ge(h - i * s))
    assert not context.implies(ge(h - i * s - 1))


def test_equations_follow_from_two_inequalities() -> None:
    i, n = var("~i"), var("n")
    context = World().context([ge(i - n), ge(n - i)])
    assert context.implies(eq(i - n))
    assert not context.implies(eq(i - 1))
