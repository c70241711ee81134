"""Keys: equal strings for terms that differ only in the names of bound variables and the order of factors.

Equal keys mean equal terms; different keys mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from taso.algebra.poly import var
from taso.prove.facts import substituted
from taso.prove.terms import Factor, Fn, Max, Piece, Read, Sum, Term


def key_of_term(term: Term, depth: int = 0) -> str:
    renaming = {b: var(f"_{depth}_{k}") for k, b in enumerate(term.bound)}
    guards = sorted(str(substituted(g, renaming)) for g in term.guards)
    atoms = sorted(key(a.substitute(renaming), depth + 1) for a in term.atoms)
    return f"{term.coefficient}S{len(term.bound)}{guards}{atoms}"


def key_of_sum(terms: Sum, depth: int = 0) -> str:
    return str(sorted(key_of_term(t, depth) for t in terms))


def key(atom: Factor, depth: int = 0) -> str:
    match atom:
        case Fn(function, args):
            return f"{function}{[key_of_sum(arg, depth) for arg in args]}"
        case Max(pieces):
            return f"max{sorted(key_of_piece(p, depth) for p in pieces)}"
    return str(atom)


def key_of_piece(piece: Piece, depth: int = 0) -> str:
    renaming = {b: var(f"_{depth}_{k}") for k, b in enumerate(piece.bound)}
    inner = piece.substitute(renaming)
    return f"{len(piece.bound)}{sorted(map(str, inner.guards))}{key_of_sum(inner.body, depth + 1)}"


def skeleton(atom: Factor) -> str:
    """What an atom is made of, whatever its indices."""
    match atom:
        case Read(tensor):
            return tensor
        case Fn(function, args):
            return f"{function}{[_skeleton_of_sum(arg) for arg in args]}"
        case Max(pieces):
            return f"max{sorted({_skeleton_of_sum(p.body) for p in pieces})}"
    return "size"


def _skeleton_of_sum(terms: Sum) -> str:
    return str(sorted({f"{t.coefficient}{sorted(map(skeleton, t.atoms))}" for t in terms}))


def common_factors(terms: Iterable[Term], eligible: Callable[[Factor], bool]) -> tuple[list[Factor], Fraction, Sum]:
    """Factors (without inner variables) and the number that all terms share, and the terms without them."""
    terms = tuple(terms)
    shared: list[tuple[str, Factor]] | None = None
    for term in terms:
        own = [(key(a), a) for a in term.atoms if not (a.names & set(term.bound)) and eligible(a)]
        if shared is None:
            shared = own
            continue
        keys = [k for k, _ in own]
        kept = []
        for k, a in shared:
            if k in keys:
                keys.remove(k)
                kept.append((k, a))
        shared = kept
    number = terms[0].coefficient if len({t.coefficient for t in terms}) == 1 else Fraction(1)
    rest = tuple(without(term, [k for k, _ in shared or []]).times(1 / number) for term in terms)
    return [a for _, a in shared or []], number, rest


def without(term: Term, keys: list[str]) -> Term:
    atoms = list(term.atoms)
    for k in keys:
        atoms.pop([key(a) for a in atoms].index(k))
    return Term(term.coefficient, term.bound, term.guards, tuple(atoms))
