"""How an ONNX node is read: which declaration of the specification applies to it, and what its names stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np
import onnx
from onnx import AttributeProto

from taso.algebra.poly import Quantity
from taso.graph.graph import Arena, Value
from taso.onnxio.tensor import ARITHMETIC, exact
from taso.spec import syntax as s
from taso.spec.evaluate import Scope, evaluate, holds, real_division
from taso.spec.spec import Spec
from taso.spec.traits import copies

# What is known of a tensor's elements: an array, or whole numbers of rank 0 or 1 that may be symbolic.
Known = Union["np.ndarray[Any, Any]", Quantity, tuple[Quantity, ...], None]


class NotRead(Exception):
    """A declaration does not apply to a node; says why."""


class WrongArity(NotRead):
    """The node has another number of inputs than the declaration."""


@dataclass
class Bound:
    """A declaration's names for one node: tensors, lists of them, numbers; `extras` are tensors read as numbers."""

    tensors: dict[str, Value] = field(default_factory=dict)
    lists: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    scope: Scope = field(default_factory=Scope)
    extras: tuple[Value, ...] = ()


def applies(declaration: s.Import | s.Content, version: int | None) -> bool:
    """Whether a declaration is for this version of its domain's opset."""
    return (
        version is not None
        and declaration.since <= version
        and (declaration.until is None or version <= declaration.until)
    )


def slots_of(node: onnx.NodeProto) -> list[str]:
    """The input names of a node without empty ones at the end."""
    names = list(node.input)
    while names and not names[-1]:
        names.pop()
    return names


def bind(
    declaration: s.Import | s.Content,
    node: onnx.NodeProto,
    values: Mapping[str, Value],
    known: Callable[[str], Known],
    output: int = 0,
) -> Bound:
    """What the declaration's names stand for. Raises NotRead, ShapeError or SpecError if it does not apply."""
    bound = Bound()
    names = slots_of(node)
    params = declaration.params
    variadic = bool(params) and params[-1].kind == "variadic"
    if len(names) != len(params) and not (variadic and len(names) >= len(params)):
        raise WrongArity(f"it has {len(names)} inputs")
    scope = bound.scope
    scope.values.update(output=output, outputs=len(node.output))
    strict = isinstance(declaration, s.Content)
    for param, name in zip(params, names):
        if param.kind == "variadic":
            _bind_list(bound, param.name, names[len(params) - 1 :], values, known if strict else None)
        else:
            _bind(bound, param, name, values, known, strict)
    dtypes = [value.type.dtype for value in bound.tensors.values()]
    lenient = isinstance(declaration, s.Content) and declaration.what == "extent"
    _bind_attributes(declaration.attrs, node, scope, "double" if "double" in dtypes else "float", lenient)
    if declaration.when is not None and holds(declaration.when, scope) is not True:
        raise NotRead("it does not meet the conditions under which its meaning is declared")
    return bound


def _bind_list(
    bound: Bound, name: str, tensors: Sequence[str], values: Mapping[str, Value], known: Callable[[str], Known] | None
) -> None:
    if not all(tensors):
        raise NotRead("an input is left out in the middle")
    if known is None:
        bound.lists[name] = tuple(values[tensor] for tensor in tensors)
        first = bound.lists[name][0]
        if first.shape is not None:
            bound.scope.shapes = {**bound.scope.shapes, name: first.shape}
    else:
        bound.scope.values[name] = tuple(_whole(known(tensor), tensor) for tensor in tensors)


def _bind(
    bound: Bound,
    param: s.ImportParam,
    name: str,
    values: Mapping[str, Value],
    known: Callable[[str], Known],
    strict: bool,
) -> None:
    scope = bound.scope
    if param.kind == "none" or not name:
        if name or param.kind != "none":
            raise NotRead(f"input {param.name} is {'given' if name else 'left out'}")
        return
    value = values[name]
    if param.kind == "tensor":
        bound.tensors[param.name] = value
        scope.dtypes = {**scope.dtypes, param.name: value.type.dtype}
        if value.shape is None:
            raise NotRead("the rank of an input is not known")
        scope.shapes = {**scope.shapes, param.name: value.shape}
        return
    content = known(name)
    if param.kind == "reals":
        scope.values[param.name] = _reals(content, value.type.dtype, param.name)
    elif param.kind == "real":
        scope.values[param.name] = _real(content, value.type.dtype, param.name)
    else:
        number = _whole(content, param.name)
        if param.kind == "int" and isinstance(number, tuple) and len(number) == 1 and not strict:
            number = number[0]
        if isinstance(number, tuple) != (param.kind == "ints"):
            raise NotRead(f"input {param.name} has another rank")
        scope.values[param.name] = number
    bound.extras += (value,)


def _whole(content: Known, what: str) -> Quantity | tuple[Quantity, ...]:
    """Whole numbers of rank 0 or 1."""
    if content is None:
        raise NotRead(f"input {what} is not known")
    if isinstance(content, np.ndarray):
        if content.dtype.kind not in "iu" or content.ndim > 1:
            raise NotRead(f"input {what} is not a list of whole numbers")
        return int(content) if content.ndim == 0 else tuple(map(int, content))
    return content


