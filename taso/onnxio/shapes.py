"""Types of tensors that the specification does not compute: inferred by onnx for one node at a time.

Sizes that are polynomials of the graph's symbols go through onnx's inference as named dimensions and come back as what
they were, so that an operator which keeps a size keeps the polynomial.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import TypeProto, shape_inference

from taso.algebra.poly import Poly, Quantity, evaluate, names, var
from taso.graph.graph import TensorType
from taso.onnxio.context import dim_name, is_static
from taso.onnxio.tensor import dtype_name, element_type
from taso.spec.value import Shape


@dataclass
class Symbols:
    """The symbols for sizes of one model: one for each named dimension, fresh ones for the nameless."""

    named: dict[str, Poly] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def of(self, dimension: str) -> Poly:
        """The symbol of a named dimension."""
        if dimension not in self.named:
            self.named[dimension] = self.fresh(dimension)
        return self.named[dimension]

    def fresh(self, hint: str) -> Poly:
        """A new symbol that is called about as the hint says."""
        base = re.sub(r"\W+", "_", hint).strip("_") or "n"
        base = (
            f"n{base}" if base[0].isdigit() or base.startswith("unk__") else base
        )  # unk__0 is what onnx calls its own
        name, count = base, 1
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return var(name)


def declared_type(proto: TypeProto, symbols: Symbols, hint: str) -> TensorType:
    """What a model says about an input: free dimensions become symbols."""

    def free(name: str | None, axis: int) -> Quantity:
        return symbols.fresh(f"{hint}_{axis}") if name is None else symbols.of(name)

    return _read(proto, free)


def _read(proto: TypeProto, free: Callable[[str | None, int], Quantity]) -> TensorType:
    """A type of ONNX; `free` gives the size of a dimension that has no number, from its name (if any) and its axis."""
    if not proto.HasField("tensor_type"):
        return TensorType("", None)
    tensor = proto.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return TensorType(dtype, None)
    dims = enumerate(tensor.shape.dim)
    return TensorType(dtype, tuple(int(d.dim_value) if is_static(d) else free(dim_name(d), axis) for axis, d in dims))


def sized(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """A shape in numbers, or None if one of its symbols has no size (or the sizes do not fit each other)."""
    try:
        found = tuple(evaluate(extent, sizes) for extent in shape)
    except (KeyError, ZeroDivisionError):
        return None
    return found if min(found, default=0) >= 0 else None


def type_proto(type_: TensorType, sizes: Mapping[str, int] | None = None) -> tuple[TypeProto, dict[str, Quantity]]:
    """A type for onnx, and what the names of its dimensions stand for. With `sizes`, sizes are numbers where known."""
    proto = TypeProto()
    meaning: dict[str, Quantity] = {}
    proto.tensor_type.elem_type = element_type(type_.dtype)
    if type_.shape is not None:
        proto.tensor_type.shape.SetInParent()
        for extent in type_.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(extent, int):
                dim.dim_value = extent
            elif sizes is not None and names(extent) <= sizes.keys():
                dim.dim_value = evaluate(extent, sizes)
            else:
                dim.dim_param = str(extent)
                meaning[dim.dim_param] = extent
    return proto, meaning


@dataclass(frozen=True)
class Question:
    """One node for onnx's inference, with the types of the names that it reads and the constants that are known."""

    node: onnx.NodeProto
    types: Mapping[str, TypeProto]
    constants: Sequence[onnx.TensorProto]
    opsets: Sequence[onnx.OperatorSetIdProto]
    functions: Sequence[onnx.FunctionProto] = ()
    ir_version: int = 10


def infer(question: Question) -> dict[str, TypeProto]:
    """What onnx says about the outputs of a node; names about which it says nothing are missing. Never raises."""
    model = onnx.ModelProto(ir_version=max(question.ir_version, 4), graph=onnx.GraphProto(name="one node"))
    model.opset_import.extend(question.opsets)
    model.functions.extend(question.functions)
    model.graph.node.append(question.node)
    constants = {tensor.name for tensor in question.constants}
    for name, proto in question.types.items():
        if name not in constants:
            model.graph.input.append(onnx.ValueInfoProto(name=name, type=proto))
    model.graph.initializer.extend(question.constants)
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # noqa: BLE001 - onnx raises its own C++ error types, and ValueError for what it cannot serialize
        return {}
    return {one.name: one.type for one in inferred.graph.value_info if one.HasField("type")}


def inferred_type(
    proto: TypeProto, meaning: Mapping[str, Quantity], symbols: Symbols, fresh: dict[str, Poly], hint: str
) -> TensorType:
    """An inferred type in the graph's symbols.

    Dimensions that onnx does not know get fresh symbols, one for each of its own names, which are kept in `fresh`.
    """

    def free(name: str | None, axis: int) -> Quantity:
        if name is not None and name in meaning:
            return meaning[name]
        key = name or f"{hint} {axis}"
        if key not in fresh:
            fresh[key] = symbols.fresh(f"{hint}_{axis}")
        return fresh[key]

    return _read(proto, free)
