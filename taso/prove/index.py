"""From the specification to index terms: the element of a typed tree at a symbolic index.

Nothing here knows an operator. The body of each operator's declaration is read with its sizes, attributes and indices
put in: arithmetic becomes arithmetic of sums, a read of an argument becomes the argument's element at that index, a
fill value and an `if` become guards, `sum` and `max` become bound variables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from taso.algebra.poly import Poly, Quantity, names, var
from taso.errors import ShapeError, SpecError
from taso.prove.decide import Context, World
from taso.prove.facts import Fact, eq, ge, negations
from taso.prove.maxima import maximum
from taso.prove.normal import added, apply, product
from taso.prove.terms import ONE, Piece, Read, Sum, Term, Unsupported, atom_sum, constant, scaled, size_sum
from taso.spec import syntax as s
from taso.spec.elaborate import Typed
from taso.spec.evaluate import Scope, elements, evaluate
from taso.spec.shapes import Theory, solve
from taso.spec.spec import Spec
from taso.spec.value import Shape, Value, compare

FUNCTIONS = frozenset(
    {"exp", "log", "sqrt", "tanh", "sigmoid", "erf", "abs", "pow", "sin", "cos", "sign", "floor", "ceil"}
)

Cases = list[list[Fact]]  # disjoint conjunctions; together what is meant


@dataclass(frozen=True)
class _Env:
    """What names mean inside one body: sizes, attributes and indices, and the arguments to read from."""

    scope: Scope
    args: Mapping[str, Typed]

    def bind(self, name: str, value: Value) -> _Env:
        return replace(self, scope=Scope({**self.scope.values, name: value}, self.scope.shapes, self.scope.dtypes))


class Elements:
    """Elements of typed trees. One per proof; `theory` gives the sizes that the shapes leave open.

    With `free` nothing is known about arithmetic: sides that are equal even so compute the same, rounding included.
    """

    def __init__(self, world: World, spec: Spec, theory: Theory, free: bool = False) -> None:
        self.world, self.spec, self.theory, self.free = world, spec, theory, free
        self._scopes: dict[Typed, _Env] = {}
        self._elements: dict[tuple[Typed, tuple[Quantity, ...], Context], Sum] = {}

    def element(self, node: Typed, index: tuple[Quantity, ...], context: Context) -> Sum:
        """The element of a tree at an index that the context knows to lie inside its shape. Raises Unsupported."""
        index = tuple(context.settle(i) for i in index)
        if node.kind == "var":
            return atom_sum(Read(node.head, index))
        key = node, index, context
        if key not in self._elements:
            body, env = self._at(node, index)
            self._elements[key] = self._sum(body, env, context)
        return self._elements[key]

    def pieces(self, node: Typed, index: tuple[Quantity, ...], context: Context, sign: int) -> list[Piece]:
        """The element (times `sign`) as values of which the largest is meant; this way it may be -inf."""
        if node.kind == "var":
            return [Piece((), (), scaled(self.element(node, index, context), sign))]
        body, env = self._at(node, tuple(context.settle(i) for i in index))
        return self._pieces(body, env, context, sign)

    def _at(self, node: Typed, index: tuple[Quantity, ...]) -> tuple[s.Expr, _Env]:
        if node.kind == "literal":
            assert node.body is not None
            return node.body, _Env(Scope(node.attr), {})
        op = self.spec.operators[node.head]
        if node not in self._scopes:
            shapes = [arg.shape for arg in node.args]
            scope = solve(op, shapes, node.attr, result=node.shape, theory=self.theory).scope
            self._scopes[node] = _Env(scope, {p.name: arg for p, arg in zip(op.params, node.args)})
        env = self._scopes[node]
        for name, value in _bound_indices(op, node.shape, index, env.scope):
            env = env.bind(name, value)
        return op.body, env

    # --- sums

    def _sum(self, expr: s.Expr, env: _Env, context: Context) -> Sum:
        match expr:
            case s.Num() | s.Name():
                return self._number(evaluate(expr, env.scope), expr.pos)
            case s.Neg(inner):
                return scaled(self._sum(inner, env, context), -1)
            case s.Bin("+" | "-" as op, left, right):
                a, b = self._sum(left, env, context), self._sum(right, env, context)
                self.world.arithmetic = self.world.arithmetic or bool(a and b)
                if self.free and a and b:
                    return apply(f"free {op}", (a, b), context)
                return added(a, b if op == "+" else scaled(b, -1))
            case s.Bin("*", left, right):
                a, b = self._sum(left, env, context), self._sum(right, env, context)
                self.world.arithmetic = self.world.arithmetic or not (a == ONE or b == ONE)
                if self.free and not (a == ONE or b == ONE):
                    return apply("free *", (a, b), context)
                return product(a, b, context)
            case s.Bin("/", left, right):
                a, b = self._sum(left, env, context), self._sum(right, env, context)
                self.world.arithmetic = True
                if self.free:
                    return apply("free /", (a, b), context)
                return product(a, apply("reciprocal", (b,), context), context)
            case s.If(condition, then, otherwise):
                out: list[Term] = []
                for facts, branch in self._branches(condition, then, otherwise, env, context):
                    out += [t.guarded(facts) for t in self._sum(branch, env, context.with_(facts))]
                return tuple(out)
            case s.Read():
                return self._read(expr, env, context)
            case s.Reduce("sum", binders, body):
                self.world.arithmetic = True
                if self.free:
                    raise Unsupported("the order of a sum")
                within, bound, ranges = self._bind(binders, env)
                return product(self._sum(body, within, context.with_(ranges)), ONE, context, bound, ranges)
            case s.Reduce("max" | "min" as kind, _, _) | s.Call("max" | "min" as kind, _):
                sign = 1 if kind == "max" else -1
                try:
                    return self._number(evaluate(expr, env.scope), expr.pos)  # of sizes and attributes that are known
                except (SpecError, TypeError):
                    return scaled(maximum(self._pieces(expr, env, context, sign), context), sign)
            case s.Call(function, args) if function in FUNCTIONS:
                self.world.arithmetic = True
                return apply(
                    f"free {function}" if self.free else function,
                    tuple(self._sum(arg, env, context) for arg in args),
                    context,
                )
            case s.Call("real", (inner,)):
                return self._sum(inner, env, context)
        return self._number(evaluate(expr, env.scope), expr.pos)

    def _number(self, value: Value, pos: s.Pos) -> Sum:
        if isinstance(value, (bool, tuple, str)):
            raise SpecError(f"a number is expected here, not {value!r}", line=pos.line, column=pos.column)
        if isinstance(value, Poly):
            return size_sum(value, self.world.reals)
        if isinstance(value, float) and not math.isfinite(value):
            raise Unsupported(f"arithmetic with {value}")
        return constant(Fraction(value))

    def _read(self, read: s.Read, env: _Env, context: Context) -> Sum:
        node = env.args[read.tensor]
        index = self._index(read, env, context)
        if read.fill is None:
            return self.element(node, index, context)
        inside = _inside(index, node.shape, context)
        out: list[Term] = []
        if not context.contradicts(inside):
            out += [t.guarded(inside) for t in self.element(node, index, context.with_(inside))]
        if self._nothing(read.fill, env, 0):
            return tuple(out)
        for facts in _outside(inside, context):
            out += [t.guarded(facts) for t in self._sum(read.fill, env, context.with_(facts))]
        return tuple(out)

    def _nothing(self, fill: s.Expr, env: _Env, nothing: float) -> bool:
        """Whether a fill value is the one that adds nothing to a sum (0) or to a maximum (-inf)."""
        return isinstance(fill, (s.Num, s.Name)) and bool(evaluate(fill, env.scope) == nothing)

    def _index(self, read: s.Read, env: _Env, context: Context) -> tuple[Quantity, ...]:
        index = elements(read.index, env.scope)
        if len(index) != len(env.args[read.tensor].shape):
            raise Unsupported(f"`{read.tensor}` is read with {len(index)} indices")
        return tuple(context.settle(i) for i in index)

    def _bind(self, binders: tuple[s.Binder, ...], env: _Env) -> tuple[_Env, tuple[str, ...], tuple[Fact, ...]]:
        """Fresh variables for the binders, with their ranges; a range of size 1 needs none."""
        bound: list[str] = []
        ranges: list[Fact] = []

        def fresh(name: str, extent: Quantity) -> Quantity:
            if extent == 1:
                return 0
            variable = self.world.fresh(f"~{name}")
            bound.append(variable)
            ranges.extend([ge(var(variable)), ge(extent - 1 - var(variable))])
            return var(variable)

        for binder in binders:
            extent = evaluate(binder.bound, env.scope)
            value = tuple(fresh(binder.name, e) for e in extent) if binder.starred else fresh(binder.name, extent)
            env = env.bind(binder.name, value)
        return env, tuple(bound), tuple(ranges)

    # --- maxima

    def _pieces(self, expr: s.Expr, env: _Env, context: Context, sign: int) -> list[Piece]:
        """`sign * expr` as pieces: -inf is no piece, the maximum of two things is the pieces of both."""
        kind = "max" if sign > 0 else "min"
        match expr:
            case s.Neg(inner):
                return self._pieces(inner, env, context, -sign)
            case s.Num() | s.Name():
                value = evaluate(expr, env.scope)
                if value == -sign * math.inf:
                    return []
                return [Piece((), (), scaled(self._number(value, expr.pos), sign))]
            case s.If(condition, then, otherwise):
                out: list[Piece] = []
                for facts, branch in self._branches(condition, then, otherwise, env, context):
                    out += _guarded(self._pieces(branch, env, context.with_(facts), sign), facts)
                return out
            case s.Read(tensor, _, fill):
                node = env.args[tensor]
                index = self._index(expr, env, context)
                if fill is None:
                    return self.pieces(node, index, context, sign)
                inside = _inside(index, node.shape, context)
                out = []
                if not context.contradicts(inside):
                    out += _guarded(self.pieces(node, index, context.with_(inside), sign), inside)
                if self._nothing(fill, env, -sign * math.inf):
                    return out
                for facts in _outside(inside, context):
                    out += _guarded(self._pieces(fill, env, context.with_(facts), sign), facts)
                return out
            case s.Call(function, args) if function == kind:
                return [piece for arg in args for piece in self._pieces(arg, env, context, sign)]
            case s.Reduce(found, binders, body) if found == kind:
                inner_env, bound, ranges = self._bind(binders, env)
                return [
                    Piece(bound + p.bound, ranges + p.guards, p.body)
                    for p in self._pieces(body, inner_env, context.with_(ranges), sign)
                ]
            case s.Reduce("max" | "min", _, _) | s.Call("max" | "min", _):
                # the other kind: a minimum inside a maximum is one value
                other = scaled(maximum(self._pieces(expr, env, context, -sign), context), -1)
                return [Piece((), (), other)]
        return [Piece((), (), scaled(self._sum(expr, env, context), sign))]

    # --- conditions

    def _branches(
        self, condition: s.Expr, then: s.Expr, otherwise: s.Expr, env: _Env, context: Context
    ) -> list[tuple[list[Fact], s.Expr]]:
        out: list[tuple[list[Fact], s.Expr]] = []
        for cases, branch in (
            (cases_of(condition, env.scope, True), then),
            (cases_of(condition, env.scope, False), otherwise),
        ):
            for facts in cases:
                if any(names(f.value) & self.world.reals for f in facts):
                    raise Unsupported("a condition on real numbers")
                left = [f for f in (Fact(f.equality, context.settle(f.value)) for f in facts) if not context.implies(f)]
                if not context.contradicts(left):
                    out.append((left, branch))
        return out


def cases_of(condition: s.Expr, scope: Scope, truth: bool) -> Cases:
    """Disjoint conjunctions of facts of which one holds exactly if the condition is `truth`.

    Raises Unsupported if the condition is about elements of tensors.
    """
    match condition:
        case s.Logic("not", (inner,)):
            return cases_of(inner, scope, not truth)
        case s.Logic(op, operands):
            first, rest = operands[0], operands[1:]
            if not rest:
                return cases_of(first, scope, truth)
            others = s.Logic(op, rest)
            if (op == "and") == truth:
                return _both(cases_of(first, scope, truth), cases_of(others, scope, truth))
            return cases_of(first, scope, truth) + _both(
                cases_of(first, scope, not truth), cases_of(others, scope, truth)
            )
        case s.Cmp(op, left, right, pos):
            return _comparison(op, evaluate(left, scope), evaluate(right, scope), truth, pos)
    value = evaluate(condition, scope)
    if isinstance(value, bool):
        return [[]] if value == truth else []
    raise Unsupported("a condition that cannot be decided")


def _both(left: Cases, right: Cases) -> Cases:
    return [a + b for a in left for b in right]


def _comparison(op: str, left: Value, right: Value, truth: bool, pos: s.Pos) -> Cases:
    if op == "in":
        if not any(isinstance(v, Poly) for v in (left, *right)):
            return [[]] if (left in right) == truth else []
        raise Unsupported("membership of an unknown size")
    if isinstance(left, tuple) or isinstance(right, tuple):
        if isinstance(left, tuple) and isinstance(right, tuple) and len(left) != len(right):
            return [[]] if compare(op, left, right, pos) == truth else []
        count = len(left) if isinstance(left, tuple) else len(right)
        lefts = left if isinstance(left, tuple) else (left,) * count
        rights = right if isinstance(right, tuple) else (right,) * count
        if op == "!=":  # any
            return _comparison("==", left, right, not truth, pos)
        cases: Cases = [[]] if truth else []
        whole: Cases = [[]]
        for a, b in zip(lefts, rights):
            holds = _comparison(op, a, b, True, pos)
            if truth:
                cases = _both(cases, holds)
            else:
                cases = cases + _both(whole, _comparison(op, a, b, False, pos))
                whole = _both(whole, holds)
        return cases
    if not isinstance(left, Poly) and not isinstance(right, Poly):
        return [[]] if compare(op, left, right, pos) == truth else []
    gap = {"<": right - left - 1, "<=": right - left, ">": left - right - 1, ">=": left - right}.get(op, left - right)
    fact = eq(gap) if op in ("==", "!=") else ge(gap)
    if isinstance(gap, (int, Fraction)):
        holds_now = gap == 0 if fact.equality else gap >= 0
        return [[]] if holds_now == ((op != "!=") == truth) else []
    return [[fact]] if (op != "!=") == truth else [[f] for f in negations(fact)]


def _bound_indices(op: s.Operator, shape: Shape, index: tuple[Quantity, ...], scope: Scope) -> list[tuple[str, Value]]:
    """The names in `out[...]` with their parts of the index: entries stand for the entries of the declared result."""
    lengths: list[int] = []
    for item in op.result:
        lengths.append(len(evaluate(item.value, scope)) if item.starred else 1)
    if [i.starred for i in op.index] != [r.starred for r in op.result]:
        raise Unsupported(f"the index of `{op.name}` does not stand for its shape")
    out, start = [], 0
    for item, length in zip(op.index, lengths):
        part = index[start : start + length]
        assert isinstance(item.value, s.Name)
        out.append((item.value.id, part if item.starred else part[0]))
        start += length
    if start != len(index) or start != len(shape):
        raise ShapeError(f"{op.name}: an index of length {len(index)} for rank {start}")
    return out


def _inside(index: tuple[Quantity, ...], shape: Shape, context: Context) -> list[Fact]:
    """That the index lies inside the shape, without what the context knows."""
    facts = [fact for i, extent in zip(index, shape) for fact in (ge(i), ge(extent - 1 - i))]
    return [fact for fact in facts if not context.implies(fact)]


def _outside(inside: list[Fact], context: Context) -> Cases:
    """Disjoint ways not to lie inside."""
    out: Cases = []
    before: list[Fact] = []
    for fact in inside:
        for negation in negations(fact):
            if not context.contradicts([*before, negation]):
                out.append([*before, negation])
        before.append(fact)
    return out


def _guarded(pieces: list[Piece], facts: list[Fact]) -> list[Piece]:
    return [Piece(p.bound, (*facts, *p.guards), p.body) for p in pieces]