def _real(content: Known, dtype: str, what: str) -> Any:
    if not isinstance(content, np.ndarray) or content.size != 1 or dtype not in ARITHMETIC:
        raise NotRead(f"input {what} is not a known number")
    number = float(content.reshape(()))
    if np.isnan(number):
        raise NotRead(f"input {what} is not a number")
    return exact(number, dtype)


def _reals(content: Known, dtype: str, what: str) -> tuple[Any, ...]:
    if (
        not isinstance(content, np.ndarray)
        or content.ndim != 1
        or dtype not in ARITHMETIC
        or not np.isfinite(content).all()
    ):
        raise NotRead(f"input {what} is not a known list of numbers")
    return tuple(int(number) if number == int(number) else exact(float(number), dtype) for number in content)


def _bind_attributes(
    declared: tuple[tuple[str, s.Expr | None], ...], node: onnx.NodeProto, scope: Scope, dtype: str, lenient: bool
) -> None:
    given = {attribute.name: attribute for attribute in node.attribute}
    unknown = given.keys() - {name for name, _ in declared}
    if unknown and not lenient:
        raise NotRead(f"attribute {', '.join(sorted(unknown))} is not declared")
    for name, default in declared:
        if name in given:
            scope.values[name] = attribute_value(given[name], dtype)
        elif default is None:
            raise NotRead(f"attribute {name} is missing")
        else:
            scope.values[name] = evaluate(real_division(default), scope)


def attribute_value(attribute: AttributeProto, dtype: str = "float") -> Any:
    """An attribute as a value of the language. Raises NotRead for tensors, graphs and so on."""
    if attribute.ref_attr_name:
        raise NotRead(f"attribute {attribute.name} is set by a function's caller")
    kind = attribute.type
    if kind == AttributeProto.INT:
        return int(attribute.i)
    if kind == AttributeProto.INTS:
        return tuple(map(int, attribute.ints))
    if kind == AttributeProto.STRING:
        return attribute.s.decode("utf-8", "replace")
    if kind in (AttributeProto.FLOAT, AttributeProto.FLOATS):
        numbers = [attribute.f] if kind == AttributeProto.FLOAT else list(attribute.floats)
        if any(np.isnan(number) for number in numbers):
            raise NotRead(f"attribute {attribute.name} is not a number")
        reals = tuple(exact(number, dtype) for number in numbers)
        return reals[0] if kind == AttributeProto.FLOAT else reals
    raise NotRead(f"attribute {attribute.name} is neither numbers nor a string")


def read(declaration: s.Import, bound: Bound, arena: Arena) -> Value:
    """The value that a node computes by a declaration. Raises NotRead, ShapeError or SpecError if it does not fit."""
    args = [*bound.tensors.values(), *(value for values in bound.lists.values() for value in values)]
    if not args:
        raise NotRead("it takes no tensors")
    dtypes = {arg.type.dtype for arg in args}
    dtype = dtypes.pop()
    if dtypes:
        raise NotRead("the element types of its inputs differ")
    if dtype not in ARITHMETIC and not (dtype and only_moves(declaration.body, arena.spec)):
        raise NotRead(f"arithmetic in {dtype or 'unknown elements'} is not touched")
    for arg in args:
        if arg.shape is None:
            raise NotRead("the rank of an input is not known")
        if 0 in arg.shape:
            raise NotRead("an input has no elements")
    if isinstance(declaration.body, s.Fold):
        return _fold(declaration.body, bound, arena, dtype)
    return arena.build(declaration.body, bound.tensors, bound.scope.values, dtype)


def _fold(body: s.Fold, bound: Bound, arena: Arena, dtype: str) -> Value:
    first, *others = bound.lists[body.over]
    term = s.Apply(body.op, (s.Var("left"), s.Var("right")), body.attrs)
    for other in others:
        first = arena.build(term, {"left": first, "right": other}, bound.scope.values, dtype)
    return first


def only_moves(term: s.Term, spec: Spec) -> bool:
    """Whether a term computes nothing, for any type of element: it is made of operators that copy elements."""
    match term:
        case s.Var():
            return True
        case s.Choose(_, then, otherwise):
            return only_moves(then, spec) and only_moves(otherwise, spec)
        case s.Apply(op, args):
            declared = spec.declared(op)
            inner = copies(declared) if isinstance(declared, s.Operator) else only_moves(declared.body, spec)
            return inner and all(only_moves(arg, spec) for arg in args)
        case s.Fold(op):
            declared = spec.declared(op)
            return copies(declared) if isinstance(declared, s.Operator) else only_moves(declared.body, spec)
    return False


def mentions(expr: object, name: str) -> bool:
    """Whether a part of the syntax tree uses a name."""
    if isinstance(expr, s.Name):
        return expr.id == name
    if isinstance(expr, (tuple, list)):
        return any(mentions(part, name) for part in expr)
    fields = getattr(expr, "__dataclass_fields__", {})
    return any(mentions(getattr(expr, part), name) for part in fields)
