"""Short keys for rows of numbers: equal rows get equal keys, different rows almost never do.

Whole numbers (after multiplication by the universe's denominator) are hashed by three random linear functionals
modulo a prime below 2^20, which float64 computes exactly. Since a key is linear in the row, the key of a sum is the
sum of the keys, and that of a product a bilinear form; `hashing` makes use of it. Real numbers, where the same value
comes out of two terms with different rounding, get three coordinates that are close if and only if the rows are
close; `group` joins what is close.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

Array = Any

PRIME = 1048573  # the largest below 2^20, so that three residues and the carries of a sum fit into 63 bits
LANE = 21  # bits between the residues of a key
UNDEFINED = np.uint64(1 << 63)  # the key of a row with infinite or undefined entries
LARGEST = 2.0**52  # whole numbers are exact up to here, and so is their rounding
TOLERANCE = 1e-8

_HALF = (PRIME - 1) // 2
_BLOCK = 1 << 14  # products of a residue and a functional's entry whose sum stays below 2^53
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_ONES = sum(1 << (LANE * k) for k in range(3))


class Exact:
    """Keys of rows that are whole numbers when multiplied by `denominator`; one uint64 each.

    Attributes:
        largest: the largest whole number that was met; keys can be trusted while it is below `LARGEST`.
    """

    def __init__(self, seed: int, denominator: int = 1, xp: ModuleType = np) -> None:
        self.seed, self.denominator, self.xp = seed, float(denominator), xp
        self.largest = 0.0
        self._inverse = float(pow(denominator % PRIME, -1, PRIME))
        self._functionals: dict[tuple[int, bool], Array] = {}

    def matrix(self, width: int, *, scaled: bool = False) -> Array:
        """The three functionals (width, 3); `scaled`: for rows that were multiplied by the denominator."""
        key = width, scaled
        if key not in self._functionals:
            rng = np.random.default_rng([self.seed, width])
            matrix = self.xp.asarray(rng.integers(-_HALF, _HALF + 1, (width, 3)).astype(float))
            self._functionals[key] = self.modulo(matrix * self._inverse) if scaled else matrix
        return self._functionals[key]

    def modulo(self, values: Array) -> Array:
        """The symmetric residues of whole numbers below 2^50."""
        quotient = values * (1.0 / PRIME)
        self.xp.rint(quotient, out=quotient)
        quotient *= PRIME
        return self.xp.subtract(values, quotient, out=quotient)

    def whole(self, rows: Array) -> tuple[Array, Array]:
        """Rows times the denominator modulo the prime, zero where a row is not finite, and which rows are finite."""
        xp = self.xp
        whole = rows * self.denominator if self.denominator != 1 else rows
        whole = xp.rint(whole)
        size = float(xp.maximum(whole.max(), -whole.min())) if whole.size else 0.0
        finite = xp.ones(len(rows), bool)
        if not np.isfinite(size):
            finite = xp.isfinite(whole).all(axis=1)
            whole = xp.where(finite[:, None], whole, 0.0)
            size = float(xp.abs(whole).max())
        self.largest = max(self.largest, size)
        reduced = self.modulo(whole)
        return (self.modulo(reduced) if size > 2.0**50 else reduced), finite

    def residues(self, rows: Array) -> Array:
        """The residues of the rows themselves, fractions included: n / d is n times the inverse of d."""
        reduced, _ = self.whole(rows)
        return reduced if self.denominator == 1 else self.modulo(reduced * self._inverse)

    def product(self, rows: Array, matrix: Array) -> Array:
        """Residues (n, width) times residues (width, k), as residues."""
        if rows.shape[1] <= _BLOCK:
            return self.modulo(rows @ matrix)
        blocks = range(0, rows.shape[1], _BLOCK)
        return self.modulo(sum(self.modulo(rows[:, at : at + _BLOCK] @ matrix[at : at + _BLOCK]) for at in blocks))

    def pack(self, residues: Array) -> Array:
        """Keys (uint64) from the residues of the three functionals, along the last axis."""
        lanes = self.xp.where(residues < 0, residues + PRIME, residues).astype(np.int64)
        return (lanes[..., 0] | (lanes[..., 1] << LANE) | (lanes[..., 2] << (2 * LANE))).astype(np.uint64)

    def add(self, left: Array, right: Array) -> Array:
        """The keys of sums of rows from the keys of the rows; the arrays broadcast."""
        total = left + right
        over = total + np.uint64(_ONES * ((1 << (LANE - 1)) - PRIME))  # bit 20 of a lane says that it reached the prime
        over >>= np.uint64(LANE - 1)
        over &= np.uint64(_ONES)
        over *= np.uint64(PRIME)
        total -= over
        return total

    def keys(self, rows: Array) -> Array:
        """One key per row of a (count, width) array."""
        reduced, finite = self.whole(rows)
        keys = self.pack(self.product(reduced, self.matrix(rows.shape[1], scaled=self.denominator != 1)))
        return self.xp.where(finite, keys, UNDEFINED)

    def group(self, keys: np.ndarray) -> np.ndarray:
        """A number per key, the same for equal keys; -1 for rows that are not finite."""
        _, inverse = _unique(keys)
        return np.where(keys == UNDEFINED, -1, inverse)

    def same(self, left: Array, right: Array) -> np.ndarray:
        """Whether rows are equal, row by row."""
        return np.asarray((np.rint(left * self.denominator) == np.rint(right * self.denominator)).all(axis=1))


class Real:
    """Keys of rows of real numbers: logarithm of the norm and two directions; close rows have close keys."""

    def __init__(self, seed: int, xp: ModuleType = np) -> None:
        self.seed, self.xp, self.largest = seed, xp, 0.0

    def keys(self, rows: Array) -> Array:
        """A (count, 3) array of coordinates, nan where a row is not finite."""
        xp = self.xp
        rng = np.random.default_rng([self.seed, rows.shape[1]])
        matrix = xp.asarray(rng.standard_normal((rows.shape[1], 2)))
        with np.errstate(all="ignore"):
            norm = xp.sqrt((rows * rows).sum(axis=1, keepdims=True))
            size = xp.where(norm > 1e-12, norm, 1.0)  # what is left of x - x counts as zero
            keys = xp.concatenate([xp.log(size), (rows / size) @ matrix], axis=1)
        keys = xp.where(norm > 1e-12, keys, xp.where(xp.isfinite(norm), 0.0, xp.nan))
        return xp.where(norm < 1e100, keys, xp.nan)  # squares overflow beyond

    def group(self, keys: np.ndarray) -> np.ndarray:
        """A number per row of `keys`, the same for close rows (chains of close rows too); -1 for nan."""
        groups = np.zeros(len(keys), np.int64)
        defined = np.isfinite(keys).all(axis=1)
        for column in keys.T:  # a gap in any coordinate separates
            order = np.lexsort((column, groups))
            values, before = column[order], groups[order]
            with np.errstate(invalid="ignore"):
                starts = (np.diff(before) != 0) | (np.diff(values) > TOLERANCE)
            groups[order] = np.concatenate([[0], np.cumsum(starts)])[: len(keys)]
        return np.where(defined, groups, -1)

    def same(self, left: Array, right: Array) -> np.ndarray:
        """Whether rows are equal up to rounding, row by row; entries that are undefined on either side do not count."""
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(left), np.abs(right))
            close = np.abs(left - right) <= 1e-7 * np.maximum(size, 1e-3)
        undefined = ~np.isfinite(left) | ~np.isfinite(right)
        return np.asarray((close | undefined).all(axis=1) & ~undefined.all(axis=1))


Fingerprint = Exact | Real


def mixed(columns: Sequence[np.ndarray]) -> np.ndarray:
    """One uint64 for each row of some columns of whole numbers: the same for equal rows, different for others."""
    code = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        code ^= column.astype(np.int64).view(np.uint64) + (code << np.uint64(6)) + (code >> np.uint64(2))
        code *= _MULTIPLIER
        code ^= code >> np.uint64(29)
    return code


def _unique(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted distinct keys and the place of each key among them."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(keys)]
    inverse = np.empty(len(keys), np.int64)
    inverse[order] = np.cumsum(starts) - 1
    return ordered[starts], inverse
