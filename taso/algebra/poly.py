"""Integer polynomials with floor division: the values of dimensions, indices and integer attributes.

A quantity is an `int` or a `Poly`. A `Poly` is never constant: arithmetic that ends in a constant gives an `int`, so
concrete shapes stay plain tuples of ints. Atoms are names (`str`) or floor quotients (`Div`), compared structurally.
Every named dimension is taken to be at least 1 by whoever reasons about it; nothing here relies on that except that the
divisor of a `Div` is not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Union

Quantity = Union[int, "Poly"]
Atom = Union[str, "Div"]
Monomial = tuple[Atom, ...]


@dataclass(frozen=True)
class Div:
    """The floor quotient `numerator // divisor`, an atom because nothing simpler is known about it."""

    numerator: Quantity
    divisor: Quantity

    @cached_property
    def text(self) -> str:
        return f"({self.numerator}) // ({self.divisor})"

    def __str__(self) -> str:
        return f"({self.text})"


def _order(atom: Atom) -> str:
    return atom if isinstance(atom, str) else atom.text


class Poly:
    """A polynomial that is not a constant: a map from monomials (sorted tuples of atoms) to non-zero coefficients."""

    __slots__ = ("_hash", "_names", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = dict(terms)
        self._hash: int | None = None
        self._names: frozenset[str] | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __add__(self, other: Quantity) -> Quantity:
        total = dict(self.terms)
        for monomial, coefficient in terms_of(other):
            total[monomial] = total.get(monomial, 0) + coefficient
        return make(total)

    __radd__ = __add__

    def __neg__(self) -> Quantity:
        return make({monomial: -coefficient for monomial, coefficient in self.terms.items()})

    def __sub__(self, other: Quantity) -> Quantity:
        return self + (-other)

    def __rsub__(self, other: Quantity) -> Quantity:
        return -self + other

    def __mul__(self, other: Quantity) -> Quantity:
        product: dict[Monomial, int] = {}
        right = list(terms_of(other))
        for m1, c1 in self.terms.items():
            for m2, c2 in right:
                monomial = tuple(sorted(m1 + m2, key=_order)) if m1 and m2 else m1 or m2
                product[monomial] = product.get(monomial, 0) + c1 * c2
        return make(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: Quantity) -> Quantity:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Quantity) -> Quantity:
        return floordiv(other, self)

    def __mod__(self, other: Quantity) -> Quantity:
        return self - other * floordiv(self, other)

    def __rmod__(self, other: Quantity) -> Quantity:
        return other - self * floordiv(other, self)

    def __str__(self) -> str:
        parts = []
        for monomial, coefficient in sorted(
            self.terms.items(), key=lambda kv: (-len(kv[0]), [_order(a) for a in kv[0]])
        ):
            atoms = "*".join(map(str, monomial))
            size = (
                str(abs(coefficient))
                if not atoms
                else atoms
                if abs(coefficient) == 1
                else f"{abs(coefficient)}*{atoms}"
            )
            parts.append(("-" if coefficient < 0 else "+", size))
        text = "".join(f" {sign} {size}" for sign, size in parts)
        return text[3:] if parts[0][0] == "+" else "-" + text[3:]

    __repr__ = __str__


def make(terms: Mapping[Monomial, int]) -> Quantity:
    """The quantity with these terms: zero coefficients go, a constant becomes an `int`."""
    kept = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return Poly(kept)


def var(name: Atom) -> Poly:
    """The polynomial that is one atom."""
    return Poly({(name,): 1})


def terms_of(quantity: Quantity) -> Iterable[tuple[Monomial, int]]:
    """The (monomial, coefficient) pairs of a quantity."""
    if isinstance(quantity, Poly):
        return quantity.terms.items()
    return (((), quantity),) if quantity else ()


def atoms(quantity: Quantity) -> set[Atom]:
    """The atoms that stand in a quantity itself, not inside its quotients."""
    return {atom for monomial, _ in terms_of(quantity) for atom in monomial}


def names(quantity: Quantity) -> frozenset[str]:
    """All names in a quantity, also those inside its quotients."""
    if not isinstance(quantity, Poly):
        return _NO_NAMES
    if quantity._names is None:
        found: set[str] = set()
        for monomial in quantity.terms:
            for atom in monomial:
                found |= {atom} if isinstance(atom, str) else names(atom.numerator) | names(atom.divisor)
        quantity._names = frozenset(found)
    return quantity._names


_NO_NAMES: frozenset[str] = frozenset()


def _without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in factor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def exact_quotient(numerator: Quantity, divisor: Quantity) -> Quantity | None:
    """`q` with `numerator == q * divisor` as polynomials, or None. Long division by the leading monomial."""
    if divisor == 0:
        return None
    if isinstance(numerator, int) and isinstance(divisor, int):
        return numerator // divisor if numerator % divisor == 0 else None

    def rank(monomial: Monomial) -> tuple[int, list[str]]:
        return len(monomial), [_order(a) for a in monomial]

    lead, lead_coefficient = max(terms_of(divisor), key=lambda kv: rank(kv[0]))
    quotient: Quantity = 0
    rest = numerator
    for _ in range(64):
        if rest == 0:
            return quotient
        monomial, coefficient = max(terms_of(rest), key=lambda kv: rank(kv[0]))
        factor = _without(monomial, lead)
        if factor is None or coefficient % lead_coefficient:
            return None
        step = make({factor: coefficient // lead_coefficient})
        quotient, rest = quotient + step, rest - step * divisor
    return None


def floordiv(numerator: Quantity, divisor: Quantity) -> Quantity:
    """The floor quotient; divisible monomials come out first, what is left is a `Div` atom.

    Raises ZeroDivisionError for the divisor 0.
    """
    if divisor == 0:
        raise ZeroDivisionError("floor division of a dimension by zero")
    if isinstance(numerator, int) and isinstance(divisor, int):
        return numerator // divisor
    exact = exact_quotient(numerator, divisor)
    if exact is not None:
        return exact
    whole: Quantity = 0
    rest: Quantity = numerator
    (lead, lead_coefficient), *more = list(terms_of(divisor))
    if not more:
        taken: dict[Monomial, int] = {}
        left: dict[Monomial, int] = {}
        for monomial, coefficient in terms_of(numerator):
            factor = _without(monomial, lead)
            if factor is not None and coefficient % lead_coefficient == 0:
                taken[factor] = coefficient // lead_coefficient
            elif isinstance(divisor, int) and divisor > 0 and not monomial:  # 7 // 2 inside (7 + x) // 2 leaves 1
                taken[()], left[()] = coefficient // divisor, coefficient % divisor
            else:
                left[monomial] = coefficient
        whole, rest = make(taken), make(left)
    if isinstance(rest, int) and isinstance(divisor, int):
        return whole + rest // divisor
    return whole if rest == 0 else whole + var(Div(rest, divisor))


def substitute(quantity: Quantity, values: Mapping[str, Quantity]) -> Quantity:
    """Replace names by quantities, also inside quotients (which may then simplify)."""
    if isinstance(quantity, int) or not (names(quantity) & values.keys()):
        return quantity
    total: Quantity = 0
    for monomial, coefficient in quantity.terms.items():
        product: Quantity = coefficient
        for atom in monomial:
            if isinstance(atom, str):
                product = product * values.get(atom, var(atom))
            else:
                product = product * floordiv(substitute(atom.numerator, values), substitute(atom.divisor, values))
        total = total + product
    return total


def evaluate(quantity: Quantity, values: Mapping[str, int]) -> int:
    """The number that a quantity is when every name has a value. Raises KeyError for a name without one."""
    if isinstance(quantity, int):
        return quantity
    total = 0
    for monomial, coefficient in quantity.terms.items():
        product = coefficient
        for atom in monomial:
            product *= (
                values[atom]
                if isinstance(atom, str)
                else evaluate(atom.numerator, values) // evaluate(atom.divisor, values)
            )
        total += product
    return total
