"""Ways to write an instance as a schema: symbols for its attributes, expressions for the numbers of its right side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from taso.errors import ShapeError, SpecError
from taso.generate.instance import Instance
from taso.generate.symbols import Symbols, int_expressions, list_expressions, number, shape_expressions, uniform
from taso.generate.write import is_default
from taso.spec import syntax as s
from taso.spec.elaborate import Typed, elaborate
from taso.spec.spec import Spec
from taso.spec.value import Shape

NUMERIC = ("int", "ints", "real")
STRUCTURAL = ("axis", "axes", "perm")
MODES = ("symbol", "literal", "from the end")  # how structural attributes are written
MAX_WRITINGS, _MAX_COMBINATIONS, _MAX_OPTIONS = 240, 4000, 8

Number = tuple[str, str, Any]  # an attribute ("" for any), its type, its value in the instance
Writing = Callable[[str, str, Any], s.Expr]  # the expression for an attribute, its type and its value


@dataclass(frozen=True)
class Choice:
    """An expression for each number on the right side. `shared`: equal whole numbers mean the same everywhere."""

    expressions: dict[Number, s.Expr]
    shared: bool

    def numeric(self, symbols: Symbols) -> Writing:
        """How numeric attributes are written: as the symbol for this value of this attribute, else as chosen."""

        def write(attribute: str, kind: str, value: Any) -> s.Expr:
            known = symbols.by_value.get((attribute, value))
            if known is not None:
                return s.Name(known)
            return self.expressions[_number(attribute, kind, value, self.shared)]

        return write


@dataclass
class SchemaWriter:
    """Writes typed trees as terms of a schema.

    numeric: how numeric attributes are written.
    mode: one of MODES.
    structure: the symbols for structural attributes, by type and value; filled by the left side, read by the right.
    shaped: the operators whose shape is written; the others' shapes come from the arguments or the place.
    """

    spec: Spec
    numeric: Writing
    mode: str
    structure: dict[tuple[str, Any], str] = field(default_factory=dict)
    shaped: frozenset[Typed] = frozenset()

    def side(self, side: Sequence[Typed]) -> tuple[s.Term, ...]:
        """The terms of a side."""
        return tuple(self.term(typed) for typed in side)

    def term(self, typed: Typed) -> s.Term:
        """The term of a tree."""
        if typed.kind == "var":
            return s.Var(typed.head)
        if typed.kind == "literal":
            assert typed.body is not None
            return s.Literal(typed.body)
        attrs: list[tuple[str, s.Expr]] = []
        given = typed.attr
        for attr in self.spec.declared(typed.head).attrs:
            value = given[attr.name]
            if attr.type == "real" and is_default(attr, value):
                continue
            if attr.type in NUMERIC or (attr.type == "shape" and typed in self.shaped):
                attrs.append((attr.name, self.numeric(attr.name, attr.type, value)))
            elif attr.type in STRUCTURAL:
                attrs.append((attr.name, self._structural(attr, typed, value)))
            elif attr.type == "bool":
                attrs.append((attr.name, s.Name("true" if value else "false")))
        return s.Apply(typed.head, tuple(self.term(arg) for arg in typed.args), tuple(attrs))

    def _structural(self, attr: s.AttrDecl, typed: Typed, value: Any) -> s.Expr:
        if self.mode == "symbol" and value != ():
            key = attr.type, value
            if key not in self.structure:
                taken = attr.name in self.structure.values()
                self.structure[key] = f"{attr.name}{len(self.structure)}" if taken else attr.name
            return s.Name(self.structure[key])
        if self.mode == "from the end" and attr.type != "perm":
            like = typed.attr.get(attr.like or "")
            rank = len(like) if isinstance(like, tuple) else len(typed.args[0].shape)
            return number(tuple(v - rank for v in value) if isinstance(value, tuple) else value - rank)
        return number(value)


def shapes_to_write(instance: Instance, spec: Spec) -> frozenset[Typed]:
    """The operators of an instance whose shape has to be written, because nothing else says it."""
    return frozenset(
        {
            *_unsaid(instance.source, [None] * len(instance.source), instance, spec),
            *_unsaid(instance.target, [tree.shape for tree in instance.source], instance, spec),
        }
    )


def _unsaid(side: Sequence[Typed], results: Sequence[Shape | None], instance: Instance, spec: Spec) -> frozenset[Typed]:
    """The operators of a side whose shape its place does not say where the results have these shapes, if any."""
    found: dict[Typed, None] = {}

    def visit(typed: Typed) -> None:
        for arg in typed.args:
            visit(arg)
        if typed.kind == "apply" and any(
            a.type == "shape" and a.default is None for a in spec.declared(typed.head).attrs
        ):
            found[typed] = None

    def said(left: frozenset[Typed]) -> bool:
        writer = SchemaWriter(spec, lambda name, kind, value: number(value), "literal", shaped=left)
        try:
            again = [elaborate(writer.term(t), spec, instance.shapes, result=shape) for t, shape in zip(side, results)]
        except (ShapeError, SpecError):
            return False
        return again == list(side)

    for typed in side:
        visit(typed)
    needed = frozenset(found)
    if said(frozenset()):
        return frozenset()
    for typed in found:
        if said(needed - {typed}):
            needed -= {typed}
    return needed


def choices(instance: Instance, symbols: Symbols, spec: Spec) -> Iterator[Choice]:
    """Ways to write the numbers of the right side, the plainest first.

    At first equal whole numbers mean the same wherever they stand, then they may differ by attribute.
    """
    for shared in (True, False):
        numbers = _target_numbers(instance, symbols, spec, shared)
        ranked = itertools.islice(itertools.product(*(list(enumerate(o)) for o in numbers.values())), _MAX_COMBINATIONS)

        def plainness(combination: tuple[tuple[int, s.Expr], ...]) -> tuple[int, int]:
            divisors = {name for _, expr in combination for name in _names(expr) if symbols.lows.get(name) == 1}
            return len(divisors), sum(k for k, _ in combination)

        for combination in sorted(ranked, key=plainness)[:MAX_WRITINGS]:
            yield Choice({key: expr for key, (_, expr) in zip(numbers, combination)}, shared)
        if not any(kind == "int" for _, kind, _ in numbers):
            return


def _number(attribute: str, kind: str, value: Any, shared: bool) -> Number:
    return "" if shared and kind == "int" else attribute, kind, value


def _target_numbers(instance: Instance, symbols: Symbols, spec: Spec, shared: bool) -> dict[Number, list[s.Expr]]:
    """The numbers on the right that no symbol of the left stands for, each with the expressions that could be meant."""
    found: dict[Number, list[s.Expr]] = {}

    def visit(typed: Typed) -> None:
        for arg in typed.args:
            visit(arg)
        if typed.kind != "apply":
            return
        for attr in spec.declared(typed.head).attrs:
            value: Any = typed.attr[attr.name]
            written = attr.type in NUMERIC or (attr.type == "shape" and typed in instance.shaped)
            if not written or (attr.name, value) in symbols.by_value:
                continue
            default = is_default(attr, value)
            if attr.type == "real" and default:
                continue
            key = _number(attr.name, attr.type, value, shared)
            if key in found:
                continue
            if attr.type == "int":
                found[key] = [number(value)] if default else int_expressions(value, instance, symbols)
            elif attr.type == "shape":
                found[key] = shape_expressions(value, instance, symbols)[:_MAX_OPTIONS]
            elif attr.type == "ints":
                options = [uniform(value)] if default else list_expressions(value, instance, symbols)
                found[key] = sorted(options, key=lambda e: not _about(attr.name, e))[:_MAX_OPTIONS]
            else:
                found[key] = [number(value)]

    for typed in instance.target:
        visit(typed)
    return found


def _about(attribute: str, expr: s.Expr) -> bool:
    """Whether an expression is a difference or quotient of symbols for the attribute of this name."""
    match expr:
        case s.Bin("++", _, right):
            return _about(attribute, right)
        case s.Bin("/", left, _):
            return _about(attribute, left)
        case s.Bin("-", s.Name(a), s.Name(b)):
            return a.rstrip("0123456789") == b.rstrip("0123456789") == attribute
    return False


def _names(expr: s.Expr) -> set[str]:
    match expr:
        case s.Name(name):
            return {name}
        case s.Bin(_, left, right):
            return _names(left) | _names(right)
    return set()
