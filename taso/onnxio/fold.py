"""Computing constants when a model is written: once, by the runtime, as long as the file does not grow too much."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from taso.errors import ShapeError, TasoError
from taso.graph.graph import CONSTANT, Value
from taso.hardware.runtime import Worker
from taso.onnxio.context import Context
from taso.onnxio.forms import Tile
from taso.onnxio.load import PROTOBUF_LIMIT, stored_bytes
from taso.onnxio.tensor import Array, Stored, element_type, from_array
from taso.spec.lower import run

FREE_GROWTH = 100_000  # bytes that a file may always grow by, unless it may not grow at all
UNNOTICED = 1024  # bytes
_BYTES = {
    "double": 8,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


@dataclass
class Folded:
    """Constants with their elements, and the nodes that are left to be written."""

    tensors: dict[Value, Callable[[str], onnx.TensorProto]] = field(default_factory=dict)
    tiles: list[Tile] = field(default_factory=list)


def size_in_file(value: Value) -> int:
    """How many bytes a constant of known shape takes in a file."""
    shape = value.shape or ()
    return math.prod(n for n in shape if isinstance(n, int)) * _BYTES.get(value.type.dtype, 4)


def tensor_of(value: Value, context: Context) -> Callable[[str], onnx.TensorProto]:
    """Makes the stored tensor, by a given name, of a constant that needs no runtime.

    Raises ShapeError for symbolic sizes.
    """
    node = value.node
    if node.op == CONSTANT:
        if isinstance(node.payload, Stored):
            return lambda name: _renamed(node.payload.tensor, name)
        return lambda name: from_array(node.payload, value.type.dtype, name)
    array = run(context.arena.spec.operators[node.op], [], dict(node.attrs))
    return lambda name: from_array(_as(array, value.type.dtype), value.type.dtype, name)


def _as(array: Array, dtype: str) -> Array:
    return np.asarray(array).astype({"float": "f4", "double": "f8", "float16": "f2"}.get(dtype, dtype))


def _renamed(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def fold(
    tiles: Sequence[Tile],
    outputs: Sequence[Value],
    context: Context,
    *,
    max_growth: float,
    worker: Worker | None = None,
) -> Folded:
    """Compute the constants that the nodes read.

    Args:
        tiles: nodes in order, as `Tiler.cover` gives them.
        max_growth: by what fraction the stored tensors may grow, but 100 kB are allowed anyway unless it is 0.
        worker: where the runtime computes them; one is started for the occasion if there is none.

    Returns:
        What was computed, and the other nodes: those that depend on inputs, and constant ones that would grow the file
        too much or that no runtime computes.
    """
    maker = {out: tile for tile in tiles for out in tile.outputs}
    roots = _roots(tiles, outputs, maker)
    original = stored_bytes(context.model)
    allowed = original + max(original * max_growth, FREE_GROWTH if max_growth > 0 else 0)
    by_size = sorted(roots, key=size_in_file)
    folded = set(roots)
    while by_size and _stored(tiles, outputs, maker, folded) > allowed:
        folded.discard(by_size.pop())
    computed = _compute([root for root in roots if root in folded], tiles, maker, context, worker) if folded else {}
    result = Folded()
    for value, array in computed.items():
        result.tensors[value] = _maker(array, value.type.dtype)
    needed = _needed(tiles, outputs, maker, set(computed))
    result.tiles = [tile for tile in tiles if tile in needed]
    return result


def _maker(array: Array, dtype: str) -> Callable[[str], onnx.TensorProto]:
    return lambda name: from_array(array, dtype, name)


def _roots(tiles: Sequence[Tile], outputs: Sequence[Value], maker: Mapping[Value, Tile]) -> list[Value]:
    """The constants that are computed by nodes and read by nodes that are not constant, or are outputs."""
    read = dict.fromkeys(value for tile in tiles if not tile.constant for value in tile.inputs)
    read |= dict.fromkeys(outputs)
    found = []
    for value in read:
        concrete = value.shape is not None and all(isinstance(n, int) for n in value.shape) and value.type.dtype
        computed = value in maker and maker[value].constant and value.node.op != CONSTANT
        if computed and concrete and _worth_it(value, tiles, maker):
            found.append(value)
    return found


def _worth_it(value: Value, tiles: Sequence[Tile], maker: Mapping[Value, Tile]) -> bool:
    """Whether a constant should be computed now.

    What the model itself leaves to the runtime to compute may be left out of the file for a reason (quantized or tiled
    tensors): it is only computed if that does not make the file larger.
    """
    needed = _needed(tiles, [value], maker, set())
    if any(tile.index is None for tile in needed):
        return True
    stored = {leaf for tile in needed for leaf in tile.inputs if leaf not in maker or leaf.node.op == CONSTANT}
    return size_in_file(value) <= max(UNNOTICED, sum(size_in_file(leaf) for leaf in stored))


def _needed(
    tiles: Sequence[Tile], outputs: Sequence[Value], maker: Mapping[Value, Tile], folded: set[Value]
) -> set[Tile]:
    needed: set[Tile] = set()
    todo = [value for value in outputs]
    while todo:
        value = todo.pop()
        tile = None if value in folded else maker.get(value)
        if tile is not None and tile not in needed:
            needed.add(tile)
            todo.extend(tile.inputs)
    return needed


def _stored(tiles: Sequence[Tile], outputs: Sequence[Value], maker: Mapping[Value, Tile], folded: set[Value]) -> int:
    """How many bytes of constants the file would have."""
    needed = _needed(tiles, outputs, maker, folded)
    values = {value for tile in needed for value in tile.inputs} | set(outputs)
    return sum(
        size_in_file(v) for v in values if v.node.constant and (v in folded or v not in maker or v.node.op == CONSTANT)
    )


def _compute(
    roots: Sequence[Value], tiles: Sequence[Tile], maker: Mapping[Value, Tile], context: Context, worker: Worker | None
) -> dict[Value, Array]:
    try:
        model, names = _model(roots, tiles, maker, context)
    except (TasoError, ValueError):
        return {}
    outputs = [names[root] for root in roots]
    try:
        if worker is not None:
            computed = _run(model, outputs, worker)
        else:
            with Worker() as own:
                computed = _run(model, outputs, own)
    except (TasoError, ValueError):
        computed = _by_reference(model, outputs)
    found = {}
    for root in roots:
        array = computed.get(names[root])
        if isinstance(array, np.ndarray) and array.shape == root.shape:
            found[root] = array
    return found


def _run(model: onnx.ModelProto, outputs: Sequence[str], worker: Worker) -> Mapping[str, Array]:
    worker.load("constants", model.SerializeToString(), level="disabled")
    try:
        return worker.run("constants", {}, outputs=outputs)
    finally:
        worker.drop("constants")


def _by_reference(model: onnx.ModelProto, outputs: Sequence[str]) -> Mapping[str, Array]:
    """Where the runtime lacks something: onnx's reference implementation, which may lack it too."""
    try:
        return dict(zip(outputs, ReferenceEvaluator(model).run(list(outputs), {})))
    except Exception:  # noqa: BLE001 - it raises whatever its NumPy code raises
        return {}


