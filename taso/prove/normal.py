"""Normal forms: products and functions of sums, with the laws of the real numbers that the prover knows.

Products distribute over sums. `exp(a + b)` is `exp(a) exp(b)`; the reciprocal of a product is the product of
reciprocals; increasing functions go into a maximum. A function of a guarded sum is split on the guards that mention no
inner variable, so that relu of a concatenation becomes two pieces.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import isqrt

from taso.algebra.poly import names
from taso.prove.decide import Context
from taso.prove.facts import Fact
from taso.prove.keys import common_factors, key, key_of_term, skeleton
from taso.prove.maxima import inhabited, lone_max, maximum
from taso.prove.signs import nonnegative, positive, surely
from taso.prove.simple import branches, normalised, outer_guard, simplified
from taso.prove.terms import (
    ONE,
    Factor,
    Fn,
    Max,
    Piece,
    Sum,
    Term,
    Unsupported,
    atom_sum,
    constant,
    constant_value,
    scaled,
)

INCREASING = frozenset({"sigmoid", "tanh", "erf"})  # exp comes out of a maximum instead
PARTIAL = frozenset({"log", "sqrt"})
ODD = frozenset({"tanh", "erf", "sin", "sign"})
EVEN = frozenset({"abs", "cos"})
_MOST_IDLE = 3  # variables of a count that are looked for in every order
AT_ZERO: dict[str, int | Fraction] = {
    "exp": 1,
    "sigmoid": Fraction(1, 2),
    "tanh": 0,
    "erf": 0,
    "sqrt": 0,
    "abs": 0,
    "sin": 0,
    "cos": 1,
    "sign": 0,
}


def product(left: Sum, right: Sum, context: Context, bound: tuple[str, ...] = (), guards: tuple[Fact, ...] = ()) -> Sum:
    """The product of two sums, summed over `bound` where `guards` hold."""
    world = context.world
    if (bound or (left != ONE and right != ONE)) and not (_solid(left) and _solid(right)):
        raise Unsupported("arithmetic with a maximum over a window that may be empty")
    if (not left) != (not right):
        world.arithmetic = True  # something was multiplied by zero
    out: list[Term] = []
    for a in left:
        for b in right:
            x, y = a.renamed(world), b.renamed(world)
            atoms = x.atoms + y.atoms
            if x.atoms and y.atoms:
                atoms = _cancelled(atoms, context)
            term = Term(x.coefficient * y.coefficient, x.bound + y.bound + bound, guards + x.guards + y.guards, atoms)
            out += [_counted_off(simple, context) for simple in simplified(term, context)]
    return tuple(out)


def _counted_off(term: Term, context: Context) -> Term:
    """Without a count and its reciprocal: n of something that is no different each time, divided by n.

    The count is a sum of ones over variables that nothing else mentions; there surely is one.
    """
    for k, atom in enumerate(term.atoms):
        match atom:
            case Fn("reciprocal", ((Term(coefficient, bound, guards, ()) as count,),)) if bound and coefficient == 1:
                rest = term.atoms[:k] + term.atoms[k + 1 :]
                idle = [b for b in term.bound if not any(b in other.names for other in term.atoms)]
                about = tuple(g for g in term.guards if names(g.value) & set(idle))
                if any(names(g.value) & (set(term.bound) - set(idle)) for g in about):
                    continue
                same = key_of_term(count)
                orders = permutations(idle) if len(idle) == len(bound) <= _MOST_IDLE else ()
                equal = any(key_of_term(Term(Fraction(1), order, about)) == same for order in orders)
                if equal and inhabited(Piece(bound, guards, ONE), context):
                    kept = tuple(b for b in term.bound if b not in idle)
                    left = tuple(g for g in term.guards if g not in about)
                    return _counted_off(Term(term.coefficient, kept, left, rest), context)
    return term


def added(left: Sum, right: Sum) -> Sum:
    if left and right and not (_solid(left) and _solid(right)):
        raise Unsupported("arithmetic with a maximum over a window that may be empty")
    return left + right


def _solid(terms: Sum) -> bool:
    return all(not isinstance(atom, Max) or atom.solid for term in terms for atom in term.atoms)


def _cancelled(atoms: tuple[Factor, ...], context: Context) -> tuple[Factor, ...]:
    """Without pairs exp(a) exp(-a) and n * (1/n) of which the product is 1 (of n that is not 0, where that is open)."""
    left = list(atoms)
    for atom in atoms:
        partner: Factor | None
        if not isinstance(atom, Fn) or atom not in left:
            continue
        if atom.function == "exp":
            partner = next((o for o in left if o is not atom and isinstance(o, Fn) and _opposite(atom, o)), None)
        elif atom.function == "reciprocal":
            inner = atom.args[0]
            single = len(inner) == 1 and inner[0].coefficient == 1 and len(inner[0].atoms) == 1
            plain = single and not inner[0].bound and not inner[0].guards
            known = context.world.defined
            partner = next(
                (o for o in left if plain and key(o) == key(inner[0].atoms[0]) and (known or positive(o, context))),
                None,
            )
        else:
            continue
        if partner is not None:
            left.remove(atom)
            left.remove(partner)
    return tuple(left)


def _opposite(a: Fn, b: Fn) -> bool:
    if b.function != "exp" or len(a.args[0]) != 1 or len(b.args[0]) != 1:
        return False
    x, y = a.args[0][0], b.args[0][0]
    return x.coefficient == -y.coefficient and key_of_term(x.times(1 / x.coefficient)) == key_of_term(
        y.times(1 / y.coefficient)
    )


def apply(function: str, args: tuple[Sum, ...], context: Context) -> Sum:
    """A function of sums as a sum."""
    args = tuple(normalised(arg, context) for arg in args)
    guard = next((g for arg in args if (g := outer_guard(arg)) is not None), None)
    if guard is not None:
        out: list[Term] = []
        for branch, inside in branches(guard, context):
            out += [t.guarded([branch]) for t in apply(function, args, inside)]
        return tuple(out)
    if function.startswith("free "):  # nothing is known about it
        return atom_sum(Fn(function, args))
    if not all(map(_solid, args)):
        raise Unsupported("arithmetic with a maximum over a window that may be empty")
    if function == "reciprocal":
        return reciprocal(args[0], context)
    if function == "exp":
        return _exponential(args[0], context)
    if function == "pow":
        return _power(args[0], args[1], context)
    values = [constant_value(arg) for arg in args]
    if len(args) == 1 and values[0] is not None:
        known = _of_constant(function, values[0])
        if known is not None:
            return constant(known)
    lawful = _by_law(function, args[0], context) if len(args) == 1 else None
    if lawful is not None:
        return lawful
    if function in INCREASING and len(args) == 1:
        inner = lone_max(args[0])
        if inner is not None:
            return maximum(
                [Piece(p.bound, p.guards, apply(function, (p.body,), context.with_(p.guards))) for p in inner], context
            )
    if function in PARTIAL:
        _partial(Fn(function, args), context)
    return atom_sum(Fn(function, args))


def _by_law(function: str, arg: Sum, context: Context) -> Sum | None:
    """A function of one sum where a law says more: about signs, and about logarithms of exponentials; else None."""
    if arg and _leading(arg) == 0:
        return apply(function, ((),), context)
    if function in ODD | EVEN and _leading(arg) < 0:
        turned = apply(function, (scaled(arg, -1),), context)
        return turned if function in EVEN else scaled(turned, -1)
    if function == "abs":
        if surely(arg, nonnegative, context):
            return arg
        match arg:
            case (Term(coefficient, (), (), (Fn(inner, args),)),) if inner in ODD & INCREASING:
                return scaled(apply(inner, (apply("abs", args, context),), context), coefficient)
            case (Term(coefficient, (), (), atoms),) if coefficient != 1 and atoms:
                return scaled(apply("abs", (scaled(arg, 1 / coefficient),), context), abs(coefficient))
    if function == "log":
        match arg:
            case (Term(coefficient, (), (), atoms),) if coefficient == 1 and atoms:
                if all(isinstance(atom, Fn) and atom.function == "exp" for atom in atoms):
                    return tuple(t for atom in atoms if isinstance(atom, Fn) for t in atom.args[0])
    return None


def _leading(arg: Sum) -> Fraction:
    """The coefficient of one term of a sum, the same term for the sum and its negative; 0 if nothing is left over."""
    totals: dict[tuple[bool, str], Fraction] = {}
    for term in arg:
        plain = not any(isinstance(atom, Max) for atom in term.atoms)  # functions go into a maximum, not into a minimum
        bare = plain, key_of_term(term.times(1 / term.coefficient))
        totals[bare] = totals.get(bare, Fraction(0)) + term.coefficient
    return next((totals[bare] for bare in sorted(totals) if totals[bare]), Fraction(0))


def _of_constant(function: str, value: Fraction) -> Fraction | None:
    if value == 0 and function in AT_ZERO:
        return Fraction(AT_ZERO[function])
    if function == "abs":
        return abs(value)
    if function == "sign":
        return Fraction((value > 0) - (value < 0))
    if function == "log" and value == 1:
        return Fraction(0)
    if function == "sqrt" and value > 0:
        root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
        return root if root * root == value else None
    return None


def _exponential(arg: Sum, context: Context) -> Sum:
    value = constant_value(arg)
    if value == 0:
        return ONE
    out = ONE
    for term in arg:
        out = product(out, atom_sum(Fn("exp", ((term,),))), context)
    return out


def _power(base: Sum, exponent: Sum, context: Context) -> Sum:
    value = constant_value(exponent)
    if value is not None and value.denominator == 1 and 0 <= value <= 4:
        out = ONE
        for _ in range(int(value)):
            out = product(out, base, context)
        return out
    if value == Fraction(1, 2):
        return apply("sqrt", (base,), context)
    if value is not None and value.denominator == 1 and -4 <= value < 0:
        return reciprocal(_power(base, constant(-value), context), context)
    _partial(Fn("pow", (base, exponent)), context)
    return atom_sum(Fn("pow", (base, exponent)))


def reciprocal(arg: Sum, context: Context) -> Sum:
    """1 / arg. Common factors come out; nothing is said about arg = 0, where the rule's sides are not defined."""
    if not arg:
        raise Unsupported("division by zero")
    value = constant_value(arg)
    if value is not None:
        return constant(1 / value)
    common, number, rest = common_factors(arg, lambda atom: True)
    out: Sum = constant(1 / number)
    for atom in common:
        if isinstance(atom, Fn) and atom.function == "exp":
            factor = Fn("exp", (scaled(atom.args[0], -1),))
        elif isinstance(atom, Fn) and atom.function == "reciprocal":
            out = product(out, atom.args[0], context)
            continue
        else:
            factor = Fn("reciprocal", (atom_sum(atom),))
            _partial(factor, context)
        out = product(out, atom_sum(factor), context)
    if constant_value(rest) == 1:
        return out
    factor = Fn("reciprocal", (rest,))
    _partial(factor, context)
    return product(out, atom_sum(factor), context)


def _partial(atom: Fn, context: Context) -> None:
    """Note a function that is not defined everywhere, so that the right side of a rule has none that the left lacks."""
    if not (bool(atom.args[0]) and surely(atom.args[0], positive, context)):
        context.world.partial.add(skeleton(atom))
