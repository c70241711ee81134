"""Ways to write an instance as a schema: symbols for its attributes, expressions for the numbers of its right side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from taso.generate.instance import Instance
from taso.generate.symbols import Symbols, int_expressions, list_expressions, number, uniform
from taso.generate.write import is_default
from taso.spec import syntax as s
from taso.spec.elaborate import Typed
from taso.spec.spec import Spec

NUMERIC = ("int", "ints", "real")
STRUCTURAL = ("axis", "axes", "perm")
MODES = ("symbol", "literal", "from the end")  # how structural attributes are written
MAX_WRITINGS, _MAX_COMBINATIONS, _MAX_OPTIONS = 240, 4000, 8

Number = tuple[str, str, Any]  # an attribute ("" for any), its type, its value in the instance
Writing = Callable[[str, str, Any], s.Expr]  # the expression for an attribute, its type and its value


@dataclass(frozen=True)
class Choice:
    """An expression for each number on the right side.

    shared: equal whole numbers mean the same everywhere. shapes: the shapes of constants are written out.
    """

    expressions: dict[Number, s.Expr]
    shared: bool
    shapes: bool = False

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
    shapes: write out the shapes of constants on the right side, which do not always follow from their place.
    """

    spec: Spec
    numeric: Writing
    mode: str
    structure: dict[tuple[str, Any], str] = field(default_factory=dict)
    shapes: bool = False

    def left(self, side: Sequence[Typed]) -> tuple[s.Term, ...]:
        """The terms of the left side. A list whose length nothing tells cannot be a symbol there."""
        return tuple(self.term(typed, True) for typed in side)

    def right(self, side: Sequence[Typed]) -> tuple[s.Term, ...]:
        """The terms of the right side."""
        return tuple(self.term(typed, False) for typed in side)

    def term(self, typed: Typed, left: bool) -> s.Term:
        """The term of a tree; shapes are left out where they come from the arguments or should come from the place."""
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
            if left and attr.type == "ints" and attr.like is None:
                attrs.append((attr.name, number(value)))
            elif attr.type in NUMERIC or (attr.type == "shape" and self.shapes and not left and not typed.args):
                attrs.append((attr.name, self.numeric(attr.name, attr.type, value)))
            elif attr.type in STRUCTURAL:
                attrs.append((attr.name, self._structural(attr, typed, value)))
            elif attr.type == "bool":
                attrs.append((attr.name, s.Name("true" if value else "false")))
        return s.Apply(typed.head, tuple(self.term(arg, left) for arg in typed.args), tuple(attrs))

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


def along_axes(rule: s.Rule, instance: Instance, mode: str, structure: dict[tuple[str, Any], str]) -> s.Rule:
    """The rule with the axes in `dim(x, k)` written as its operators write them: as a symbol, or from the end."""

    def axis(tensor: s.Expr, k: s.Expr) -> s.Expr:
        assert isinstance(tensor, s.Name) and isinstance(k, s.Num)
        if mode == "symbol":
            name = structure.get(("axis", int(k.value)))
            return k if name is None else s.Name(name)
        return number(int(k.value) - len(instance.shapes[tensor.id])) if mode == "from the end" else k

    def expr(e: s.Expr) -> s.Expr:
        match e:
            case s.Call("dim", (tensor, k)):
                return s.Call("dim", (tensor, axis(tensor, k)))
            case s.Bin(op, left, right) | s.Cmp(op, left, right):
                return type(e)(op, expr(left), expr(right))
            case s.ListOf(items):
                return s.ListOf(tuple(map(expr, items)))
        return e

    def term(t: s.Term) -> s.Term:
        if not isinstance(t, s.Apply):
            return t
        return s.Apply(t.op, tuple(map(term, t.args)), tuple((name, expr(value)) for name, value in t.attrs))

    target = tuple(map(term, rule.target))
    return replace(rule, target=target, where=tuple(map(expr, rule.where)))


def choices(instance: Instance, symbols: Symbols, spec: Spec) -> Iterator[Choice]:
    """Ways to write the numbers of the right side, the plainest first.

    At first equal whole numbers mean the same wherever they stand, then they may differ by attribute; at last the
    shapes of constants are written out too.
    """
    for shared, shapes in ((True, False), (False, False), (True, True)):
        numbers = _target_numbers(instance, symbols, spec, shared, shapes)
        if not shared and not any(kind == "int" for _, kind, _ in numbers):
            continue  # the same once more
        if shapes and not any(kind == "shape" for _, kind, _ in numbers):
            return
        ranked = itertools.islice(itertools.product(*(list(enumerate(o)) for o in numbers.values())), _MAX_COMBINATIONS)

        def plainness(combination: tuple[tuple[int, s.Expr], ...]) -> tuple[int, int]:
            divisors = {name for _, expr in combination for name in _names(expr) if symbols.lows.get(name) == 1}
            return len(divisors), sum(k for k, _ in combination)

        for combination in sorted(ranked, key=plainness)[:MAX_WRITINGS]:
            yield Choice({key: expr for key, (_, expr) in zip(numbers, combination)}, shared, shapes)


def _number(attribute: str, kind: str, value: Any, shared: bool) -> Number:
    return "" if shared and kind == "int" else attribute, kind, value


def _target_numbers(
    instance: Instance, symbols: Symbols, spec: Spec, shared: bool, shapes: bool
) -> dict[Number, list[s.Expr]]:
    """The numbers on the right that no symbol of the left stands for, each with the expressions that could be meant.

    With `shapes` the shapes of constants are among them.
    """
    found: dict[Number, list[s.Expr]] = {}

    def visit(typed: Typed) -> None:
        for arg in typed.args:
            visit(arg)
        if typed.kind != "apply":
            return
        for attr in spec.declared(typed.head).attrs:
            value: Any = typed.attr[attr.name]
            if attr.type == "shape" and shapes and not typed.args:
                entries = [list(enumerate(int_expressions(size, instance, symbols))) for size in value]
                ranked = sorted(
                    itertools.islice(itertools.product(*entries), _MAX_COMBINATIONS), key=lambda c: sum(k for k, _ in c)
                )
                written = [s.ListOf(tuple(size for _, size in sizes)) for sizes in ranked[:_MAX_OPTIONS]]
                found[attr.name, attr.type, value] = list(written)
            if attr.type not in NUMERIC or (attr.name, value) in symbols.by_value:
                continue
            default = is_default(attr, value)
            if attr.type == "real" and default:
                continue
            key = _number(attr.name, attr.type, value, shared)
            if key in found:
                continue
            if attr.type == "int":
                found[key] = [number(value)] if default else int_expressions(value, instance, symbols)
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
