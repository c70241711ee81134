"""From a term to a typed tree: every attribute complete, every shape known, macros replaced by what they mean.

A term leaves things out: a `broadcast` without `shape`, a number where a tensor is expected. Such a term has no shape
of its own; it takes the one that its place asks for. So elaboration runs both ways: a term is first tried on its own,
and what cannot be settled is tried again with the shape that the operator around it expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from taso.errors import ShapeError, SpecError
from taso.spec import syntax as s
from taso.spec.evaluate import Scope, attribute, evaluate, holds
from taso.spec.shapes import EXACT, Declared, Signature, Theory, expected, solve
from taso.spec.spec import Spec
from taso.spec.value import Shape, Value


@dataclass(frozen=True)
class Typed:
    """A node of the typed tree. Equal nodes compare equal; `key` is cheap to hash.

    kind:  "var" (a tensor called `head`), "literal" (the number `body`, names in it are in `attrs`) or "apply" (the
           operator, or with `keep_macros` the macro, called `head`).
    attrs: all attributes by name, sorted; for a literal the values of the names in its `body`.
    shape: sizes are int or Poly.
    """

    kind: Literal["var", "literal", "apply"]
    head: str
    args: tuple[Typed, ...] = ()
    attrs: tuple[tuple[str, Value], ...] = ()
    shape: Shape = ()
    body: s.Expr | None = None
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __hash__(self) -> int:  # shared subtrees would otherwise be walked once per occurrence
        if not self._hash:
            object.__setattr__(
                self, "_hash", hash((self.kind, self.head, self.args, self.attrs, self.shape, self.body)) or 1
            )
        return self._hash

    @property
    def attr(self) -> dict[str, Value]:
        """The attributes as a dictionary."""
        return dict(self.attrs)


def elaborate(
    term: s.Term,
    spec: Spec,
    shapes: Mapping[str, Shape],
    attrs: Mapping[str, Value] | None = None,
    *,
    result: Shape | None = None,
    theory: Theory = EXACT,
    keep_macros: bool = False,
) -> Typed:
    """Type a term.

    Args:
        shapes: the shape of every tensor that the term names (int or Poly sizes).
        attrs: values of the names in the term's attributes.
        result: the shape that the place of the whole term asks for, if it does.
        theory: what sizes may be taken to be equal (see `shapes.Theory`).
        keep_macros: leave macros as nodes instead of expanding them.

    Raises:
        ShapeError: the shapes or attributes do not fit, or a shape cannot be inferred.
        SpecError: an unknown operator, tensor or name.
    """
    env = _Env({name: Typed("var", name, shape=tuple(shape)) for name, shape in shapes.items()}, dict(attrs or {}))
    elaborator = Elaborator(spec, theory, keep_macros)
    found = elaborator.type(term, env, result)
    if found is None:
        raise ShapeError(
            f"the shape of `{elaborator.open_ or show_head(term)}` does not follow from its place; write it out"
        )
    if result is not None:
        if len(found.shape) != len(result):
            raise ShapeError(f"{show_head(term)}: rank {len(found.shape)} where rank {len(result)} is asked for")
        for a, b in zip(found.shape, result):
            theory.equate(a, b, f"{show_head(term)}, result")
    return found


@dataclass
class _Later:
    """A macro's argument whose shape is only known inside the macro."""

    term: s.Term
    env: _Env


@dataclass
class _Env:
    """What names mean inside one term: tensors, and the values of attributes and sizes."""

    tensors: dict[str, Typed | _Later]
    values: dict[str, Value]
    memo: dict[tuple[s.Term, Shape | None], Typed | None] = field(default_factory=dict)

    @property
    def scope(self) -> Scope:
        return Scope(self.values, {name: t.shape for name, t in self.tensors.items() if isinstance(t, Typed)})


def show_head(term: s.Term) -> str:
    """What stands at the top of a term, for messages."""
    match term:
        case s.Var(name):
            return name
        case s.Apply(op):
            return op
        case s.Literal():
            return "a number"
    return type(term).__name__.lower()


