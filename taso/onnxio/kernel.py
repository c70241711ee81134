"""One node as a model of its own, to be measured: static shapes, constant inputs stored, a name for what it is."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

from taso.errors import ShapeError, SpecError
from taso.graph.graph import CONSTANT, OPAQUE, Node, Value
from taso.hardware.latency import Kernel
from taso.onnxio.context import Context, domain_of, subgraphs
from taso.onnxio.forms import Tile
from taso.onnxio.shapes import sized
from taso.onnxio.tensor import Array, element_type, from_array
from taso.search.uniform import TELLING, uniform
from taso.spec import syntax as s
from taso.spec.evaluate import Scope, evaluate
from taso.spec.lower import run
from taso.spec.shapes import solve

# Numbers that runtimes treat specially (x to the power 2 is a product): they make a kernel of their own.
_SPECIAL = (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0)
_FLOATS = ("float", "double", "float16", "bfloat16")


@dataclass(frozen=True)
class _Slot:
    """An input: its type, and if it is not just any tensor, its elements."""

    dtype: str
    shape: tuple[int, ...]
    constant: bool
    array: Array | None

    @property
    def text(self) -> str:
        """How the kernel's key says it."""
        shown = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        if self.array is None:
            return shown + ("*" if self.constant else "")
        if self.array.dtype.kind == "f" and self.array.size == 1:
            number = float(self.array.reshape(()))
            return f"{shown}={number:g}" if number in _SPECIAL else f"{shown}=some"
        digest = hashlib.sha256(np.ascontiguousarray(self.array).tobytes()).hexdigest()[:12]
        return f"{shown}={self.array.tolist() if self.array.size <= 8 else digest}"


def kernel(tile: Tile, context: Context, sizes: Mapping[str, int]) -> Kernel | None:
    """What has to be measured for a node, or None where it costs nothing (constants) or cannot be measured on its own:
    sizes that are not known, sequences, subgraphs.

    Args:
        sizes: a number for each symbol in the graph's shapes.
    """
    if tile.constant or subgraphs(tile.template):
        return None
    slots: list[_Slot | None] = []
    for k, value in enumerate(tile.slots):
        slot = None if value is None else _slot(tile, k, value, context, sizes)
        if value is not None and slot is None:
            return None
        slots.append(slot)
    results = [None if out is None else _static(out, sizes) for out in tile.results]
    if any(out is not None and result is None for out, result in zip(tile.results, results)):
        return None
    template = tile.template
    domain = domain_of(template)
    attributes = ", ".join(sorted(_attribute_text(attribute) for attribute in template.attribute))
    outputs = "".join("." if result is None else "y" for result in results)
    args = ", ".join("-" if slot is None else slot.text for slot in slots)
    name = f"{domain}.{template.op_type}" if domain else template.op_type
    key = f"{name}@{context.opsets.get(domain, 0)}({args}; {attributes}) {outputs}"

    def build() -> bytes:
        serialized: bytes = _model(tile, slots, results, context, key).SerializeToString()
        return serialized

    given = any(slot is not None and slot.array is not None and not slot.constant for slot in slots)
    inputs = _inputs(slots, build()) if given else None
    return Kernel(key, build, flops=_flops(tile, context, sizes), inputs=inputs)


def _static(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    return sized(value.shape, sizes) if value.shape is not None and value.type.dtype else None


def _slot(tile: Tile, k: int, value: Value, context: Context, sizes: Mapping[str, int]) -> _Slot | None:
    shape = _static(value, sizes)
    if shape is None:
        return None
    dtype, constant = value.type.dtype, value.node.constant
    if tile.opaque is not None and constant and dtype in _FLOATS and math.prod(shape) <= TELLING:
        array = _elements(value, context)
        if array is not None:
            return _Slot(dtype, shape, True, array)
    if constant and dtype in _FLOATS:
        number = uniform(value, context.arena.spec) if math.prod(shape) == 1 else None
        return _Slot(dtype, shape, True, None if number is None else np.full(shape, number))
    array = _elements(value, context) if constant else None
    if array is None and k < len(tile.template.input) and context.contents is not None and dtype not in _FLOATS:
        array = context.contents.array(tile.template.input[k], sizes)
    if array is not None and array.shape != shape:
        return None
    if array is None and constant and element_type(dtype) not in _RANDOM:
        return None
    return _Slot(dtype, shape, constant, array)


_RANDOM = {element_type(dtype) for dtype in (*_FLOATS, "int8", "uint8", "int32", "int64", "bool")}


def _elements(value: Value, context: Context) -> Array | None:
    """The elements of a constant that is stored or belongs to the specification."""
    if value.node.op == CONSTANT:
        return np.asarray(value.node.payload)
    operator = context.arena.spec.operators.get(value.node.op)
    if operator is not None and not operator.params:
        return np.asarray(run(operator, [], dict(value.node.attrs)))
    return None


def _attribute_text(attribute: AttributeProto) -> str:
    if attribute.type == AttributeProto.TENSOR:
        array = numpy_helper.to_array(attribute.t)
        return f"{attribute.name}={array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()[:12]}"
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, (list, tuple)) or hasattr(value, "extend"):
        return f"{attribute.name}={[one.decode() if isinstance(one, bytes) else one for one in value]}"
    return f"{attribute.name}={value.decode() if isinstance(value, bytes) else value}"


