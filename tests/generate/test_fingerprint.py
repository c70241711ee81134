"""Keys: equal rows share one, different rows do not, whatever the order of computation."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taso.generate.fingerprint import PRIME, UNDEFINED, Exact, Real

whole = st.integers(-(2**50), 2**50)


@given(st.lists(st.lists(whole, min_size=3, max_size=3), min_size=1, max_size=30))
def test_exact_keys_tell_rows_apart(rows: list[list[int]]) -> None:
    fingerprint = Exact(1)
    groups = fingerprint.group(fingerprint.keys(np.array(rows, float)))
    by_group = {}
    for row, group in zip(rows, groups):
        assert by_group.setdefault(int(group), row) == row
    assert len(by_group) == len({tuple(row) for row in rows})


@given(st.lists(whole, min_size=1, max_size=20))
def test_residues_are_exact(values: list[int]) -> None:
    got = Exact(1).residues(np.array(values, float)[:, None])[:, 0]
    assert all((int(g) - v) % PRIME == 0 and abs(g) <= PRIME / 2 for g, v in zip(got, values))


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=20), st.sampled_from([3, 9, 729]))
def test_residues_of_fractions_are_quotients_of_residues(values: list[int], denominator: int) -> None:
    got = Exact(1, denominator).residues(np.array(values, float)[:, None] / denominator)[:, 0]
    assert all((int(g) * denominator - v) % PRIME == 0 for g, v in zip(got, values))


@given(st.integers(0, 2**32))
def test_the_key_of_a_sum_is_the_sum_of_the_keys(seed: int) -> None:
    fingerprint = Exact(seed)
    left, right = np.random.default_rng(seed).integers(-(2**40), 2**40, (2, 50, 7)) * 1.0
    added = fingerprint.add(fingerprint.keys(left), fingerprint.keys(right))
    np.testing.assert_array_equal(added, fingerprint.keys(left + right))
    assert not (added == UNDEFINED).any()


def test_the_denominator_makes_fractions_whole() -> None:
    fingerprint = Exact(1, 9)
    row = np.array([[1.0, 2.0, 4.0]])
    one, other = sum([row / 9] * 7), row * 7 / 9
    assert not np.array_equal(one, other)  # rounding differs
    assert fingerprint.keys(one) == fingerprint.keys(other)
    assert fingerprint.same(one, other).all()
    assert fingerprint.keys(one) != fingerprint.keys(other + np.array([[0, 0, 1 / 9]]))


def test_long_rows_are_summed_in_blocks() -> None:
    rows = np.random.default_rng(0).integers(-(2**40), 2**40, (2, 10_000)) * 1.0
    rows[1] = rows[0]
    rows[1, 9_999] += 1
    keys = Exact(3).keys(rows)
    assert keys[0] != keys[1]
    assert Exact(3).keys(rows[:1]) == keys[0]


def test_undefined_rows_have_no_group() -> None:
    for fingerprint in (Exact(1), Real(1)):
        rows = np.array([[1.0, np.nan], [np.inf, 1.0], [1.0, 2.0]])
        assert fingerprint.group(fingerprint.keys(rows))[:2].tolist() == [-1, -1]


@given(st.integers(0, 2**32), st.floats(1e-6, 1e6))
def test_real_keys_forgive_rounding_and_nothing_else(seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((20, 8)) * size
    noisy = rows * (1 + rng.uniform(-1, 1, rows.shape) * 1e-13)
    other = rows.copy()
    other[:, 3] += 0.1 * size
    fingerprint = Real(5)
    groups = fingerprint.group(np.concatenate([fingerprint.keys(r) for r in (rows, noisy, other)]))
    assert (groups[:20] == groups[20:40]).all()
    assert len(set(groups[:20])) == 20
    assert not set(groups[:20]) & set(groups[40:])


def test_a_difference_that_is_only_rounding_is_zero() -> None:
    fingerprint = Real(5)
    rows = np.array([[0.1 + 0.2 - 0.3, 0.0], [0.0, 0.0]])
    assert len(set(fingerprint.group(fingerprint.keys(rows)))) == 1