def _model(
    roots: Sequence[Value], tiles: Sequence[Tile], maker: Mapping[Value, Tile], context: Context
) -> tuple[onnx.ModelProto, dict[Value, str]]:
    """A model without inputs that computes constants."""
    needed = _needed(tiles, roots, maker, set())
    values: Iterable[Value] = dict.fromkeys(
        v for tile in tiles if tile in needed for v in (*tile.inputs, *tile.outputs)
    )
    names = {value: f"v{k}" for k, value in enumerate(values)}
    for root in roots:
        names.setdefault(root, f"v{len(names)}")
    model = onnx.ModelProto(ir_version=max(context.model.ir_version, 4), graph=onnx.GraphProto(name="constants"))
    model.opset_import.extend(context.model.opset_import)
    size = 0
    for value, name in names.items():
        if value not in maker:
            size += size_in_file(value)
            if size > PROTOBUF_LIMIT:
                raise ShapeError("the constants are too large to be handed to the runtime")
            model.graph.initializer.append(tensor_of(value, context)(name))
    for k, tile in enumerate(one for one in tiles if one in needed):
        node = tile.node(names)
        node.name = f"n{k}"
        for slot, name in enumerate(node.output):
            if name and tile.results[slot] is None:
                node.output[slot] = f"n{k}_{slot}"
        model.graph.node.append(node)
    for root in roots:
        shape = [n for n in root.shape or () if isinstance(n, int)]
        info = onnx.helper.make_tensor_value_info(names[root], element_type(root.type.dtype), shape)
        model.graph.output.append(info)
    return model, names
