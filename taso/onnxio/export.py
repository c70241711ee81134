"""From a graph back to a model: everything that was not rewritten comes out as it went in, names and order included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import onnx

from taso.errors import ExportError
from taso.graph.graph import INPUT, Graph, Value
from taso.hardware.runtime import Worker
from taso.onnxio.context import Context, subgraphs
from taso.onnxio.fold import Folded, fold, tensor_of
from taso.onnxio.tile import Tile, Tiler
from taso.version import __version__

_BEFORE_OPTIONAL_INPUTS = 4  # the IR version since which a stored tensor need not be an input as well


def export_model(
    graph: Graph,
    context: Context,
    tiler: Tiler,
    *,
    max_growth: float = 0.1,
    fold_constants: bool = True,
    worker: Worker | None = None,
) -> onnx.ModelProto:
    """The model that computes a graph, with the inputs, outputs and everything else of the model it was read from.

    Args:
        max_growth: by what fraction the stored tensors may grow through constants that are computed now (see `fold`).
        fold_constants: False leaves the computation of constants in the model.
        worker: the runtime process that computes constants; one is started if it is needed and none is given.

    Raises:
        ExportError: no operator of the model's opset writes some value.
    """
    tiles = tiler.cover(graph)
    if fold_constants:
        folded = fold(tiles, graph.outputs, context, max_growth=max_growth, worker=worker)
    else:
        folded = Folded({}, tiles)
    return _Writer(graph, context, folded).model()


@dataclass
class _Writer:
    graph: Graph
    context: Context
    folded: Folded
    names: dict[Value, str] = field(default_factory=dict)
    copies: list[tuple[Value, str]] = field(default_factory=list)

    def model(self) -> onnx.ModelProto:
        source = self.context.model
        self._name_everything()
        written = onnx.ModelProto()
        for descriptor, value in source.ListFields():
            if descriptor.name == "graph":
                continue
            if isinstance(value, (int, str, bytes)):
                setattr(written, descriptor.name, value)
            else:
                getattr(written, descriptor.name).MergeFrom(value)
        for descriptor, value in source.graph.ListFields():
            if descriptor.name not in ("node", "initializer", "value_info", "quantization_annotation"):
                target = written.graph
                setattr(target, descriptor.name, value) if isinstance(value, str) else getattr(
                    target, descriptor.name
                ).MergeFrom(value)
        self._nodes(written.graph)
        self._tensors(written.graph)
        self._annotations(written.graph)
        if self._changed(written.graph):
            _stamp(written)
        return written

    # --- names

    def _name_everything(self) -> None:
        self.taken = _all_names(self.context.model)
        self.counts: dict[str, int] = {}
        model = self.context.model.graph
        for info, value in zip(model.input, self.graph.inputs):
            self.names[value] = info.name
        reserved = {info.name for info in model.output}
        made = {out for tile in self.folded.tiles for out in tile.outputs}
        for info, value in zip(model.output, self.graph.outputs):
            if value in self.names:
                if self.names[value] != info.name:
                    self.copies.append((value, info.name))
            elif value in made or value in self.folded.tensors or info.name in self._stored_names(value):
                self.names[value] = info.name
            else:
                self.copies.append((value, info.name))
        self.used = reserved | set(self.names.values())
        values = [value for value in self._values() if value not in self.names]
        for value in values:  # first those that are what they were, then those that replace something
            self._take(value, [*self._stored_names(value), *self.context.names.get(value, [])])
        for value in values:
            if value not in self.names and not value.node.constant:
                self._take(value, [name for old in self._older(value) for name in self.context.names.get(old, [])])
        for value in values:
            if value not in self.names:
                self.names[value] = self._fresh(self._hint.get(value, "constant"))

    def _take(self, value: Value, names: Iterable[str]) -> None:
        """Give a value the first name that is free."""
        for name in names:
            if name not in self.used:
                self.names[value] = name
                self.used.add(name)
                return

    def _older(self, value: Value) -> list[Value]:
        """The original values of the same type that a value replaces."""
        older = self.context.arena.older(value)
        return [old for old in older if old.type == value.type]

    def _values(self) -> Iterable[Value]:
        self._hint: dict[Value, str] = {}
        found: dict[Value, None] = {}
        for tile in self.folded.tiles:
            found.update(dict.fromkeys((*tile.inputs, *tile.outputs)))
            self._hint.update(dict.fromkeys(tile.outputs, tile.template.op_type))
        found.update(dict.fromkeys(value for value, _ in self.copies))
        return list(found)

    def _stored_names(self, value: Value) -> list[str]:
        if value.node.op == INPUT:
            return self.context.names.get(value, [])
        return [name for name in self.context.names.get(value, []) if name in self.context.initializers]

    def _fresh(self, hint: str) -> str:
        while True:
            self.counts[hint] = self.counts.get(hint, 0) + 1
            name = f"taso_{hint.lower()}_{self.counts[hint]}"
            if name not in self.taken:
                self.taken.add(name)
                return name

    # --- parts of the graph

    def _nodes(self, graph: onnx.GraphProto) -> None:
        seen: set[str] = set()
        given = set(self.names.values()) | {name for _, name in self.copies}
        for tile in self.folded.tiles:
            node = tile.node(self.names)
            renamed = {name: self.names[value] for name, value in tile.captured if self.names[value] != name}
            if renamed:
                for inner in subgraphs(node):
                    rename(inner, renamed)
            if tile.index is None:
                self._describe(node, tile)
            if (tile.index is None and not node.name) or (node.name and node.name in seen):
                node.name = self._fresh(node.op_type)
            seen.add(node.name)
            for slot, name in enumerate(node.output):
                if name and tile.results[slot] is None and name in given:
                    node.output[slot] = self._fresh(node.op_type)
            graph.node.append(node)
        for value, name in self.copies:
            graph.node.append(self._copy(value, name))

    def _describe(self, node: onnx.NodeProto, tile: Tile) -> None:
        """Name and comments of the original node of the same operator that a new one replaces, if there is one."""
        for out in tile.outputs:
            for old in self._older(out):
                for origin in self.context.origins.get(old, []):
                    if origin.node.op_type == node.op_type and origin.node.domain == node.domain:
                        node.name, node.doc_string = origin.node.name, origin.node.doc_string
                        node.metadata_props.extend(origin.node.metadata_props)
                        return

    def _copy(self, value: Value, name: str) -> onnx.NodeProto:
        """The node that gives an output a second name for a value; the original one if there was one."""
        original = self.context.copies.get(name)
        if original is None or self.context.values[name] != value:
            operator = self._role("copy")
            return onnx.NodeProto(
                op_type=operator, input=[self.names[value]], output=[name], name=self._fresh(operator)
            )
        node = onnx.NodeProto()
        node.CopyFrom(original)
        for slot, given in enumerate(node.input):
            if given:
                node.input[slot] = self.names[value]
        return node

    def _role(self, role: str) -> str:
        for domain, op_type in self.context.arena.spec.roles.get(role, []):
            if domain == "" and "" in self.context.opsets:
                return op_type
        raise ExportError(f"the specification names no operator for the role `{role}`")

    def _tensors(self, graph: onnx.GraphProto) -> None:
        """Stored tensors: the old ones that are still read, in their order and as they were, then new ones."""
        made = {out for tile in self.folded.tiles for out in tile.outputs}
        source = self.context.model.graph
        inputs = {info.name for info in source.input}
        written = {name: value for value, name in self.names.items()}
        for tensor in source.initializer:
            value = written.get(tensor.name)
            if tensor.name in inputs or (
                value is not None and self.context.values[tensor.name] == value and value not in self.folded.tensors
            ):
                graph.initializer.append(tensor)
        present = {tensor.name for tensor in graph.initializer}
        for value, name in self.names.items():
            if value in made or value.node.op == INPUT or name in present:
                continue
            make = self.folded.tensors.get(value) or tensor_of(value, self.context)
            self._store(graph, make, name)

    def _store(self, graph: onnx.GraphProto, make: Callable[[str], onnx.TensorProto], name: str) -> None:
        if self.context.model.ir_version >= _BEFORE_OPTIONAL_INPUTS:
            graph.initializer.append(make(name))
            return
        holder = self._role("constant")
        node = onnx.NodeProto(op_type=holder, output=[name], name=self._fresh(holder))
        node.attribute.append(onnx.helper.make_attribute("value", make("")))
        graph.node.insert(0, node)

    def _annotations(self, graph: onnx.GraphProto) -> None:
        """What the model said about tensors, as far as they are still there."""
        source = self.context.model.graph
        kept = {name for value, name in self.names.items() if self._still(name, value)}
        graph.value_info.extend(info for info in source.value_info if info.name in kept)
        present = {tensor.name for tensor in graph.initializer} | set(self.names.values())
        graph.quantization_annotation.extend(
            one for one in source.quantization_annotation if one.tensor_name in present
        )

    def _still(self, name: str, value: Value) -> bool:
        """Whether a name stands for what it stood for, or for something equal of the same type."""
        original = self.context.values.get(name)
        return original is not None and (original == value or original in self._older(value))

    def _changed(self, graph: onnx.GraphProto) -> bool:
        return list(graph.node) != list(self.context.model.graph.node)


def _all_names(model: onnx.ModelProto) -> set[str]:
    found: set[str] = set()
    todo = [model.graph]
    while todo:
        graph = todo.pop()
        found |= {one.name for one in (*graph.input, *graph.output, *graph.initializer, *graph.node)}
        found |= {one.values.name for one in graph.sparse_initializer}
        for node in graph.node:
            found.update(node.input, node.output)
            todo.extend(subgraphs(node))
    return found


def rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename what a subgraph reads from outside, at every depth; names that it defines itself stay."""
    todo = [(graph, dict(names))]
    while todo:
        inner, outside = todo.pop()
        own = {one.name for one in (*inner.input, *inner.initializer)} | {
            name for node in inner.node for name in node.output
        }
        visible = {old: new for old, new in outside.items() if old not in own}
        for node in inner.node:
            for k, name in enumerate(node.input):
                if name in visible:
                    node.input[k] = visible[name]
            todo.extend((deeper, visible) for deeper in subgraphs(node))
        for info in inner.output:
            if info.name in visible:
                info.name = visible[info.name]


def _stamp(model: onnx.ModelProto) -> None:
    for entry in model.metadata_props:
        if entry.key == "taso":
            entry.value = __version__
            return
    model.metadata_props.add(key="taso", value=__version__)
