"""What an operator's meaning says about it as a whole: whether it commutes, moves data, works element by element."""

from __future__ import annotations

from functools import cache
from typing import Any

from taso.spec import syntax as s


@cache
def commutative(op: s.Operator) -> bool:
    """Whether swapping the two tensors of an operator is seen, from its syntax, to change nothing: `x[*i] + y[*i]`."""
    if len(op.params) != 2 or op.params[0].dims != op.params[1].dims:
        return False
    first, second = (param.name for param in op.params)
    return bool(_ordered(op.body, {}) == _ordered(op.body, {first: second, second: first}))


def _ordered(expr: s.Expr, renamed: dict[str, str]) -> Any:
    """A nested tuple that is the same for expressions that differ by the order of sums, products, maxima and minima."""
    match expr:
        case s.Read(tensor, index, fill):
            return "read", renamed.get(tensor, tensor), repr(index), None if fill is None else _ordered(fill, renamed)
        case s.Bin("+" | "*" as op, left, right):
            return op, tuple(sorted((_ordered(left, renamed), _ordered(right, renamed)), key=repr))
        case s.Bin(op, left, right):
            return op, _ordered(left, renamed), _ordered(right, renamed)
        case s.Neg(value):
            return "neg", _ordered(value, renamed)
        case s.Call(function, args):
            parts = [_ordered(arg, renamed) for arg in args]
            return function, tuple(sorted(parts, key=repr) if function in ("max", "min") else parts)
        case s.Reduce(kind, binders, body):
            return kind, repr(binders), _ordered(body, renamed)
        case s.If(condition, then, otherwise):
            return "if", repr(condition), _ordered(then, renamed), _ordered(otherwise, renamed)
        case _:
            return repr(expr)


@cache
def moves_data(op: s.Operator) -> bool:
    """Whether every element of the result is an element of a tensor, or one fixed number: no arithmetic on elements."""
    return _moves(op.body)


def _moves(body: s.Expr) -> bool:
    match body:
        case s.Read(_, _, fill):
            return fill is None or _moves(fill)
        case s.If(_, then, otherwise):
            return _moves(then) and _moves(otherwise)
        case s.Num() | s.Name():
            return True
    return False


@cache
def copies(op: s.Operator) -> bool:
    """Whether every element of the result is an element of a tensor: moves data and fills nothing in."""
    return bool(op.params) and _copies(op.body)


def _copies(body: s.Expr) -> bool:
    match body:
        case s.Read(_, _, fill):
            return fill is None
        case s.If(_, then, otherwise):
            return _copies(then) and _copies(otherwise)
    return False


@cache
def elementwise(op: s.Operator) -> bool:
    """Whether each element of the result depends on the elements at its own place only: `out[*i]` reads `x[*i]`."""
    return (
        bool(op.params)
        and len(op.index) == 1
        and op.index[0].starred
        and _reads_only(op.body, s.Star(op.index[0].value))
    )


def _reads_only(body: s.Expr, index: s.Expr) -> bool:
    match body:
        case s.Read(_, read, fill):
            return read == (index,) and fill is None
        case s.Bin(_, left, right):
            return _reads_only(left, index) and _reads_only(right, index)
        case s.Neg(value):
            return _reads_only(value, index)
        case s.Call(_, args):
            return all(_reads_only(arg, index) for arg in args)
        case s.If(condition, then, otherwise):
            parts = (condition, then, otherwise)
            return all(_reads_only(part, index) for part in parts)
        case s.Cmp(_, left, right):
            return _reads_only(left, index) and _reads_only(right, index)
        case s.Num():
            return True
        case s.Name(name):
            return not (isinstance(index, s.Star) and isinstance(index.value, s.Name) and index.value.id == name)
    return False
