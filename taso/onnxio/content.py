"""What is known of the elements of small tensors while a model is read: constants, and numbers that describe shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from taso.algebra.poly import evaluate as quantity_value
from taso.errors import ShapeError, SpecError
from taso.graph.graph import CONSTANT
from taso.onnxio.context import STANDARD, Context, domain_of, subgraphs
from taso.onnxio.reading import Known, NotRead, applies, bind
from taso.onnxio.tensor import SMALL, Array, from_array
from taso.spec import syntax as s
from taso.spec.evaluate import evaluate
from taso.spec.value import Shape

_DEPTH = 200  # nodes between a tensor and the constants and shapes that it is computed from


@dataclass
class Contents:
    """Looks up what the elements of a tensor are, by name; computed when asked for, from the nodes that lead to it."""

    context: Context
    producers: Mapping[str, onnx.NodeProto]
    random: frozenset[tuple[str, str]]
    _memo: dict[str, Known] = field(default_factory=dict)
    _active: int = 0

    def known(self, name: str) -> Known:
        """The elements, None where they are not known or too many. Every tensor before `name` must have its value."""
        if name not in self._memo:
            if self._active >= _DEPTH:
                return None
            self._active += 1
            try:
                self._memo[name] = self._find(name)
            finally:
                self._active -= 1
        return self._memo[name]

    def array(self, name: str, sizes: Mapping[str, int]) -> Array | None:
        """The elements as an array of the tensor's own type, symbols replaced by sizes; None where not known."""
        content = self.known(name)
        if content is None or isinstance(content, np.ndarray):
            return content
        dtype = self.context.values[name].type.dtype
        try:
            if isinstance(content, tuple):
                return np.array([quantity_value(item, sizes) for item in content], dtype=dtype or "int64")
            return np.array(quantity_value(content, sizes), dtype=dtype or "int64")
        except (KeyError, TypeError):
            return None

    def extent(self, node: onnx.NodeProto) -> Shape | None:
        """The declared shape of a node's only output, if there is a declaration that applies."""
        found = self._told(self.context.arena.spec.extents, node)
        return found if isinstance(found, tuple) else None

    def _find(self, name: str) -> Known:
        value = self.context.values.get(name)
        if value is not None and value.node.op == CONSTANT:
            payload = value.node.payload
            return payload if isinstance(payload, np.ndarray) and payload.size <= SMALL else None
        node = self.producers.get(name)
        if node is None or (value is not None and not _small(value.shape)):
            return None
        found = self._declared(node, name)
        return self._computed(node, name) if found is None else found

    def _declared(self, node: onnx.NodeProto, name: str) -> Known:
        return self._told(self.context.arena.spec.contents, node) if list(node.output) == [name] else None

    def _told(self, declared: Mapping[tuple[str, str], list[s.Content]], node: onnx.NodeProto) -> Known:
        domain = domain_of(node)
        for declaration in declared.get((domain, node.op_type), []):
            if applies(declaration, self.context.opsets.get(domain)):
                try:
                    bound = bind(declaration, node, self.context.values, self.known)
                    found: Known = evaluate(declaration.body, bound.scope)
                except (NotRead, ShapeError, SpecError, KeyError):
                    continue
                return found
        return None

    def _computed(self, node: onnx.NodeProto, name: str) -> Known:
        """By onnx's reference implementation, where all inputs are known."""
        domain = domain_of(node)
        if domain not in STANDARD or (domain, node.op_type) in self.random or subgraphs(node):
            return None
        feeds: dict[str, Array] = {}
        for given in filter(None, node.input):
            array = self.array(given, {})
            if array is None:
                return None
            feeds[given] = array
        try:
            computed = run_node(node, feeds, self.context.opsets)[list(node.output).index(name)]
        except Exception:  # noqa: BLE001 - the reference implementation raises whatever its NumPy code raises
            return None
        return computed if isinstance(computed, np.ndarray) and computed.size <= SMALL else None


def run_node(node: onnx.NodeProto, feeds: Mapping[str, Array], opsets: Mapping[str, int]) -> list[Array]:
    """The outputs of one node by onnx's reference implementation, which raises whatever goes wrong."""
    inputs = [onnx.ValueInfoProto(name=name) for name in feeds]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.GraphProto(name="one node", node=[node], input=inputs, output=outputs)
    for one in inputs:
        one.type.tensor_type.elem_type = from_array(feeds[one.name], "", one.name).data_type
    model = onnx.ModelProto(ir_version=8, graph=graph)
    model.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items())
    computed = ReferenceEvaluator(model).run(None, dict(feeds))
    by_name = dict(zip((one.name for one in outputs), computed))
    return [by_name.get(name) for name in node.output]  # type: ignore[misc]


def _small(shape: object) -> bool:
    if not isinstance(shape, tuple):
        return True
    total = 1
    for extent in shape:
        if not isinstance(extent, int):
            return True  # a list whose length is not known: its declaration says
        total *= extent
    return total <= SMALL
