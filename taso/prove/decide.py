"""Decides facts about integers under a context: cheap tests first, then z3 with a resource limit (never a clock).

Three tiers: lower bounds and sums of known facts; linear integer arithmetic in which each product is a variable of its
own; and, only where the caller says that much depends on it, true nonlinear arithmetic. "No" means "not shown".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import z3

from taso.algebra.poly import Atom, Div, Monomial, Quantity, atoms, floordiv, names, terms_of, var
from taso.prove.facts import Fact, ge, low_of, lows_from, quotients, sign, tightened, trivial
from taso.prove.models import Model, models_of, refined, satisfies

Formula = Callable[["Translator"], z3.BoolRef]


@dataclass
class Limits:
    """What z3 may spend on one question about a rule.

    Each rule has a z3 context of its own: in a shared one the order of z3's terms, and with it what a limit allows,
    would depend on what was proved before.
    """

    rlimit: int = 400_000

    @cached_property
    def context(self) -> z3.Context:
        """Made when it is first needed, which costs a few milliseconds."""
        return z3.Context()


@dataclass
class World:
    """What one proof shares: lower bounds, the real-valued names, fresh names, limits, and how often each tier decided.

    positive_reals: those of the real-valued names that are known to be greater than 0.
    arithmetic: whether elements were computed with, not only moved.
    partial: the functions met so far that are not defined everywhere.
    defined: whether what is computed now is known to be defined, so that x / x is 1 whatever x is.
    """

    lows: Mapping[str, int] = field(default_factory=dict)
    reals: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    steps: int = 200_000
    positive_reals: frozenset[str] = frozenset()
    arithmetic: bool = False
    partial: set[str] = field(default_factory=set)
    defined: bool = False
    random: random.Random = field(default_factory=lambda: random.Random(20191027))
    counts: dict[str, int] = field(default_factory=lambda: {"cheap": 0, "linear": 0, "nonlinear": 0})
    _names: dict[str, int] = field(default_factory=dict)
    _contexts: dict[frozenset[Fact], Context] = field(default_factory=dict)
    _given: dict[tuple[Fact, ...], Context] = field(default_factory=dict)  # the contexts by what was asked for
    _translators: dict[bool, Translator] = field(default_factory=dict)

    def fresh(self, prefix: str) -> str:
        """A name that nothing else has; index variables begin with `~`."""
        stem = prefix.rstrip("0123456789'")
        self._names[stem] = self._names.get(stem, 0) + 1
        return f"{stem}'{self._names[stem]}"

    def translator(self, linear: bool) -> Translator:
        if linear not in self._translators:
            self._translators[linear] = Translator(linear, self.limits.context)
        return self._translators[linear]

    def context(self, facts: Iterable[Fact], inside: Context | None = None) -> Context:
        """The context in which these facts hold; the same one for the same facts. `inside` has some of them."""
        given = tuple(facts)
        if given in self._given:
            return self._given[given]
        kept: dict[Fact, None] = {}
        for fact in given:
            fact = tightened(fact, self.lows)
            if trivial(fact, self.lows) is not True:
                kept[fact] = None
        key = frozenset(kept)
        if key not in self._contexts:
            self._contexts[key] = Context(self, tuple(kept), inside)
        self._given[given] = self._contexts[key]
        return self._given[given]


class Context:
    """Facts that hold. Immutable; made by `World.context` and `with_`."""

    def __init__(self, world: World, facts: tuple[Fact, ...], inside: Context | None = None) -> None:
        self.world, self.facts, self.known, self.inside = world, facts, frozenset(facts), inside
        self._models: list[Model] | None = None
        self.lows = lows_from(facts, world.lows)
        self.known |= {tightened(fact, self.lows) for fact in facts}
        self._asked: dict[tuple[Fact, bool], bool] = {}
        self._implied: dict[tuple[Fact, bool], bool] = {}
        self._contradicted: dict[frozenset[Fact], bool] = {}
        self._bounds = list(dict.fromkeys(fact.value for fact in [*facts, *self.known] if not fact.equality))

    def with_(self, facts: Iterable[Fact]) -> Context:
        """The context with further facts."""
        more = tuple(facts)
        return self.world.context(self.facts + more, self) if more else self

    @property
    def models(self) -> list[Model]:
        """Some integer assignments in which all facts hold; none if none was found."""
        if self._models is None:
            if self.inside is None:
                self._models = models_of(self.facts, self.lows, self.world.random)
            else:
                more = tuple(f for f in self.facts if f not in self.inside.known)
                self._models = refined(self.inside.models, more, self.lows, self.world.random)
        return self._models

    def implies(self, fact: Fact, hard: bool = False) -> bool:
        """Whether a fact is shown to hold; `hard` allows the nonlinear tier."""
        asked = fact, hard
        if asked not in self._asked:
            self._asked[asked] = self._shown(fact, hard)
        return self._asked[asked]

    def _shown(self, fact: Fact, hard: bool) -> bool:
        fact = tightened(fact, self.lows)
        truth = trivial(fact, self.lows)
        if truth is not None or fact in self.known:
            self.world.counts["cheap"] += 1
            return truth is not False
        if any(satisfies(model, fact) is False for model in self.models):
            return False
        key = fact, hard
        if key not in self._implied:
            self._implied[key] = self._implies(fact, hard)
        return self._implied[key]

    def _implies(self, fact: Fact, hard: bool) -> bool:
        if fact.equality:
            if Fact(True, -fact.value) in self.known:
                return True
            return self.implies(ge(fact.value), hard) and self.implies(ge(-fact.value), hard)
        if any(sign(fact.value - known, self.lows) is True for known in self._bounds):
            self.world.counts["cheap"] += 1
            return True
        return self._refuted([ge(-fact.value - 1)], hard)

    def contradicts(self, facts: Iterable[Fact], hard: bool = False) -> bool:
        """Whether the facts are shown to be impossible together in this context."""
        more = [tightened(fact, self.lows) for fact in facts]
        truths = [trivial(fact, self.lows) for fact in more]
        if False in truths:
            return True
        more = [fact for fact, truth in zip(more, truths) if truth is None and fact not in self.known]
        if not more:
            return False
        if any(all(satisfies(model, fact) for fact in more) for model in self.models):
            return False
        key = frozenset(more)
        if key not in self._contradicted:
            bounds = self._bounds + [fact.value for fact in more if not fact.equality]
            clash = any(
                sign(fact.value + other, self.lows) is False for fact in more if not fact.equality for other in bounds
            )
            self._contradicted[key] = clash or self._refuted(more, hard)
        return self._contradicted[key]

    def excludes(self, formula: Formula, about: Iterable[Quantity], hard: bool = False) -> bool:
        """Whether a formula over the quantities `about` is shown to be impossible."""
        return self._refuted([], hard, formula, about)

    def settle(self, value: Quantity) -> Quantity:
        """The quantity with every quotient gone whose numerator is known to lie in one step of its divisor."""
        if isinstance(value, int):
            return value
        for _ in range(4):
            found: dict[Div, Quantity] = {}
            for div in sorted(quotients(value), key=str):
                quotient = self._quotient(div)
                if quotient is not None:
                    found[div] = quotient
            if not found:
                return value
            value = _replace(value, found)
            if isinstance(value, int):
                return value
        return value

    def _quotient(self, div: Div) -> Quantity | None:
        if not self.implies(ge(div.divisor - 1)):
            return None
        numerator, divisor = div.numerator, div.divisor
        if self.implies(ge(divisor - 1 - numerator)) and self.implies(ge(numerator)):
            return 0
        divided = _divided(numerator, divisor)
        if divided is not None:
            whole, rest = divided
            if self.implies(ge(divisor - 1 - rest)) and self.implies(ge(rest)):
                return whole
        return None

    # --- z3

    def _refuted(
        self, facts: list[Fact], hard: bool, formula: Formula | None = None, about: Iterable[Quantity] = ()
    ) -> bool:
        quantities = [fact.value for fact in facts] + list(about)
        involved = self._relevant(quantities)
        everything = [*involved, *facts]
        closed = everything + self._division_facts([fact.value for fact in everything] + quantities)
        closed += self._multiplied(closed, quantities)
        nonlinear = any(len(m) > 1 for fact in closed for m, _ in terms_of(fact.value))
        nonlinear = nonlinear or any(len(m) > 1 for q in quantities for m, _ in terms_of(q))
        for linear in (True, False) if nonlinear and hard else (True,):
            self.world.counts["linear" if linear else "nonlinear"] += 1
            if self._unsat(closed, linear, formula, quantities):
                return True
        return False

    def _relevant(self, quantities: list[Quantity]) -> list[Fact]:
        reached = set().union(*(names(q) for q in quantities)) if quantities else set()
        left = list(self.facts)
        found: list[Fact] = []
        while True:
            taken = [fact for fact in left if names(fact.value) & reached]
            if not taken:
                return found
            found += taken
            left = [fact for fact in left if fact not in taken]
            for fact in taken:
                reached |= names(fact.value)

    def _division_facts(self, quantities: list[Quantity]) -> list[Fact]:
        """What makes a quotient a quotient, for those whose divisor is surely at least 1."""
        found: dict[Div, None] = {}
        for quantity in quantities:
            found.update(dict.fromkeys(sorted(quotients(quantity), key=str)))
        out = []
        for div in found:
            if sign(div.divisor - 1, self.lows) is True:
                step = div.divisor * var(div)
                out += [ge(div.numerator - step), ge(step + div.divisor - 1 - div.numerator)]
        return out

    def _multiplied(self, facts: list[Fact], quantities: list[Quantity]) -> list[Fact]:
        """Inequalities times a name that is not negative, where the products occur: i <= q gives i*s <= q*s."""
        products: dict[Atom, set[Atom]] = {}
        for value in [fact.value for fact in facts] + quantities:
            for monomial, _ in terms_of(value):
                if len(monomial) == 2:
                    for a, b in (monomial, monomial[::-1]):
                        low = low_of(a, self.lows)
                        if low is not None and low >= 0:
                            products.setdefault(a, set()).add(b)
        out: dict[Fact, None] = {}
        for factor, partners in products.items():
            for fact in facts:
                held = atoms(fact.value)
                short = not fact.equality and len(held) <= 4 and all(len(m) <= 1 for m, _ in terms_of(fact.value))
                if short and any(a in partners and a != factor for a in held):
                    out[ge(fact.value * var(factor))] = None
        return list(out)[:60]

    def _unsat(self, facts: list[Fact], linear: bool, formula: Formula | None, quantities: list[Quantity]) -> bool:
        translator = self.world.translator(linear)
        solver = z3.SimpleSolver(ctx=translator.context)  # the default one tries tactics, for three times as long
        solver.set("rlimit", self.world.limits.rlimit)
        involved: dict[Monomial, None] = {}  # in order: what z3 is told must not depend on hashes
        for fact in facts:
            solver.add(translator.fact(fact))
            involved.update((m, None) for m, _ in terms_of(fact.value) if m)
        if formula is not None:
            solver.add(formula(translator))
        for quantity in quantities:
            involved.update((m, None) for m, _ in terms_of(quantity) if m)
        lows = {a: low_of(a, self.lows) for monomial in involved for a in monomial}
        for atom, low in lows.items():
            if low is not None:
                solver.add(translator.atom(atom) >= low)
        for monomial in involved if linear else ():
            bounds = [lows[a] for a in monomial]
            if len(monomial) > 1 and all(low is not None and low >= 0 for low in bounds):
                solver.add(translator.product(monomial) >= 0)
                for k, low in enumerate(bounds):
                    rest = monomial[:k] + monomial[k + 1 :]
                    if low is not None and low >= 1 and (len(rest) == 1 or rest in involved):
                        solver.add(translator.product(monomial) >= low * translator.product(rest))
        return bool(solver.check() == z3.unsat)


class Translator:
    """Quantities and facts in z3's terms, kept; `linear` makes a product a variable of its own."""

    def __init__(self, linear: bool, context: z3.Context) -> None:
        self.linear, self.context = linear, context
        self._products: dict[Monomial, z3.ArithRef] = {}
        self._quantities: dict[Quantity, z3.ArithRef] = {}
        self._facts: dict[Fact, z3.BoolRef] = {}

    def atom(self, atom: Atom) -> z3.ArithRef:
        return self.product((atom,))

    def product(self, monomial: Monomial) -> z3.ArithRef:
        if monomial not in self._products:
            if len(monomial) == 1 or self.linear:
                self._products[monomial] = z3.Int(
                    "*".join(a if isinstance(a, str) else a.text for a in monomial), self.context
                )
            else:
                total = self.atom(monomial[0])
                for atom in monomial[1:]:
                    total = total * self.atom(atom)
                self._products[monomial] = total
        return self._products[monomial]

    def quantity(self, value: Quantity) -> z3.ArithRef:
        if value not in self._quantities:
            parts = [
                z3.IntVal(c, self.context) if not m else self.product(m) if c == 1 else c * self.product(m)
                for m, c in terms_of(value)
            ]
            self._quantities[value] = (
                z3.IntVal(0, self.context) if not parts else parts[0] if len(parts) == 1 else z3.Sum(parts)
            )
        return self._quantities[value]

    def fact(self, fact: Fact) -> z3.BoolRef:
        if fact not in self._facts:
            value = self.quantity(fact.value)
            self._facts[fact] = value == 0 if fact.equality else value >= 0
        return self._facts[fact]


