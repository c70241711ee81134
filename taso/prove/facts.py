"""Facts about integers: `p >= 0` or `p == 0` for a quantity `p`, and the cheap decisions about them.

Names that begin with `~` are index variables and attributes, of which nothing is known beforehand; all other names are
sizes, at least 1. What is known about a name is a lower bound, kept in a map (`lows`).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from taso.algebra.poly import Atom, Div, Monomial, Poly, Quantity, make, names, substitute, terms_of, var

Lows = Mapping[str, int]


class Fact(NamedTuple):
    """`value == 0` if `equality`, else `value >= 0`."""

    equality: bool
    value: Quantity

    def __str__(self) -> str:
        return f"{self.value} {'==' if self.equality else '>='} 0"


def ge(value: Quantity) -> Fact:
    return Fact(False, value)


def eq(value: Quantity) -> Fact:
    return Fact(True, value)


def substituted(fact: Fact, values: Mapping[str, Quantity]) -> Fact:
    return Fact(fact.equality, substitute(fact.value, values))


def negations(fact: Fact) -> tuple[Fact, ...]:
    """Disjoint facts of which one holds exactly if `fact` does not."""
    if fact.equality:
        return ge(fact.value - 1), ge(-fact.value - 1)
    return (ge(-fact.value - 1),)


def low_of(atom: Atom, lows: Lows) -> int | None:
    """A lower bound of an atom: of a name what is known (sizes: 1), of a quotient 0 if its parts are not negative."""
    if isinstance(atom, str):
        return lows.get(atom, None if atom.startswith("~") else 1)
    if sign(atom.divisor - 1, lows) is not True:
        return None
    if sign(atom.numerator - atom.divisor, lows) is True:
        return 1
    return 0 if sign(atom.numerator, lows) is True else None


def sign(value: Quantity, lows: Lows) -> bool | None:
    """Whether a quantity is >= 0 always (True), < 0 always (False), or not known (None).

    Each atom is written as its lower bound plus something >= 0; then all coefficients have to have one sign.
    """
    if isinstance(value, int):
        return value >= 0
    low_sum, positive, negative, linear = 0, False, False, True
    bounds: dict[Atom, int] = {}
    for monomial, coefficient in value.terms.items():
        product = coefficient
        for atom in monomial:
            if atom not in bounds:
                if isinstance(atom, str):  # as `low_of`, which is asked too often to be called
                    low = lows.get(atom, None if atom[0] == "~" else 1)
                else:
                    low = low_of(atom, lows)
                if low is None:
                    return None
                bounds[atom] = low
            product *= bounds[atom]
        low_sum += product
        linear = linear and len(monomial) < 2
        if monomial:
            positive, negative = positive or coefficient > 0, negative or coefficient < 0
    if linear or not (positive and negative):  # the lower bounds give the least or the greatest value
        if not negative and low_sum >= 0 and (linear or min(bounds.values()) >= 0):
            return True
        if not positive and low_sum < 0 and (linear or min(bounds.values()) >= 0):
            return False
        if linear:
            return None
    return _sign_shifted(value, bounds)


def _sign_shifted(value: Poly, lows: Mapping[Atom, int]) -> bool | None:
    shifted: Quantity = 0
    for monomial, coefficient in value.terms.items():
        product: Quantity = coefficient
        for atom in monomial:
            low = lows[atom]
            product = product * (make({(atom,): 1, (): low}) if low else var(atom))
        shifted = shifted + product
    coefficients = [c for _, c in terms_of(shifted)]
    if all(c >= 0 for c in coefficients):
        return True
    constant = shifted if isinstance(shifted, int) else shifted.terms.get((), 0)
    return False if constant < 0 and all(c <= 0 for c in coefficients) else None


def trivial(fact: Fact, lows: Lows) -> bool | None:
    """Whether a fact holds by lower bounds alone: True, False or None (not known)."""
    if not fact.equality:
        return sign(fact.value, lows)
    if isinstance(fact.value, int):
        return fact.value == 0
    if sign(fact.value - 1, lows) is True or sign(-fact.value - 1, lows) is True:
        return False
    return None


def reduced(value: Quantity, lows: Lows) -> Quantity:
    """A quantity without its common factors that are positive: equal to 0 (or >= 0) exactly if `value` is."""
    if isinstance(value, int):
        return (value > 0) - (value < 0)
    divisor = math.gcd(*value.terms.values())
    if divisor == 1 and () in value.terms:
        return value
    common: list[Atom] | None = None
    for monomial, _ in terms_of(value):
        rest = list(monomial)
        if common is None:
            common = rest
        else:
            kept = []
            for atom in common:
                if atom in rest:
                    rest.remove(atom)
                    kept.append(atom)
            common = kept
    common = [atom for atom in common or [] if (low_of(atom, lows) or 0) >= 1]
    if divisor == 1 and not common:
        return value
    out: dict[Monomial, int] = {}
    for monomial, coefficient in value.terms.items():
        left = list(monomial)
        for atom in common:
            left.remove(atom)
        out[tuple(left)] = coefficient // divisor
    return make(out)


def tightened(fact: Fact, lows: Lows) -> Fact:
    """The same fact without common positive factors; of an inequality also the constant is rounded down."""
    value = fact.value
    if isinstance(value, int):
        return fact
    if not fact.equality:
        divisor = math.gcd(*(c for m, c in value.terms.items() if m))
        if divisor > 1:
            constant = value.terms.get((), 0)
            value = value - constant % divisor
    return Fact(fact.equality, reduced(value, lows))


def lows_from(facts: Iterable[Fact], lows: Lows) -> dict[str, int]:
    """The lower bounds that facts of the form `name >= something bounded below` add."""
    found = dict(lows)
    for fact in facts:
        if isinstance(fact.value, int):
            continue
        for monomial, coefficient in fact.value.terms.items():
            if len(monomial) != 1 or not isinstance(monomial[0], str) or coefficient != 1:
                continue
            name = monomial[0]
            rest = var(name) - fact.value  # name >= rest
            if name in names(rest):
                continue
            bound = lower_bound(rest, found)
            if bound is not None and bound > found.get(name, bound - 1 if name.startswith("~") else 1):
                found[name] = bound
    return found


def lower_bound(value: Quantity, lows: Lows) -> int | None:
    """A lower bound of a quantity whose coefficients are not negative."""
    total = 0
    for monomial, coefficient in terms_of(value):
        product = coefficient
        if coefficient < 0 and monomial:
            return None
        for atom in monomial:
            low = low_of(atom, lows)
            if low is None or low < 0:
                return None
            product *= low
        total += product
    return total


def solved(value: Quantity, unknowns: Container[str]) -> tuple[str, Quantity] | None:
    """A name of `unknowns` that occurs in `value` only as +-1 times itself, and what it is if `value` is 0."""
    if isinstance(value, int):
        return None
    for monomial, coefficient in value.terms.items():
        if coefficient not in (1, -1) or len(monomial) != 1 or monomial[0] not in unknowns:
            continue
        name = monomial[0]
        assert isinstance(name, str)
        if any(name in m or any(isinstance(a, Div) and name in names(a.numerator) | names(a.divisor) for a in m)
               for m in value.terms if m != monomial):  # fmt: skip
            continue
        rest = value - coefficient * var(name)
        return name, -rest if coefficient == 1 else rest
    return None


def quotients(value: Quantity) -> set[Div]:
    """All floor quotients inside a quantity, also nested ones."""
    found: set[Div] = set()
    for monomial, _ in terms_of(value):
        for atom in monomial:
            if isinstance(atom, Div):
                found |= {atom} | quotients(atom.numerator) | quotients(atom.divisor)
    return found
