"""Index expressions over a whole grid at once: the same meaning as `evaluate`, with integer arrays for indices.

A value is an int, a bool, an integer or boolean NumPy array (broadcastable over the grid), or a tuple of those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from taso.errors import SpecError
from taso.spec import syntax as s
from taso.spec.builtins import BUILTINS
from taso.spec.evaluate import Scope, UnboundName, evaluate

Indexed = Any  # int | bool | Fraction | float | np.ndarray | tuple[Indexed, ...]


def on_grid(expr: s.Expr, scope: Scope) -> Indexed:
    """The value of an index expression or condition; names may be bound to integer arrays.

    Raises:
        SpecError: an unknown name or function, or a tensor is read.
    """
    match expr:
        case s.Name(name, pos):
            if name in scope.values:
                return scope.values[name]
            raise UnboundName(name, pos)
        case s.Neg(inner):
            return _each(lambda a: -a, on_grid(inner, scope))
        case s.Bin("++", left, right):
            return on_grid(left, scope) + on_grid(right, scope)
        case s.Bin(op, left, right, pos):
            return _pair(_ARITHMETIC[op], on_grid(left, scope), on_grid(right, scope), pos)
        case s.Cmp("in", left, right, pos):
            found = [_compare("==", on_grid(left, scope), item, pos) for item in on_grid(right, scope)]
            return _join(np.logical_or, found, False)
        case s.Cmp(op, left, right, pos):
            return _compare(op, on_grid(left, scope), on_grid(right, scope), pos)
        case s.Logic("not", (inner,)):
            return np.logical_not(on_grid(inner, scope))
        case s.Logic(op, operands):
            return _logic(op, operands, scope)
        case s.If(condition, then, otherwise):
            return _choose(on_grid(condition, scope), then, otherwise, scope)
        case s.ListOf(items):
            return _items(items, scope)
        case s.Call("dim" | "rank" | "shape"):
            return evaluate(expr, scope)
        case s.Call(function, args, pos):
            known = _FUNCTIONS.get(function)
            if known is None:
                raise SpecError(f"unknown function `{function}` among indices", line=pos.line, column=pos.column)
            values = _items(args, scope)
            try:
                return known(*values)
            except (TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
                raise SpecError(f"`{function}`: {error}", line=pos.line, column=pos.column) from None
    return evaluate(expr, scope)


def _logic(op: str, operands: tuple[s.Expr, ...], scope: Scope) -> Indexed:
    """`and` and `or`; what stands behind a false (true) constant is not looked at."""
    values: list[Indexed] = []
    for operand in operands:
        value = on_grid(operand, scope)
        if np.ndim(value) == 0 and bool(value) is (op == "or"):
            return op == "or"
        values.append(value)
    return _join(np.logical_and if op == "and" else np.logical_or, values, op == "and")


def _choose(truth: Indexed, then: s.Expr, otherwise: s.Expr, scope: Scope) -> Indexed:
    if np.ndim(truth) == 0:
        return on_grid(then if truth else otherwise, scope)
    a, b = on_grid(then, scope), on_grid(otherwise, scope)
    if isinstance(a, tuple):
        return tuple(np.where(truth, x, y) for x, y in zip(a, b, strict=True))
    return np.where(truth, a, b)


def _items(items: tuple[s.Expr, ...], scope: Scope) -> tuple[Indexed, ...]:
    out: list[Indexed] = []
    for item in items:
        if isinstance(item, s.Star):
            out.extend(on_grid(item.value, scope))
        else:
            out.append(on_grid(item, scope))
    return tuple(out)


def _floor(a: Indexed, b: Indexed) -> Indexed:
    if isinstance(a, (Fraction, float)) or isinstance(b, (Fraction, float)):
        return a / b
    return a // b


_ARITHMETIC: Mapping[str, Callable[[Indexed, Indexed], Indexed]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _floor,
    "%": lambda a, b: a % b,
}

_COMPARE: Mapping[str, Callable[[Indexed, Indexed], Indexed]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _each(function: Callable[[Indexed], Indexed], value: Indexed) -> Indexed:
    return tuple(map(function, value)) if isinstance(value, tuple) else function(value)


def _pair(function: Callable[[Indexed, Indexed], Indexed], left: Indexed, right: Indexed, pos: s.Pos) -> Indexed:
    if not isinstance(left, tuple) and not isinstance(right, tuple):
        return function(left, right)
    n = len(left) if isinstance(left, tuple) else len(right)
    lefts = left if isinstance(left, tuple) else (left,) * n
    rights = right if isinstance(right, tuple) else (right,) * n
    if len(lefts) != len(rights):
        raise SpecError(
            f"lists of lengths {len(lefts)} and {len(rights)} in one operation", line=pos.line, column=pos.column
        )
    return tuple(function(a, b) for a, b in zip(lefts, rights))


def _compare(op: str, left: Indexed, right: Indexed, pos: s.Pos) -> Indexed:
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) != len(right) and op in ("==", "!="):
        return op == "!="
    found = _pair(_COMPARE[op], left, right, pos)
    if not isinstance(found, tuple):
        return found
    return _join(np.logical_or, list(found), False) if op == "!=" else _join(np.logical_and, list(found), True)


def _join(function: Callable[[Indexed, Indexed], Indexed], values: list[Indexed], start: bool) -> Indexed:
    total: Indexed = start
    for value in values:
        total = function(total, value)
    return bool(total) if np.ndim(total) == 0 else total


def _unravel(flat: Indexed, shape: tuple[int, ...]) -> tuple[Indexed, ...]:
    out: list[Indexed] = []
    for extent in reversed(shape[1:]):
        out.append(flat % max(extent, 1))
        flat = flat // max(extent, 1)
    if shape:
        out.append(flat)
    return tuple(reversed(out))


def _extreme(function: Callable[[Indexed, Indexed], Indexed], *values: Indexed) -> Indexed:
    listed = values[0] if len(values) == 1 else values
    total = listed[0]
    for value in listed[1:]:
        total = function(total, value)
    return int(total) if np.ndim(total) == 0 and isinstance(total, np.integer) else total


_FUNCTIONS: Mapping[str, Callable[..., Indexed]] = {
    **BUILTINS,
    "unravel": _unravel,
    "max": lambda *values: _extreme(np.maximum, *values),
    "min": lambda *values: _extreme(np.minimum, *values),
    "ceil_div": lambda a, b: -((-a) // b),
}
