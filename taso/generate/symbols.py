"""Symbols for the numbers of an instance, and the expressions over them that have a given value."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from taso.algebra.poly import Poly, Quantity, exact_quotient, var
from taso.errors import ShapeError, SpecError
from taso.generate.instance import Instance
from taso.generate.universe import Concrete
from taso.spec import syntax as s
from taso.spec.elaborate import elaborate
from taso.spec.evaluate import Scope
from taso.spec.shapes import Declared, Theory
from taso.spec.spec import Spec

ZERO, ONE, TWO = (s.Num(Fraction(k)) for k in range(3))
_MAX_LISTS = 8  # lists of entrywise expressions that are tried
_MAX_PERMUTED = 4  # entries of a list that may stand in another order


@dataclass
class Symbols:
    """The symbols that stand for the attributes of the left side: one for each attribute name and value.

    by_value: the symbol of an attribute's name and value.
    kinds, values: the attribute's type and the value in the instance, by symbol.
    lows: the least value of an attribute, by attribute name, where its operator says one.
    defaults: the whole number that an attribute is where nothing is said, by attribute name.
    """

    by_value: dict[tuple[str, Any], str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    lows: dict[str, int] = field(default_factory=dict)
    defaults: dict[str, int] = field(default_factory=dict)

    def bound(self, declared: Declared) -> None:
        """Learn from `require stride >= 1` how small an operator's attributes may be, and what they are by default."""
        for attr in declared.attrs:
            match attr.default:
                case s.Num(value) if attr.type == "int":
                    self.defaults[attr.name] = int(value)
        for condition in declared.requires:
            match condition:
                case s.Cmp(">=", s.Name(name), s.Num(low)):
                    self.lows[name] = int(low)

    def low(self, expr: s.Expr) -> int | None:
        """The least value that an attribute symbol may have, None if its operator does not say."""
        return self.lows.get(expr.id.rstrip("0123456789")) if isinstance(expr, s.Name) else None

    def default(self, name: str) -> int | None:
        """The default of the whole number that a symbol stands for, if it has one."""
        return self.defaults.get(name.rstrip("0123456789")) if self.kinds[name] == "int" else None

    def symbol(self, attribute: str, kind: str, value: Any) -> str:
        """The symbol of an attribute with this type and value, made if it is new: stride, stride2, ..."""
        key = attribute, value
        if key not in self.by_value:
            name, k = attribute, 2
            while name in self.values:
                name, k = f"{attribute}{k}", k + 1
            self.by_value[key], self.kinds[name], self.values[name] = name, kind, value
        return self.by_value[key]


def number(value: Any) -> s.Expr:
    """A literal for a number or a list of numbers."""
    if isinstance(value, tuple):
        return s.ListOf(tuple(number(v) for v in value))
    return s.Num(value if isinstance(value, float) else Fraction(value))


def uniform(value: Any) -> s.Expr:
    """As `number`, with one number for a list of equal ones (which is what it means where a list is expected)."""
    if isinstance(value, tuple) and value and len(set(value)) == 1:
        return number(value[0])
    return number(value)


def dim(tensor: str, axis: int) -> s.Expr:
    """The size of a tensor along an axis."""
    return s.Call("dim", (s.Name(tensor), s.Num(Fraction(axis))))


def with_axes(expr: s.Expr, axis: Callable[[str, int], s.Expr]) -> s.Expr:
    """The expression with the axis `k` of every size `dim(x, k)` written as `axis(x, k)`."""
    match expr:
        case s.Call("dim", (s.Name(tensor) as name, s.Num(k))):
            return s.Call("dim", (name, axis(tensor, int(k))))
        case s.Call(function, args):
            return s.Call(function, tuple(with_axes(arg, axis) for arg in args))
        case s.Bin(op, left, right):
            return s.Bin(op, with_axes(left, axis), with_axes(right, axis))
        case s.Cmp(op, left, right):
            return s.Cmp(op, with_axes(left, axis), with_axes(right, axis))
        case s.ListOf(items):
            return s.ListOf(tuple(with_axes(item, axis) for item in items))
    return expr


def extents(tensor: str) -> s.Expr:
    """The sizes behind the first two: an image's or a kernel's extents."""
    return s.Call("skip", (s.Call("shape", (s.Name(tensor),)), TWO))


