"""Expressions over dimensions, indices, attributes and conditions: their value in a scope.

A value is a quantity (`int` or `Poly`), a real (`Fraction` or `float`), a string, a truth value, or a tuple of values.
Arithmetic between a tuple and a single value, or between two tuples of one length, works element by element. Truth is
three-valued, because symbolic sizes may leave a comparison open: `True`, `False` or `None` (not known).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from taso.algebra.poly import Div, Poly, Quantity, floordiv, make, names, terms_of
from taso.errors import SpecError
from taso.spec import syntax as s

Value = Any  # int | Poly | Fraction | float | str | bool | None | tuple[Value, ...]
Shape = tuple[Quantity, ...]


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
            return _tuple(evaluate(left, scope), pos) + _tuple(evaluate(right, scope), pos)
        case s.Bin(op, left, right, pos):
            return _zip(_ARITHMETIC[op], evaluate(left, scope), evaluate(right, scope), pos)
        case s.Cmp(op, left, right, pos):
            return compare(op, evaluate(left, scope), evaluate(right, scope), pos)
        case s.Logic("not", (inner,)):
            truth = evaluate(inner, scope)
            return None if truth is None else not truth
        case s.Logic("and", operands):
            return _all(evaluate(operand, scope) for operand in operands)
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
            out.extend(_tuple(evaluate(item.value, scope), item.pos))
        else:
            out.append(evaluate(item, scope))
    return tuple(out)


def dims(items: tuple[s.DimItem, ...], scope: Scope) -> Shape:
    """The shape that declared entries describe."""
    out: list[Quantity] = []
    for item in items:
        value = evaluate(item.value, scope)
        out.extend(_tuple(value, item.pos)) if item.starred else out.append(value)
    return tuple(out)


def holds(condition: s.Expr, scope: Scope) -> bool | None:
    """Whether a condition holds: True, False, or None where symbolic sizes leave it open."""
    truth = evaluate(condition, scope)
    return None if truth is None else bool(truth)


# --- comparison ----------------------------------------------------------------------------------------------------


def nonnegative(quantity: Quantity) -> bool | None:
    """Whether a quantity is >= 0 for all values >= 1 of its names (True), < 0 for all (False), or not known (None).

    Names that begin with `~` (a prover's indices and attributes) may have any value, so that nothing is known then.

    Sufficient and quick: with every name n written as 1 + n', all coefficients have one sign.
    """
    if isinstance(quantity, int):
        return quantity >= 0
    shifted: Quantity = 0
    for monomial, coefficient in terms_of(quantity):
        product: Quantity = coefficient
        for atom in monomial:
            if isinstance(atom, str) and atom.startswith("~"):
                return None
            if isinstance(atom, Div):
                if nonnegative(atom.numerator) is not True or nonnegative(atom.divisor) is not True:
                    return None
                product = product * make({(atom,): 1})  # a quotient of nonnegatives is at least 0
            else:
                product = product * make({(atom,): 1, (): 1})
        shifted = shifted + product
    coefficients = [c for _, c in terms_of(shifted)]
    if all(c >= 0 for c in coefficients):
        return True
    constant = shifted if isinstance(shifted, int) else shifted.terms.get((), 0)
    return False if constant < 0 and all(c <= 0 for c in coefficients) else None


def compare(op: str, left: Value, right: Value, pos: s.Pos = s.NOWHERE) -> bool | None:
    """Three-valued comparison; lists compare element by element, `==` of lists of different lengths is False."""
    if op == "in":
        return _any(compare("==", left, item, pos) for item in _tuple(right, pos))
    if isinstance(left, tuple) or isinstance(right, tuple):
        if isinstance(left, tuple) and isinstance(right, tuple) and len(left) != len(right):
            if op in ("==", "!="):
                return op == "!="
            raise SpecError(f"lists of lengths {len(left)} and {len(right)} compared", line=pos.line, column=pos.column)
        n = len(left) if isinstance(left, tuple) else len(right)
        pairs = zip(
            left if isinstance(left, tuple) else (left,) * n, right if isinstance(right, tuple) else (right,) * n
        )
        if op == "!=":
            return _any(compare("!=", a, b, pos) for a, b in pairs)
        return _all(compare(op, a, b, pos) for a, b in pairs)
    if op in ("==", "!="):
        equal: bool | None = left == right
        if not equal and (isinstance(left, Poly) or isinstance(right, Poly)):
            gap = left - right
            apart = nonnegative(gap - 1) is True or nonnegative(-gap - 1) is True
            equal = False if apart else None
        return equal if op == "==" or equal is None else not equal
    if isinstance(left, Poly) or isinstance(right, Poly):
        gap = {">=": left - right, "<=": right - left, ">": left - right - 1, "<": right - left - 1}[op]
        return nonnegative(gap)
    return bool({">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right}[op])


def _all(truths: Any) -> bool | None:
    open_ = False
    for truth in truths:
        if truth is False:
            return False
        open_ = open_ or truth is None
    return None if open_ else True


def _any(truths: Any) -> bool | None:
    open_ = False
    for truth in truths:
        if truth:
            return True
        open_ = open_ or truth is None
    return None if open_ else False


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


def _tuple(value: Value, pos: s.Pos) -> tuple[Value, ...]:
    if not isinstance(value, tuple):
        raise SpecError(f"a list is expected here, not {value!r}", line=pos.line, column=pos.column)
    return value


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


def _normalize(axis: Value, rank: int) -> Value:
    """Negative axes count from the end."""
    if isinstance(axis, tuple):
        return tuple(_normalize(a, rank) for a in axis)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} for rank {rank}")
    return axis + rank if axis < 0 else axis


def merge(kept: tuple[Value, ...], placed: tuple[Value, ...], axes: tuple[int, ...]) -> tuple[Value, ...]:
    """The list that has `placed` at the positions `axes` and `kept` in order at the others."""
    total, rest = len(kept) + len(placed), iter(kept)
    where = dict(zip(axes, placed, strict=True))
    if len(where) < len(axes) or any(not 0 <= k < total for k in where):
        raise ValueError(f"{axes} are no {len(placed)} positions in a list of {total}")
    return tuple(where[k] if k in where else next(rest) for k in range(total))


def ravel(index: tuple[Value, ...], shape: tuple[Value, ...]) -> Value:
    """The row-major position of an index."""
    flat: Value = 0
    for i, extent in zip(index, shape, strict=True):
        flat = flat * extent + i
    return flat


def unravel(flat: Value, shape: tuple[Value, ...]) -> tuple[Value, ...]:
    """The index at a row-major position."""
    out: list[Value] = []
    for extent in reversed(shape[1:]):
        rest = floordiv(flat, extent)
        out.append(flat - rest * extent)
        flat = rest
    if shape:
        out.append(flat)
    return tuple(reversed(out))


def numpy_shape(*shapes: Shape) -> Shape:
    """The shape that NumPy broadcasting gives. Raises ValueError where it is not known for symbolic sizes."""
    rank = max(map(len, shapes), default=0)
    out: list[Quantity] = []
    for k in range(rank):
        extents = {shape[k - rank] for shape in shapes if k - rank + len(shape) >= 0} - {1}
        if len(extents) > 1:
            raise ValueError(f"sizes {sorted(map(str, extents))} do not broadcast")
        out.append(extents.pop() if extents else 1)
    return tuple(out)


def stretched(shape: Shape, to: Shape) -> tuple[int, ...]:
    """The axes of `to` along which NumPy broadcasting of `shape` moves data: those of equal size that is not 1.

    Raises ValueError if `shape` has more axes.
    """
    offset = len(to) - len(shape)
    if offset < 0:
        raise ValueError(f"{shape} has more axes than {to}")
    return tuple(k for k in range(len(to)) if k >= offset and shape[k - offset] == to[k] != 1)


def onnx_reshape(shape: Shape, source: Shape) -> tuple[int, ...]:
    """The target of an ONNX Reshape: 0 where a symbolic size is the source's at that place, -1 for one other symbol.

    Raises ValueError where that cannot say it.
    """
    out: list[int] = []
    for k, size in enumerate(shape):
        if isinstance(size, int):
            if size == 0:
                raise ValueError("a size of 0 in a reshape cannot be written for all opsets")
            out.append(size)
        else:
            out.append(0 if k < len(source) and source[k] == size else -1)
    if out.count(-1) > 1:
        raise ValueError(f"more than one free size in the reshape to {shape}")
    return tuple(out)


def extra_ones(long: Shape, short: Shape) -> tuple[int, ...]:
    """The axes of size 1 that `long` has beyond `short`; empty if that is not all that tells them apart."""
    axes: list[int] = []
    matched = 0
    for axis, size in enumerate(long):
        if matched < len(short) and size == short[matched]:
            matched += 1
        elif size == 1:
            axes.append(axis)
        else:
            return ()
    return tuple(axes) if matched == len(short) else ()


def _slice_bound(value: int, size: int) -> int:
    return max(0, min(size, value + size if value < 0 else value))


def _scaled(shape: Shape, scales: tuple[Value, ...]) -> Shape:
    """Each size times a positive number, rounded down. Raises TypeError where a symbolic size meets a fraction."""
    for size, scale in zip(shape, scales, strict=True):
        if not isinstance(size, int) and not isinstance(scale, int):
            raise TypeError(f"{size} times {scale}")
    return tuple(
        size * scale if isinstance(scale, int) else math.floor(size * scale) for size, scale in zip(shape, scales)
    )


def _product(values: tuple[Value, ...]) -> Value:
    total: Value = 1
    for value in values:
        total = total * value
    return total


def _resolve(shape: tuple[Value, ...], source: Shape, copy_zero: Value = 1) -> tuple[Value, ...]:
    """ONNX's Reshape: 0 copies the source's size at the place (unless `copy_zero` is 0), one -1 is what is left."""
    sizes = [source[k] if d == 0 and copy_zero else d for k, d in enumerate(shape)]
    if -1 in sizes:
        rest = floordiv(_product(source), _product(tuple(d for d in sizes if d != -1)))
        sizes = [rest if d == -1 else d for d in sizes]
    return tuple(sizes)


def _same(size: Shape, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> list[int]:
    """The padding for which a window operator gives ceil(size / stride) positions (ONNX's auto_pad SAME_*)."""
    total = []
    for n, k, s_, d in zip(size, kernel, stride, dilation, strict=True):
        if not isinstance(n, int):
            raise TypeError(f"the size {n} is not known")
        total.append(max((-(-n // s_) - 1) * s_ + d * (k - 1) + 1 - n, 0))
    return total


def same_before(auto_pad: str, *sizes: Any) -> tuple[int, ...]:
    """The part of the padding in front: the smaller half for SAME_UPPER, the larger one otherwise."""
    return tuple(n // 2 if auto_pad == "SAME_UPPER" else n - n // 2 for n in _same(*sizes))


def same_after(auto_pad: str, *sizes: Any) -> tuple[int, ...]:
    """The rest of the padding, behind."""
    return tuple(n - n // 2 if auto_pad == "SAME_UPPER" else n // 2 for n in _same(*sizes))


BUILTINS: dict[str, Callable[..., Value]] = {
    "len": len,
    "range": lambda *a: tuple(range(*a)),
    "select": lambda values, at: tuple(values[k] for k in at),
    "drop": lambda values, at: tuple(v for k, v in enumerate(values) if k not in at),
    "replace": lambda values, at, new: tuple(new if k in at else v for k, v in enumerate(values)),
    "merge": merge,
    "scaled": _scaled,
    "identical": lambda a, b: a == b,  # as they are written; `==` is open where symbolic sizes may turn out equal
    "inverse": lambda perm: tuple(perm.index(k) for k in range(len(perm))),
    "reverse": lambda values: tuple(reversed(values)),
    "sorted": lambda values: tuple(sorted(values)),
    "ravel": ravel,
    "unravel": unravel,
    "product": _product,
    "sum": lambda *values: sum(values[0] if len(values) == 1 and isinstance(values[0], tuple) else values),
    "take": lambda values, n: values[:n],
    "skip": lambda values, n: values[n:],
    "at": lambda values, k: values[k],
    "fill": lambda n, value: (value,) * n,
    "flatten": lambda lists: tuple(item for one in lists for item in one),
    "normalize": _normalize,
    "numpy_shape": numpy_shape,
    "stretched": stretched,
    "onnx_reshape": onnx_reshape,
    "extra_ones": extra_ones,
    "slice_start": _slice_bound,
    "slice_stop": lambda start, stop, size: max(_slice_bound(start, size), _slice_bound(stop, size)),
    "resolve": _resolve,
    "same_before": same_before,
    "same_after": same_after,
    "max": lambda *values: max(values[0] if len(values) == 1 else values),
    "min": lambda *values: min(values[0] if len(values) == 1 else values),
    "abs": abs,
    "ceil_div": lambda a, b: -floordiv(-a, b),
    "real": lambda value: Fraction(value),
    "sqrt": lambda value: math.sqrt(value),
    "known": lambda value: (
        all(isinstance(v, int) for v in value) if isinstance(value, tuple) else isinstance(value, int)
    ),
}


def free_names(quantity: Quantity) -> set[str]:
    """The names in a quantity; a convenience for callers that only import this module."""
    return set(names(quantity))
