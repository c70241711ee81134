"""Tidying a schema: it says the same with fewer symbols, conditions and attributes."""

from __future__ import annotations

from dataclasses import replace

from taso.spec import syntax as s
from taso.spec.spec import Spec


def tidy(rule: s.Rule, spec: Spec) -> s.Rule:
    """Conditions `symbol == number` are written into the terms; attributes that have their default are left out."""
    fixed: dict[str, s.Expr] = {}
    rest: list[s.Expr] = []
    for condition in rule.where:
        match condition:
            case s.Cmp("==", s.Name(name), s.Num() as value):
                fixed[name] = value
            case _:
                rest.append(condition)
    for name in [n for n in fixed if any(_joined(n, term) for term in (*rule.source, *rule.target))]:
        rest.append(s.Cmp("==", s.Name(name), fixed.pop(name)))  # a number cannot stand where a list is joined

    def term(t: s.Term) -> s.Term:
        if not isinstance(t, s.Apply):
            return t
        defaults = {attr.name: attr.default for attr in spec.declared(t.op).attrs}
        attrs = [(name, _with_values(value, fixed)) for name, value in t.attrs]
        told = tuple((name, value) for name, value in attrs if defaults[name] is None or value != defaults[name])
        return s.Apply(t.op, tuple(map(term, t.args)), told)

    source, target = (tuple(map(term, side)) for side in (rule.source, rule.target))
    return replace(rule, source=source, target=target, where=tuple(_with_values(c, fixed) for c in rest))


def _with_values(expr: s.Expr, values: dict[str, s.Expr]) -> s.Expr:
    match expr:
        case s.Name(name) if name in values:
            return values[name]
        case s.Bin(op, left, right):
            return s.Bin(op, _with_values(left, values), _with_values(right, values))
        case s.Cmp(op, left, right):
            return s.Cmp(op, _with_values(left, values), _with_values(right, values))
        case s.ListOf(items):
            return s.ListOf(tuple(_with_values(item, values) for item in items))
    return expr


def _joined(name: str, term: s.Term) -> bool:
    """Whether a symbol stands in an operand of `++` in a term, outside a written list."""

    def mentions(expr: s.Expr) -> bool:
        match expr:
            case s.Name(id=other):
                return other == name
            case s.Bin(_, left, right):
                return mentions(left) or mentions(right)
        return False

    def within(expr: s.Expr) -> bool:
        match expr:
            case s.Bin("++", left, right):
                return mentions(left) or mentions(right)
            case s.Bin(_, left, right):
                return within(left) or within(right)
        return False

    if not isinstance(term, s.Apply):
        return False
    return any(within(expr) for _, expr in term.attrs) or any(_joined(name, arg) for arg in term.args)
