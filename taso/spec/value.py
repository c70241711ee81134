"""What expressions evaluate to, and how values compare.

A value is a quantity (`int` or `Poly`), a real (`Fraction` or `float`), a string, a truth value, or a tuple of values.
Truth is three-valued, because symbolic sizes may leave a comparison open: `True`, `False` or `None` (not known).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from taso.algebra.poly import Div, Poly, Quantity, make, terms_of
from taso.errors import SpecError
from taso.spec import syntax as s

Value = Any  # int | Poly | Fraction | float | str | bool | None | tuple[Value, ...]
Shape = tuple[Quantity, ...]


def listed(value: Value, pos: s.Pos) -> tuple[Value, ...]:
    """A value that must be a list. Raises SpecError, with the place, for any other."""
    if not isinstance(value, tuple):
        raise SpecError(f"a list is expected here, not {value!r}", line=pos.line, column=pos.column)
    return value


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
        return some(compare("==", left, item, pos) for item in listed(right, pos))
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
            return some(compare("!=", a, b, pos) for a, b in pairs)
        return every(compare(op, a, b, pos) for a, b in pairs)
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


def every(truths: Iterable[bool | None]) -> bool | None:
    open_ = False
    for truth in truths:
        if truth is False:
            return False
        open_ = open_ or truth is None
    return None if open_ else True


def some(truths: Iterable[bool | None]) -> bool | None:
    open_ = False
    for truth in truths:
        if truth:
            return True
        open_ = open_ or truth is None
    return None if open_ else False