class Elaborator:
    """Types terms. `open_` names the last thing whose shape could not be inferred."""

    def __init__(self, spec: Spec, theory: Theory = EXACT, keep_macros: bool = False) -> None:
        self.spec, self.theory, self.keep_macros, self.open_ = spec, theory, keep_macros, ""

    def type(self, term: s.Term, env: _Env, result: Shape | None) -> Typed | None:
        """The typed tree, or None if `result` would have to be known."""
        key = term, result
        if key not in env.memo:
            found = self._type(term, env, result)
            self.open_ = show_head(term) if found is None and not self.open_ else self.open_
            env.memo[key] = found
        return env.memo[key]

    def _type(self, term: s.Term, env: _Env, result: Shape | None) -> Typed | None:
        match term:
            case s.Var(name, pos):
                if name not in env.tensors:
                    known = ", ".join(env.tensors) or "none"
                    raise SpecError(
                        f"no tensor is called `{name}`; known are {known}", line=pos.line, column=pos.column
                    )
                tensor = env.tensors[name]
                return self.type(tensor.term, tensor.env, result) if isinstance(tensor, _Later) else tensor
            case s.Literal(value):
                return None if result is None else _literal(value, env, result)
            case s.Choose(condition, then, otherwise, pos):
                truth = holds(condition, env.scope)
                if truth is None:
                    raise SpecError("the condition cannot be decided for these sizes", line=pos.line, column=pos.column)
                return self.type(then if truth else otherwise, env, result)
            case s.Apply(op, args, _, pos):
                declared = self.spec.declared(op, pos)
                if len(args) != len(declared.params):
                    raise SpecError(
                        f"`{op}` takes {len(declared.params)} tensors, not {len(args)}",
                        line=pos.line,
                        column=pos.column,
                    )
                return self._apply(declared, term, env, result)
            case s.Fold(_, over, _, pos):
                raise SpecError(
                    f"`fold` over `{over}` has no meaning outside an import", line=pos.line, column=pos.column
                )
        raise AssertionError(term)

    def _apply(self, declared: Declared, term: s.Apply, env: _Env, result: Shape | None) -> Typed | None:
        attrs = _attributes(declared, term, env)
        args: list[Typed | None] = [self.type(arg, env, None) for arg in term.args]
        while True:
            shapes = [None if arg is None else arg.shape for arg in args]
            settled = solve(declared, shapes, attrs, result=result, theory=self.theory, partial=True)
            progress = False
            for k, (param, arg) in enumerate(zip(declared.params, args)):
                place = None if arg is not None else expected(param, settled.scope)
                if place is not None:
                    args[k] = self.type(term.args[k], env, place)
                    progress = progress or args[k] is not None
            if not progress:
                break
        if isinstance(declared, s.Macro):
            return self._expand(declared, term, env, args, settled, result)
        if any(arg is None for arg in args) or any(attr.name not in settled.attrs for attr in declared.attrs):
            return None
        known = [arg for arg in args if arg is not None]
        full = solve(declared, [arg.shape for arg in known], settled.attrs, result=result, theory=self.theory)
        assert full.result is not None
        return Typed("apply", declared.name, tuple(known), tuple(sorted(full.attrs.items())), full.result)

    def _expand(
        self,
        macro: s.Macro,
        term: s.Apply,
        env: _Env,
        args: list[Typed | None],
        settled: Signature,
        result: Shape | None,
    ) -> Typed | None:
        tensors: dict[str, Typed | _Later] = {
            param.name: _Later(written, env) if arg is None else arg
            for param, written, arg in zip(macro.params, term.args, args)
        }
        if all(arg is not None for arg in args):
            for condition in macro.requires:
                self.theory.require(condition, settled.scope, macro.name)
        body = self.type(macro.body, _Env(tensors, settled.scope.values), result)
        if body is None or not self.keep_macros:
            return body
        if any(arg is None for arg in args):
            return None
        known = tuple(arg for arg in args if arg is not None)
        return Typed("apply", macro.name, known, tuple(sorted(settled.attrs.items())), body.shape)


def _attributes(declared: Declared, term: s.Apply, env: _Env) -> dict[str, Value]:
    types = {attr.name: attr.type for attr in declared.attrs}
    scope = env.scope
    values: dict[str, Value] = {}
    for name, expr in term.attrs:
        if name not in types:
            known = ", ".join(types) or "none"
            raise SpecError(
                f"`{declared.name}` has no attribute `{name}`; it has {known}",
                line=term.pos.line,
                column=term.pos.column,
            )
        values[name] = attribute(types[name], expr, scope)
    return values


def _literal(value: s.Expr, env: _Env, shape: Shape) -> Typed:
    """A literal with the names in it closed over: sizes of tensors become names of their own."""
    closed: dict[str, Value] = {}

    def close(expr: s.Expr) -> s.Expr:
        match expr:
            case s.Name(name) if name not in ("true", "false"):
                closed[name] = evaluate(expr, env.scope)
                return replace(expr)
            case s.Call("dim" | "rank" | "shape"):
                name = f"size{len(closed)}"
                closed[name] = evaluate(expr, env.scope)
                return s.Name(name)
            case s.Call(function, args, pos):
                return s.Call(function, tuple(map(close, args)), pos)
            case s.Bin(op, left, right, pos):
                return s.Bin(op, close(left), close(right), pos)
            case s.Cmp(op, left, right, pos):
                return s.Cmp(op, close(left), close(right), pos)
            case s.Logic(op, operands, pos):
                return s.Logic(op, tuple(map(close, operands)), pos)
            case s.Neg(inner, pos):
                return s.Neg(close(inner), pos)
            case s.If(condition, then, otherwise, pos):
                return s.If(close(condition), close(then), close(otherwise), pos)
            case s.ListOf(items, pos):
                return s.ListOf(tuple(map(close, items)), pos)
            case s.Star(inner, pos):
                return s.Star(close(inner), pos)
        return expr

    body = close(value)
    return Typed("literal", "", attrs=tuple(sorted(closed.items())), shape=shape, body=body)
