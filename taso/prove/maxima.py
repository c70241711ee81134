"""Maxima of sums: pieces are flattened, split on their guards, and idle variables eliminated; equal values count once.

The maximum of nothing is -inf. It may be passed on, but not be computed with (`Max.solid`: there is a value).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import z3

from taso.algebra.poly import Quantity, floordiv, make, names, terms_of, var
from taso.prove.decide import Context, Translator
from taso.prove.facts import Fact, ge, solved, substituted, trivial
from taso.prove.keys import common_factors, key, key_of_piece, key_of_term, without
from taso.prove.signs import certain, nonnegative, positive, surely
from taso.prove.simple import branches, divided_index, normalised, outer_guard
from taso.prove.terms import (
    Factor,
    Fn,
    Max,
    Piece,
    Sum,
    Term,
    constant_value,
    scaled,
)


def maximum(pieces: Iterable[Piece], context: Context) -> Sum:
    """The largest value of all pieces, as a sum."""
    refined: list[Piece] = []
    for piece in pieces:
        refined += refine(piece, context)
    guard = next((g for p in refined for g in p.guards if not names(g.value) & set(p.bound)), None)
    if guard is not None:
        out: list[Term] = []
        for branch, inside in branches(guard, context):
            out += [t.guarded([branch]) for t in maximum(refined, inside)]
        return tuple(out)
    unique = list({key_of_piece(p): p for p in refined}.values())
    unique = _without_dominated(unique, context)
    if len(unique) == 1 and certain(unique[0]):
        return unique[0].body
    solid = any(certain(p) for p in unique) or any(inhabited(p, context) for p in unique)
    if solid:
        shared, rest = _shared(unique)
        if shared:
            return (*shared, *maximum(rest, context))
        outside = _increasing(unique, context)
        if outside is not None:
            return outside
    common, number, unique = _pulled(unique, solid, context)
    return (Term(number, atoms=(*common, Max(tuple(unique), solid))),)


def _shared(pieces: list[Piece]) -> tuple[Sum, list[Piece]]:
    """max(a + c, b + c) = max(a, b) + c: the terms that all values have, and the pieces without them."""
    shared: Sum = ()
    for term in pieces[0].body:
        wanted = key_of_term(term)
        places = [
            next((k for k, t in enumerate(p.body) if key_of_term(t) == wanted and not t.names & set(p.bound)), None)
            for p in pieces
        ]
        if None not in places:
            shared += (term,)
            bodies = [p.body[:k] + p.body[k + 1 :] for p, k in zip(pieces, places) if k is not None]
            pieces = [Piece(p.bound, p.guards, body) for p, body in zip(pieces, bodies)]
    return shared, pieces


def _increasing(pieces: list[Piece], context: Context) -> Sum | None:
    """A maximum of f(a), f(b), ... is f of a maximum, where all values are one increasing or decreasing function f.

    f(a) is c exp(a), or the logistic function c / (k + m exp(a)) with k and m positive. None for other values.
    """
    found = [_form(p.body) for p in pieces]
    forms = {form for form, _ in found}
    if len(forms) != 1 or (form := forms.pop()) is None:
        return None
    coefficient, logistic = form
    sign = 1 if (coefficient > 0) == (logistic is None) else -1  # whether f increases
    inner = maximum([Piece(p.bound, p.guards, scaled(arg, sign)) for p, (_, arg) in zip(pieces, found)], context)
    if any(term.guards and not term.bound for term in inner):
        return None
    power = tuple(Fn("exp", ((term.times(Fraction(sign)),),)) for term in inner)
    if logistic is None:
        return (Term(coefficient, atoms=power),)
    low: Sum = (Term(logistic[0]), Term(logistic[1], atoms=power))
    return (Term(coefficient, atoms=(Fn("reciprocal", (low,)),)),)


_Form = tuple[Fraction, tuple[Fraction, Fraction] | None]  # c, and k and m of c / (k + m exp(a))


def _form(body: Sum) -> tuple[_Form | None, Sum]:
    """What function of an exponential a value is, and the exponent; None if it is no such function."""
    match body:
        case (Term(coefficient, (), (), atoms),) if atoms and all(_is(atom, "exp") for atom in atoms):
            return (coefficient, None), _exponent(atoms)
        case (Term(coefficient, (), (), (Fn("reciprocal", (parts,)),)),):
            match sorted(parts, key=lambda term: len(term.atoms)):
                case [Term(k, (), (), ()), Term(m, (), (), atoms)] if k > 0 and m > 0:
                    if atoms and all(_is(atom, "exp") for atom in atoms):
                        return (coefficient, (k, m)), _exponent(atoms)
    return None, ()


def _is(atom: Factor, function: str) -> bool:
    return isinstance(atom, Fn) and atom.function == function


def _exponent(atoms: tuple[Factor, ...]) -> Sum:
    return tuple(term for atom in atoms if isinstance(atom, Fn) for term in atom.args[0])


def refine(piece: Piece, context: Context) -> list[Piece]:
    """The piece simplified: split on the body's guards, nested maxima flattened, idle variables eliminated."""
    simple = simplified_piece(piece, context)
    if simple is None:
        return []
    inside = context.with_(simple.guards)
    body = normalised(simple.body, inside)
    guard = outer_guard(body)
    if guard is not None:
        out: list[Piece] = []
        for branch, _ in branches(guard, inside):
            out += refine(Piece(simple.bound, (*simple.guards, branch), body), context)
        return out
    inner = _lone_max_any(body)
    if inner is not None:
        out = []
        for p in inner:
            p = p.renamed(context.world)
            out += refine(Piece(simple.bound + p.bound, simple.guards + p.guards, p.body), context)
        return out
    return [_eliminated(Piece(simple.bound, simple.guards, body), context)]


