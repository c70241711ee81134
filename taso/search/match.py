"""Patterns against graphs: which tensors, attributes and conditions make a term equal to a value.

A pattern is a term whose tensor names are free and whose bare attribute names are free too. Matching goes down the term
and the graph together; an equation between attributes that cannot be decided yet (`before = p / 2` while `p` is free)
is kept and decided when everything is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from taso.errors import ShapeError, SpecError
from taso.graph.graph import Node, Value
from taso.search.fixed import stays
from taso.search.uniform import same_number, uniform
from taso.spec import syntax as s
from taso.spec.elaborate import show_head
from taso.spec.evaluate import Scope, UnboundName, evaluate, holds, real_division
from taso.spec.sample import names_in
from taso.spec.shapes import solve
from taso.spec.spec import Spec
from taso.spec.traits import commutative
from taso.spec.value import compare


@dataclass(frozen=True)
class Check:
    """Something that must hold once all names are bound. `test` gives None while a name that it needs is free."""

    what: str
    test: Callable[[Scope], bool | None] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Bindings:
    """What a pattern's names stand for so far.

    nodes:  the nodes that stand for an operator of the pattern, in the order in which they were met.
    checks: the equations that are still open.
    eager:  decide equations as soon as they can be; off inside macros, whose axes are settled last, and whose
            operators may be absent where they change nothing.
    """

    tensors: Mapping[str, Value] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    checks: tuple[Check, ...] = ()
    eager: bool = True

    @property
    def scope(self) -> Scope:
        """The names as expressions see them."""
        return Scope(
            dict(self.attrs), {name: value.shape for name, value in self.tensors.items() if value.shape is not None}
        )

    def tensor(self, name: str, value: Value) -> Bindings:
        return Bindings({**self.tensors, name: value}, self.attrs, self.nodes, self.checks, self.eager)

    def attr(self, name: str, actual: Any) -> Bindings:
        return Bindings(self.tensors, {**self.attrs, name: actual}, self.nodes, self.checks, self.eager)

    def met(self, node: Node) -> Bindings:
        return Bindings(self.tensors, self.attrs, (*self.nodes, node), self.checks, self.eager)

    def require(
        self, what: str, test: Callable[[Scope], bool | None], needs: frozenset[str] = frozenset()
    ) -> Bindings | None:
        """With one more condition; None if it is already known to fail. It is not tried while it `needs` free names."""
        ready = self.eager and all(name in self.attrs or name in self.tensors for name in needs)
        truth = test(self.scope) if ready else None
        if truth is False:
            return None
        if truth:
            return self
        return Bindings(self.tensors, self.attrs, self.nodes, (*self.checks, Check(what, test)), self.eager)

    def settled(self) -> Bindings | None:
        """These bindings without open equations, if all of them hold."""
        if not self.checks:
            return self
        scope = self.scope
        return replace(self, checks=()) if all(check.test(scope) is True for check in self.checks) else None


NOTHING = Bindings()


def match_term(pattern: s.Term, value: Value, spec: Spec, bindings: Bindings = NOTHING) -> Iterator[Bindings]:
    """All ways in which a value is what the pattern says, given what is bound already; every equation holds in them.

    Operators of two tensors whose meaning is symmetric match in both orders. A macro matches what it expands to. A
    number matches a constant that holds it everywhere. Inside a macro an operator that changes nothing for the
    attributes it has there (a reshape to the same shape) also matches where it is absent, except at the root. A rule's
    operators must all be there: without one of them it is a smaller rule, which is a rule of its own; but a constant
    that an operator leaves as it is (relu of what is not negative) is taken for that operator of itself.
    """
    for found in match(pattern, value, spec, bindings, root=True):
        settled = found.settled()
        if settled is not None:
            yield settled


def match_macro(macro: s.Macro, value: Value, spec: Spec) -> Iterator[Bindings]:
    """All ways in which a value is an application of a macro: tensors by parameter, attributes complete."""
    for form in (macro.body, *macro.forms):
        for inner in match(form, value, spec, Bindings(eager=False), root=True):
            done = _settle_macro(macro, inner)
            if done is not None:
                yield done


def match(pattern: s.Term, value: Value, spec: Spec, b: Bindings, root: bool = False) -> Iterator[Bindings]:
    """As `match_term`, with the equations that are open left in the bindings."""
    if isinstance(pattern, s.Var):
        known = b.tensors.get(pattern.name)
        if known is None and value.shape is not None:
            yield b.tensor(pattern.name, value)
        elif known == value:
            yield b
    elif isinstance(pattern, s.Apply):
        declared = spec.operators.get(pattern.op)
        if declared is not None:
            yield from _match_operator(declared, pattern, value, spec, b, root)
        else:
            macro = spec.declared(pattern.op, pattern.pos)
            assert isinstance(macro, s.Macro)
            yield from _match_macro(macro, pattern, value, spec, b, root)
    elif isinstance(pattern, s.Literal):
        number = uniform(value, spec)
        if number is not None:
            found = _unify(pattern.value, number, "real", None, b)
            if found is not None:
                yield found
    elif isinstance(pattern, s.Choose):
        for branch, wanted in ((pattern.then, True), (pattern.otherwise, False)):
            chosen = b.require("a condition", _condition(pattern.condition, wanted), _names(pattern.condition))
            if chosen is not None:
                yield from match(branch, value, spec, chosen, root)


def _match_operator(
    op: s.Operator, pattern: s.Apply, value: Value, spec: Spec, b: Bindings, root: bool
) -> Iterator[Bindings]:
    node = value.node
    if node.op == op.name and value.index == 0:
        with_attrs = _match_attrs(op, pattern, node, b)
        if with_attrs is not None:
            found = with_attrs.met(node)
            yield from match_all(pattern.args, node.args, spec, found)
            if commutative(op) and node.args[0] != node.args[1] and pattern.args[0] != pattern.args[1]:
                yield from match_all(pattern.args, node.args[::-1], spec, found)
    elif b.eager and not root and stays(op, value, spec):  # inside a rule
        yield from match_all(pattern.args, (value,), spec, b)
    if op.identity is not None and not b.eager and not root:  # inside a macro
        for absent in match(pattern.args[0], value, spec, b):
            needs = frozenset(name for _, expr in pattern.attrs for name in _names(expr))
            unchanged = absent.require(f"{op.name} changes nothing", _changes_nothing(op, pattern, value), needs)
            if unchanged is not None:
                yield unchanged


def match_all(patterns: Sequence[s.Term], values: Sequence[Value], spec: Spec, b: Bindings) -> Iterator[Bindings]:
    """Each pattern against the value at its place."""
    if not patterns:
        yield b
        return
    for first in match(patterns[0], values[0], spec, b):
        yield from match_all(patterns[1:], values[1:], spec, first)


def _match_attrs(op: s.Operator, pattern: s.Apply, node: Node, b: Bindings) -> Bindings | None:
    written, actual = dict(pattern.attrs), dict(node.attrs)
    for decl in op.attrs:
        expr = written.get(decl.name, decl.default)
        if expr is None:
            if decl.type == "shape":
                continue  # whatever the place asks for
            raise SpecError(
                f"`{op.name}` needs the attribute `{decl.name}`", line=pattern.pos.line, column=pattern.pos.column
            )
        found = _unify(expr, actual[decl.name], decl.type, _axes_of(decl, node), b)
        if found is None:
            return None
        b = found
    return b


def attribute_fits(decl: s.AttrDecl, expr: s.Expr, actual: Any, node: Node, b: Bindings) -> bool:
    """Whether an attribute of a node may be what a pattern says about it."""
    return _unify(expr, actual, decl.type, _axes_of(decl, node), b) is not None


def _axes_of(decl: s.AttrDecl, node: Node) -> int | None:
    """How many axes an attribute of axes counts through, for negative ones."""
    if decl.type not in ("axis", "axes", "perm"):
        return None
    listed = dict(node.attrs).get(decl.like or "")
    if isinstance(listed, tuple):
        return len(listed)
    shape = node.args[0].shape if node.args else None
    return None if shape is None else len(shape)


def _unify(expr: s.Expr, actual: Any, kind: str, rank: int | None, b: Bindings) -> Bindings | None:
    """Bind the free names of an attribute so that it is `actual`, or keep the equation for later."""
    if isinstance(expr, s.Name) and expr.id not in b.attrs and expr.id not in ("true", "false"):
        return b.attr(expr.id, actual)
    if (
        isinstance(expr, s.ListOf)
        and isinstance(actual, tuple)
        and not any(isinstance(item, s.Star) for item in expr.items)
    ):
        if len(expr.items) != len(actual):
            return None
        for item, entry in zip(expr.items, actual):
            found = _unify(item, entry, kind, rank, b)
            if found is None:
                return None
            b = found
        return b
    wanted = real_division(expr) if kind == "real" else expr

    def test(scope: Scope) -> bool | None:
        try:
            return _same(evaluate(wanted, scope), actual, kind, rank)
        except UnboundName:
            return None
        except SpecError:
            return False

    return b.require("an attribute", test, _names(expr))


@cache
def _names(expr: s.Expr) -> frozenset[str]:
    """The names that an expression contains."""
    return frozenset(names_in(expr)) - {"true", "false"}


def _same(wanted: Any, actual: Any, kind: str, rank: int | None) -> bool:
    if kind == "real":
        return same_number(wanted, actual)
    if isinstance(actual, tuple) and not isinstance(wanted, tuple):
        wanted = (wanted,) * len(actual)
    if isinstance(wanted, tuple) and (not isinstance(actual, tuple) or len(wanted) != len(actual)):
        return False
    if rank is not None:
        wanted = tuple(a % rank for a in wanted) if isinstance(wanted, tuple) else wanted % rank
    return compare("==", wanted, actual) is True


def _condition(condition: s.Expr, wanted: bool) -> Callable[[Scope], bool | None]:
    def test(scope: Scope) -> bool | None:
        try:
            return holds(condition, scope) is wanted
        except UnboundName:
            return None
        except SpecError:
            return False

    return test


def _changes_nothing(op: s.Operator, pattern: s.Apply, value: Value) -> Callable[[Scope], bool | None]:
    types = {attr.name: attr.type for attr in op.attrs}

    def test(scope: Scope) -> bool | None:
        assert op.identity is not None and value.shape is not None
        try:
            attrs = {n: evaluate(real_division(e) if types.get(n) == "real" else e, scope) for n, e in pattern.attrs}
            return holds(op.identity, solve(op, [value.shape], attrs, result=value.shape).scope) is True
        except UnboundName:
            return None
        except (ShapeError, SpecError):
            return False

    return test


# --- macros --------------------------------------------------------------------------------------------------------


def _match_macro(
    macro: s.Macro, pattern: s.Apply, value: Value, spec: Spec, b: Bindings, root: bool
) -> Iterator[Bindings]:
    """A macro in a pattern: its own term is matched with free parameters, then they with the pattern's arguments."""
    written = dict(pattern.attrs)
    seed = Bindings(attrs=_known_attrs(macro, written, value, b), eager=False)
    for form in (macro.body, *macro.forms):
        for inner in match(form, value, spec, seed, root):
            done = _settle_macro(macro, inner)
            outer = None if done is None else _outer_attrs(macro, written, done, b)
            if done is None or outer is None:
                continue
            outer = replace(outer, nodes=(*outer.nodes, *done.nodes))
            yield from match_all(pattern.args, [done.tensors[param.name] for param in macro.params], spec, outer)


