"""Writing a value of the graph as one ONNX node: by the `onnx` forms of its operator, or of a macro that it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from taso.algebra.poly import Poly
from taso.errors import ShapeError, SpecError
from taso.graph.graph import Arena, Node, Value
from taso.onnxio.context import Opaque
from taso.search.match import Bindings, match_macro
from taso.search.sketch import Sketches
from taso.spec import syntax as s
from taso.spec.builtins import numpy_shape
from taso.spec.evaluate import Scope, evaluate, holds, real_division
from taso.spec.node import attribute, schema
from taso.spec.shapes import Declared, solve
from taso.spec.spec import Spec
from taso.spec.value import Shape


@dataclass(frozen=True, eq=False)
class Tile:
    """One ONNX node to be written.

    template: operator, attributes, name and doc string; its inputs and outputs are set when it is written.
    slots:    the value in each input slot, None where it is empty.
    results:  the value in each output slot, None where it is empty or nobody's.
    covered:  the graph's nodes that it computes.
    index:    the place of the original node, None for a new one.
    captured: the values that its subgraphs read, by the name they had.
    extras:   values among the slots that its graph nodes do not depend on.
    """

    template: onnx.NodeProto
    slots: tuple[Value | None, ...]
    results: tuple[Value | None, ...]
    covered: frozenset[Node]
    index: int | None = None
    captured: tuple[tuple[str, Value], ...] = ()
    extras: tuple[Value, ...] = ()
    opaque: Opaque | None = None

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """The values that it reads, each once."""
        return tuple(dict.fromkeys(v for v in (*self.slots, *(value for _, value in self.captured)) if v is not None))

    @cached_property
    def outputs(self) -> tuple[Value, ...]:
        """The values that it makes."""
        return tuple(out for out in self.results if out is not None)

    @cached_property
    def interior(self) -> tuple[Node, ...]:
        """The nodes inside that somebody else must not need: from which one more operator makes the result.

        If the convolution under a bias is needed elsewhere too, adding the bias is better than a second convolution;
        but a softmax stays a softmax where its maximum is needed elsewhere. Constants and mere repetition cost nothing.
        """
        roots = {out.node for out in self.outputs}
        worth = {node for node in self.covered if not node.constant and not _repeats(node)}
        if len(worth) < 2:
            return ()
        below = _below(self.covered)
        inside = [node for node in worth - roots if len(worth - below[node]) <= 1]
        return tuple(sorted(inside, key=lambda node: node.uid))

    @property
    def constant(self) -> bool:
        """Whether it depends on no input of the model."""
        return all(out.node.constant for out in self.outputs)

    def node(self, names: Mapping[Value, str]) -> onnx.NodeProto:
        """The node with these names for its values; a slot of nobody keeps the name that the template has there."""
        written = onnx.NodeProto()
        written.CopyFrom(self.template)
        old = list(written.output)
        del written.input[:], written.output[:]
        written.input.extend("" if value is None else names[value] for value in self.slots)
        for k, out in enumerate(self.results):
            kept = old[k] if k < len(old) else ""
            written.output.append(kept if out is None else names[out])
        return written


def _repeats(node: Node) -> bool:
    """Whether a node only puts something smaller into more axes: nothing worth sharing."""
    return len(node.args) == 1 and len(node.args[0].shape or ()) < len(node.types[0].shape or ())


def _below(nodes: frozenset[Node]) -> dict[Node, frozenset[Node]]:
    """For each of these nodes itself and those of them that it is computed from."""
    found: dict[Node, frozenset[Node]] = {}
    for node in sorted(nodes, key=lambda one: one.uid):  # arguments are older than what reads them
        found[node] = frozenset({node}).union(*(found[arg.node] for arg in node.args if arg.node in found))
    return found


class NotWritten(Exception):
    """A form does not apply to a value."""


@dataclass
class Forms:
    """The declarations of a specification that can write a node for a model with these opset versions."""

    spec: Spec
    arena: Arena
    opsets: Mapping[str, int]
    _by_root: dict[str, list[s.Macro]] = field(default_factory=dict)
    _implicit: dict[str, list[s.Macro]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sketches = Sketches(self.spec)
        self._sketch = {macro.name: self._sketches.of_macro(macro) for macro in self.spec.macros.values()}
        for macro in self.spec.macros.values():
            roots = {root for form in (macro.body, *macro.forms) for root in self._roots(form)}
            for root in sorted(roots):
                if any(self.usable(form) for form in macro.onnx):
                    self._by_root.setdefault(root, []).append(macro)
                if macro.implicit is not None:
                    self._implicit.setdefault(root, []).append(macro)

    def _roots(self, term: s.Term) -> set[str]:
        """The operators that can stand at the top of a term."""
        match term:
            case s.Apply(op) if op in self.spec.operators:
                return {op}
            case s.Apply(op):
                return self._roots(self.spec.macros[op].body)
            case s.Choose(_, then, otherwise):
                return self._roots(then) | self._roots(otherwise)
        return set()

    def usable(self, form: s.OnnxForm) -> bool:
        """Whether a form is for the model's opset."""
        version = self.opsets.get(form.domain)
        return version is not None and form.since <= version and (form.until is None or version <= form.until)

    def macros(self, value: Value) -> list[Tile]:
        """The nodes that compute a value as a macro, those that cover most first."""
        found: list[Tile] = []
        for macro in self._by_root.get(value.node.op, []):
            if not self._sketches.fits(self._sketch[macro.name], value):
                continue
            for bindings in match_macro(macro, value, self.spec):
                tile = self._macro(macro, value, bindings)
                if tile is not None:
                    found.append(tile)
                    break
        return sorted(found, key=lambda tile: -len(tile.covered))

    def _macro(self, macro: s.Macro, value: Value, bindings: Bindings) -> Tile | None:
        args = tuple(bindings.tensors[param.name] for param in macro.params)
        attrs = {decl.name: bindings.attrs[decl.name] for decl in macro.attrs}
        try:
            scope = solve(macro, [arg.shape for arg in args], attrs, partial=True).scope
        except (ShapeError, SpecError):
            return None
        return self._first(macro, value, args, scope, frozenset(bindings.nodes) | {value.node})

    def operator(self, value: Value) -> list[Tile]:
        """The nodes that compute a value as the operator it is."""
        node = value.node
        declared = self.spec.operators[node.op]
        shapes = [arg.shape for arg in node.args]
        try:
            scope = solve(declared, shapes, dict(node.attrs), result=value.shape).scope
        except (ShapeError, SpecError):
            return []
        found = []
        flat = self._flattened(value)
        for args, covered in ([flat] if flat is not None else []) + [(node.args, frozenset({node}))]:
            tile = self._first(declared, value, args, scope, covered, variadic=len(args) > len(node.args))
            if tile is not None:
                found.append(tile)
        return found

    def _first(
        self,
        declared: Declared,
        value: Value,
        args: tuple[Value, ...],
        scope: Scope,
        covered: frozenset[Node],
        variadic: bool = False,
    ) -> Tile | None:
        for form in declared.onnx:
            if self.usable(form) and (form.variadic or not variadic):
                try:
                    return self._write(declared, form, value, args, scope, covered)
                except (
                    NotWritten,
                    ShapeError,
                    SpecError,
                    ValueError,
                ):  # ValueError: a number that does not fit its type
                    continue
        return None

    def _write(
        self,
        declared: Declared,
        form: s.OnnxForm,
        value: Value,
        args: tuple[Value, ...],
        scope: Scope,
        covered: frozenset[Node],
    ) -> Tile:
        if form.when is not None and holds(form.when, scope) is not True:
            raise NotWritten
        if form.broadcasting:
            args, more = self._implicitly(args, value.shape)
            covered |= more
        tensors = {param.name: arg for param, arg in zip(declared.params, args)}
        slots: list[Value | None] = []
        for arg in form.args:
            slots.append(self._slot(arg, tensors, scope, value.type.dtype))
        slots.extend(args[len(declared.params) :])  # those of a flattened chain
        known = schema(form.op_type, form.domain, self.opsets[form.domain])
        _check_types(known, slots)
        template = onnx.NodeProto(op_type=form.op_type, domain=form.domain)
        for name, expr in form.attrs:
            real = (
                known is not None and name in known.attributes and known.attributes[name].type.name.startswith("FLOAT")
            )
            number = evaluate(real_division(expr) if real else expr, scope)
            if not _plain(number):
                raise NotWritten
            template.attribute.append(attribute(name, number, known))
        return Tile(template, tuple(slots), (value,), covered)

    def _slot(self, arg: s.OnnxArg, tensors: Mapping[str, Value], scope: Scope, dtype: str) -> Value | None:
        if arg.value is None:
            return None
        if arg.kind == "tensor":
            assert isinstance(arg.value, (s.Var, s.Literal, s.Apply, s.Choose, s.Fold))
            return self.arena.build(arg.value, tensors, scope.values, dtype)
        assert not isinstance(arg.value, (s.Var, s.Literal, s.Apply, s.Choose, s.Fold))
        if arg.kind == "ints":
            number = evaluate(arg.value, scope)
            if not _plain(number):
                raise NotWritten
            return self.arena.constant(np.asarray(number, np.int64), "int64")
        number = evaluate(real_division(arg.value), scope)
        if not _plain(number):
            raise NotWritten
        return self.arena.filled(number, (), dtype)

    def _flattened(self, value: Value) -> tuple[tuple[Value, ...], frozenset[Node]] | None:
        """The arguments of a chain of one operator with equal attributes as one list; None if there is no chain."""
        node = value.node
        if not any(form.variadic and self.usable(form) for form in self.spec.operators[node.op].onnx):
            return None
        args: list[Value] = []
        covered: set[Node] = set()
        todo = [value]
        while todo:
            one = todo.pop()
            if one.node.op == node.op and one.node.attrs == node.attrs:
                covered.add(one.node)
                todo.extend(reversed(one.node.args))
            else:
                args.append(one)
        return (tuple(args), frozenset(covered)) if len(covered) > 1 else None

    # --- implicit broadcasting

    def _implicitly(self, args: tuple[Value, ...], result: Shape | None) -> tuple[tuple[Value, ...], frozenset[Node]]:
        """Arguments without what ONNX does to them by itself, as long as the result keeps its shape."""
        short = [self.implicit(arg) for arg in args]
        choices = [tuple(range(len(args)))]
        choices += [tuple(k for k in range(len(args)) if k != left) for left in range(len(args))] + [()]
        for choice in choices:
            written = tuple(short[k] if k in choice else arg for k, arg in enumerate(args))
            try:
                fits = numpy_shape(*(arg.shape or () for arg in written)) == result
            except ValueError:
                fits = False
            if fits:
                covered = {args[k].node for k in choice if written[k] != args[k]}
                return written, frozenset(covered)
        return args, frozenset()

    def implicit(self, value: Value) -> Value:
        """The value that ONNX would repeat into this one by itself, or the value itself."""
        for macro in self._implicit.get(value.node.op, []):
            if not self._sketches.fits(self._sketch[macro.name], value):
                continue
            for bindings in match_macro(macro, value, self.spec):
                assert macro.implicit is not None
                attrs = {decl.name: bindings.attrs[decl.name] for decl in macro.attrs}
                return self.arena.build(macro.implicit, bindings.tensors, attrs, value.type.dtype)
        operator = self.spec.operators.get(value.node.op)
        if operator is None or operator.implicit is None:
            return value
        tensors = {param.name: arg for param, arg in zip(operator.params, value.node.args)}
        try:
            scope = solve(
                operator, [arg.shape for arg in value.node.args], dict(value.node.attrs), result=value.shape
            ).scope
            return self.arena.build(operator.implicit, tensors, scope.values, value.type.dtype)
        except (ShapeError, SpecError):
            return value


def writings(forms: Forms, value: Value) -> Iterator[Tile]:
    """All nodes that can compute a value of a specified operator, the ones to prefer first."""
    yield from forms.macros(value)
    yield from forms.operator(value)


def _plain(number: Any) -> bool:
    if isinstance(number, tuple):
        return all(_plain(one) for one in number)
    return not isinstance(number, Poly) and isinstance(number, (int, Fraction, float, str, bool))


def _check_types(known: Any, slots: list[Value | None]) -> None:
    """Raise NotWritten where the operator's schema does not take an element type."""
    if known is None:
        return
    for k, value in enumerate(slots):
        declared = known.inputs[min(k, len(known.inputs) - 1)]
        if value is not None and value.type.dtype and f"tensor({value.type.dtype})" not in declared.types:
            raise NotWritten
