"""Terms made simple: guards that say nothing, variables that an equation fixes, counts, indices that are divided."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from taso.algebra.poly import Div, Quantity, exact_quotient, names, substitute, terms_of, var
from taso.prove.decide import Context
from taso.prove.facts import Fact, eq, ge, negations, quotients, solved, substituted, tightened, trivial
from taso.prove.terms import Factor, Fn, Max, Piece, Read, Size, Sum, Term, size_sum


def simplified(term: Term, context: Context) -> Sum:
    """The term without trivial guards, bound variables that an equation fixes, and guards that the context implies.

    The empty sum if the guards cannot hold; more than one term if a bound variable only counts.
    """
    guards, bound, atoms = list(dict.fromkeys(term.guards)), list(term.bound), list(term.atoms)
    lows = context.lows
    changed = True
    while changed:
        changed = False
        kept: dict[Fact, None] = {}
        for guard in guards:
            guard = tightened(guard, lows)
            truth = trivial(guard, lows)
            if truth is False:
                return ()
            if truth is None:
                kept[guard] = None
        for guard in list(kept):
            opposite = Fact(False, -guard.value)
            if not guard.equality and guard in kept and opposite in kept:
                del kept[guard], kept[opposite]
                kept[eq(guard.value)] = None
        guards = list(kept)
        for guard in guards:
            solution = solved(guard.value, set(bound)) if guard.equality else None
            if solution is not None:
                name, value = solution
                values = {name: value}
                bound.remove(name)
                guards = [substituted(g, values) for g in guards if g is not guard]
                atoms = [a.substitute(values) for a in atoms]
                changed = True
                break
    inner = set(bound)
    guards = [g for g in guards if names(g.value) & inner or not context.implies(g)]
    if guards and context.contradicts(guards):
        return ()
    body: Sum = (Term(term.coefficient, atoms=tuple(atoms)),)
    divided = divided_index(tuple(bound), tuple(guards), body, context)
    if divided is not None:
        (moved,) = divided.body
        return simplified(Term(term.coefficient, divided.bound, divided.guards, moved.atoms), context)
    return _counted(Term(term.coefficient, tuple(bound), tuple(guards), tuple(atoms)), context)


def _counted(term: Term, context: Context) -> Sum:
    """A bound variable that nothing but its two bounds mentions counts them."""
    for name in term.bound:
        if any(name in a.names for a in term.atoms):
            continue
        about = [g for g in term.guards if name in names(g.value)]
        ends = _interval(name, about)
        if ends is None:
            continue
        low, high = ends
        count = high - low + 1
        rest = tuple(g for g in term.guards if g not in about)
        if names(count) & set(term.bound) or not context.with_(rest).implies(Fact(False, count)):
            continue
        left = Term(term.coefficient, tuple(b for b in term.bound if b != name), rest, term.atoms)
        out: list[Term] = []
        for part in size_sum(count):
            out += _counted(
                Term(left.coefficient * part.coefficient, left.bound, rest, left.atoms + part.atoms), context
            )
        return tuple(out)
    return (term,)


def _interval(name: str, about: list[Fact]) -> tuple[Quantity, Quantity] | None:
    """The two bounds if the facts are exactly `low <= name` and `name <= high`."""
    if len(about) != 2 or any(fact.equality for fact in about):
        return None
    low: Quantity | None = None
    high: Quantity | None = None
    for fact in about:
        solution = solved(fact.value, {name})
        if solution is None:
            return None
        if fact.value.terms[(name,)] == 1:  # type: ignore[union-attr]
            low = solution[1]
        else:
            high = solution[1]
    return None if low is None or high is None else (low, high)


def normalised(terms: Iterable[Term], context: Context) -> Sum:
    return tuple(simple for term in terms for simple in simplified(term, context))


def outer_guard(terms: Sum) -> Fact | None:
    """A guard that mentions no bound variable of its term."""
    for term in terms:
        for guard in term.guards:
            if not names(guard.value) & set(term.bound):
                return guard
    return None


def branches(fact: Fact, context: Context) -> list[tuple[Fact, Context]]:
    """The fact and its negations, each with the context in which it holds; impossible ones are left out."""
    return [(f, context.with_([f])) for f in (fact, *negations(fact)) if not context.contradicts([f])]


# --- divided indices

Change = Callable[[Quantity], Quantity]
Binds = Callable[[Term | Piece], None]


def divided_index(bound: tuple[str, ...], guards: tuple[Fact, ...], body: Sum, context: Context) -> Piece | None:
    """Bound variables, guards and a body with a variable `r` that occurs as `r // n` written as `n*p + q`, 0 <= q < n.

    That is one to one, whatever r is, since n >= 1. None if there is no such variable.
    """
    found, inner = _quotients_in(body)
    for guard in guards:
        found |= quotients(guard.value)
    free = inner | set(bound)
    choices = [
        div
        for div in found
        if _single(div.numerator) in bound and not names(div.divisor) & free and context.implies(ge(div.divisor - 1))
    ]
    if not choices:
        return None
    # by the largest first: what is left is divided by the smaller ones
    div = max(choices, key=lambda d: (max(len(m) for m, _ in terms_of(d.divisor)), str(d)))
    name, n = _single(div.numerator), div.divisor
    assert name is not None
    p, q = (var(context.world.fresh("~p")), var(context.world.fresh("~q")))
    values = {name: n * p + q}
    step = ge(q), ge(n - 1 - q)
    rest = [_within_step(substituted(guard, values), n, q, context) for guard in guards]
    bound = tuple(b for b in bound if b != name) + (str(p), str(q))
    stepped = context.with_(step)  # guards must not be settled by each other
    settled = [Fact(guard.equality, stepped.settle(guard.value)) for guard in rest]
    within = stepped.with_(settled)
    moved = _mapped_sum(body, lambda value: within.settle(substitute(value, values)))
    return Piece(bound, (*step, *settled), moved)


def _single(value: Quantity) -> str | None:
    """The name that a quantity is."""
    match list(terms_of(value)):
        case [((str(name),), 1)]:
            return name
    return None


def _within_step(fact: Fact, n: Quantity, q: Quantity, context: Context) -> Fact:
    """`n*a + q >= 0` says a >= 0, and `n*a - 1 - q >= 0` says a >= 1, as 0 <= q < n."""
    if not fact.equality:
        for offset, less in ((q, 0), (-1 - q, 1)):
            whole = exact_quotient(fact.value - offset, n)
            if whole is not None and not names(q) & names(whole):
                return ge(whole - less)
    return fact


def _quotients_in(terms: Sum) -> tuple[set[Div], set[str]]:
    """The quotients in what is read, and the variables that are bound inside."""
    found: set[Div] = set()
    bound: set[str] = set()

    def note(value: Quantity) -> Quantity:
        found.update(quotients(value))
        return value

    def binds(part: Term | Piece) -> None:
        bound.update(part.bound)

    _mapped_sum(terms, note, binds)
    return found, bound


def _mapped_sum(terms: Sum, change: Change, binds: Binds | None = None) -> Sum:
    """Every quantity in a sum changed; `binds` is told of what binds variables."""
    out = []
    for term in terms:
        if binds is not None:
            binds(term)
        guards = tuple(Fact(g.equality, change(g.value)) for g in term.guards)
        out.append(replace(term, guards=guards, atoms=tuple(_mapped(a, change, binds) for a in term.atoms)))
    return tuple(out)


def _mapped(atom: Factor, change: Change, binds: Binds | None) -> Factor:
    match atom:
        case Read(tensor, index):
            return Read(tensor, tuple(map(change, index)))
        case Size(value):
            return Size(change(value))
        case Fn(function, args):
            return Fn(function, tuple(_mapped_sum(arg, change, binds) for arg in args))
        case Max(pieces, solid):
            out = []
            for piece in pieces:
                if binds is not None:
                    binds(piece)
                guards = tuple(Fact(g.equality, change(g.value)) for g in piece.guards)
                out.append(Piece(piece.bound, guards, _mapped_sum(piece.body, change, binds)))
            return Max(tuple(out), solid)
    raise AssertionError(atom)
