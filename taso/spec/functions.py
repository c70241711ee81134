"""The functions of elements, over arrays; each takes the array module (numpy or cupy) first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

Array = Any

# Rational approximations of W. J. Cody, "Rational Chebyshev approximations for the error function" (1969).
_NEAR = (
    (
        1.85777706184603153e-1,
        3.16112374387056560e00,
        1.13864154151050156e02,
        3.77485237685302021e02,
        3.20937758913846947e03,
    ),
    (1.0, 2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03),
)
_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01,
     2.98635138197400131e02, 8.81952221241769090e02, 1.71204761263407058e03, 2.05107837782607147e03,
     1.23033935479799725e03),
    (1.0, 1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02, 1.62138957456669019e03,
     3.29079923573345963e03, 4.36261909014324716e03, 3.43936767414372164e03, 1.23033935480374942e03),
)  # fmt: skip


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    total = coefficients[0] + 0 * x
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def erf(xp: ModuleType, x: Array) -> Array:
    """The error function to about 1e-15; there is none in NumPy."""
    x = xp.asarray(x)
    size = xp.minimum(xp.abs(x), 6.0)  # beyond 6 it is 1 in float64; nan stays nan
    square = size * size
    near = size * _polynomial(_NEAR[0], square) / _polynomial(_NEAR[1], square)
    middle = 1 - xp.exp(-square) * _polynomial(_MIDDLE[0], size) / _polynomial(_MIDDLE[1], size)
    return xp.sign(x) * xp.where(size <= 0.46875, near, middle)


def _extreme(name: str) -> Callable[..., Array]:
    def function(xp: ModuleType, *values: Array) -> Array:
        total = values[0]
        for value in values[1:]:
            total = getattr(xp, name)(total, value)
        return total

    return function


FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "exp": lambda xp, a: xp.exp(a),
    "log": lambda xp, a: xp.log(a),
    "sqrt": lambda xp, a: xp.sqrt(a),
    "tanh": lambda xp, a: xp.tanh(a),
    "sin": lambda xp, a: xp.sin(a),
    "cos": lambda xp, a: xp.cos(a),
    "floor": lambda xp, a: xp.floor(a),
    "ceil": lambda xp, a: xp.ceil(a),
    "abs": lambda xp, a: xp.abs(a),
    "sign": lambda xp, a: xp.sign(a),
    "erf": erf,
    "sigmoid": lambda xp, a: 1 / (1 + xp.exp(-a)),
    "pow": lambda xp, a, b: xp.power(_real(xp, a), b),
    "max": _extreme("maximum"),
    "min": _extreme("minimum"),
}


def _real(xp: ModuleType, value: Array) -> Array:
    """Whole numbers to negative powers are fractions."""
    return value * 1.0 if np.dtype(getattr(value, "dtype", float)).kind in "iub" else value
