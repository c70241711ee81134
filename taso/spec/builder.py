"""Parse tree to syntax tree: what each rule of `grammar.lark` builds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import lark

from taso.spec import syntax as s


class Misread(Exception):
    """Text that fits the grammar and still means nothing; `pos` is where."""

    def __init__(self, message: str, pos: s.Pos) -> None:
        super().__init__(message)
        self.pos = pos


def _at(meta: Any) -> s.Pos:
    return s.Pos(meta.line, meta.column) if not meta.empty else s.NOWHERE


def _number(token: str) -> Fraction:
    return Fraction(token)


def _many(children: list[Any], kind: type) -> tuple[Any, ...]:
    return tuple(child for child in children if isinstance(child, kind))


def _bin(op: str, items: list[Any], meta: Any) -> s.Bin:
    left, right = items
    return s.Bin(op, left, right, _at(meta))


class _Attrs(list):  # type: ignore[type-arg]
    """The attributes written after `;`."""


class _Where(tuple):  # type: ignore[type-arg]
    """The conditions of a rule or axiom."""


class _Require(tuple):  # type: ignore[type-arg]
    """The requirements of an operator."""


class _Tagged:
    def __init__(self, tag: str, value: Any) -> None:
        self.tag, self.value = tag, value


@lark.v_args(meta=True)
class Builder(lark.Transformer):  # type: ignore[type-arg]
    """Bottom up: each method gets the position and the built children of one grammar rule."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.lines = text.splitlines()

    def _doc(self, pos: s.Pos) -> str:
        """The comment lines right above a declaration."""
        found: list[str] = []
        for line in reversed(self.lines[: pos.line - 1]):
            if not line.startswith("#"):
                break
            found.insert(0, line.lstrip("# ").rstrip())
        return " ".join(found)

    # --- files and declarations
    def start(self, meta: Any, items: list[Any]) -> list[Any]:
        return items

    def _declared(self, items: list[Any]) -> dict[str, Any]:
        tagged = [item for item in items if isinstance(item, _Tagged)]
        required = [condition for item in items if isinstance(item, _Require) for condition in item]
        return {
            "params": _many(items, s.Param),
            "attrs": _many(items, s.AttrDecl),
            "requires": tuple(required),
            "onnx": _many(items, s.OnnxForm),
            "implicit": next((t.value for t in tagged if t.tag == "implicit"), None),
        }

    def operator(self, meta: Any, items: list[Any]) -> s.Operator:
        shapes = [item for item in items if isinstance(item, tuple) and not isinstance(item, (_Require, _Where))]
        result, index = shapes
        body = items[next(k for k, item in enumerate(items) if item is index) + 1]
        identity = next((t.value for t in items if isinstance(t, _Tagged) and t.tag == "identity"), None)
        pos = _at(meta)
        return s.Operator(
            str(items[0]),
            result=result,
            index=index,
            body=body,
            identity=identity,
            doc=self._doc(pos),
            pos=pos,
            **self._declared(items),
        )

    def macro(self, meta: Any, items: list[Any]) -> s.Macro:
        body = next(item for item in items if isinstance(item, (s.Var, s.Literal, s.Apply, s.Choose, s.Fold)))
        forms = tuple(t.value for t in items if isinstance(t, _Tagged) and t.tag == "form")
        pos = _at(meta)
        return s.Macro(str(items[0]), body=body, forms=forms, doc=self._doc(pos), pos=pos, **self._declared(items))

    def require(self, meta: Any, items: list[Any]) -> _Require:
        return _Require(items)

    def identity(self, meta: Any, items: list[Any]) -> _Tagged:
        return _Tagged("identity", items[0])

    def implicit(self, meta: Any, items: list[Any]) -> _Tagged:
        return _Tagged("implicit", items[0])

    def form(self, meta: Any, items: list[Any]) -> _Tagged:
        return _Tagged("form", items[0])

    def param(self, meta: Any, items: list[Any]) -> s.Param:
        return s.Param(str(items[0]), items[1], _at(meta))

    def attr_decl(self, meta: Any, items: list[Any]) -> s.AttrDecl:
        name, kind, like, default = items
        pos = _at(meta)
        if kind not in ("int", "ints", "real", "bool", "axis", "axes", "perm", "shape"):
            raise Misread(
                f"unknown attribute type `{kind}`; expected int, ints(s), real, bool, axis, axes, perm or shape", pos
            )
        return s.AttrDecl(str(name), str(kind), like and str(like), default, pos)

    def shape(self, meta: Any, items: list[Any]) -> tuple[Any, ...]:
        return tuple(item for item in items if item is not None)

    def dim(self, meta: Any, items: list[Any]) -> s.DimItem:
        return s.DimItem(items[0], pos=_at(meta))

    def dims(self, meta: Any, items: list[Any]) -> s.DimItem:
        return s.DimItem(items[0], True, items[1], _at(meta))

    # --- ONNX
    def onnx(self, meta: Any, items: list[Any]) -> s.OnnxForm:
        name, *rest = items
        args = _many(rest, s.OnnxArg)
        attrs = next((item for item in rest if isinstance(item, _Attrs)), _Attrs())
        flags = [str(t) for t in rest if isinstance(t, lark.Token) and t.type == "FLAG"]
        since, until, domain, when = rest[-4:]
        return s.OnnxForm(
            str(name), args, tuple(attrs), int(since), until and int(until), str(domain)[1:-1] if domain else "",
            "broadcasting" in flags, "variadic" in flags, when, _at(meta),
        )  # fmt: skip

    def onnx_attrs(self, meta: Any, items: list[Any]) -> _Attrs:
        return _Attrs(items)

    def onnx_tensor(self, meta: Any, items: list[Any]) -> s.OnnxArg:
        return s.OnnxArg("tensor", items[0], _at(meta))

    def onnx_ints(self, meta: Any, items: list[Any]) -> s.OnnxArg:
        return s.OnnxArg("ints", items[0], _at(meta))

    def onnx_scalar(self, meta: Any, items: list[Any]) -> s.OnnxArg:
        return s.OnnxArg("scalar", items[0], _at(meta))

    def onnx_none(self, meta: Any, items: list[Any]) -> s.OnnxArg:
        return s.OnnxArg("none", None, _at(meta))

    def import_(self, meta: Any, items: list[Any]) -> s.Import:
        name, *rest = items
        attrs = next((item for item in rest if isinstance(item, _Attrs)), _Attrs())
        since, until, domain, when, body = rest[-5:]
        return s.Import(
            str(name), _many(rest, s.ImportParam), tuple(attrs), int(since), until and int(until),
            str(domain)[1:-1] if domain else "", when, body, _at(meta),
        )  # fmt: skip

    def content(self, meta: Any, items: list[Any]) -> s.Content:
        what, name, *rest = items
        attrs = next((item for item in rest if isinstance(item, _Attrs)), _Attrs())
        since, until, domain, when, body = rest[-5:]
        return s.Content(
            str(name), _many(rest, s.ImportParam), tuple(attrs), int(since), until and int(until),
            str(domain)[1:-1] if domain else "", when, body, str(what), _at(meta),
        )  # fmt: skip

    def role(self, meta: Any, items: list[Any]) -> s.Role:
        role, *op_types, domain = items
        if role not in ("random", "copy", "constant", "packed"):
            raise Misread(f"unknown role `{role}`; expected random, copy, constant or packed", _at(meta))
        return s.Role(str(role), tuple(map(str, op_types)), str(domain)[1:-1] if domain else "", _at(meta))

    def import_tensor(self, meta: Any, items: list[Any]) -> s.ImportParam:
        return s.ImportParam(str(items[0]), "tensor", _at(meta))

    def import_variadic(self, meta: Any, items: list[Any]) -> s.ImportParam:
        return s.ImportParam(str(items[0]), "variadic", _at(meta))

    def import_constant(self, meta: Any, items: list[Any]) -> s.ImportParam:
        pos = _at(meta)
        if items[1] not in ("ints", "int", "reals", "real", "none", "tensor"):
            raise Misread(f"unknown input kind `{items[1]}`; expected ints, int, reals, real or none", pos)
        return s.ImportParam(str(items[0]), str(items[1]), pos)

    def import_attrs(self, meta: Any, items: list[Any]) -> _Attrs:
        return _Attrs(items)

    def import_attr(self, meta: Any, items: list[Any]) -> tuple[str, Any]:
        return str(items[0]), items[1]

    # --- axioms, rules, universes
    def axiom(self, meta: Any, items: list[Any]) -> s.Axiom:
        left, right, where, ranks = items
        return s.Axiom(left, right, tuple(where or ()), ranks, _at(meta))

    def rule(self, meta: Any, items: list[Any]) -> s.Rule:
        name, source, target, where, ranks, *records = items
        if len(source) != len(target):
            raise Misread(f"the rule has {len(source)} outputs on the left and {len(target)} on the right", _at(meta))
        return s.Rule(str(name), source, target, tuple(where or ()), ranks, tuple(map(str, records)), _at(meta))

    def one(self, meta: Any, items: list[Any]) -> tuple[Any, ...]:
        return tuple(items)

    many = one

    def where(self, meta: Any, items: list[Any]) -> _Where:
        return _Where(items)

    def ranks(self, meta: Any, items: list[Any]) -> s.Ranks:
        names = tuple(str(t) for t in items if isinstance(t, lark.Token))
        choices = tuple(item for item in items if isinstance(item, tuple))
        for choice in choices:
            if len(choice) != len(names):
                raise Misread(f"{len(names)} names but {len(choice)} ranks in {choice}", _at(meta))
        return s.Ranks(names, choices)

    def choice(self, meta: Any, items: list[Any]) -> tuple[int, ...]:
        return tuple(int(t) for t in items)

    def universe(self, meta: Any, items: list[Any]) -> s.Universe:
        name, *rest = items
        tagged = [t for t in rest if isinstance(t, _Tagged)]
        return s.Universe(
            str(name),
            _many(rest, s.UniverseInput),
            tuple(t.value for t in tagged if t.tag == "const"),
            _many(rest, s.Instance),
            tuple(t.value for t in tagged if t.tag == "set"),
            _at(meta),
        )

    def universe_input(self, meta: Any, items: list[Any]) -> s.UniverseInput:
        names = tuple(str(t) for t in items if t is not None and t.type == "NAME")
        return s.UniverseInput(names, tuple(int(t) for t in items if t is not None and t.type == "INT"), _at(meta))

    def universe_const(self, meta: Any, items: list[Any]) -> _Tagged:
        return _Tagged("const", s.Instance(str(items[0]), (), None, items[1], _at(meta)))

    def universe_apply(self, meta: Any, items: list[Any]) -> s.Instance:
        name, *params, when, body = items
        return s.Instance(str(name), tuple(map(str, params)), when, body, _at(meta))

    def universe_option(self, meta: Any, items: list[Any]) -> _Tagged:
        return _Tagged("set", (str(items[0]), items[1]))

    # --- terms
    def term_var(self, meta: Any, items: list[Any]) -> s.Var:
        return s.Var(str(items[0]), _at(meta))

    def term_apply(self, meta: Any, items: list[Any]) -> s.Apply:
        attrs = next((item for item in items if isinstance(item, _Attrs)), _Attrs())
        args = tuple(i for i in items[1:] if i is not None and not isinstance(i, _Attrs))
        return s.Apply(str(items[0]), args, tuple(attrs), _at(meta))

    def term_fold(self, meta: Any, items: list[Any]) -> s.Fold:
        return s.Fold(str(items[0]), str(items[1]), tuple(items[2] or ()), _at(meta))

    def term_choose(self, meta: Any, items: list[Any]) -> s.Choose:
        condition, then, otherwise = items
        return s.Choose(condition, then, otherwise, _at(meta))

    def term_number(self, meta: Any, items: list[Any]) -> s.Literal:
        return s.Literal(s.Num(_number(items[0]), _at(meta)), _at(meta))

    def term_negative(self, meta: Any, items: list[Any]) -> s.Literal:
        return s.Literal(s.Num(-_number(items[0]), _at(meta)), _at(meta))

    def term_literal(self, meta: Any, items: list[Any]) -> s.Literal:
        return s.Literal(items[0], _at(meta))

    def term_attrs(self, meta: Any, items: list[Any]) -> _Attrs:
        return _Attrs(items)

    def attr(self, meta: Any, items: list[Any]) -> tuple[str, Any]:
        return str(items[0]), items[1]

    # --- expressions
    def disjunction(self, meta: Any, items: list[Any]) -> s.Logic:
        return s.Logic("or", tuple(items), _at(meta))

    def conjunction(self, meta: Any, items: list[Any]) -> s.Logic:
        return s.Logic("and", tuple(items), _at(meta))

    def not_(self, meta: Any, items: list[Any]) -> s.Logic:
        return s.Logic("not", tuple(items), _at(meta))

    def comparison(self, meta: Any, items: list[Any]) -> s.Expr:
        left, op, right = items
        return left if op is None else s.Cmp(str(op), left, right, _at(meta))

    def if_(self, meta: Any, items: list[Any]) -> s.If:
        condition, then, otherwise = items
        return s.If(condition, then, otherwise, _at(meta))

    def join(self, meta: Any, items: list[Any]) -> s.Bin:
        return _bin("++", items, meta)

    def add(self, meta: Any, items: list[Any]) -> s.Bin:
        return _bin("+", items, meta)

    def sub(self, meta: Any, items: list[Any]) -> s.Bin:
        return _bin("-", items, meta)

    def mul(self, meta: Any, items: list[Any]) -> s.Bin:
        return _bin("*", items, meta)

    def div(self, meta: Any, items: list[Any]) -> s.Bin:
        return _bin("/", items, meta)

    def mod(self, meta: Any, items: list[Any]) -> s.Bin:
        return _bin("%", items, meta)

    def neg(self, meta: Any, items: list[Any]) -> s.Expr:
        value = items[0]
        return s.Num(-value.value, _at(meta)) if isinstance(value, s.Num) else s.Neg(value, _at(meta))

    def number(self, meta: Any, items: list[Any]) -> s.Num:
        return s.Num(_number(items[0]), _at(meta))

    def string(self, meta: Any, items: list[Any]) -> s.Str:
        return s.Str(str(items[0])[1:-1], _at(meta))

    def name(self, meta: Any, items: list[Any]) -> s.Expr:
        return s.Num(float("inf"), _at(meta)) if items[0] == "inf" else s.Name(str(items[0]), _at(meta))

    def list_of(self, meta: Any, items: list[Any]) -> s.ListOf:
        return s.ListOf(tuple(i for i in items if i is not None), _at(meta))

    def star(self, meta: Any, items: list[Any]) -> s.Star:
        return s.Star(items[0], _at(meta))

    def read(self, meta: Any, items: list[Any]) -> s.Read:
        name, *index, fill = items
        return s.Read(str(name), tuple(i for i in index if i is not None), fill, _at(meta))

    def call(self, meta: Any, items: list[Any]) -> s.Call:
        return s.Call(str(items[0]), tuple(i for i in items[1:] if i is not None), _at(meta))

    reduce_call = call

    def reduce(self, meta: Any, items: list[Any]) -> s.Reduce:
        kind, *binders, body = items
        return s.Reduce(str(kind), tuple(binders), body, _at(meta))

    def bind(self, meta: Any, items: list[Any]) -> s.Binder:
        return self._binder(meta, False, *items)

    def bind_list(self, meta: Any, items: list[Any]) -> s.Binder:
        return self._binder(meta, True, *items)

    def _binder(self, meta: Any, starred: bool, name: str, compare: str, bound: s.Expr) -> s.Binder:
        if compare != "<":
            raise Misread(f"a range is written `{name} < bound`, not `{name} {compare} ...`", _at(meta))
        return s.Binder(str(name), starred, bound, _at(meta))