def _known_attrs(macro: s.Macro, written: Mapping[str, s.Expr], value: Value, b: Bindings) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for decl in macro.attrs:
        expr, scope = (written[decl.name], b.scope) if decl.name in written else (decl.default, Scope(known))
        if expr is None and decl.type == "shape":
            known[decl.name] = value.shape
        elif expr is not None:
            try:
                known[decl.name] = evaluate(real_division(expr) if decl.type == "real" else expr, scope)
            except SpecError:
                continue  # not known yet: the macro's term has to say it
    return known


def _settle_macro(macro: s.Macro, inner: Bindings) -> Bindings | None:
    """The bindings of a macro's own names, axes counted from the front; None if an equation fails or a name is free."""
    if any(param.name not in inner.tensors for param in macro.params):
        return None
    attrs = dict(inner.attrs)
    first = inner.tensors[macro.params[0].name].shape if macro.params else None
    for decl in macro.attrs:
        actual = attrs.get(decl.name)
        if decl.type not in ("axis", "axes", "perm") or actual is None:
            continue
        listed = attrs.get(decl.like) if decl.like is not None else first
        if isinstance(listed, tuple):
            rank = len(listed)
            attrs[decl.name] = tuple(a % rank for a in actual) if isinstance(actual, tuple) else actual % rank
    done = replace(inner, attrs=attrs).settled()
    if done is None or any(decl.name not in done.attrs for decl in macro.attrs):
        return None
    try:
        shapes = [done.tensors[param.name].shape for param in macro.params]
        scope = solve(macro, shapes, {decl.name: done.attrs[decl.name] for decl in macro.attrs}, partial=True).scope
        return done if all(holds(condition, scope) is True for condition in macro.requires) else None
    except (ShapeError, SpecError):
        return None


