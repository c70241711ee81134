"""Unification of symbolic sizes: what the left side of a rule says about them, and what the right side needs.

Each equation between sizes is solved for a name where that is possible; the others are kept as facts. The phases are
"source" (requirements are hypotheses), "target" (requirements have to follow, or become side conditions of the rule)
and "settled" (nothing new is learned).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from taso.algebra.poly import Div, Quantity, exact_quotient, floordiv, names, substitute, terms_of, var
from taso.errors import ShapeError
from taso.prove.decide import Limits, World
from taso.prove.facts import Fact, Lows, eq, ge, lows_from, reduced, sign, solved, trivial
from taso.prove.index import cases_of
from taso.prove.terms import Unsupported
from taso.spec import syntax as s
from taso.spec.evaluate import Scope
from taso.spec.shapes import Theory


@dataclass
class Sizes(Theory):
    """What is known about sizes. `names` are the symbols with the expression that a rule writes for them.

    solution: name -> what it is equal to, over the names that are left.
    facts: further hypotheses, over any names (see `known`).
    conditions: what the right side needs beyond the hypotheses.
    """

    symbols: dict[str, s.Expr] = field(default_factory=dict)
    reals: set[str] = field(default_factory=set)
    solution: dict[str, Quantity] = field(default_factory=dict)
    equations: list[Quantity] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    conditions: list[Fact] = field(default_factory=list)
    granted: set[str] = field(default_factory=set)
    positive_reals: set[str] = field(default_factory=set)
    phase: Literal["source", "target", "settled"] = "source"
    limits: Limits = field(default_factory=Limits)
    _quotients: dict[str, tuple[Quantity, Quantity]] = field(default_factory=dict)
    _lows: dict[str, int] | None = None
    _world: World | None = None

    def norm(self, value: Quantity) -> Quantity:
        if isinstance(value, int) or self.solution.keys().isdisjoint(names(value)):
            return value
        return substitute(value, self.solution)

    @property
    def lows(self) -> Lows:
        """Lower bounds of names that follow from the facts."""
        if self._lows is None:
            found: dict[str, int] = {}
            facts = self.known()
            for _ in range(3):
                before = dict(found)
                found = lows_from(facts, found)
                for name, (whole, factor) in self._quotients.items():
                    if sign(self.norm(factor) - 1, found) is True and sign(self.norm(whole) - 1, found) is True:
                        found[name] = max(found.get(name, 1), 1)
                if found == before:
                    break
            self._lows = found
        return self._lows

    def known(self) -> list[Fact]:
        """All hypotheses over the names that are left."""
        facts = [Fact(f.equality, self.norm(f.value)) for f in self.facts]
        facts += [ge(self.norm(value) - 1) for name, value in self.solution.items() if not name.startswith("~")]
        return facts + [eq(self.norm(e)) for e in self.equations]

    def world(self) -> World:
        """A world for proofs in which the hypotheses hold (as facts of its contexts)."""
        if self._world is None:
            self._world = World(
                dict(self.lows), frozenset(self.reals), self.limits, positive_reals=frozenset(self.positive_reals)
            )
        return self._world

    def _learned(self) -> None:
        self._lows = self._world = None

    # --- what shapes.solve asks

    def equate(self, left: Quantity, right: Quantity, what: str) -> None:
        if left == right or self.phase == "settled":
            return
        gap = reduced(self.norm(left - right), self.lows)
        if gap == 0:
            return
        if trivial(eq(gap), self.lows) is False:
            raise ShapeError(f"{what}: {left} is not {right}")
        if any(gap in (known, -known) for known in self._reduced_equations()):
            return
        if self.phase == "target":
            if self.world().context(self.known()).implies(eq(gap)):
                self.equations.append(gap)
                self._learned()
                return
            self.conditions.append(eq(gap))
        self._assume(gap, what)

    def _reduced_equations(self) -> list[Quantity]:
        return [reduced(self.norm(e), self.lows) for e in self.equations]

    def _assume(self, gap: Quantity, what: str) -> None:
        """Take `gap == 0` for granted: solve it for a name, else keep it."""
        if names(gap) & self.reals:
            raise ShapeError(f"{what}: an equation between real numbers")
        choices = sorted(names(gap), key=lambda name: (name not in self._quotients, name.startswith("~"), name))
        for name in choices:
            solution = solved(gap, {name})
            if solution is None or (not name.startswith("~") and sign(solution[1] - 1, self.lows) is False):
                continue
            values = dict([solution])
            if name in self._quotients and not name.startswith("~") and sign(solution[1] - 1, self.lows) is not True:
                self.facts.append(ge(solution[1] - 1))
            self.solution = {k: substitute(v, values) for k, v in self.solution.items()} | values
            self._learned()
            self._resolve(what)
            return
        divided = self._divisible(gap, what)
        if not divided:
            self.equations.append(gap)
            self._learned()

    def _resolve(self, what: str) -> None:
        """Old equations may have become solvable, or false."""
        old, self.equations = self.equations, []
        for equation in old:
            gap = reduced(self.norm(equation), self.lows)
            if gap == 0:
                continue
            if trivial(eq(gap), self.lows) is False:
                raise ShapeError(f"{what}: sizes contradict each other")
            self._assume(gap, what)
        for fact in self.known():
            if trivial(fact, self.lows) is False:
                raise ShapeError(f"{what}: sizes contradict each other")

    def _divisible(self, gap: Quantity, what: str) -> bool:
        """`n - d * (n // d) == 0` says that n is a multiple of d: n = d * q with a new name q."""
        for monomial, coefficient in terms_of(gap):
            for atom in monomial:
                if not isinstance(atom, Div) or abs(coefficient) != 1:
                    continue
                rest = atom.numerator - atom.divisor * var(atom)
                if rest in (gap, -gap):
                    factor = atom.divisor
                    name = self._quotient_name(atom.numerator, factor, "~q")
                    new = reduced(self.norm(atom.numerator - factor * var(name)), self.lows)
                    if any(solved(new, {n}) for n in names(new) - {name}):
                        self._assume_not_for(new, name, what)
                        return True
        return False

    def _assume_not_for(self, gap: Quantity, name: str, what: str) -> None:
        for other in sorted(names(gap) - {name}):
            solution = solved(gap, {other})
            if solution is not None:
                values = dict([solution])
                self.solution = {k: substitute(v, values) for k, v in self.solution.items()} | values
                self._learned()
                self._resolve(what)
                return

    def quotient(self, whole: Quantity, factor: Quantity, what: str) -> Quantity:
        whole, factor = self.norm(whole), self.norm(factor)
        exact = exact_quotient(whole, factor)
        if exact is not None:
            return exact
        if isinstance(whole, int) and isinstance(factor, int):
            raise ShapeError(f"{what}: {whole} is not divisible by {factor}")
        for name, (old_whole, old_factor) in self._quotients.items():
            if self.norm(old_factor) == factor and self.norm(old_whole) == whole:
                return self.norm(var(name))
        if self.phase == "settled":
            for equation in self.equations:
                for candidate in (whole + equation, whole - equation):
                    exact = exact_quotient(candidate, factor)
                    if exact is not None:
                        return exact
            raise ShapeError(f"{what}: {whole} is not divisible by {factor}")
        name = self._quotient_name(whole, factor, "q" if sign(whole - 1, self.lows) is True else "~q")
        if self.phase == "target":
            self.conditions.append(eq(whole - factor * floordiv(whole, factor)))
        gap = whole - factor * var(name)
        for other in sorted(names(gap) - {name}):
            if solved(gap, {other}) is not None:
                self._assume_not_for(gap, name, what)
                break
        else:
            self.equations.append(gap)
            self._learned()
        return self.norm(var(name))

    def _quotient_name(self, whole: Quantity, factor: Quantity, prefix: str) -> str:
        name = f"{prefix}{len(self._quotients)}"
        self._quotients[name] = whole, factor
        return name

    def require(self, condition: s.Expr, scope: Scope, what: str) -> None:
        if self.phase == "settled":
            return
        try:
            cases = cases_of(condition, scope, True)
        except Unsupported:
            cases = [[ge(-1)]] if self.phase == "target" else [[]]
        self.assume_or_prove(cases, what)

    def assume_or_prove(self, cases: list[list[Fact]], what: str) -> None:
        """One of the conjunctions holds: a hypothesis in the source; shown or made a condition in the target."""
        lows = self.lows
        normed = [[Fact(f.equality, self.norm(f.value)) for f in case] for case in cases]
        possible = [case for case in normed if not any(trivial(f, lows) is False for f in case)]
        if not possible:
            raise ShapeError(f"{what}: a requirement is not met")
        real = any(names(f.value) & self.reals for case in possible for f in case)
        if real:
            self._real_requirement(possible, what)
            return
        if self.phase == "source":
            if len(possible) == 1:
                for fact in possible[0]:
                    self._hypothesis(fact, what)
            return
        if any(all(trivial(f, lows) is True for f in case) for case in possible):
            return
        context = self.world().context(self.known())
        for case in possible:
            if all(context.implies(f) for f in case):
                return
        for fact in possible[0]:
            if not context.implies(fact):
                self.conditions.append(fact)
                self._hypothesis(fact, what)

    def _real_requirement(self, cases: list[list[Fact]], what: str) -> None:
        text = str(sorted(sorted(map(str, case)) for case in cases))
        if self.phase == "source":
            self.granted.add(text)
            if len(cases) == 1:
                # c > 0 reads c - 1 >= 0 among integers; for reals no more than c > 0 is taken from it
                for fact in cases[0]:
                    solution = solved(fact.value, self.reals)
                    if (
                        solution
                        and isinstance(solution[1], int)
                        and solution[1] >= 1
                        and fact.value == var(solution[0]) - solution[1]
                    ):
                        self.positive_reals.add(solution[0])
        elif text not in self.granted:
            raise ShapeError(f"{what}: a requirement on real numbers does not follow")

    def _hypothesis(self, fact: Fact, what: str) -> None:
        if trivial(fact, self.lows) is True:
            return
        if fact.equality:
            gap = reduced(self.norm(fact.value), self.lows)
            if gap != 0 and not any(gap in (e, -e) for e in self._reduced_equations()):
                self._assume(gap, what)
        else:
            value = reduced(self.norm(fact.value), self.lows)
            if ge(value) not in self.facts:
                self.facts.append(ge(value))
                self._learned()

    # --- back to expressions

    def expression(self, fact: Fact) -> s.Expr:
        """A fact as a condition over `dim(x, k)` and attribute names."""
        meanings: dict[str, Quantity] = {}
        for name, (whole, factor) in self._quotients.items():
            meanings[name] = floordiv(substitute(whole, meanings), substitute(factor, meanings))
        value = substitute(fact.value, meanings)
        plus = {m: c for m, c in terms_of(value) if c > 0}
        minus = {m: -c for m, c in terms_of(value) if c < 0}
        return s.Cmp("==" if fact.equality else ">=", self._sum_expr(plus), self._sum_expr(minus))

    def _sum_expr(self, terms: Mapping[tuple[str | Div, ...], int]) -> s.Expr:
        total: s.Expr | None = None
        for monomial, coefficient in sorted(terms.items(), key=lambda kv: (-len(kv[0]), str(kv[0]))):
            product: s.Expr | None = _number(coefficient) if coefficient != 1 or not monomial else None
            for atom in monomial:
                factor = self._atom_expr(atom)
                product = factor if product is None else s.Bin("*", product, factor)
            assert product is not None
            total = product if total is None else s.Bin("+", total, product)
        return total if total is not None else _number(0)

    def _atom_expr(self, atom: str | Div) -> s.Expr:
        if isinstance(atom, str):
            return self.symbols.get(atom, s.Name(atom))
        return s.Bin("/", self._quantity_expr(atom.numerator), self._quantity_expr(atom.divisor))

    def _quantity_expr(self, value: Quantity) -> s.Expr:
        plus = {m: c for m, c in terms_of(value) if c > 0}
        minus = {m: -c for m, c in terms_of(value) if c < 0}
        return self._sum_expr(plus) if not minus else s.Bin("-", self._sum_expr(plus), self._sum_expr(minus))


def _number(value: int) -> s.Expr:
    return s.Num(Fraction(value))