def _replace(value: Quantity, found: Mapping[Div, Quantity]) -> Quantity:
    if isinstance(value, int):
        return value
    total: Quantity = 0
    for monomial, coefficient in value.terms.items():
        product: Quantity = coefficient
        for atom in monomial:
            if isinstance(atom, str):
                product = product * var(atom)
            elif atom in found:
                product = product * found[atom]
            else:
                product = product * floordiv(_replace(atom.numerator, found), _replace(atom.divisor, found))
        total = total + product
    return total


def _divided(numerator: Quantity, divisor: Quantity) -> tuple[Quantity, Quantity] | None:
    """Whole and rest of a division by one of the divisor's monomials, as far as it goes; None if it does not."""
    candidates = sorted((m for m, _ in terms_of(divisor) if m), key=lambda m: (-len(m), str(m)))
    for lead in candidates:
        coefficient = dict(terms_of(divisor))[lead]
        whole: Quantity = 0
        rest = numerator
        for _ in range(8):
            step = next((t for t in terms_of(rest) if _contains(t[0], lead) and t[1] % coefficient == 0), None)
            if step is None:
                break
            factor = list(step[0])
            for a in lead:
                factor.remove(a)
            part: Quantity = step[1] // coefficient
            for a in factor:
                part = part * var(a)
            whole, rest = whole + part, rest - part * divisor
        if whole != 0:
            return whole, rest
    if isinstance(numerator, int) or not isinstance(divisor, int):
        return None
    constant = numerator.terms.get((), 0) // divisor
    return (constant, numerator - constant * divisor) if constant else None


def _contains(monomial: Monomial, lead: Monomial) -> bool:
    rest = list(monomial)
    for atom in lead:
        if atom not in rest:
            return False
        rest.remove(atom)
    return True