def _outer_attrs(macro: s.Macro, written: Mapping[str, s.Expr], inner: Bindings, b: Bindings) -> Bindings | None:
    first = inner.tensors[macro.params[0].name].shape if macro.params else None
    for decl in macro.attrs:
        expr = written.get(decl.name)
        if expr is not None:
            rank = len(first) if first is not None and decl.type in ("axis", "axes", "perm") else None
            found = _unify(expr, inner.attrs[decl.name], decl.type, rank, b)
            if found is None:
                return None
            b = found
    return b


# --- explaining ----------------------------------------------------------------------------------------------------


def explain(pattern: s.Term, value: Value, spec: Spec) -> list[str]:
    """Why a pattern does not match a value, from the outside in; empty if it does."""
    if next(match_term(pattern, value, spec), None) is not None:
        return []
    if isinstance(pattern, s.Literal):
        number = uniform(value, spec)
        return ["the number is not a constant here" if number is None else f"the constant is {number}"]
    if isinstance(pattern, s.Apply) and pattern.op in spec.operators:
        node = value.node
        if node.op != pattern.op:
            return [f"{show_head(pattern)} is expected where the graph has {node.op}"]
        if _match_attrs(spec.operators[pattern.op], pattern, node, NOTHING) is None:
            shown = ", ".join(f"{name} = {actual}" for name, actual in node.attrs)
            return [f"the attributes of {pattern.op} differ; the graph has {shown}"]
        for term, arg in zip(pattern.args, node.args):
            inner = explain(term, arg, spec)
            if inner:
                return [f"inside {pattern.op}: {reason}" for reason in inner]
    return ["the parts match one by one, but not together: shared tensors or attribute equations differ"]
