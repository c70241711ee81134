"""Conditions of a schema: what was true of its instance, and what the expressions of its right side need."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from taso.generate.instance import Instance
from taso.generate.symbols import ONE, TWO, ZERO, Symbols, extents, known_lists, uniform
from taso.spec import syntax as s
from taso.spec.elaborate import Typed

_MEANINGS = 16  # combinations of what attributes could be
KERNEL_SIZES = (1, 3)  # extents up to which a tensor is taken for a kernel


def hypotheses(instance: Instance, symbols: Symbols) -> list[list[s.Expr]]:
    """What is true of the instance, in lists of conditions from general to special.

    Kernels of one size; then, for each symbol that could be the dilation, pads that keep an image's size under odd
    kernels; then equal sizes, and the sizes that whole-number attributes are; at last the very numbers.
    """
    lists = known_lists(instance, symbols)
    names = [(expr, v) for expr, v in lists if isinstance(expr, s.Name)]
    kernels = [(expr, v) for expr, v in lists if isinstance(expr, s.Call) and v and all(x in KERNEL_SIZES for x in v)]
    general: list[s.Expr] = [s.Cmp("==", a, b) for (a, va), (b, vb) in itertools.combinations(kernels, 2) if va == vb]
    odd: list[s.Expr] = [s.Cmp("==", s.Bin("%", kernel, TWO), ONE) for kernel, _ in kernels]
    found = [general]
    for dilation, vd in names:
        if symbols.low(dilation) != 1:
            continue
        keeping: list[s.Expr] = []
        for (pad, vp), (kernel, vk) in itertools.product(names, kernels):
            half = tuple(d * ((k - 1) // 2) for d, k in zip(vd, vk)) if len(vd) == len(vk) else ()
            if vp == half and symbols.low(pad) == 0:
                keeping.append(s.Cmp("==", pad, s.Bin("*", dilation, s.Bin("/", s.Bin("-", kernel, ONE), TWO))))
        found.append([*keeping, *odd, *general])
    equal = _equal_sizes(instance)
    meanings = _meanings(instance, symbols)
    found += [[*meaning, *equal, *general] for meaning in meanings]
    lists_known: list[s.Expr] = [
        s.Cmp("==", s.Name(name), uniform(value))
        for name, value in symbols.values.items()
        if symbols.kinds[name] != "int"
    ]
    lists_known += [s.Cmp("==", expr, uniform(v)) for expr, v in kernels]
    found += [[*lists_known, *meaning, *odd, *general] for meaning in meanings if meaning]
    special: list[s.Expr] = [s.Cmp("==", s.Name(name), uniform(value)) for name, value in symbols.values.items()]
    special += [s.Cmp("==", expr, uniform(v)) for expr, v in kernels]
    found.append([*special, *odd, *general])
    return [list(dict.fromkeys(pool)) for k, pool in enumerate(found) if k == 0 or pool != found[k - 1]]


def _sizes(instance: Instance) -> list[tuple[s.Expr, int]]:
    """The sizes that the left side lets differ, of its own tensors."""
    own: set[str] = set()

    def visit(typed: Typed) -> None:
        if typed.kind == "var":
            own.add(typed.head)
        for arg in typed.args:
            visit(arg)

    for typed in instance.source:
        visit(typed)
    return [(size, value) for size, value in instance.sizes if _tensor(size) in own]


def _equal_sizes(instance: Instance) -> list[s.Expr]:
    """Along each axis the sizes that the left side lets differ and that are equal here."""
    pairs = itertools.combinations(_sizes(instance), 2)
    return [s.Cmp("==", a, b) for (a, size), (b, other) in pairs if size == other and _axis(a) == _axis(b)]


def _tensor(size: s.Expr) -> str:
    assert isinstance(size, s.Call) and isinstance(size.args[0], s.Name)  # dim(x, k)
    return size.args[0].id


def _axis(size: s.Expr) -> s.Expr:
    assert isinstance(size, s.Call)
    return size.args[1]


def _meanings(instance: Instance, symbols: Symbols) -> list[list[s.Expr]]:
    """What the whole-number attributes could be: as small as can be, a size, two sizes added; some combinations."""
    options: list[list[s.Expr]] = []
    known_sizes = _sizes(instance)
    for name, kind in symbols.kinds.items():
        value = symbols.values[name]
        if kind != "int":
            continue
        sizes: list[s.Expr] = [size for size, v in known_sizes if v == value]
        for (a, va), (b, vb) in itertools.chain(itertools.combinations(known_sizes, 2), zip(known_sizes, known_sizes)):
            if va + vb == value and _axis(a) == _axis(b):
                sizes.append(s.Bin("+", a, b))
        least = symbols.low(s.Name(name)) in (None, value) and value in (0, 1)
        known: list[s.Expr] = [uniform(value)] if least else sizes
        if not known:
            return [[]]
        options.append([s.Cmp("==", s.Name(name), size) for size in known])
    return [list(chosen) for chosen in itertools.islice(itertools.product(*options), _MEANINGS)]


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
    """Whether a condition says what a symbol is."""
    return isinstance(condition, s.Cmp) and condition.op == "==" and isinstance(condition.left, s.Name)


def says_odd(condition: s.Expr) -> bool:
    """Whether a condition says that something leaves a rest of one."""
    return (
        isinstance(condition, s.Cmp)
        and isinstance(condition.left, s.Bin)
        and condition.left.op == "%"
        and condition.right == ONE
    )


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
