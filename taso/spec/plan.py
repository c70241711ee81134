"""A compiled operator at one choice of shapes and attributes: gathers, products, reductions over a grid.

Axes of the grid: first those of the result, then those of each reduction. `Element` is a number at every point of the
grid that depends on some of its axes only; along the others its extent is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np

from taso.algebra.poly import Poly
from taso.errors import ShapeError, SpecError
from taso.spec import syntax as s
from taso.spec.contract import contract
from taso.spec.evaluate import Scope, dims
from taso.spec.functions import FUNCTIONS
from taso.spec.grid import Indexed, on_grid
from taso.spec.value import Shape

Array = Any


@dataclass
class Frame:
    """One execution: the argument arrays with their `lead` batch axes, and where and in which type to compute."""

    args: list[Array]
    lead: int
    dtype: Any
    xp: ModuleType
    copies: dict[int, Array]

    def on(self, table: np.ndarray) -> Array:
        """An index table on the device."""
        if self.xp is np:
            return table
        if id(table) not in self.copies:
            self.copies[id(table)] = self.xp.asarray(table)
        return self.copies[id(table)]

    def number(self, static: Any) -> Array:
        """A static element in the type of the data; booleans stay."""
        if not isinstance(static, np.ndarray):
            return static
        table = self.on(static)
        return table if table.dtype == bool else table.astype(self.dtype)


@dataclass(frozen=True)
class Element:
    """A number at each grid point: `static` (a number or an array of `extents`) or computed by `run`."""

    extents: tuple[int, ...]
    static: Any = None
    run: Callable[[Frame], Array] | None = None

    def value(self, frame: Frame) -> Array:
        """An array of the batch axes and `extents`, or something that broadcasts with one."""
        return frame.number(self.static) if self.run is None else self.run(frame)


@dataclass
class Plan:
    """An operator ready to run. `nbytes` is the size of its index tables."""

    shape: tuple[int, ...]
    element: Element
    nbytes: int
    copies: dict[int, Array] = field(default_factory=dict)

    def run(self, args: list[Array], lead: int, dtype: Any, xp: ModuleType = np) -> Array:
        """The result, with `lead` batch axes in front; see `lower.run`."""
        frame = Frame(args, lead, dtype, xp, self.copies)
        with np.errstate(all="ignore"):
            value = xp.asarray(self.element.value(frame))
        batch = np.broadcast_shapes(*(arg.shape[:lead] for arg in args)) if args else (1,) * lead
        kept = (0 if self.element.run is None else lead) + len(self.shape)  # behind are the reductions' axes, of size 1
        if value.ndim > kept:
            value = value.reshape(value.shape[:kept])
        if value.shape != batch + self.shape:
            value = xp.broadcast_to(value, batch + self.shape)
        return value.astype(dtype) if value.dtype != dtype else xp.ascontiguousarray(value).reshape(value.shape)


def concrete(shape: Shape) -> tuple[int, ...]:
    """The shape as ints. Raises ShapeError if a size is symbolic."""
    if any(isinstance(n, Poly) for n in shape):
        raise ShapeError(f"the shape {shape} is not concrete")
    return tuple(int(n) for n in shape if not isinstance(n, Poly))


def compile_plan(op: s.Operator, scope: Scope, shape: tuple[int, ...]) -> Plan:
    """Compile an operator whose names are bound in `scope` and whose result has `shape`."""
    compiler = _Compiler(op, scope, shape)
    element = compiler.element(op.body, compiler.scope, True)
    return Plan(shape, element, compiler.nbytes)


def _reductions(expr: Any) -> list[s.Reduce]:
    """All reductions in an expression."""
    if isinstance(expr, tuple):
        return [found for item in expr for found in _reductions(item)]
    if not hasattr(expr, "__dataclass_fields__"):
        return []
    inside = [found for name in expr.__dataclass_fields__ for found in _reductions(getattr(expr, name))]
    return [expr, *inside] if isinstance(expr, s.Reduce) else inside


def _reads(expr: Any) -> bool:
    """Whether an expression reads a tensor or reduces, so that it is an element and not an index."""
    if isinstance(expr, (s.Read, s.Reduce)):
        return True
    if isinstance(expr, tuple):
        return any(map(_reads, expr))
    return hasattr(expr, "__dataclass_fields__") and any(
        _reads(getattr(expr, name)) for name in expr.__dataclass_fields__
    )


def _bounds(binder: s.Binder, scope: Scope) -> tuple[int, ...]:
    bound = on_grid(binder.bound, scope)
    listed = bound if binder.starred else (bound,)
    if any(np.ndim(n) for n in listed):
        raise SpecError(
            "the bound of an index may not depend on another index", line=binder.pos.line, column=binder.pos.column
        )
    return tuple(max(int(n), 0) for n in listed)


class _Compiler:
    def __init__(self, op: s.Operator, scope: Scope, shape: tuple[int, ...]) -> None:
        self.op, self.shape, self.nbytes = op, shape, 0
        self.params = {param.name: k for k, param in enumerate(op.params)}
        self.slots: dict[int, int] = {}  # reduction (by identity) -> its first grid axis
        total = len(shape)
        for reduction in _reductions(op.body):
            self.slots[id(reduction)] = total
            total += sum(len(_bounds(binder, scope)) for binder in reduction.binders)
        self.rank = total
        self.axes: dict[int, int] = {}  # index array (by identity) -> grid axis
        self.keep: list[np.ndarray] = []
        self.scope = Scope({**scope.values, **self._result_indices(scope)}, scope.shapes)

    def _result_indices(self, scope: Scope) -> dict[str, Indexed]:
        lengths = []
        for item, declared in zip(self.op.index, self.op.result):
            lengths.append(len(dims((declared,), scope)) if item.starred else 1)
        bound: dict[str, Indexed] = {}
        start = 0
        for item, length in zip(self.op.index, lengths):
            assert isinstance(item.value, s.Name)
            variables = tuple(self._variable(start + k, self.shape[start + k]) for k in range(length))
            bound[item.value.id] = variables if item.starred else variables[0]
            start += length
        return bound

    def _variable(self, axis: int, extent: int) -> np.ndarray:
        variable = np.arange(extent).reshape(tuple(extent if k == axis else 1 for k in range(self.rank)))
        self.axes[id(variable)] = axis
        self.keep.append(variable)  # so that its id stays its own
        return variable

    def _extents(self, *arrays: Any) -> tuple[int, ...]:
        shapes = [a.shape for a in arrays if isinstance(a, np.ndarray) and a.ndim]
        return np.broadcast_shapes((1,) * self.rank, *shapes)

    def _static(self, value: Any) -> Element:
        if isinstance(value, tuple):
            raise SpecError(f"`{self.op.name}`: a list stands where a number is expected")
        if isinstance(value, Fraction):
            value = int(value) if value.denominator == 1 else float(value)
        return Element(self._extents(value), value)

    # --- expressions. `active`: where the element is looked at (True, a boolean array, or None: only known at run time)
    def element(self, expr: s.Expr, scope: Scope, active: Any) -> Element:
        match expr:
            case s.Read():
                return self._read(expr, scope, active)
            case s.Reduce():
                return self._reduce(expr, scope, active)
            case s.If(condition, then, otherwise):
                return self._if(condition, then, otherwise, scope, active)
            case s.Neg(inner):
                return self._map(lambda xp, a: -a, self.element(inner, scope, active))
            case s.Bin(op, left, right) if op in _ARITHMETIC:
                return self._map(_ARITHMETIC[op], self.element(left, scope, active), self.element(right, scope, active))
            case s.Cmp(op, left, right) if _reads(expr):
                return self._map(_COMPARE[op], self.element(left, scope, active), self.element(right, scope, active))
            case s.Call(function, args) if function in FUNCTIONS and not self._listed(args, scope):
                return self._map(FUNCTIONS[function], *(self.element(arg, scope, active) for arg in args))
        return self._static(on_grid(expr, scope))

    def _listed(self, args: tuple[s.Expr, ...], scope: Scope) -> bool:
        """Whether the arguments are lists, as in `product(kernel)` or `max(sizes)`, and not elements."""
        if any(isinstance(arg, (s.Star, s.ListOf)) for arg in args):
            return True
        return any(isinstance(on_grid(arg, scope), tuple) for arg in args if not _reads(arg))

    def _map(self, function: Callable[..., Array], *operands: Element) -> Element:
        extents = np.broadcast_shapes(*(operand.extents for operand in operands))
        if all(operand.run is None for operand in operands):
            with np.errstate(all="ignore"):
                value = function(np, *(operand.static for operand in operands))
            return Element(extents, value.item() if isinstance(value, np.generic) else value)

        def run(frame: Frame) -> Array:
            return function(frame.xp, *(operand.value(frame) for operand in operands))

        return Element(extents, run=run)

    def _if(self, condition: s.Expr, then: s.Expr, otherwise: s.Expr, scope: Scope, active: Any) -> Element:
        if _reads(condition):
            truth = self.element(condition, scope, active)
            a, b = self.element(then, scope, None), self.element(otherwise, scope, None)
            return self._map(_where, truth, a, b)
        known = on_grid(condition, scope)
        if np.ndim(known) == 0:
            return self.element(then if known else otherwise, scope, active)
        inside = None if active is None else np.logical_and(active, known)
        outside = None if active is None else np.logical_and(active, np.logical_not(known))
        a, b = self.element(then, scope, inside), self.element(otherwise, scope, outside)
        return self._map(_where, self._static(known), a, b)

    # --- reads
    def _read(self, read: s.Read, scope: Scope, active: Any) -> Element:
        position, shape = self.params[read.tensor], concrete(scope.shapes[read.tensor])
        index: list[Indexed] = []
        for item in read.index:
            value = on_grid(item.value, scope) if isinstance(item, s.Star) else on_grid(item, scope)
            index.extend(value if isinstance(value, tuple) else [value])
        if len(index) != len(shape):
            raise SpecError(
                f"`{read.tensor}` has rank {len(shape)} but {len(index)} indices",
                line=read.pos.line,
                column=read.pos.column,
            )
        axes = [self.axes.get(id(item)) for item in index]
        fits = all(axis is not None and self._axis_size(axis, item) == n for axis, item, n in zip(axes, index, shape))
        if fits and len(set(axes)) == len(axes):
            return self._view(position, [axis for axis in axes if axis is not None], shape)
        return self._gather(read, position, shape, index, scope, active)

    def _axis_size(self, axis: int, variable: np.ndarray) -> int:
        return int(variable.shape[axis])

    def _view(self, position: int, axes: list[int], shape: tuple[int, ...]) -> Element:
        """A read whose indices are grid axes: the tensor itself, its axes in the grid's order."""
        order = sorted(range(len(axes)), key=lambda k: axes[k])
        extents = tuple(shape[axes.index(k)] if k in axes else 1 for k in range(self.rank))

        def run(frame: Frame) -> Array:
            data, lead = frame.args[position], frame.lead
            turned = data.transpose(tuple(range(lead)) + tuple(lead + k for k in order))
            return turned.reshape(data.shape[:lead] + extents)

        return Element(extents, run=run)

    def _gather(
        self, read: s.Read, position: int, shape: tuple[int, ...], index: list[Indexed], scope: Scope, active: Any
    ) -> Element:
        """Any other read: one `take` from the flattened tensor, behind which the fill stands as one more entry."""
        size = math.prod(shape)
        flat: Any = np.zeros((1,) * self.rank, np.int64)
        inside: Any = np.ones((1,) * self.rank, bool)
        for item, extent in zip(index, shape):
            flat = flat * extent + np.clip(item, 0, max(extent - 1, 0))
            inside = inside & np.logical_and(np.greater_equal(item, 0), np.less(item, extent))
        fill: Any = 0
        if read.fill is not None:
            filling = self.element(read.fill, scope, True)
            fill = filling.static
            if filling.run is not None or np.ndim(fill):
                raise SpecError("a fill must be one number", line=read.pos.line, column=read.pos.column)
        elif active is not None and not np.all(inside | np.logical_not(active)):
            raise SpecError(f"`{read.tensor}` is read outside its bounds", line=read.pos.line, column=read.pos.column)
        flat = _independent(np.where(inside, flat, size))
        outside = bool((flat == size).any())
        self.nbytes += flat.nbytes

        def run(frame: Frame) -> Array:
            xp, data, lead = frame.xp, frame.args[position], frame.lead
            data = data.reshape(data.shape[:lead] + (size,))
            if outside:
                data = xp.concatenate(
                    [data, xp.full(data.shape[:lead] + (1,), _fits(fill, data.dtype), data.dtype)], axis=-1
                )
            return xp.take(data, frame.on(flat), axis=lead)

        return Element(flat.shape, run=run)

    # --- reductions
    def _reduce(self, reduction: s.Reduce, scope: Scope, active: Any) -> Element:
        axis = self.slots[id(reduction)]
        axes: list[int] = []
        repeats: dict[int, int] = {}
        values = dict(scope.values)
        for binder in reduction.binders:
            extents = _bounds(binder, scope)
            variables = tuple(self._variable(axis + k, n) for k, n in enumerate(extents))
            values[binder.name] = variables if binder.starred else variables[0]
            repeats.update({axis + k: n for k, n in enumerate(extents)})
            axes.extend(range(axis, axis + len(extents)))
            axis += len(extents)
        inner = Scope(values, scope.shapes)
        if reduction.kind == "sum":
            return self._sum(_factors(reduction.body), inner, active, axes, repeats)
        body = self.element(reduction.body, inner, active)
        empty = any(n == 0 for n in repeats.values())
        least = -math.inf if reduction.kind == "max" else math.inf
        kept = tuple(1 if k in axes else n for k, n in enumerate(body.extents))
        if empty:
            return Element((1,) * self.rank, least)
        extreme = "max" if reduction.kind == "max" else "min"
        return self._over(body, lambda xp, a, over: getattr(xp, extreme)(a, axis=over, keepdims=True), axes, kept)

    def _over(
        self, body: Element, function: Callable[..., Array], axes: Sequence[int], kept: tuple[int, ...]
    ) -> Element:
        axes = [k for k in axes if body.extents[k] != 1]
        if not axes:
            return body
        if body.run is None:
            return Element(kept, function(np, body.static, tuple(axes)))

        def run(frame: Frame) -> Array:
            return function(frame.xp, body.value(frame), tuple(frame.lead + k for k in axes))

        return Element(kept, run=run)

    def _sum(
        self, factors: list[s.Expr], scope: Scope, active: Any, axes: list[int], repeats: dict[int, int]
    ) -> Element:
        """A sum of products; two factors with data become one matrix product."""
        elements = [self.element(factor, scope, active) for factor in factors]
        static = [element for element in elements if element.run is None]
        data = [element for element in elements if element.run is not None]
        if static:  # joins the first factor with data, before anything is multiplied out
            scale = self._map(_product, *static) if len(static) > 1 else static[0]
            data = [self._map(_product, scale, data[0]), *data[1:]] if data else [scale]
        while len(data) > 2:
            data = [self._map(_product, data[0], data[1]), *data[2:]]
        extents = np.broadcast_shapes(*(element.extents for element in data))
        kept = tuple(1 if k in axes else n for k, n in enumerate(extents))
        times = math.prod(n for k, n in repeats.items() if extents[k] == 1)
        if len(data) == 2:
            left, right = data

            def run(frame: Frame) -> Array:
                return contract(left.value(frame), right.value(frame), [frame.lead + k for k in axes], frame.xp)

            total = Element(kept, run=run)
        else:
            total = self._over(data[0], lambda xp, a, over: xp.sum(a, axis=over, keepdims=True), axes, kept)
        return total if times == 1 else self._map(_product, total, self._static(times))


