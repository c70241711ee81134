"""Conditions of a schema: what was true of its instance, and what the expressions of its right side need."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction

from taso.generate.instance import Instance
from taso.generate.symbols import (
    ONE,
    TWO,
    ZERO,
    Symbols,
    entries,
    extents,
    int_expressions,
    known_lists,
    number,
    shape_expressions,
    uniform,
)
from taso.spec import syntax as s

KERNEL_SIZES = (1, 3)  # extents up to which a tensor is taken for a kernel
MAX_PLACES = 12  # ways to say where a slice begins and ends that are tried


def hypotheses(instance: Instance, symbols: Symbols) -> list[list[s.Expr]]:
    """What is true of the instance, in lists of conditions from general to special.

    Kernels of one size and shapes of one length; then steps that are left out and axes that are not padded; what the
    whole numbers and shapes may be in terms of sizes (the end of a slice is the size of a tensor), and tensors of equal
    sizes; then, for each symbol that could be the dilation, pads that keep an image's size under odd kernels; at last
    the very numbers.
    """
    lists = known_lists(instance, symbols)
    names = [(expr, v) for expr, v in lists if isinstance(expr, s.Name)]
    kernels = [(expr, v) for expr, v in lists if isinstance(expr, s.Call) and v and all(x in KERNEL_SIZES for x in v)]
    general: list[s.Expr] = [s.Cmp("==", a, b) for (a, va), (b, vb) in itertools.combinations(kernels, 2) if va == vb]
    general += [
        s.Cmp("==", s.Call("len", (s.Name(name),)), s.Num(Fraction(len(symbols.values[name]))))
        for name, kind in symbols.kinds.items()
        if kind == "shape"
    ]
    plain: list[s.Expr] = [
        s.Cmp("==", s.Name(name), number(value))
        for name, value in symbols.values.items()
        if symbols.default(name) == value
    ]
    ranks = set(map(len, instance.shapes.values()))  # an entry for each axis of a tensor: how it is padded
    plain += [s.Cmp("==", at, ZERO) for at, value in entries(symbols, ranks) if value == 0]
    odd: list[s.Expr] = [s.Cmp("==", s.Bin("%", kernel, TWO), ONE) for kernel, _ in kernels]
    found = [general, [*plain, *general]]
    for places in _places(instance, symbols):
        found.append([*places, *plain, *general])
    if instance.shaped:
        found += [[*_alike(instance), *pool] for pool in found]
    for dilation, vd in names:
        if symbols.low(dilation) != 1:
            continue
        keeping: list[s.Expr] = []
        for (pad, vp), (kernel, vk) in itertools.product(names, kernels):
            half = tuple(d * ((k - 1) // 2) for d, k in zip(vd, vk)) if len(vd) == len(vk) else ()
            if vp == half and symbols.low(pad) == 0:
                keeping.append(s.Cmp("==", pad, s.Bin("*", dilation, s.Bin("/", s.Bin("-", kernel, ONE), TWO))))
        found.append([*keeping, *odd, *general])
    special: list[s.Expr] = [s.Cmp("==", s.Name(name), uniform(value)) for name, value in symbols.values.items()]
    special += [s.Cmp("==", expr, uniform(v)) for expr, v in kernels]
    found.append([*special, *odd, *general])
    return [list(dict.fromkeys(pool)) for k, pool in enumerate(found) if k == 0 or pool != found[k - 1]]


def _places(instance: Instance, symbols: Symbols) -> list[list[s.Expr]]:
    """What the whole numbers and shapes of the left side may be in terms of sizes, as lists of equations.

    Two numbers that are equal here are taken to be the same. Plain numbers are left to the end of all.
    """
    names = [name for name, kind in symbols.kinds.items() if kind in ("int", "shape")]
    ranks = set(map(len, instance.shapes.values()))
    bounds = [(at, value) for at, value in entries(symbols, ranks) if value > 0]
    options: list[list[s.Expr]] = []
    for k, name in enumerate(names):
        value, kind = symbols.values[name], symbols.kinds[name]
        same: list[s.Expr] = [s.Name(o) for o in names[:k] if symbols.values[o] == value and symbols.kinds[o] == kind]
        said = (
            int_expressions(value, instance, Symbols(), bounds)
            if kind == "int"
            else shape_expressions(value, instance, Symbols())
        )
        options.append([*(same if value else ()), *said][:MAX_PLACES])
    found: list[list[s.Expr]] = []
    for chosen in itertools.islice(itertools.product(*options), 4 * MAX_PLACES):
        if not all(map(_plain, chosen)):
            found.append([s.Cmp("==", s.Name(name), expr) for name, expr in zip(names, chosen)])
    return found[:MAX_PLACES]


def _alike(instance: Instance) -> list[s.Expr]:
    """Tensors of one shape, where the left side does not say so: their sizes along each axis are equal."""
    found: list[s.Expr] = []
    for (a, size_a), (b, size_b) in itertools.combinations(instance.sizes, 2):
        match a, b:
            case s.Call("dim", (s.Name(x), k)), s.Call("dim", (s.Name(y), j)):
                if x != y and k == j and size_a == size_b and len(instance.shapes[x]) == len(instance.shapes[y]):
                    found.append(s.Cmp("==", a, b))
    return found


def whole_and_positive(expressions: Iterable[s.Expr]) -> list[s.Expr]:
    """For the differences and quotients in expressions: nothing is negative, nothing is left over."""
    found: list[s.Expr] = []

    def visit(expr: s.Expr) -> None:
        if isinstance(expr, s.Bin):
            visit(expr.left)
            visit(expr.right)
            if expr.op == "/":
                found.append(s.Cmp("==", s.Bin("%", expr.left, expr.right), ZERO))
            if expr.op == "-":
                found.append(s.Cmp(">=", expr.left, expr.right))

    for expr in expressions:
        visit(expr)
    return list(dict.fromkeys(found))


def says_symbol(condition: s.Expr) -> bool:
    """Whether a condition says what a symbol is; not one that says it is a tensor's shape, which serves every rank."""
    match condition:
        case s.Cmp("==", s.Name(), right):
            return not (isinstance(right, s.Call) and right.function == "shape")
    return False


