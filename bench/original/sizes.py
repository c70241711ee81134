"""Sizes as sums of unknowns with whole factors, and the equations between them that a rule implies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd


class Misfit(Exception):
    """Two sizes that must be equal cannot be."""


@dataclass(frozen=True)
class Size:
    """A constant plus unknowns times whole factors, none of them 0; unknowns are names like `t1.0` or `?3`."""

    constant: int = 0
    factors: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(constant: int, factors: Mapping[str, int]) -> Size:
        return Size(constant, tuple(sorted((name, k) for name, k in factors.items() if k)))

    @staticmethod
    def unknown(name: str) -> Size:
        return Size(0, ((name, 1),))

    def plus(self, other: Size, times: int = 1) -> Size:
        factors = dict(self.factors)
        for name, k in other.factors:
            factors[name] = factors.get(name, 0) + times * k
        return Size.of(self.constant + times * other.constant, factors)

    def written(self) -> str:
        """As an expression over `dim(x, k)`. Raises Misfit if an unknown of a constant was never found."""
        text = ""
        for name, k in sorted(self.factors, key=lambda item: item[1] < 0):
            if name.startswith("?"):
                raise Misfit(f"nothing says what the size {name} of a constant is")
            tensor, axis = name.split(".")
            part = f"dim({tensor}, {axis})" if abs(k) == 1 else f"{abs(k)} * dim({tensor}, {axis})"
            text += (" - " if k < 0 else " + " if text else "") + part
        if self.constant or not text:
            text += f" + {self.constant}" if text else str(self.constant)
        return text.strip()


@dataclass
class Equations:
    """Equations solved one after the other. Those of constants (`?n`) are used up first."""

    solution: dict[str, Size] = field(default_factory=dict)
    fresh: int = 0

    def new(self) -> Size:
        """The unknown size of a constant."""
        self.fresh += 1
        return Size.unknown(f"?{self.fresh}")

    def norm(self, size: Size) -> Size:
        """With everything that is known put in."""
        found = Size(size.constant)
        for name, k in size.factors:
            found = found.plus(self.solution.get(name, Size.unknown(name)), k)
        return found

    def equate(self, left: Size, right: Size) -> bool:
        """Note that two sizes are equal; whether that says something about tensors of the rule that was not known.

        Raises Misfit if they cannot be equal.
        """
        rest = self.norm(left).plus(self.norm(right), -1)
        if not rest.factors:
            if rest.constant:
                raise Misfit(f"{left.written()} is not {right.written()}")
            return False
        common = gcd(rest.constant, *(k for _, k in rest.factors))
        rest = Size.of(rest.constant // common, {name: k // common for name, k in rest.factors})
        units = [(not name.startswith("?"), name, k) for name, k in rest.factors if abs(k) == 1]
        if not units:
            raise Misfit(f"{left} == {right} is not solved")
        of_tensor, name, k = min(units)
        value = Size.of(-k * rest.constant, {n: -k * f for n, f in rest.factors if n != name})
        self.solution = {n: _substituted(size, name, value) for n, size in self.solution.items()}
        self.solution[name] = value
        return of_tensor


def _substituted(size: Size, name: str, value: Size) -> Size:
    k = dict(size.factors).get(name, 0)
    return size.plus(Size.unknown(name), -k).plus(value, k) if k else size