def known_lists(instance: Instance, symbols: Symbols) -> list[tuple[s.Expr, Concrete]]:
    """The lists that the left side knows, with their values: symbols of type `ints` and the extents of its tensors."""
    found: list[tuple[s.Expr, Concrete]] = [
        (s.Name(name), symbols.values[name]) for name, kind in symbols.kinds.items() if kind == "ints"
    ]
    return found + [(extents(name), shape[2:]) for name, shape in instance.shapes.items() if len(shape) > 2]


# --- classes of sizes ----------------------------------------------------------------------------------------------


class _SizeClasses(Theory):
    """Which sizes the left side makes equal: named sizes are united, everything else is let pass."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}
        self.fresh = 0

    def find(self, name: str) -> str:
        """The representative of a name's class."""
        while name in self.parent:
            name = self.parent[name]
        return name

    def equate(self, left: Quantity, right: Quantity, what: str) -> None:
        names = _single_name(left), _single_name(right)
        if names[0] is not None and names[1] is not None:
            first, second = sorted((self.find(names[0]), self.find(names[1])))
            if first != second:
                self.parent[second] = first

    def quotient(self, whole: Quantity, factor: Quantity, what: str) -> Quantity:
        exact = exact_quotient(whole, factor)
        self.fresh += 1
        return exact if exact is not None else var(f"quotient {self.fresh}")

    def require(self, condition: s.Expr, scope: Scope, what: str) -> None:
        pass


def _single_name(value: Quantity) -> str | None:
    """The name in a quantity of one term that is (a multiple of) one name."""
    if not isinstance(value, Poly) or len(value.terms) != 1:
        return None
    (monomial,) = value.terms
    return monomial[0] if len(monomial) == 1 and isinstance(monomial[0], str) else None


def distinct_sizes(
    instance: Instance, left: Sequence[s.Term], symbols: Symbols, spec: Spec
) -> list[tuple[s.Expr, int]]:
    """One `dim(x, k)` for each class of sizes that the left side forces to be equal, with its value in the instance."""
    theory = _SizeClasses()
    shapes = {name: tuple(var(f"{name} {k}") for k in range(len(shape))) for name, shape in instance.shapes.items()}
    for term in left:
        try:
            elaborate(term, spec, shapes, symbols.values, theory=theory)
        except (ShapeError, SpecError):
            continue  # what was equated before still stands
    found: dict[str, tuple[s.Expr, int]] = {}
    for name, shape in instance.shapes.items():
        for k, size in enumerate(shape):
            found.setdefault(theory.find(f"{name} {k}"), (dim(name, k), size))
    return list(found.values())


# --- expressions ---------------------------------------------------------------------------------------------------


def entries(symbols: Symbols, lengths: Container[int]) -> list[tuple[s.Expr, int]]:
    """The entries `at(pad, k)` of the lists of these lengths on the left side, with their values."""
    lists = [(name, symbols.values[name]) for name, kind in symbols.kinds.items() if kind == "ints"]
    return [(entry(s.Name(n), k), value) for n, v in lists if len(v) in lengths for k, value in enumerate(v)]


def entry(listed: s.Expr, k: int) -> s.Expr:
    """One entry of a list."""
    return s.Call("at", (listed, s.Num(Fraction(k))))


def int_expressions(
    value: int, instance: Instance, symbols: Symbols, more: Sequence[tuple[s.Expr, int]] = ()
) -> list[s.Expr]:
    """Expressions with this value, simplest first.

    A size or a symbol, or one of `more`; the sum of two; the number itself; the difference or quotient of two.
    """
    atoms: list[tuple[s.Expr, int]] = [*instance.sizes, *more]
    atoms += [(s.Name(name), symbols.values[name]) for name, kind in symbols.kinds.items() if kind == "int"]
    found: list[s.Expr] = [expr for expr, size in atoms if size == value and value > 0]
    if value <= 0:
        found.append(number(value))
    for (a, va), (b, vb) in itertools.combinations(atoms, 2):
        if va + vb == value:
            found.append(s.Bin("+", a, b))
    if value > 0:
        found.append(number(value))
    for (a, va), (b, vb) in itertools.permutations(atoms, 2):
        if va - vb == value and value > 0:
            found.append(s.Bin("-", a, b))
        elif vb > 1 and value > 1 and va == value * vb:
            found.append(s.Bin("/", a, b))
    return list(dict.fromkeys(found))


