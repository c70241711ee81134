"""Sketches: they may let through what does not match, never the other way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taso.graph.graph import Value
from taso.search.match import match_term
from taso.search.sketch import Sketches
from taso.spec import syntax as s
from taso.spec.parse import parse_term
from tests.search.graphs import Bench

PATTERNS = [
    "relu(a)",
    "add(relu(a), b)",
    "add(a, mul(b, 2))",
    "mul(a, `k`)",
    "conv(a, w; stride = 1, before = before, after = after, group = group)",
    "conv(a, w; stride = 2, before = before, after = after, group = group)",
    "add(conv(a, w; before = b, after = c), conv(a, u; before = b, after = c))",
    "transpose(transpose(a; perm = p); perm = q)",
    "transpose(a; perm = [0, 1, 3, 2])",
    "reduce_sum(a; axes = [-1])",
    "softmax(a; axis = k)",
    "hard_swish(a)",
]


@pytest.fixture(scope="module")
def bench() -> Bench:
    made = Bench()
    made.input("x", 2, 4, 8, 8)
    made.input("y", 2, 4, 8, 8)
    made.constant("f", 4, 4, 3, 3)
    return made


LEAVES = st.sampled_from(["x", "y"])
TERMS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda a: f"relu({a})"),
        inner.map(lambda a: f"mul({a}, 2)"),
        inner.map(lambda a: f"transpose({a}; perm = [0, 1, 3, 2])"),
        inner.map(lambda a: f"softmax({a}; axis = -1)"),
        inner.map(lambda a: f"hard_swish({a})"),
        inner.map(lambda a: f"conv({a}, f; before = 1, after = 1)"),
        st.tuples(inner, inner).map(lambda ab: f"add({ab[0]}, {ab[1]})"),
    ),
    max_leaves=5,
)


@given(TERMS, st.sampled_from(PATTERNS))
@settings(max_examples=300)
def test_what_matches_fits(bench: Bench, term: str, pattern: str) -> None:
    value, wanted = bench.value(term), parse_term(pattern)
    sketches = Sketches(bench.spec)
    if next(match_term(wanted, value, bench.spec), None) is not None:
        assert sketches.fits(sketches.of(wanted), value)


@pytest.mark.parametrize(
    ("pattern", "term", "fits"),
    [
        ("relu(a)", "relu(x)", True),
        ("relu(a)", "add(x, y)", False),
        ("add(relu(a), b)", "add(x, relu(y))", True),
        ("add(relu(a), relu(b))", "add(x, relu(y))", False),
        ("mul(a, 3)", "mul(x, y)", False),
        ("conv(a, w; stride = 1, before = b, after = c)", "conv(x, f; before = 1, after = 1)", True),
        ("conv(a, w; stride = 2, before = b, after = c)", "conv(x, f; before = 1, after = 1)", False),
        ("add(a, a)", "add(x, y)", True),  # names are not looked at
    ],
)
def test_what_is_plainly_different_does_not_fit(bench: Bench, pattern: str, term: str, fits: bool) -> None:
    sketches = Sketches(bench.spec)
    assert sketches.fits(sketches.of(parse_term(pattern)), bench.value(term)) is fits


def test_equal_parts_of_patterns_are_one_sketch(bench: Bench) -> None:
    sketches = Sketches(bench.spec)
    assert sketches.of(parse_term("add(relu(a), b)")) == sketches.of(parse_term("add(relu(c), d)"))
    assert sketches.of(parse_term("add(relu(a), b)")) == sketches.of(parse_term("add(b, relu(a))"))
    assert sketches.of(parse_term("relu(a)")) != sketches.of(parse_term("neg(a)"))


def test_a_forgotten_value_is_looked_at_again(bench: Bench) -> None:
    sketches, value = Sketches(bench.spec), bench.value("relu(x)")
    number = sketches.of(parse_term("relu(a)"))
    assert isinstance(value, Value) and isinstance(parse_term("relu(a)"), s.Apply)
    assert sketches.fits(number, value)
    sketches.forget()
    assert sketches.fits(number, value)
