"""What is remembered of a model while its graph is searched: everything that is needed to write it again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx

from taso.graph.graph import Arena, Graph, Value

STANDARD = ("", "ai.onnx.ml")  # domains whose operators are known to be deterministic unless declared `random`


@dataclass(frozen=True, eq=False)
class Origin:
    """An original node that the graph understands.

    inputs:  the value in each input slot, None where the slot is empty.
    outputs: the value that each output slot defines; None where the slot is empty or its value was there before.
    extras:  those of the inputs that the graph reads as numbers (a Reshape's target), so that their computation is not
             below the node's values in the graph.
    """

    index: int
    node: onnx.NodeProto
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    extras: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False)
class Opaque:
    """An original node that the graph does not understand: the payload of an OPAQUE node.

    key:      equal keys and arguments mean equal results; nodes that may be random have a key of their own.
    slots:    for each input slot the number of the graph node's argument, None where the slot is empty.
    captured: the names that subgraphs read from outside, with the number of the argument.
    """

    key: Hashable
    index: int
    node: onnx.NodeProto
    slots: tuple[int | None, ...]
    captured: tuple[tuple[str, int], ...]
    deterministic: bool


class Elements(Protocol):
    """Looks up small tensors of a model by name."""

    def array(self, name: str, sizes: Mapping[str, int]) -> np.ndarray[Any, Any] | None: ...


@dataclass
class Context:
    """The model behind a graph.

    opsets:       version by domain; "" is the ONNX domain.
    values:       the value that each original tensor name stands for.
    names:        the names that each value had, in order.
    origins:      the original nodes that compute a value.
    copies:       by the name of its output, an original node of one input that gives just that.
    initializers: the stored tensors that are constants of the graph, by name.
    sizes:        a size for each symbol in the graph's shapes, as far as they could be found out: those for measuring.
    contents:     looks up the elements of small original tensors.
    reasons:      why nodes were not understood: (name or operator of the node, reason).
    """

    model: onnx.ModelProto
    arena: Arena
    opsets: dict[str, int] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    names: dict[Value, list[str]] = field(default_factory=dict)
    origins: dict[Value, list[Origin]] = field(default_factory=dict)
    copies: dict[str, onnx.NodeProto] = field(default_factory=dict)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    contents: Elements | None = None
    reasons: list[tuple[str, str]] = field(default_factory=list)

    def name(self, tensor: str, value: Value) -> None:
        """Remember that a tensor name stands for a value."""
        self.values[tensor] = value
        self.names.setdefault(value, []).append(tensor)


@dataclass(frozen=True)
class Imported:
    """A model as a graph, and what is needed to write it back."""

    graph: Graph
    context: Context


def opset_versions(model: onnx.ModelProto) -> dict[str, int]:
    """The opset version of each domain that a model imports; the ONNX domain is ""."""
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}


def is_static(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether a declared dimension has a size; some writers say -1 for a free one."""
    return dim.HasField("dim_value") and dim.dim_value >= 0


def dim_name(dim: onnx.TensorShapeProto.Dimension) -> str | None:
    """The name of a free dimension; None where it has none ("?" is not a name: two of them need not be equal)."""
    return dim.dim_param if any(character.isalnum() for character in dim.dim_param) else None


def domain_of(node: onnx.NodeProto) -> str:
    """The domain of a node's operator; the ONNX domain is ""."""
    return "" if node.domain == "ai.onnx" else node.domain


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs in a node's attributes."""
    found = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    return found + [graph for attribute in node.attribute for graph in attribute.graphs]


def captured_names(node: onnx.NodeProto) -> list[str]:
    """The names from outside that the subgraphs of a node read, in order of first use."""
    found: dict[str, None] = {}
    todo: list[tuple[onnx.GraphProto, frozenset[str]]] = [(graph, frozenset()) for graph in subgraphs(node)]
    for graph, outer in todo:  # which grows on the way
        inner = set(outer) | {one.name for one in graph.input} | {one.name for one in graph.initializer}
        inner |= {one.values.name for one in graph.sparse_initializer}
        inner |= {name for one in graph.node for name in one.output}
        for one in graph.node:
            found.update(dict.fromkeys(name for name in one.input if name and name not in inner))
            todo.extend((deeper, frozenset(inner)) for deeper in subgraphs(one))
        found.update(dict.fromkeys(one.name for one in graph.output if one.name not in inner))
    return list(found)


def all_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes of a graph and of its subgraphs at every depth."""
    found: list[onnx.NodeProto] = []
    todo = [graph]
    while todo:
        for node in todo.pop().node:
            found.append(node)
            todo.extend(subgraphs(node))
    return found
