"""Random applications of a declared operator: small shapes and attributes that satisfy its declaration.

Nothing here knows an operator. Names of the declaration get random sizes, attributes random values of their type, and
what does not fit is thrown away; two habits make fits likely: equations among the requirements bind names, and a
`shape` is often a rearranged or stretched shape of a tensor.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from taso.errors import SpecError, TasoError
from taso.spec import syntax as s
from taso.spec.evaluate import Scope, attribute, dims, evaluate
from taso.spec.shapes import Declared, solve
from taso.spec.value import Shape, Value

Concrete = tuple[int, ...]
LARGEST = 4096  # elements of a tensor


@dataclass(frozen=True)
class Sample:
    """A fitting application: one shape per parameter, complete attributes, all names bound in `scope`.

    `result` is the result's shape; None for a macro, whose result follows from its definition only.
    """

    shapes: tuple[Concrete, ...]
    attrs: dict[str, Value]
    scope: Scope
    result: Concrete | None


def draw(
    declared: Declared,
    rng: random.Random,
    *,
    shapes: Mapping[int, Concrete] | None = None,
    attrs: Mapping[str, Value] | None = None,
    tries: int = 300,
) -> Sample | None:
    """A random application, or None if `tries` attempts gave none.

    Args:
        shapes: shapes of some parameters (by number) that are given.
        attrs: attributes that are given.
    """
    for _ in range(tries):
        try:
            return _attempt(declared, rng, shapes or {}, attrs or {})
        except (TasoError, _Stuck):
            continue
    return None


class _Stuck(Exception):
    """This attempt does not lead to a fitting application."""


def _attempt(
    declared: Declared, rng: random.Random, given: Mapping[int, Concrete], attrs: Mapping[str, Value]
) -> Sample:
    sizes = Sizes(rng)
    values = dict(attrs)
    if given:
        known = [given.get(k) for k in range(len(declared.params))]
        bound = solve(declared, known, attrs, partial=True).scope.values
        values |= {name: value for name, value in bound.items() if name in _dim_names(declared)}
    equations = _equations(declared)
    _draw_dims(declared, values, equations, sizes, rng)
    _draw_attrs(declared, values, equations, sizes, rng)
    scope = Scope(values)
    shapes = tuple(
        given[k] if k in given else _small(dims(param.dims, scope), 1) for k, param in enumerate(declared.params)
    )
    chosen = {attr.name: values[attr.name] for attr in declared.attrs if attr.name in values}
    signature = solve(declared, shapes, chosen)
    result = None if signature.result is None else _small(signature.result, 0)
    for condition in declared.requires:
        if evaluate(condition, signature.scope) is not True:
            raise _Stuck
    return Sample(shapes, signature.attrs, signature.scope, result)


def _small(shape: Shape, least: int) -> Concrete:
    """A shape as ints; no use if a size is below `least` or it has too many elements."""
    sizes = tuple(n for n in shape if isinstance(n, int) and n >= least)
    if len(sizes) < len(shape) or math.prod(sizes) > LARGEST:
        raise _Stuck
    return sizes


class Sizes:
    """Small sizes from a pool of a few, so that sizes that must be equal often are."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.pool = rng.choice([(1, 2, 3, 4), (1, 2, 3), (2, 3), (3, 4, 5), (4, 6, 8), (1,), (2,)])
        self.rank = rng.choice([0, 1, 1, 2, 2, 2, 3])
        self.one_rank = rng.random() < 0.6

    def size(self) -> int:
        return self.rng.choice(self.pool)

    def length(self) -> int:
        return self.rank if self.one_rank else self.rng.choice([0, 1, 1, 2, 2, 3])

    def list(self) -> Concrete:
        return tuple(self.size() for _ in range(self.length()))


def _dim_names(declared: Declared) -> dict[str, bool]:
    """The names that shapes introduce: name -> whether it is a list. Attributes are not among them."""
    attrs = {attr.name for attr in declared.attrs}
    found: dict[str, bool] = {}
    for param in declared.params:
        for item in param.dims:
            for name in names_in(item.value):
                if name not in attrs:
                    found.setdefault(name, item.starred)
    return found


def names_in(expr: object) -> list[str]:
    """The names that an expression or term mentions, in order; functions and tensors that are read are not."""
    if isinstance(expr, s.Name):
        return [expr.id]
    if isinstance(expr, tuple):
        return [name for item in expr for name in names_in(item)]
    if hasattr(expr, "__dataclass_fields__"):
        return [name for field in expr.__dataclass_fields__ for name in names_in(getattr(expr, field))]
    return []


def _equations(declared: Declared) -> dict[str, s.Expr]:
    """Names that a requirement `expression == name` determines."""
    known = _dim_names(declared)
    found: dict[str, s.Expr] = {}
    for condition in declared.requires:
        if isinstance(condition, s.Cmp) and condition.op == "==":
            for name, expr in ((condition.left, condition.right), (condition.right, condition.left)):
                if isinstance(name, s.Name) and name.id in known and name.id not in names_in(expr):
                    found[name.id] = expr
    return found


