"""Sums of terms: what an element of a tensor is, as a formula of the index.

A term is coefficient times the sum, over all integer values of its bound variables that satisfy its guards, of a
product of atoms. An atom reads an input (`Read`), is a size taken as a number (`Size`), an opaque function of sums
(`Fn`), or a maximum over pieces (`Max`). A sum of terms is a tuple of terms; the empty sum is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from taso.algebra.poly import Quantity, names, substitute, var
from taso.prove.decide import World
from taso.prove.facts import Fact, substituted

Renaming = Mapping[str, Quantity]


class Unsupported(Exception):
    """The prover has no meaning for something; the answer is then "unknown"."""


@dataclass(frozen=True)
class Read:
    """An element of an input tensor; a real-valued attribute is a tensor without axes."""

    tensor: str
    index: tuple[Quantity, ...]

    @property
    def head(self) -> str:
        return f"read {self.tensor}"

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset().union(*map(names, self.index)) if self.index else frozenset()

    def substitute(self, values: Renaming) -> Read:
        return Read(self.tensor, tuple(substitute(i, values) for i in self.index))

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Size:
    """A size or index as a number."""

    value: Quantity

    head = "size"

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(names(self.value))

    def substitute(self, values: Renaming) -> Size:
        return Size(substitute(self.value, values))

    def __str__(self) -> str:
        return f"#({self.value})"


@dataclass(frozen=True)
class Fn:
    """A function of sums of which only a few laws are known (see normal.py)."""

    function: str
    args: tuple[Sum, ...]

    @property
    def head(self) -> str:
        return f"fn {self.function}"

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset().union(*map(sum_names, self.args))

    def substitute(self, values: Renaming) -> Fn:
        return Fn(self.function, tuple(sum_substitute(arg, values) for arg in self.args))

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(show, self.args))})"


@dataclass(frozen=True)
class Piece:
    """The values of `body` at all integer values of the bound variables that satisfy the guards."""

    bound: tuple[str, ...]
    guards: tuple[Fact, ...]
    body: Sum

    @cached_property
    def names(self) -> frozenset[str]:
        inner = sum_names(self.body).union(*(names(g.value) for g in self.guards))
        return inner - frozenset(self.bound)

    def substitute(self, values: Renaming) -> Piece:
        return Piece(self.bound, tuple(substituted(g, values) for g in self.guards), sum_substitute(self.body, values))

    def renamed(self, world: World) -> Piece:
        fresh = {b: world.fresh(b) for b in self.bound}
        inner = self.substitute({b: var(f) for b, f in fresh.items()})
        return Piece(tuple(fresh.values()), inner.guards, inner.body)

    def __str__(self) -> str:
        return f"<{','.join(self.bound)} | {' and '.join(map(str, self.guards))}: {show(self.body)}>"


@dataclass(frozen=True)
class Max:
    """The largest value of all pieces; `solid` if there surely is one (else it may be -inf)."""

    pieces: tuple[Piece, ...]
    solid: bool

    head = "max"

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(piece.names for piece in self.pieces))

    def substitute(self, values: Renaming) -> Max:
        return Max(tuple(piece.substitute(values) for piece in self.pieces), self.solid)

    def __str__(self) -> str:
        return f"max{{{'; '.join(map(str, self.pieces))}}}"


Factor = Read | Size | Fn | Max


@dataclass(frozen=True)
class Term:
    coefficient: Fraction
    bound: tuple[str, ...] = ()
    guards: tuple[Fact, ...] = ()
    atoms: tuple[Factor, ...] = ()

    @cached_property
    def names(self) -> frozenset[str]:
        inner = frozenset().union(*(names(g.value) for g in self.guards), *(a.names for a in self.atoms))
        return inner - frozenset(self.bound)

    @cached_property
    def heads(self) -> tuple[str, ...]:
        return tuple(sorted(atom.head for atom in self.atoms))

    def substitute(self, values: Renaming) -> Term:
        """Replace free names; the bound ones must not occur in `values`."""
        if not (self.names & values.keys()) and not (set(self.bound) & values.keys()):
            return self
        guards = tuple(substituted(g, values) for g in self.guards)
        return Term(self.coefficient, self.bound, guards, tuple(a.substitute(values) for a in self.atoms))

    def renamed(self, world: World) -> Term:
        """The same term with fresh bound variables."""
        if not self.bound:
            return self
        fresh = {b: world.fresh(b) for b in self.bound}
        inner = self.substitute({b: var(f) for b, f in fresh.items()})
        return Term(self.coefficient, tuple(fresh.values()), inner.guards, inner.atoms)

    def times(self, factor: Fraction) -> Term:
        return Term(self.coefficient * factor, self.bound, self.guards, self.atoms)

    def guarded(self, guards: Iterable[Fact]) -> Term:
        return Term(self.coefficient, self.bound, (*guards, *self.guards), self.atoms)

    def __str__(self) -> str:
        bound = f" sum[{','.join(self.bound)}]" if self.bound else ""
        guards = "".join(f" [{g}]" for g in self.guards)
        return f"{self.coefficient}{bound}{guards} {'*'.join(map(str, self.atoms))}"


Sum = tuple[Term, ...]
ONE: Sum = (Term(Fraction(1)),)


def show(terms: Sum) -> str:
    return " + ".join(map(str, terms)) or "0"


def constant(value: Fraction | int) -> Sum:
    return (Term(Fraction(value)),) if value else ()


def atom_sum(atom: Factor) -> Sum:
    return (Term(Fraction(1), atoms=(atom,)),)


def sum_names(terms: Sum) -> frozenset[str]:
    return frozenset().union(*(t.names for t in terms)) if terms else frozenset()


def sum_substitute(terms: Sum, values: Renaming) -> Sum:
    return tuple(t.substitute(values) for t in terms)


def scaled(terms: Sum, factor: Fraction | int) -> Sum:
    return tuple(t.times(Fraction(factor)) for t in terms) if factor else ()


def constant_value(terms: Sum) -> Fraction | None:
    """The number that a sum is, if it is one as it stands."""
    if any(t.bound or t.guards or t.atoms for t in terms):
        return None
    return sum((t.coefficient for t in terms), Fraction(0))


def size_sum(value: Quantity, reals: frozenset[str] = frozenset()) -> Sum:
    """A quantity as a sum: its monomials are products of sizes and real-valued names."""
    if not hasattr(value, "terms"):
        return constant(Fraction(value))
    out = []
    for monomial, coefficient in value.terms.items():
        atoms = tuple(Read(a, ()) if a in reals else Size(var(a)) for a in monomial)
        out.append(Term(Fraction(coefficient), atoms=atoms))
    return tuple(out)
