"""Whether two sums are equal in a context: proposals of `match` are verified, and what is left over has to cancel.

Terms of the difference are put into classes. A term joins a class if a verified bijection of the bound variables
carries its atoms to those of the class's first term; its guards are carried along. Each class then is one sum of
products times a sum of coefficient x [guards], which has to be zero everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import z3

from taso.algebra.poly import Quantity
from taso.prove.decide import Context, Translator, World
from taso.prove.facts import Fact, eq, substituted
from taso.prove.match import Matcher, State, completed, is_bijection
from taso.prove.simple import normalised
from taso.prove.terms import Factor, Fn, Max, Piece, Read, Size, Sum, Term

Guards = tuple[Fact, ...]


@dataclass
class _Class:
    first: Term
    entries: list[tuple[Fraction, Guards]] = field(default_factory=list)


@dataclass
class _PieceClass:
    first: Piece
    left: list[Guards] = field(default_factory=list)
    right: list[Guards] = field(default_factory=list)


class Equality:
    """Decides equalities within one proof; `leftover` says what did not cancel last."""

    def __init__(self, world: World) -> None:
        self.world, self.matcher, self.leftover = world, Matcher(world), ""
        self._known: dict[tuple[Sum, Sum, Context], bool] = {}

    def sums(self, left: Sum, right: Sum, context: Context) -> bool:
        """Whether two sums are shown to be equal wherever the context holds. Raises OutOfSteps."""
        if left == right:
            return True
        key = left, right, context
        if key not in self._known:
            self._known[key] = self._sums(left, right, context)
        return self._known[key]

    def _sums(self, left: Sum, right: Sum, context: Context) -> bool:
        classes: list[_Class] = []
        for sign, terms in ((1, left), (-1, right)):
            for term in normalised(terms, context):
                if not any(self._join(c, term, sign, context) for c in classes):
                    classes.append(_Class(term, [(sign * term.coefficient, term.guards)]))
        for found in classes:
            if found.entries and not self._cancels(found.entries, context):
                self.leftover = "; ".join(f"{c} x {[str(f) for f in g]} of {found.first}" for c, g in found.entries)
                return False
        return True

    def _join(self, into: _Class, term: Term, sign: int, context: Context) -> bool:
        first: Guards | None = None
        for guards in self.carried(into.first, term, context):
            first = guards if first is None else first
            for k, (coefficient, known) in enumerate(into.entries):
                if self._equivalent(known, guards, context):
                    total = coefficient + sign * term.coefficient
                    if total == 0:
                        into.entries.pop(k)
                    else:
                        into.entries[k] = total, known
                    return True
        if first is not None:
            into.entries.append((sign * term.coefficient, first))
        return first is not None

    def carried(self, first: Term, term: Term, context: Context) -> Iterator[Guards]:
        """The guards of `term` over the variables of `first`, for every verified bijection of the bound variables."""
        if first.heads != term.heads or len(first.bound) != len(term.bound):
            return
        term = term.renamed(self.world)
        seen = set()
        for state in self.matcher.atoms(first.atoms, term.atoms, State(frozenset(term.bound), {})):
            for mapping in completed(state, term.bound, first.bound):
                key = frozenset(mapping.items())
                if key in seen or not is_bijection(mapping, term.bound, first.bound):
                    continue
                seen.add(key)
                guards = tuple(substituted(g, mapping) for g in term.guards)
                moved = tuple(a.substitute(mapping) for a in term.atoms)
                if self.products(first.atoms, moved, context.with_(guards)):
                    yield guards

    def products(self, left: tuple[Factor, ...], right: tuple[Factor, ...], context: Context) -> bool:
        """Whether the atoms are equal one by one in some order."""
        if len(left) != len(right):
            return False
        if not left:
            return True
        for k, other in enumerate(right):
            rest = right[:k] + right[k + 1 :]
            same = other.head == left[0].head and self.atoms(left[0], other, context)
            if same and self.products(left[1:], rest, context):
                return True
        return False

    def atoms(self, left: Factor, right: Factor, context: Context) -> bool:
        match left, right:
            case Read(_, index), Read(_, other):
                return all(context.implies(eq(a - b), hard=True) for a, b in zip(index, other))
            case Size(a), Size(b):
                return context.implies(eq(a - b), hard=True)
            case Fn(f, args), Fn(g, others):
                return f == g and all(self.sums(a, b, context) for a, b in zip(args, others))
            case Max(pieces), Max(others_):
                return self.maxima(pieces, others_, context)
        return False

    def maxima(self, left: tuple[Piece, ...], right: tuple[Piece, ...], context: Context) -> bool:
        """Whether two maxima range over the same values."""
        classes: list[_PieceClass] = []
        for is_left, pieces in ((True, left), (False, right)):
            for piece in pieces:
                for known in classes:
                    guards = self._carried_piece(known.first, piece, context)
                    if guards is not None:
                        break
                else:
                    known, guards = _PieceClass(piece), piece.guards
                    classes.append(known)
                (known.left if is_left else known.right).append(guards)
        return all(self._same_cases(c.left, c.right, context) for c in classes)

    def _carried_piece(self, first: Piece, piece: Piece, context: Context) -> Guards | None:
        if len(first.bound) != len(piece.bound):
            return None
        piece = piece.renamed(self.world)
        for state in self.matcher.sums(first.body, piece.body, State(frozenset(piece.bound), {})):
            for mapping in completed(state, piece.bound, first.bound):
                if not is_bijection(mapping, piece.bound, first.bound):
                    continue
                moved = piece.substitute(mapping)
                if self.sums(first.body, moved.body, context.with_(moved.guards)):
                    return moved.guards
        return None

    # --- guards

    def _equivalent(self, left: Guards, right: Guards, context: Context) -> bool:
        a, b = set(left), set(right)
        if a == b:
            return True
        if_left, if_right = context.with_(left), context.with_(right)
        return all(if_left.implies(f, hard=True) for f in right if f not in a) and all(
            if_right.implies(f, hard=True) for f in left if f not in b
        )

    def _cancels(self, entries: list[tuple[Fraction, Guards]], context: Context) -> bool:
        """Whether the sum of coefficient x [guards] is zero everywhere."""
        if len(entries) == 1:
            return context.contradicts(entries[0][1], hard=True)

        def nonzero(translator: Translator) -> z3.BoolRef:
            own = translator.context
            parts = [z3.If(_all(g, translator), z3.RealVal(str(c), own), z3.RealVal(0, own)) for c, g in entries]
            return z3.Sum(parts) != 0

        return context.excludes(nonzero, _about(g for _, g in entries), hard=True)

    def _same_cases(self, left: list[Guards], right: list[Guards], context: Context) -> bool:
        if len(left) == len(right) == 1 and self._equivalent(left[0], right[0], context):
            return True

        def differ(translator: Translator) -> z3.BoolRef:
            a = z3.Or([_all(g, translator) for g in left], translator.context)
            b = z3.Or([_all(g, translator) for g in right], translator.context)
            return a != b

        return context.excludes(differ, _about([*left, *right]), hard=True)


def _all(guards: Guards, translator: Translator) -> z3.BoolRef:
    values = [(g.equality, translator.quantity(g.value)) for g in guards]
    return z3.And([v == 0 if equality else v >= 0 for equality, v in values], translator.context)


def _about(cases: Iterable[Guards]) -> list[Quantity]:
    return [fact.value for guards in cases for fact in guards]