def _factors(expr: s.Expr) -> list[s.Expr]:
    return [*_factors(expr.left), *_factors(expr.right)] if isinstance(expr, s.Bin) and expr.op == "*" else [expr]


def _independent(table: np.ndarray) -> np.ndarray:
    """The table without the axes along which it is constant (extent 1), such as p / o where there is one group."""
    for axis, extent in enumerate(table.shape):
        if extent > 1:
            first = table.take([0], axis=axis)
            table = first if (table == first).all() else table
    return np.ascontiguousarray(table)


def _fits(fill: Any, dtype: Any) -> Any:
    """An infinite fill in a type without infinity is its smallest or largest number."""
    if isinstance(fill, float) and math.isinf(fill) and np.dtype(dtype).kind in "iu":
        return np.iinfo(dtype).min if fill < 0 else np.iinfo(dtype).max
    return fill


def _product(xp: ModuleType, *factors: Array) -> Array:
    total = factors[0]
    for factor in factors[1:]:
        total = total * factor
    return total


def _where(xp: ModuleType, truth: Array, a: Array, b: Array) -> Array:
    return xp.where(truth, a, b)


_ARITHMETIC: dict[str, Callable[..., Array]] = {
    "+": lambda xp, a, b: a + b,
    "-": lambda xp, a, b: a - b,
    "*": lambda xp, a, b: a * b,
    "/": lambda xp, a, b: xp.true_divide(a, b),
    "%": lambda xp, a, b: xp.mod(a, b),
}
_COMPARE: dict[str, Callable[..., Array]] = {
    "==": lambda xp, a, b: a == b,
    "!=": lambda xp, a, b: a != b,
    "<": lambda xp, a, b: a < b,
    "<=": lambda xp, a, b: a <= b,
    ">": lambda xp, a, b: a > b,
    ">=": lambda xp, a, b: a >= b,
}