def shape_expressions(value: Concrete, instance: Instance, symbols: Symbols) -> list[s.Expr]:
    """Expressions with this value for a shape, simplest first.

    A tensor's shape; each entry a size, a symbol, or of two of them a product or sum; the numbers themselves. Sizes may
    be equal here by chance, so writings that say the same thing twice come last.
    """
    sizes = list(instance.sizes)
    sizes += [(s.Name(name), symbols.values[name]) for name, kind in symbols.kinds.items() if kind == "int"]

    def extent(size: int) -> list[s.Expr]:
        found = [expr for expr, known in sizes if known == size]
        for (a, va), (b, vb) in itertools.combinations(sizes, 2):
            found += [s.Bin("*", a, b)] if va * vb == size and min(va, vb) > 1 else []
            found += [s.Bin("+", a, b)] if va + vb == size else []
        return found or [number(size)]

    written = itertools.islice(itertools.product(*map(extent, value)), 8 * _MAX_LISTS) if value else ()
    plain = sorted(written, key=lambda items: (-len(set(items)), sum(isinstance(item, s.Bin) for item in items)))
    whole = [s.Call("shape", (s.Name(name),)) for name, shape in instance.shapes.items() if shape == value]
    return [*whole, *map(s.ListOf, plain), number(value)]


def list_expressions(value: Concrete, instance: Instance, symbols: Symbols) -> list[s.Expr]:
    """Expressions with this value for a list, simplest first.

    A list of the left side (a longer one without its first two entries); a sum of two; one in another order; a
    difference of two, also over a third; half of a list less one, or of a difference; the numbers themselves. Where no
    list has this length: two zeros and such an expression, else entry by entry.
    """
    known = known_lists(instance, symbols)
    atoms = [(expr, v) for expr, v in known if len(v) == len(value)]
    atoms += [(s.Call("skip", (expr, TWO)), v[2:]) for expr, v in known if len(v) == len(value) + 2 and any(v)]
    if not atoms and len(value) > 2 and value[:2] == (0, 0):
        rests = list_expressions(value[2:], instance, symbols)
        return [*(s.Bin("++", s.ListOf((ZERO, ZERO)), rest) for rest in rests), number(value)]
    found: list[s.Expr] = [expr for expr, v in atoms if v == value]
    if any(value):
        for (a, va), (b, vb) in itertools.combinations(atoms, 2):
            if any(va) and tuple(x + y for x, y in zip(va, vb)) == value and a != b:
                found.append(s.Bin("+", a, b))
        for a, va in atoms:
            if va != value and sorted(va) == sorted(value) and len(va) <= _MAX_PERMUTED:
                orders = [p for p in itertools.permutations(range(len(va))) if tuple(va[k] for k in p) == value]
                found += [s.ListOf(tuple(entry(a, k) for k in p)) for p in orders[:2]]
    divisors = [expr for expr, v in atoms if symbols.low(expr) == 1 and all(x == 1 for x in v)]
    if any(value):
        for (a, va), (b, vb) in itertools.permutations(atoms, 2):
            if tuple(x - y for x, y in zip(va, vb)) == value:
                gap = s.Bin("-", a, b)
                found += [*(s.Bin("/", gap, divisor) for divisor in divisors), gap]
        for a, va in atoms:
            if tuple((x - 1) // 2 for x in va) == value:
                found.append(s.Bin("/", s.Bin("-", a, ONE), TWO))
        for (a, va), (b, vb) in itertools.permutations(atoms, 2):
            if tuple((x - y) // 2 for x, y in zip(va, vb)) == value:
                found.append(s.Bin("/", s.Bin("-", a, b), TWO))
    found.append(number(value))
    if not atoms:
        each = [int_expressions(v, instance, symbols) for v in value]
        found += [s.ListOf(choice) for choice in itertools.islice(itertools.product(*each), _MAX_LISTS)]
    return list(dict.fromkeys(found))
