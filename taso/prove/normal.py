"""Normal forms: products and functions of sums, with the laws of the real numbers that the prover knows.

Products distribute over sums. `exp(a + b)` is `exp(a) exp(b)`; the reciprocal of a product is the product of
reciprocals; increasing functions go into a maximum. A function of a guarded sum is split on the guards that mention no
inner variable, so that relu of a concatenation becomes two pieces.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from taso.prove.decide import Context
from taso.prove.facts import Fact
from taso.prove.keys import common_factors, key, key_of_term, skeleton
from taso.prove.maxima import lone_max, maximum
from taso.prove.signs import positive, surely
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
    branches,
    constant,
    constant_value,
    normalised,
    outer_guard,
    scaled,
    simplified,
)

INCREASING = frozenset({"sigmoid", "tanh", "erf"})  # exp comes out of a maximum instead
PARTIAL = frozenset({"log", "sqrt"})
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
            out += simplified(term, context)
    return tuple(out)


def added(left: Sum, right: Sum) -> Sum:
    if left and right and not (_solid(left) and _solid(right)):
        raise Unsupported("arithmetic with a maximum over a window that may be empty")
    return left + right


def _solid(terms: Sum) -> bool:
    return all(not isinstance(atom, Max) or atom.solid for term in terms for atom in term.atoms)


def _cancelled(atoms: tuple[Factor, ...], context: Context) -> tuple[Factor, ...]:
    """Without pairs exp(a) exp(-a) and n * (1/n) of which the product is 1."""
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
            partner = next(
                (o for o in left if plain and key(o) == key(inner[0].atoms[0]) and positive(o, context)), None
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
    if function in INCREASING and len(args) == 1:
        inner = lone_max(args[0])
        if inner is not None:
            return maximum(
                [Piece(p.bound, p.guards, apply(function, (p.body,), context.with_(p.guards))) for p in inner], context
            )
    if function in PARTIAL:
        _partial(Fn(function, args), context)
    return atom_sum(Fn(function, args))


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
