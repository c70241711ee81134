"""Sketches of patterns: what a value must look like, names aside, for a pattern to have a chance.

Hundreds of rules look at every node and nearly all of them fail for a reason that has nothing to do with what their
names stand for: an operator is another one, a stride is not 1, a number is no constant. A sketch keeps just that. Equal
parts of all patterns are one sketch, and what a sketch says about a value is remembered, so that most patterns cost a
look into a table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from taso.graph.graph import Node, Value
from taso.search.fixed import stays
from taso.search.match import NOTHING, attribute_fits
from taso.search.uniform import uniform
from taso.spec import syntax as s
from taso.spec.spec import Spec
from taso.spec.traits import commutative


@dataclass(frozen=True)
class Sketch:
    """What a value has to be: a known tensor, a constant number, an operator over values, or one of several.

    kind:   "tensor", "number", "operator" or "either".
    op:     the operator; "" for the other kinds.
    attrs:  those attributes of the operator (declaration, expression) that contain no name.
    parts:  sketches of the arguments, or the alternatives; by their numbers in `Sketches`.
    absent: for an operator of a macro that may be left out where it changes nothing: the sketch of its argument.
    """

    kind: str
    op: str = ""
    attrs: tuple[tuple[s.AttrDecl, s.Expr], ...] = ()
    parts: tuple[int, ...] = ()
    absent: int | None = None


class Sketches:
    """All sketches of a set of patterns, and what is known about values."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._all: list[Sketch] = []
        self._numbers: dict[object, int] = {}
        self._known: dict[tuple[int, Value], bool] = {}
        self._fitting: dict[tuple[str, Value], frozenset[int]] = {}

    def of(self, term: s.Term, elusive: bool = False) -> int:
        """The number of a pattern's sketch. `elusive` operators may be absent where they change nothing (`match`)."""
        return self._number(self._sketch(term, elusive, elusive))

    def of_macro(self, macro: s.Macro) -> int:
        """The number of what all applications of a macro look like."""
        forms = (self._sketch(form, False, True) for form in (macro.body, *macro.forms))
        return self._number(Sketch("either", parts=tuple(self._number(form) for form in forms)))

    def fits(self, number: int, value: Value) -> bool:
        """Whether a pattern with this sketch may match a value; False is certain."""
        key = (number, value)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._fits(self._all[number], value)
        return known

    def fitting(self, group: str, numbers: Collection[int], value: Value) -> frozenset[int]:
        """Those of some sketches that a value fits; remembered by the name of the group of sketches."""
        key = (group, value)
        known = self._fitting.get(key)
        if known is None:
            known = self._fitting[key] = frozenset(number for number in numbers if self.fits(number, value))
        return known

    def forget(self) -> None:
        """Let go of the values; to be called between arenas."""
        self._known.clear()
        self._fitting.clear()

    def _number(self, sketch: Sketch) -> int:
        key = (sketch.kind, sketch.op, repr(sketch.attrs), sketch.parts, sketch.absent)
        if key not in self._numbers:
            self._numbers[key] = len(self._all)
            self._all.append(sketch)
        return self._numbers[key]

    def _sketch(self, term: s.Term, elusive: bool, inner: bool) -> Sketch:
        """`elusive`: whether this operator may be absent; `inner`: whether those below it may."""
        if isinstance(term, s.Literal):
            return Sketch("number")
        if isinstance(term, s.Choose):
            branches = (self._sketch(branch, elusive, inner) for branch in (term.then, term.otherwise))
            return Sketch("either", parts=tuple(self._number(branch) for branch in branches))
        if not isinstance(term, s.Apply):
            return Sketch("tensor")
        op = self.spec.operators.get(term.op)
        if op is None:
            macro = self.spec.declared(term.op, term.pos)
            assert isinstance(macro, s.Macro)
            return self._all[self.of_macro(macro)]
        written = dict(term.attrs)
        closed = [(decl, written.get(decl.name, decl.default)) for decl in op.attrs]
        parts = tuple(self.of(arg, inner) for arg in term.args)
        return Sketch(
            "operator",
            op.name,
            tuple((decl, expr) for decl, expr in closed if expr is not None and _closed(expr)),
            tuple(sorted(parts)) if commutative(op) else parts,
            parts[0] if op.identity is not None and elusive else None,
        )

    def _fits(self, sketch: Sketch, value: Value) -> bool:
        if sketch.kind == "tensor":
            return value.shape is not None
        if sketch.kind == "number":
            return uniform(value, self.spec) is not None
        if sketch.kind == "either":
            return any(self.fits(part, value) for part in sketch.parts)
        node = value.node
        if node.op == sketch.op and value.index == 0 and self._node(sketch, node):
            return True
        if sketch.absent is not None and self.fits(sketch.absent, value):
            return True
        return stays(self.spec.operators[sketch.op], value, self.spec) and self.fits(sketch.parts[0], value)

    def _node(self, sketch: Sketch, node: Node) -> bool:
        return any(self._args(sketch, args) for args in self._orders(sketch, node)) and self._attrs(sketch, node)

    def _args(self, sketch: Sketch, args: tuple[Value, ...]) -> bool:
        return all(self.fits(part, arg) for part, arg in zip(sketch.parts, args))

    def _orders(self, sketch: Sketch, node: Node) -> tuple[tuple[Value, ...], ...]:
        both = commutative(self.spec.operators[sketch.op]) and node.args[0] != node.args[1]
        return (node.args, node.args[::-1]) if both else (node.args,)

    def _attrs(self, sketch: Sketch, node: Node) -> bool:
        actual = dict(node.attrs)
        return all(attribute_fits(decl, expr, actual[decl.name], node, NOTHING) for decl, expr in sketch.attrs)


def _closed(expr: Any) -> bool:
    """Whether an expression contains no name and reads no tensor."""
    match expr:
        case s.Num() | s.Str():
            return True
        case s.Neg(inner):
            return _closed(inner)
        case s.Bin(_, left, right):
            return _closed(left) and _closed(right)
        case s.ListOf(items):
            return all(_closed(item) for item in items)
    return False