def _lone_max_any(terms: Sum) -> list[Piece] | None:
    """The pieces of a sum that is one maximum times a positive number; plus something, if there surely is a value."""
    if sum(any(isinstance(atom, Max) for atom in term.atoms) for term in terms) != 1:
        return None
    for k, term in enumerate(terms):
        match term:
            case Term(coefficient, (), (), (Max(pieces, solid),)) if coefficient > 0 and (solid or len(terms) == 1):
                rest = terms[:k] + terms[k + 1 :]
                return [Piece(p.bound, p.guards, scaled(p.body, coefficient) + rest) for p in pieces]
    return None


def simplified_piece(piece: Piece, context: Context) -> Piece | None:
    """As `terms.simplified`, for a piece; None if its guards cannot hold."""
    bound, guards, body = list(piece.bound), list(dict.fromkeys(piece.guards)), piece.body
    changed = True
    while changed:
        changed = False
        if any(trivial(g, context.lows) is False for g in guards):
            return None
        guards = [g for g in guards if trivial(g, context.lows) is None]
        for guard in guards:
            solution = solved(guard.value, set(bound)) if guard.equality else None
            if solution is not None:
                values = {solution[0]: solution[1]}
                bound.remove(solution[0])
                guards = [substituted(g, values) for g in guards if g is not guard]
                body = tuple(t.substitute(values) for t in body)
                changed = True
                break
    guards = [g for g in guards if names(g.value) & set(bound) or not context.implies(g)]
    if guards and context.contradicts(guards):
        return None
    divided = divided_index(tuple(bound), tuple(guards), body, context)
    if divided is not None:
        return simplified_piece(divided, context)
    return Piece(tuple(bound), tuple(guards), body)


def _eliminated(piece: Piece, context: Context) -> Piece:
    """Without the bound variables that the body does not mention, where their existence is a matter of bounds alone.

    Fourier-Motzkin elimination is exact over the integers if the variable's coefficients are +-1.
    """
    bound, guards = list(piece.bound), list(piece.guards)
    used = frozenset().union(*(t.names for t in piece.body)) if piece.body else frozenset()
    for name in piece.bound:
        if name in used:
            continue
        left = eliminate(name, guards)
        if left is None and reachable(name, guards, frozenset(bound), context):
            left = [g for g in guards if name not in names(g.value)]
        if left is not None:
            bound.remove(name)
            guards = left
    if len(bound) == len(piece.bound):
        return piece
    guards = [g for g in guards if not context.implies(g)]
    return Piece(tuple(bound), tuple(dict.fromkeys(guards)), piece.body)


def eliminate(name: str, guards: list[Fact]) -> list[Fact] | None:
    """Facts that hold exactly if some integer value of `name` satisfies the guards; None if that is not clear."""
    about = [g for g in guards if name in names(g.value)]
    lower: list[Quantity] = []
    upper: list[Quantity] = []
    for fact in about:
        solution = solved(fact.value, {name})
        if solution is None:
            return None
        if fact.equality:
            values = {name: solution[1]}
            return [substituted(g, values) for g in guards if g is not fact]
        is_lower = fact.value.terms[(name,)] == 1  # type: ignore[union-attr]
        (lower if is_lower else upper).append(solution[1])
    return [g for g in guards if g not in about] + [ge(high - low) for low in lower for high in upper]


