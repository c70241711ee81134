"""Polynomials with floor division: they compute what integers compute."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taso.algebra.poly import (
    Div,
    Poly,
    Quantity,
    evaluate,
    exact_quotient,
    floordiv,
    make,
    names,
    substitute,
    terms_of,
    var,
)

NAMES = ("a", "b", "c")
NUMBERS = st.integers(-6, 6)
VALUES = st.fixed_dictionaries({name: st.integers(1, 9) for name in NAMES})


def quantities(depth: int = 3) -> st.SearchStrategy[Quantity]:
    """Quantities built by sums, products and quotients by positive numbers and names."""
    leaves: st.SearchStrategy[Quantity] = st.one_of(NUMBERS, st.sampled_from(NAMES).map(var))
    divisors: st.SearchStrategy[Quantity] = st.one_of(st.integers(1, 5), st.sampled_from(NAMES).map(var))

    def grow(inner: st.SearchStrategy[Quantity]) -> st.SearchStrategy[Quantity]:
        pairs = st.tuples(inner, inner)
        return st.one_of(
            pairs.map(lambda p: p[0] + p[1]),
            pairs.map(lambda p: p[0] - p[1]),
            pairs.map(lambda p: p[0] * p[1]),
            st.tuples(inner, divisors).map(lambda p: floordiv(p[0], p[1])),
        )

    return st.recursive(leaves, grow, max_leaves=depth + 3)


OPERATIONS: list[Callable[[int, int], int]] = [operator.add, operator.sub, operator.mul]


@pytest.mark.parametrize("operation", OPERATIONS)
@given(left=quantities(), right=quantities(), values=VALUES)
def test_arithmetic_is_that_of_integers(
    operation: Callable[..., Quantity], left: Quantity, right: Quantity, values: dict[str, int]
) -> None:
    expected = operation(evaluate(left, values), evaluate(right, values))
    assert evaluate(operation(left, right), values) == expected


@given(left=quantities(), right=quantities(), values=VALUES)
def test_floor_division_and_remainder(left: Quantity, right: Quantity, values: dict[str, int]) -> None:
    divisor = evaluate(right, values)
    if divisor == 0:
        return
    assert evaluate(floordiv(left, right), values) == evaluate(left, values) // divisor
    assert evaluate(left % right, values) == evaluate(left, values) % divisor


@given(left=quantities(), right=quantities())
def test_equal_values_of_one_form_are_equal_and_hash_alike(left: Quantity, right: Quantity) -> None:
    assert left + right == right + left
    assert left * right == right * left
    assert hash(left * right) == hash(right * left)
    assert (left + right) - right == left
    assert left - left == 0


@given(left=quantities(), right=quantities())
def test_an_exact_quotient_times_the_divisor_is_the_whole(left: Quantity, right: Quantity) -> None:
    if right == 0:
        assert exact_quotient(left, right) is None
        return
    quotient = exact_quotient(left * right, right)
    assert quotient is not None
    assert quotient * right == left * right


@given(quantity=quantities(), values=VALUES)
def test_substitution_of_all_names_evaluates(quantity: Quantity, values: dict[str, int]) -> None:
    for name, value in values.items():  # a divisor may become 0 only if it is a name, and values are at least 1
        quantity_after = substitute(quantity, {name: value})
        assert evaluate(quantity_after, values) == evaluate(quantity, values)
    assert substitute(quantity, values) == evaluate(quantity, values)


def test_constants_are_plain_integers() -> None:
    a = var("a")
    assert type(a - a + 3) is int
    assert make({(): 5, ("a",): 0}) == 5
    assert a - a == 0 and isinstance(a + 0, Poly)


def test_what_divides_comes_out_of_a_quotient() -> None:
    a, b = var("a"), var("b")
    assert floordiv(6 * a, 3) == 2 * a
    assert floordiv(a * b, b) == a
    assert floordiv(4 * a + 7, 4) == a + 1
    assert floordiv(2 * a + b, 2) == a + var(Div(b, 2))
    assert (a * b) % b == 0


def test_names_are_found_inside_quotients() -> None:
    assert names(floordiv(var("a") + 1, var("b"))) == {"a", "b"}
    assert names(7) == set()


def test_division_by_zero_is_refused() -> None:
    with pytest.raises(ZeroDivisionError):
        floordiv(var("a"), 0)
    assert exact_quotient(var("a"), 0) is None


def test_text() -> None:
    a, b = var("a"), var("b")
    assert str(a * b - 2 * a + 1) == "a*b - 2*a + 1"
    assert str(-a) == "-a"
    assert dict(terms_of(3)) == {(): 3} and dict(terms_of(0)) == {}