def _plain(expr: s.Expr) -> bool:
    """Whether an expression is a number or a list of numbers."""
    return isinstance(expr, s.Num) or (isinstance(expr, s.ListOf) and all(map(_plain, expr.items)))


def says_odd(condition: s.Expr) -> bool:
    """Whether a condition says that something leaves a rest of one."""
    return (
        isinstance(condition, s.Cmp)
        and isinstance(condition.left, s.Bin)
        and condition.left.op == "%"
        and condition.right == ONE
    )


def quotients(conditions: Iterable[s.Expr]) -> int:
    """How many divisions there are in conditions."""

    def count(expr: s.Expr) -> int:
        match expr:
            case s.Bin(op, left, right):
                return (op in "/%") + count(left) + count(right)
            case s.Cmp(_, left, right):
                return count(left) + count(right)
            case s.ListOf(items):
                return sum(map(count, items))
        return 0

    return sum(map(count, conditions))


def lifted(conditions: Sequence[s.Expr]) -> tuple[s.Expr, ...]:
    """Conditions on single spatial axes as conditions on lists, where all axes have the same one.

    `dim(f, 2) == 3, dim(f, 3) == 3` becomes `skip(shape(f), 2) == 3`, which serves every rank.
    """
    return tuple(dict.fromkeys(_lifted(condition) or condition for condition in conditions))


def _lifted(condition: s.Expr) -> s.Expr | None:
    """The condition on lists, None if it is about anything else than one spatial axis."""
    axes: set[int] = set()

    def lift(expr: s.Expr) -> s.Expr | None:
        match expr:
            case s.Call("dim", (s.Name(tensor), s.Num(k))) if k >= 2:
                axes.add(int(k) - 2)
                return extents(tensor)
            case s.Call("at", (s.Name() as listed, s.Num(k))):
                axes.add(int(k))
                return listed
            case s.Bin(op, left, right) | s.Cmp(op, left, right):
                a, b = lift(left), lift(right)
                return type(expr)(op, a, b) if a is not None and b is not None else None
            case s.Num():
                return expr
        return None

    result = lift(condition)
    return result if len(axes) == 1 else None
