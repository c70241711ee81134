"""Short keys for rows of numbers: equal rows get equal keys, different rows almost never do.

Whole numbers (after multiplication by the universe's denominator) are hashed by three random linear functionals
modulo a prime near 2^21, which float64 computes exactly. Real numbers, where the same value comes out of two terms
with different rounding, get three coordinates that are close if and only if the rows are close; `group` joins what is
close.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

Array = Any

PRIME = 2097143.0
_HALF = (int(PRIME) - 1) // 2
_BLOCK = 4096  # entries whose products with a functional can be summed below 2^53
TOLERANCE = 1e-8


class Exact:
    """Keys of rows that are whole numbers when multiplied by `denominator`; one uint64 each."""

    def __init__(self, seed: int, denominator: int = 1, xp: ModuleType = np) -> None:
        self.seed, self.denominator, self.xp = seed, float(denominator), xp
        self.largest = 0.0
        self._functionals: dict[int, Array] = {}

    def _matrix(self, width: int) -> Array:
        if width not in self._functionals:
            rng = np.random.default_rng([self.seed, width])
            self._functionals[width] = self.xp.asarray(rng.integers(-_HALF, _HALF + 1, (width, 3)).astype(float))
        return self._functionals[width]

    def keys(self, rows: Array) -> np.ndarray:
        """One key per row of a (count, width) array. Rows with infinite or undefined entries get the key 0."""
        xp = self.xp
        matrix = self._matrix(rows.shape[1])
        whole = xp.rint(rows * self.denominator)
        self.largest = max(self.largest, float(xp.max(xp.abs(whole))) if whole.size else 0.0)
        finite = xp.isfinite(whole).all(axis=1)
        reduced = _modulo(xp, _modulo(xp, xp.where(finite[:, None], whole, 0.0)))
        total = xp.zeros((len(rows), 3))
        for start in range(0, rows.shape[1], _BLOCK):
            total = _modulo(
                xp, total + _modulo(xp, reduced[:, start : start + _BLOCK] @ matrix[start : start + _BLOCK])
            )
        residues = (total + _HALF).astype(np.int64)
        packed = residues[:, 0] | (residues[:, 1] << 21) | (residues[:, 2] << 42)
        packed = xp.where(finite, packed + 1, 0)
        return np.asarray(packed if xp is np else packed.get()).astype(np.uint64)

    def group(self, keys: np.ndarray) -> np.ndarray:
        """A number per key, the same for equal keys; -1 for rows that are not finite."""
        _, inverse = _unique(keys)
        return np.where(keys == 0, -1, inverse)

    def same(self, left: Array, right: Array) -> np.ndarray:
        """Whether rows are equal, row by row."""
        return np.asarray((np.rint(left * self.denominator) == np.rint(right * self.denominator)).all(axis=1))


class Real:
    """Keys of rows of real numbers: logarithm of the norm and two directions; close rows have close keys."""

    def __init__(self, seed: int, xp: ModuleType = np) -> None:
        self.seed, self.xp, self.largest = seed, xp, 0.0

    def keys(self, rows: Array) -> np.ndarray:
        """A (count, 3) array of coordinates, nan where a row is not finite."""
        xp = self.xp
        rng = np.random.default_rng([self.seed, rows.shape[1]])
        matrix = xp.asarray(rng.standard_normal((rows.shape[1], 2)))
        with np.errstate(all="ignore"):
            norm = xp.sqrt((rows * rows).sum(axis=1, keepdims=True))
            size = xp.where(norm > 1e-12, norm, 1.0)  # what is left of x - x counts as zero
            keys = xp.concatenate([xp.log(size), (rows / size) @ matrix], axis=1)
        keys = xp.where(norm > 1e-12, keys, xp.where(xp.isfinite(norm), 0.0, xp.nan))
        keys = xp.where(norm < 1e100, keys, xp.nan)  # squares overflow beyond
        if len(rows) and bool(xp.isfinite(norm).any()):
            self.largest = max(self.largest, float(xp.max(norm[xp.isfinite(norm)])))
        return np.asarray(keys if xp is np else keys.get())

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


def _modulo(xp: ModuleType, values: Array) -> Array:
    """The symmetric residue of whole numbers below 2^53 (twice makes up for rounding of the quotient)."""
    return values - xp.rint(values / PRIME) * PRIME


def _unique(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted distinct keys and the place of each key among them."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(keys)]
    inverse = np.empty(len(keys), np.int64)
    inverse[order] = np.cumsum(starts) - 1
    return ordered[starts], inverse
