"""Typed trees back to terms: attributes as numbers, what can be inferred or is the default left out."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np

from taso.errors import TasoError
from taso.generate.general import tensors
from taso.generate.universe import value_expr
from taso.spec import syntax as s
from taso.spec.elaborate import Typed, elaborate
from taso.spec.evaluate import Scope, attribute, evaluate, real_division
from taso.spec.lower import run
from taso.spec.plan import concrete
from taso.spec.spec import Spec
from taso.spec.value import Value


class Writer:
    """Writes typed trees as terms of a specification."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._commutes: dict[str, bool] = {}

    def term(self, tree: Typed) -> s.Term:
        """The term of a tree; shapes are written only where they cannot be inferred."""
        short = self._term(tree, shapes=False)
        try:
            if elaborate(short, self.spec, tensors((tree,))) == tree:
                return short
        except TasoError:
            pass
        return self._term(tree, shapes=True)

    def _term(self, tree: Typed, shapes: bool) -> s.Term:
        if tree.kind == "var":
            return s.Var(tree.head)
        if tree.kind == "literal":
            assert tree.body is not None
            return s.Literal(value_expr(evaluate(real_division(tree.body), Scope(tree.attr))))
        attrs: list[tuple[str, s.Expr]] = []
        for attr in self.spec.declared(tree.head).attrs:
            value = tree.attr[attr.name]
            inferable = attr.type == "shape" and attr.default is None and not shapes and tree.args
            if not inferable and not is_default(attr, value):
                attrs.append((attr.name, value_expr(value)))
        return s.Apply(tree.head, tuple(self._term(arg, shapes) for arg in tree.args), tuple(attrs))

    def implicit(self, op: str) -> bool:
        """Whether an operator only repeats data where ONNX needs no node for it."""
        return self.spec.declared(op).implicit is not None

    def key(self, left: tuple[Typed, ...], right: tuple[Typed, ...]) -> str:
        """A text that renamings and other orders of commutative arguments share, for either direction."""
        a, b = ["; ".join(self._key(tree, names=True) for tree in side) for side in (left, right)]
        return min(renamed(f"{a} == {b}"), renamed(f"{b} == {a}"))

    def _key(self, tree: Typed, *, names: bool) -> str:
        if tree.kind == "var":
            return f"${tree.head}" if names else "$"
        if tree.kind == "literal":
            return show((self._term(tree, False),))
        shown = [self._key(arg, names=names) for arg in tree.args]
        if len(shown) == 2 and tree.args[0].shape == tree.args[1].shape and self.commutes(tree):
            blank = [self._key(arg, names=False) for arg in tree.args]
            shown = [text for _, text in sorted(zip(blank, shown), key=lambda item: item[0])]
        own = s.Apply(tree.head, (), self._attrs(tree))
        return f"{_show(own)}({', '.join(shown)})"

    def _attrs(self, tree: Typed) -> tuple[tuple[str, s.Expr], ...]:
        bare = self._term(Typed(tree.kind, tree.head, (), tree.attrs, tree.shape), False)
        assert isinstance(bare, s.Apply)
        if not tree.args:
            return bare.attrs
        types = {attr.name: attr.type for attr in self.spec.declared(tree.head).attrs}
        return tuple((name, value) for name, value in bare.attrs if types[name] != "shape")

    def swaps(self, op: str) -> bool:
        """Whether an operator that was met is commutative."""
        return self._commutes.get(op, False)

    def commutes(self, tree: Typed) -> bool:
        """Whether the operator on top gives the same with its two arguments swapped, seen on random data."""
        if tree.head not in self._commutes:
            rng = np.random.default_rng(3)
            shape = concrete(tree.args[0].shape)
            a, b = (rng.integers(-9, 10, shape) * 1.0 for _ in range(2))
            operator = self.spec.operators[tree.head]
            swapped = [run(operator, args, tree.attr) for args in ([a, b], [b, a])]
            self._commutes[tree.head] = bool(np.array_equal(swapped[0], swapped[1], equal_nan=True))
        return self._commutes[tree.head]


def is_default(attr: s.AttrDecl, value: Value) -> bool:
    """Whether an attribute has its default value; a list may have it in every entry."""
    if attr.default is None:
        return False
    try:
        default = attribute(attr.type, attr.default, Scope())
    except TasoError:
        return False
    return bool(
        value == default or (isinstance(value, tuple) and attr.type == "ints" and all(v == default for v in value))
    )


def show(terms: tuple[s.Term, ...]) -> str:
    """A side of a candidate as it is written in the language."""
    listed = ", ".join(map(_show, terms))
    return listed if len(terms) == 1 else f"{{{listed}}}"


def _show(term: s.Term) -> str:
    match term:
        case s.Var(name):
            return name
        case s.Literal(s.Num(value)) if isinstance(value, float) or value.denominator == 1:
            return str(value)
        case s.Literal(value):
            return f"`{_expr(value)}`"
        case s.Apply(op, args, attrs):
            written = "; " + ", ".join(f"{name}={_expr(value)}" for name, value in attrs) if attrs else ""
            return f"{op}({', '.join(map(_show, args))}{written})"
    raise AssertionError(term)


def _expr(value: s.Expr) -> str:
    match value:
        case s.Num(Fraction() as number):
            return str(number)
        case s.Num(number):
            return str(number)
        case s.Bin(op, left, right):
            return f"({_expr(left)} {op} {_expr(right)})"
        case s.Call(function, args):
            return f"{function}({', '.join(map(_expr, args))})"
        case s.ListOf(items):
            return f"[{', '.join(map(_expr, items))}]"
        case s.Name(name):
            return name
        case s.Str(text):
            return f'"{text}"'
    raise AssertionError(value)


_INPUT = re.compile(r"\$\w+")


def renamed(text: str) -> str:
    """Text whose inputs ($name) are numbered in the order in which they appear."""
    numbers: dict[str, str] = {}
    return _INPUT.sub(lambda m: numbers.setdefault(m.group(), f"${len(numbers)}"), text)
