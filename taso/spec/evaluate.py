"""Expressions over dimensions, indices, attributes and conditions: their value in a scope.

Arithmetic between a tuple and a single value, or between two tuples of one length, works element by element. What
values there are and how they compare is in `taso.spec.value`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from taso.algebra.poly import Poly, Quantity, floordiv
from taso.errors import SpecError
from taso.spec import syntax as s
from taso.spec.builtins import BUILTINS
from taso.spec.value import Shape, Value, compare, every, listed


class UnboundName(SpecError):
    """A name that has no value (yet) in the scope."""

    def __init__(self, name: str, pos: s.Pos) -> None:
        super().__init__(f"`{name}` is not bound", line=pos.line, column=pos.column)
        self.name = name


@dataclass
class Scope:
    """What names mean while an expression is evaluated: values, and shapes of tensors for `dim`, `rank`, `shape`."""

    values: dict[str, Value] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)


def evaluate(expr: s.Expr, scope: Scope) -> Value:
    """The value of an expression. Raises UnboundName or SpecError (with the place inside the file)."""
    match expr:
        case s.Num(value):
            return int(value) if isinstance(value, Fraction) and value.denominator == 1 else value
        case s.Str(value):
            return value
        case s.Name(name, pos):
            if name in scope.values:
                return scope.values[name]
            if name in ("true", "false"):
                return name == "true"
            raise UnboundName(name, pos)
        case s.Neg(inner):
            return _map(lambda a: -a, evaluate(inner, scope))
        case s.Bin("++", left, right, pos):
            return listed(evaluate(left, scope), pos) + listed(evaluate(right, scope), pos)
        case s.Bin(op, left, right, pos):
            return _zip(_ARITHMETIC[op], evaluate(left, scope), evaluate(right, scope), pos)
        case s.Cmp(op, left, right, pos):
            return compare(op, evaluate(left, scope), evaluate(right, scope), pos)
        case s.Logic("not", (inner,)):
            truth = evaluate(inner, scope)
            return None if truth is None else not truth
        case s.Logic("and", operands):
            return every(evaluate(operand, scope) for operand in operands)
        case s.Logic("or", operands):
            open_ = False
            for operand in operands:
                truth = evaluate(operand, scope)
                if truth:
                    return True
                open_ = open_ or truth is None
            return None if open_ else False
        case s.If(condition, then, otherwise, pos):
            truth = evaluate(condition, scope)
            if truth is None:
                raise SpecError("the condition cannot be decided for these sizes", line=pos.line, column=pos.column)
            return evaluate(then if truth else otherwise, scope)
        case s.ListOf(items):
            return elements(items, scope)
        case s.Call(function, args, pos):
            return _call(function, args, pos, scope)
        case s.Star(_, pos):
            raise SpecError("`*` may only stand inside a list, a shape or an index", line=pos.line, column=pos.column)
        case s.Read(tensor, _, _, pos) | s.Reduce(tensor, _, _, pos):
            raise SpecError(
                f"`{tensor}` cannot be read here: only sizes and attributes are known", line=pos.line, column=pos.column
            )
    raise AssertionError(expr)


def elements(items: tuple[s.Expr, ...], scope: Scope) -> tuple[Value, ...]:
    """The values of list entries, with `*list` entries spliced in."""
    out: list[Value] = []
    for item in items:
        if isinstance(item, s.Star):
            out.extend(listed(evaluate(item.value, scope), item.pos))
        else:
            out.append(evaluate(item, scope))
    return tuple(out)


def dims(items: tuple[s.DimItem, ...], scope: Scope) -> Shape:
    """The shape that declared entries describe."""
    out: list[Quantity] = []
    for item in items:
        value = evaluate(item.value, scope)
        out.extend(listed(value, item.pos)) if item.starred else out.append(value)
    return tuple(out)


def holds(condition: s.Expr, scope: Scope) -> bool | None:
    """Whether a condition holds: True, False, or None where symbolic sizes leave it open."""
    truth = evaluate(condition, scope)
    return None if truth is None else bool(truth)


def attribute(kind: str, expr: s.Expr, scope: Scope) -> Value:
    """The value of an attribute of a type (`AttrDecl.type`): in a real one `/` is real division, in others floor."""
    return evaluate(real_division(expr) if kind == "real" else expr, scope)


def real_division(expr: s.Expr) -> s.Expr:
    """The expression with `/` between whole numbers meaning real division, as it does among elements."""
    match expr:
        case s.Bin("/", left, right, pos):
            return s.Bin("/", s.Call("real", (real_division(left),), pos), real_division(right), pos)
        case s.Bin(op, left, right, pos):
            return s.Bin(op, real_division(left), real_division(right), pos)
        case s.Neg(value, pos):
            return s.Neg(real_division(value), pos)
        case s.If(condition, then, otherwise, pos):
            return s.If(condition, real_division(then), real_division(otherwise), pos)
        case s.Call(function, args, pos) if function in ("max", "min", "abs", "sqrt"):
            return s.Call(function, tuple(real_division(arg) for arg in args), pos)
    return expr


# --- arithmetic ----------------------------------------------------------------------------------------------------


def _divide(a: Value, b: Value) -> Value:
    if isinstance(a, (int, Poly)) and isinstance(b, (int, Poly)):
        return floordiv(a, b)
    return Fraction(a) / Fraction(b) if not isinstance(a, float) and not isinstance(b, float) else a / b


_ARITHMETIC: dict[str, Callable[[Value, Value], Value]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": lambda a, b: a % b,
}


def _map(function: Callable[[Value], Value], value: Value) -> Value:
    return tuple(function(v) for v in value) if isinstance(value, tuple) else function(value)


def _zip(function: Callable[[Value, Value], Value], left: Value, right: Value, pos: s.Pos) -> Value:
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) != len(right):
        raise SpecError(
            f"lists of lengths {len(left)} and {len(right)} in one operation", line=pos.line, column=pos.column
        )
    try:
        if isinstance(left, tuple) and isinstance(right, tuple):
            return tuple(function(a, b) for a, b in zip(left, right))
        if isinstance(left, tuple):
            return tuple(function(a, right) for a in left)
        if isinstance(right, tuple):
            return tuple(function(left, b) for b in right)
        return function(left, right)
    except (TypeError, ZeroDivisionError) as error:
        raise SpecError(
            f"cannot compute with {left!r} and {right!r}: {error}", line=pos.line, column=pos.column
        ) from None


# --- built-in functions --------------------------------------------------------------------------------------------


def _call(function: str, args: tuple[s.Expr, ...], pos: s.Pos, scope: Scope) -> Value:
    if function in ("dim", "rank", "shape", "dtype"):
        return _about_tensor(function, args, pos, scope)
    builtin = BUILTINS.get(function)
    if builtin is None:
        known = ", ".join(sorted([*BUILTINS, "dim", "rank", "shape", "dtype"]))
        raise SpecError(f"unknown function `{function}`; known are {known}", line=pos.line, column=pos.column)
    values = elements(args, scope)
    try:
        return builtin(*values)
    except (TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise SpecError(f"`{function}` of {values}: {error}", line=pos.line, column=pos.column) from None


def _about_tensor(function: str, args: tuple[s.Expr, ...], pos: s.Pos, scope: Scope) -> Value:
    tensor = args[0].id if args and isinstance(args[0], s.Name) else None
    if tensor is None or (tensor not in scope.shapes and not (function == "dtype" and tensor in scope.dtypes)):
        if tensor is not None:
            raise UnboundName(tensor, pos)
        raise SpecError(f"`{function}` takes the name of a tensor", line=pos.line, column=pos.column)
    if function == "dtype":
        return scope.dtypes[tensor]
    shape = scope.shapes[tensor]
    if function == "shape":
        return shape
    if function == "rank":
        return len(shape)
    axis = evaluate(args[1], scope)
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        raise SpecError(f"`{tensor}` has rank {len(shape)}, no axis {axis}", line=pos.line, column=pos.column)
    return shape[axis]