def inhabited(piece: Piece, context: Context) -> bool:
    """Whether some value of the bound variables surely satisfies the guards."""
    guards, left = list(piece.guards), list(piece.bound)
    for name in piece.bound:
        fewer = eliminate(name, guards)
        if fewer is None and reachable(name, guards, frozenset(left), context):
            fewer = [g for g in guards if name not in names(g.value)]
        if fewer is None:
            return False
        guards = fewer
        left.remove(name)
    return all(context.implies(g, hard=True) for g in guards)


def reachable(name: str, guards: list[Fact], bound: frozenset[str], context: Context) -> bool:
    """Whether some value of one variable surely satisfies the guards on it, whatever the context allows.

    Tried are the least values that one of its lower bounds allows: of `c*name + e >= 0` the quotient ceil(-e / c).
    It is enough that in every case one of them satisfies all guards.
    """
    about = [g for g in guards if name in names(g.value)]
    if any(g.equality or names(g.value) & bound != {name} for g in about):
        return False
    witnesses: list[Quantity] = []
    for fact in about:
        slope, rest = _linear(fact.value, name)
        if slope is not None and context.implies(ge(slope - 1)):
            witnesses.append(context.settle(floordiv(slope - 1 - rest, slope)))
    cases = [[substituted(g, {name: w}).value for g in about] for w in dict.fromkeys(witnesses)]

    def none_fits(translator: Translator) -> z3.BoolRef:
        own = translator.context
        return z3.And([z3.Or([translator.quantity(value) < 0 for value in case], own) for case in cases], own)

    return bool(cases) and context.excludes(none_fits, [value for case in cases for value in case], hard=True)


def _linear(value: Quantity, name: str) -> tuple[Quantity | None, Quantity]:
    """`c` and `e` of `value == c*name + e`, neither with the name in it; c is None if that is not so."""
    slope: Quantity = 0
    rest = value
    for monomial, coefficient in terms_of(value):
        if name in monomial:
            other = list(monomial)
            other.remove(name)
            part = make({tuple(other): coefficient})
            slope, rest = slope + part, rest - part * var(name)
    return (None if name in names(slope) | names(rest) else slope), rest


def _without_dominated(pieces: list[Piece], context: Context) -> list[Piece]:
    """Without constants that another piece surely reaches."""
    constants = [(constant_value(p.body), p) for p in pieces if certain(p) and constant_value(p.body) is not None]
    best = max((v for v, _ in constants if v is not None), default=None)
    kept = [p for p in pieces if not any(p is q and v != best for v, q in constants)]
    if best is None or best > 0 or len(kept) < 2:
        return kept
    reached = [
        p for p in kept if certain(p) and constant_value(p.body) is None and surely(p.body, nonnegative, context)
    ]
    return [p for p in kept if not any(p is q for _, q in constants)] if reached else kept


def _pulled(pieces: list[Piece], solid: bool, context: Context) -> tuple[list[Factor], Fraction, list[Piece]]:
    """Factors that are surely not negative come out of a maximum (only positive ones if it may be empty)."""
    filled = [p for p in pieces if p.body]
    if not filled:
        return [], Fraction(1), pieces
    inner = frozenset().union(*(p.bound for p in filled))

    def eligible(atom: Factor) -> bool:
        return not atom.names & inner and (nonnegative(atom, context) if solid else positive(atom, context))

    common, _, _ = common_factors((t for p in filled for t in p.body), eligible)
    if solid:
        shared, _, _ = common_factors((t for p in filled for t in p.body), lambda atom: not atom.names & inner)
        common += _squares([a for a in shared if not eligible(a)])
    sizes = {abs(t.coefficient) for p in filled for t in p.body}
    number = sizes.pop() if len(sizes) == 1 else Fraction(1)
    keys = [key(a) for a in common]
    out = [Piece(p.bound, p.guards, tuple(without(t, keys).times(1 / number) for t in p.body)) for p in pieces]
    return common, number, out


def _squares(atoms: list[Factor]) -> list[Factor]:
    """The atoms that are there twice, both of each: a square is not negative."""
    out: list[Factor] = []
    single: dict[str, Factor] = {}
    for atom in atoms:
        other = single.pop(key(atom), None)
        if other is None:
            single[key(atom)] = atom
        else:
            out += [other, atom]
    return out


def lone_max(terms: Sum) -> list[Piece] | None:
    """The pieces if a sum is one maximum that surely has a value, times a positive number, plus something."""
    solid = all(atom.solid for term in terms for atom in term.atoms if isinstance(atom, Max))
    return _lone_max_any(terms) if solid else None
