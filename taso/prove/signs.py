"""Which atoms are surely positive or not negative."""

from __future__ import annotations

from collections.abc import Callable

from taso.prove.decide import Context
from taso.prove.facts import ge
from taso.prove.keys import key
from taso.prove.terms import Factor, Fn, Max, Piece, Read, Size, Sum

POSITIVE = frozenset({"exp", "sigmoid"})


def positive(atom: Factor, context: Context) -> bool:
    """Whether an atom is surely greater than 0 (Size: at least 1)."""
    match atom:
        case Size(value):
            return context.implies(ge(value - 1))
        case Read(tensor, ()):
            return tensor in context.world.positive_reals
        case Fn("reciprocal", (inner,)):
            return bool(inner) and surely(inner, positive, context)
        case Fn(function):
            return function in POSITIVE
        case Max(pieces, solid):
            return solid and any(certain(p) and surely(p.body, positive, context) for p in pieces)
    return False


def nonnegative(atom: Factor, context: Context) -> bool:
    """Whether an atom is surely not negative."""
    match atom:
        case Size(value):
            return context.implies(ge(value))
        case Fn("sqrt" | "abs"):
            return True
        case Fn("reciprocal", (inner,)):
            return bool(inner) and surely(inner, nonnegative, context)
        case Max(pieces):
            return any(certain(p) and surely(p.body, nonnegative, context) for p in pieces)
    return positive(atom, context)


def certain(piece: Piece) -> bool:
    return not piece.bound and not piece.guards


def surely(body: Sum, test: Callable[[Factor, Context], bool], context: Context) -> bool:
    if not body:
        return test is nonnegative
    for term in body:
        if term.coefficient < 0:
            return False
        rest = term.atoms if test is positive else _unpaired(term.atoms)
        if not all(test(atom, context) for atom in rest):
            return False
        if test is positive and (term.guards or term.bound):
            return False
    return True


def _unpaired(atoms: tuple[Factor, ...]) -> list[Factor]:
    """Without pairs of equal atoms: a square is not negative."""
    left: dict[str, Factor] = {}
    for atom in atoms:
        k = key(atom)
        if left.pop(k, None) is None:
            left[k] = atom
    return list(left.values())
