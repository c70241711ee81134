"""From a model to a graph: what the specification declares becomes operators, everything else stays as it is.

Nothing fails here: a node that no `import` declaration fits, for whatever reason, is an opaque node of the graph, and
the reason is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import AttributeProto, TypeProto, numpy_helper

from taso.algebra.poly import Poly, Quantity, names
from taso.errors import MeasureError, ShapeError, SpecError, TasoError
from taso.graph.graph import CONSTANT, Arena, Graph, Node, TensorType, Value
from taso.onnxio.content import Contents
from taso.onnxio.context import (
    STANDARD,
    Context,
    Imported,
    Opaque,
    Origin,
    captured_names,
    domain_of,
    opset_versions,
    subgraphs,
)
from taso.onnxio.load import default_sizes
from taso.onnxio.reading import NotRead, WrongArity, applies, bind, mentions, read
from taso.onnxio.shapes import Question, Symbols, declared_type, infer, inferred_type, type_proto
from taso.onnxio.tensor import LAZY_BYTES, SMALL, Stored, byte_size, dtype_name, from_array
from taso.spec import syntax as s
from taso.spec.node import schema

if TYPE_CHECKING:
    from taso.hardware.runtime import Worker

# Element types whose constants are NumPy arrays in the graph; others stay as the model stores them.
_PLAIN = {
    "float", "double", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
}  # fmt: skip


def import_model(
    model: onnx.ModelProto,
    arena: Arena,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    worker: Worker | None = None,
) -> Imported:
    """Read a model; its nodes must be sorted (`load_model` sees to that). The model is not changed.

    Args:
        shapes: concrete shapes of inputs for measuring, by name; the others get usual ones (`load.default_sizes`).
        worker: if given, sizes that inference does not find are found by running the model once on random inputs.

    Raises:
        UsageError: `shapes` has an unknown input or does not fit.
    """
    reader = _Reader(Context(model, arena, opset_versions(model)), default_sizes(model, shapes or {}))
    reader.leaves()
    for index, node in enumerate(model.graph.node):
        reader.node(index, node)
    graph = Graph(
        tuple(reader.context.values[one.name] for one in model.graph.output),
        tuple(reader.context.values[one.name] for one in model.graph.input),
    )
    if worker is not None:
        reader.discover(graph, worker)
    return Imported(graph, reader.context)


@dataclass
class _Reader:
    """The walk over a model's nodes. `protos` are the types of tensors that are no plain tensors of known rank."""

    context: Context
    inputs: Mapping[str, tuple[int, ...]]
    symbols: Symbols = field(default_factory=Symbols)
    protos: dict[str, TypeProto] = field(default_factory=dict)
    declared: dict[str, TypeProto] = field(default_factory=dict)
    consumed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        model, spec = self.context.model, self.context.arena.spec
        self.random = frozenset(spec.roles.get("random", []))
        self.packed = frozenset(spec.roles.get("packed", []))
        self.constants = frozenset(spec.roles.get("constant", []))
        self.functions = {(one.domain, one.name) for one in model.functions}
        producers = {name: node for node in model.graph.node for name in node.output if name}
        self.contents = self.context.contents = Contents(self.context, producers, self.random)
        self.declared = {
            one.name: one.type for one in (*model.graph.value_info, *model.graph.output) if one.HasField("type")
        }
        self.consumed = {one.name for one in model.graph.output}
        for node in model.graph.node:
            self.consumed.update(node.input)
            self.consumed.update(captured_names(node))

    # --- leaves

    def leaves(self) -> None:
        """Inputs and stored tensors. A stored tensor that is an input too may be overridden: it is an input."""
        graph, context = self.context.model.graph, self.context
        for info in graph.input:
            type_ = declared_type(info.type, self.symbols, info.name)
            if type_.shape is None:
                self.protos[info.name] = info.type
            self._learn(type_, self.inputs.get(info.name))
            context.name(info.name, context.arena.input(info.name, type_))
        for sparse in graph.sparse_initializer:  # stays where it is, like an input
            name = sparse.values.name
            type_ = TensorType(dtype_name(sparse.values.data_type), tuple(map(int, sparse.dims)))
            context.name(name, context.arena.input(name, type_))
        for tensor in graph.initializer:
            if tensor.name not in context.values:
                context.initializers[tensor.name] = tensor
                context.name(tensor.name, self._constant(tensor, tensor.name))

    def _learn(self, type_: TensorType, shape: Sequence[int] | None) -> None:
        for extent, size in zip(type_.shape or (), shape or ()):
            if isinstance(extent, Poly) and str(extent) in names(extent):
                self.context.sizes.setdefault(str(extent), int(size))

    def _constant(self, tensor: onnx.TensorProto, name: str) -> Value:
        """A tensor that the model holds under a name; large ones are told apart by it, others by what they hold."""
        arena, dtype = self.context.arena, dtype_name(tensor.data_type)
        type_ = TensorType(dtype, tuple(map(int, tensor.dims)))
        if byte_size(tensor) > LAZY_BYTES:
            return arena.stored(("named", name, dtype, type_.shape), type_, Stored(tensor))
        if dtype not in _PLAIN:
            copy = onnx.TensorProto()
            copy.CopyFrom(tensor)
            copy.ClearField("name")
            copy.ClearField("doc_string")
            return arena.stored(("bytes", copy.SerializeToString(deterministic=True)), type_, Stored(tensor))
        return arena.constant(numpy_helper.to_array(tensor), dtype)

    # --- nodes

    def node(self, index: int, node: onnx.NodeProto) -> None:
        """Take in one node, whose inputs are all known."""
        values = self.context.values
        domain = domain_of(node)
        if (domain, node.op_type) in self.constants:
            found = self._held(node)
            if found is not None:
                self._define(index, node, (found,), ())
                return
        reason = self._understood(index, node, domain)
        if reason is not None:
            self.context.reasons.append((node.name or node.op_type, f"{node.op_type}: {reason}"))
            missing = [name for name in (*node.input, *captured_names(node)) if name and name not in values]
            if missing:
                raise TasoError(f'node "{node.name or node.op_type}" reads "{missing[0]}", which nothing computes')
            self._opaque(index, node, domain)

    def _understood(self, index: int, node: onnx.NodeProto, domain: str) -> str | None:
        """Try the declarations in order; None if one applied, else why not."""
        version = self.context.opsets.get(domain)
        found = self.context.arena.spec.imports.get((domain, node.op_type), [])
        if not found or (domain, node.op_type) in self.functions:
            return "not specified"
        reason = f"not specified for opset {version}"
        used = [k for k, name in enumerate(node.output) if name and name in self.consumed]
        for declaration in found:
            if not applies(declaration, version):
                continue
            if any(k > 0 for k in used) and not mentions((declaration.body, declaration.when), "output"):
                reason = "further outputs are used"
                continue
            try:
                self._apply(declaration, index, node)
            except (NotRead, ShapeError, SpecError) as error:
                if not isinstance(error, WrongArity) or reason.startswith("not specified"):
                    reason = error.problem if isinstance(error, SpecError) else str(error)
                continue
            return None
        return reason

    def _apply(self, declaration: s.Import, index: int, node: onnx.NodeProto) -> None:
        several = mentions((declaration.body, declaration.when), "output")
        outputs: list[Value | None] = [None] * len(node.output)
        extras: tuple[Value, ...] = ()
        for k in range(len(node.output)):
            if node.output[k] and (k == 0 or several):
                bound = bind(declaration, node, self.context.values, self.contents.known, k)
                outputs[k] = read(declaration, bound, self.context.arena)
                extras = bound.extras
        self._define(index, node, outputs, tuple(value for value in extras if not value.node.constant))

    def _define(
        self, index: int, node: onnx.NodeProto, outputs: Sequence[Value | None], extras: tuple[Value, ...]
    ) -> None:
        """Name a node's values; the node is an origin of those that are not older than what it reads."""
        context = self.context
        inputs = tuple(context.values[name] if name else None for name in node.input)
        # A value is made after its arguments: only one that is younger than all inputs is certain not to be below them.
        newest = max((value.node.uid for value in inputs if value is not None), default=-1)
        fresh = tuple(out if out is not None and self._is_new(out, newest) else None for out in outputs)
        origin = Origin(index, node, inputs, fresh, extras)
        given = [name for name in node.input if name]
        for name, out, new in zip(node.output, outputs, fresh):
            if len(given) == 1 and len(node.output) == 1 and out == context.values[given[0]]:
                context.copies[name] = node
            if out is not None:
                context.name(name, out)
            if new is not None:
                context.origins.setdefault(new, []).append(origin)

    def _is_new(self, out: Value, newest: int) -> bool:
        if out.node.op == CONSTANT:  # held by the node itself, unless a stored tensor is the same
            return out not in self.context.names
        return out.node.uid > newest

    def _held(self, node: onnx.NodeProto) -> Value | None:
        """The tensor in a constant node's attribute; None for forms that are left alone (sparse tensors)."""
        if len(node.attribute) != 1:
            return None
        attribute = node.attribute[0]
        kind = attribute.type
        if kind == AttributeProto.TENSOR:
            return self._constant(attribute.t, node.output[0])
        if kind in (AttributeProto.FLOAT, AttributeProto.FLOATS):
            numbers = attribute.f if kind == AttributeProto.FLOAT else list(attribute.floats)
            return self.context.arena.constant(np.array(numbers, np.float32), "float")
        if kind in (AttributeProto.INT, AttributeProto.INTS):
            numbers = attribute.i if kind == AttributeProto.INT else list(attribute.ints)
            return self.context.arena.constant(np.array(numbers, np.int64), "int64")
        return None

    # --- opaque nodes

    def _opaque(self, index: int, node: onnx.NodeProto, domain: str) -> None:
        values = self.context.values
        captured = captured_names(node)
        read_names = list(dict.fromkeys([*filter(None, node.input), *captured]))
        place = {name: k for k, name in enumerate(read_names)}
        slots = tuple(place[name] if name else None for name in node.input)
        deterministic = self._deterministic(node, domain)
        payload = Opaque(
            _key(node, slots, len(captured)) if deterministic else ("unique", index),
            index, node, slots, tuple((name, place[name]) for name in captured), deterministic,
        )  # fmt: skip
        args = [values[name] for name in read_names]
        packed = (domain, node.op_type) in self.packed
        constant = deterministic and not packed and all(arg.node.constant for arg in args)
        types, protos = self._types(node, read_names)
        made = self.context.arena.opaque(payload, payload.key, args, types, constant=constant)
        for k, name in enumerate(node.output):
            if name:
                self.context.name(name, Value(made, k))
                if made.types[k].shape is None and name in protos:
                    self.protos[name] = protos[name]

    def _deterministic(self, node: onnx.NodeProto, domain: str) -> bool:
        todo = [node]
        while todo:
            one = todo.pop()
            where = domain_of(one)
            if where not in STANDARD or (where, one.op_type) in self.random or (where, one.op_type) in self.functions:
                return False
            if schema(one.op_type, where, self.context.opsets.get(where, 1)) is None:
                return False  # an operator of somebody's own that lives in a domain of ours
            todo.extend(inner for graph in subgraphs(one) for inner in graph.node)
        return True

    def _types(self, node: onnx.NodeProto, read_names: Sequence[str]) -> tuple[list[TensorType], dict[str, TypeProto]]:
        meaning: dict[str, Quantity] = {}
        types: dict[str, TypeProto] = {}
        for name in read_names:
            types[name], named = self._type_of(name)
            meaning |= named
        model = self.context.model
        functions = model.functions if (node.domain, node.op_type) in self.functions else ()
        question = Question(node, types, self._constants(node, {}), model.opset_import, functions, model.ir_version)
        protos = infer(question)
        fresh: dict[str, Poly] = {}
        found: list[TensorType] = []
        for k, name in enumerate(node.output):
            hint = name or f"{node.op_type}_{k}"
            extent = self.contents.extent(node) if k == 0 else None
            if name in protos and extent is not None:
                found.append(TensorType(dtype_name(protos[name].tensor_type.elem_type), extent))
            elif name in protos:
                found.append(inferred_type(protos[name], meaning, self.symbols, fresh, hint))
            else:
                found.append(self._declared_type(name, protos))
        if fresh:
            self._measure(replace(question, constants=self._constants(node, self.context.sizes)), read_names, found)
        return found, protos

    def _type_of(self, name: str) -> tuple[TypeProto, dict[str, Quantity]]:
        value = self.context.values[name]
        if value.shape is None and name in self.protos:
            return self.protos[name], {}
        proto, meaning = type_proto(value.type)
        return proto, meaning

    def _declared_type(self, name: str, protos: dict[str, TypeProto]) -> TensorType:
        """What the model itself says about a tensor that onnx cannot infer.

        A model whose inputs have free dimensions often still has the sizes of one particular input written down; there
        only the rank is believed.
        """
        proto = self.declared.get(name)
        if proto is None:
            return TensorType("", None)
        protos[name] = proto
        type_ = declared_type(proto, self.symbols, name)
        if type_.shape is None or not self.context.sizes:
            return type_
        return TensorType(type_.dtype, tuple(self.symbols.fresh(f"{name}_{axis}") for axis in range(len(type_.shape))))

    def _constants(self, node: onnx.NodeProto, sizes: Mapping[str, int]) -> list[onnx.TensorProto]:
        found = []
        for name in dict.fromkeys(filter(None, node.input)):
            shape = self.context.values[name].shape
            if shape is not None and len(shape) <= 1 and all(not isinstance(n, int) or n <= SMALL for n in shape):
                array = self.contents.array(name, sizes)
                if array is not None and array.dtype.kind in "iufb":
                    found.append(from_array(array, self.context.values[name].type.dtype, name))
        return found

    # --- sizes

    def _measure(self, question: Question, read_names: Sequence[str], found: Sequence[TensorType]) -> None:
        """Sizes of new symbols: the same inference with every known symbol replaced by its size."""
        sizes = self.context.sizes
        types = dict(question.types)
        for name in read_names:
            if self.context.values[name].shape is not None:
                types[name] = type_proto(self.context.values[name].type, sizes)[0]
        protos = infer(replace(question, types=types))
        for name, type_ in zip(question.node.output, found):
            if name in protos and type_.shape is not None and protos[name].tensor_type.HasField("shape"):
                dims = protos[name].tensor_type.shape.dim
                for extent, dim in zip(type_.shape, dims):
                    if isinstance(extent, Poly) and dim.HasField("dim_value") and str(extent) in names(extent):
                        sizes.setdefault(str(extent), int(dim.dim_value))

    def discover(self, graph: Graph, worker: Worker) -> None:
        """Sizes of symbols that inference did not find, by one run on random inputs; best effort."""
        unknown = {n for node in graph.nodes() for n in _symbols(node)} - self.context.sizes.keys()
        if not unknown:
            return
        from taso.hardware.runtime import node_output_shapes
        from taso.onnxio.verify import input_sets

        model = self.context.model
        try:
            feeds = input_sets(model, {k: tuple(v) for k, v in self.inputs.items()}, 1, 0, worker)[0]
            shapes = node_output_shapes(model, feeds, worker)
        except (TasoError, MeasureError, ValueError):  # ValueError: too large to be handed over
            return
        for name, (_, shape) in shapes.items():
            value = self.context.values.get(name)
            if value is not None and value.shape is not None and len(value.shape) == len(shape):
                self._learn(value.type, shape)


def _symbols(node: Node) -> set[str]:
    return {name for type_ in node.types for extent in type_.shape or () for name in names(extent)}


def _key(node: onnx.NodeProto, slots: tuple[int | None, ...], captured: int) -> tuple[object, ...]:
    attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
    names_read = tuple(captured_names(node)) if captured else ()
    outputs = tuple(bool(name) for name in node.output)
    return domain_of(node), node.op_type, tuple(attributes), slots, names_read, outputs