def _model(
    tile: Tile, slots: list[_Slot | None], results: list[tuple[int, ...] | None], context: Context, key: str
) -> onnx.ModelProto:
    source = context.model
    model = onnx.ModelProto(ir_version=source.ir_version, graph=onnx.GraphProto(name="kernel"))
    model.opset_import.extend(source.opset_import)
    node = model.graph.node.add()
    node.CopyFrom(tile.template)
    if any((one.domain, one.name) == (node.domain, node.op_type) for one in source.functions):
        model.functions.extend(source.functions)
    node.name = node.doc_string = ""
    del node.input[:], node.output[:]
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    numbers: dict[Value, str] = {}
    for k, (value, slot) in enumerate(zip(tile.slots, slots)):
        name = "" if value is None else numbers.setdefault(value, f"x{k}")
        node.input.append(name)
        if slot is None or name != f"x{k}":
            continue
        info = onnx.helper.make_tensor_value_info(name, element_type(slot.dtype), slot.shape)
        if slot.constant:
            model.graph.initializer.append(from_array(_filled(slot, rng), slot.dtype, name))
            if model.ir_version >= 4:  # before that, every stored tensor had to be an input too
                continue
        model.graph.input.append(info)
    for k, (out, result) in enumerate(zip(tile.results, results)):
        kept = "" if out is None and not (k < len(tile.template.output) and tile.template.output[k]) else f"y{k}"
        node.output.append(kept)
        if out is not None and result is not None:
            model.graph.output.append(onnx.helper.make_tensor_value_info(kept, element_type(out.type.dtype), result))
    return model


def _filled(slot: _Slot, rng: np.random.Generator) -> Array:
    """A constant: small positive numbers are fit for roots, logarithms and variances."""
    if slot.array is not None:
        return slot.array.astype(
            slot.dtype if slot.dtype not in _FLOATS else {"double": "f8", "float16": "f2"}.get(slot.dtype, "f4")
        )
    if slot.dtype in _FLOATS:
        return (0.01 + 0.1 * rng.random(slot.shape)).astype({"double": "f8", "float16": "f2"}.get(slot.dtype, "f4"))
    return rng.integers(0, 2, slot.shape).astype("bool" if slot.dtype == "bool" else slot.dtype)


def _inputs(slots: list[_Slot | None], model: bytes) -> Mapping[str, Array]:
    """Inputs where some are known numbers: random ones for the rest."""
    from taso.onnxio.verify import random_inputs

    feeds = random_inputs(onnx.load_model_from_string(model), {}, seed=0)
    for k, slot in enumerate(slots):
        if slot is not None and slot.array is not None and f"x{k}" in feeds:
            feeds[f"x{k}"] = slot.array
    return feeds


# --- work


def _flops(tile: Tile, context: Context, sizes: Mapping[str, int]) -> float | None:
    """Arithmetic operations by the declared meaning; None where the specification does not know the node."""
    total = 0.0
    for node in tile.covered:
        if node.op == OPAQUE:
            return None
        if not node.constant:
            total += _work(node, context, sizes)
    return total


def _work(node: Node, context: Context, sizes: Mapping[str, int]) -> float:
    operator = context.arena.spec.operators[node.op]
    result = sized(node.types[0].shape or (), sizes) or ()
    try:
        scope = solve(operator, [arg.shape for arg in node.args], dict(node.attrs), result=node.types[0].shape).scope
        return math.prod(result) * _operations(operator.body, scope, sizes)
    except (ShapeError, SpecError):
        return 0.0


def _operations(expr: s.Expr, scope: Scope, sizes: Mapping[str, int]) -> float:
    """How many operations one element takes; index arithmetic counts nothing."""
    match expr:
        case s.Bin(_, left, right):
            return 1 + _operations(left, scope, sizes) + _operations(right, scope, sizes)
        case s.Neg(value):
            return 1 + _operations(value, scope, sizes)
        case s.Call(_, args):
            return 1 + sum(_operations(arg, scope, sizes) for arg in args)
        case s.If(_, then, otherwise):
            return max(_operations(then, scope, sizes), _operations(otherwise, scope, sizes))
        case s.Reduce(_, binders, body):
            extents = [evaluate(binder.bound, scope) for binder in binders]
            flat = [one for extent in extents for one in (extent if isinstance(extent, tuple) else (extent,))]
            return math.prod(sized(tuple(flat), sizes) or (1,)) * (1 + _operations(body, scope, sizes))
    return 0.0