def _draw_dims(
    declared: Declared, values: dict[str, Value], equations: Mapping[str, s.Expr], sizes: Sizes, rng: random.Random
) -> None:
    for param in declared.params:
        for item in param.dims:
            if item.length is None or not isinstance(item.value, s.Name) or item.value.id in values:
                continue
            length = rng.choice([0, 1, 1, 2])
            if isinstance(item.length, s.Name) and item.length.id not in values:
                values[item.length.id] = length
            else:
                length = int(evaluate(item.length, Scope(values)))
            values[item.value.id] = tuple(sizes.size() for _ in range(length))
    for name, starred in _dim_names(declared).items():
        if name not in values and name not in equations:
            values[name] = sizes.list() if starred else sizes.size()


def _draw_attrs(
    declared: Declared, values: dict[str, Value], equations: Mapping[str, s.Expr], sizes: Sizes, rng: random.Random
) -> None:
    pending = [attr for attr in declared.attrs if attr.name not in values]
    while pending:
        ready = [attr for attr in pending if attr.like is None or attr.like in values] or pending[:1]
        for attr in ready:
            pending.remove(attr)
            if attr.name not in values:
                values[attr.name] = _draw_attr(declared, attr, values, sizes, rng)
    for name, expr in equations.items():
        if name not in values:
            values[name] = evaluate(expr, Scope(values))


def _draw_attr(
    declared: Declared, attr: s.AttrDecl, values: Mapping[str, Value], sizes: Sizes, rng: random.Random
) -> Value:
    match attr.type:
        case "axis" | "axes" | "perm":
            rank = _rank(declared, attr, values)
            axes = rng.sample(range(rank), rank)
            if attr.type == "perm":
                return tuple(axes)
            if attr.type == "axes":
                return tuple(sorted(axes[: rng.randint(0, rank)]))
            if rank == 0:
                raise _Stuck
            return axes[0] - rank if rng.random() < 0.2 else axes[0]
        case "bool":
            return rng.random() < 0.5
        case "shape":
            return draw_shape([v for v in values.values() if isinstance(v, tuple)], sizes, rng)
    default = None
    if attr.default is not None:
        try:
            default = attribute(attr.type, attr.default, Scope(dict(values)))
        except SpecError:
            default = None
        if default is not None and rng.random() < 0.35:
            return default
    if attr.type == "real":
        return draw_real(default, rng)
    least = default if isinstance(default, int) else 0
    if attr.type == "int":
        return rng.choice([least, least + 1, least + 2, least + 3, sizes.size()])
    listed = values[attr.like] if attr.like is not None else sizes.list()
    if rng.random() < 0.25:
        return (least + rng.randint(0, 2),) * len(listed)
    return tuple(least + rng.randint(0, 2) for _ in listed)


def draw_real(default: Value, rng: random.Random) -> Value:
    """A number that a float32 attribute holds exactly; positive or small where the default is."""
    number = Fraction(rng.randint(1, 200), 64)
    if isinstance(default, (int, Fraction)) and default > 0:
        number = number if default > Fraction(1, 100) else number / 4096
        return -number if default > Fraction(1, 100) and rng.random() < 0.1 else number
    return number if rng.random() < 0.5 else -number


def _rank(declared: Declared, attr: s.AttrDecl, values: Mapping[str, Value]) -> int:
    if attr.like is not None:
        return len(values[attr.like])
    if not declared.params:
        raise _Stuck
    total = 0
    for item in declared.params[0].dims:
        total += len(evaluate(item.value, Scope(dict(values)))) if item.starred else 1
    return total


def draw_shape(lists: Sequence[Concrete], sizes: Sizes, rng: random.Random) -> Concrete:
    """A shape: random, or a list in scope with its entries regrouped, stretched or more entries among them."""
    kind = rng.choice(["random", "regrouped", "regrouped", "stretched", "stretched"])
    if not lists or kind == "random":
        return sizes.list()
    shape = list(rng.choice(list(lists)))
    if kind == "stretched":
        shape = [rng.choice([1, sizes.size()]) if n == 1 else n for n in shape]
        for _ in range(rng.choice([0, 0, 1, 2])):
            shape.insert(rng.choice([0, rng.randint(0, len(shape))]), sizes.size())
        return tuple(shape)
    rng.shuffle(shape)
    while len(shape) > 1 and rng.random() < 0.4:  # merge two neighbours
        k = rng.randrange(len(shape) - 1)
        shape[k : k + 2] = [shape[k] * shape[k + 1]]
    for _ in range(rng.choice([0, 0, 1, 2])):
        shape.insert(rng.randint(0, len(shape)), 1)
    return tuple(shape)


def draw_tensor(shape: Concrete, rng: random.Random, kind: str) -> np.ndarray:
    """A float64 array: `whole` numbers with zeros among them, `positive` ones away from zero, or `any` normal ones."""
    source = np.random.default_rng(rng.getrandbits(32))
    if kind == "whole":
        return source.integers(-3, 4, shape).astype(np.float64)
    if kind == "positive":
        return source.uniform(0.25, 3.0, shape)
    return np.asarray(source.normal(size=shape) * 1.5)
