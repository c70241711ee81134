"""Reading and writing model files, and the shapes of inputs that are left free."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TypeProto, checker, external_data_helper

from taso.errors import ModelError, UsageError, did_you_mean
from taso.files import write_whole
from taso.onnxio.context import captured_names, dim_name, is_static, subgraphs
from taso.onnxio.tensor import byte_size

Model = str | Path | bytes | onnx.ModelProto

PROTOBUF_LIMIT = 2_000_000_000  # bytes; a protobuf message of more than 2 GiB cannot be written

# What onnx's checker says of models that runtimes accept all the same: operators of somebody's own, missing types.
_TOLERATED = (
    "No Op registered", "topologically sorted", "ir_version", "Unrecognized attribute", "No opset import",
    "field 'shape' of 'type' is required", "deprecated", "No Schema", "too large", "exceed",
)  # fmt: skip

# Sizes for free dimensions, when something has to be measured and nobody said which: an image is 320 x 320 (divisible
# by 32, as networks that halve it five times need), everything else is 128 long, and the first axis (the batch) is 1.
FREE_BATCH, FREE_CHANNELS, FREE_IMAGE, FREE_LENGTH = 1, 3, 320, 128


class ModelWarning(UserWarning):
    """Something about a model is not as it should be, but can be coped with."""


def load_model(source: Model) -> onnx.ModelProto:
    """A model with its external data, checked, its nodes sorted. A ModelProto is not changed.

    Raises:
        ModelError: the file cannot be read, is cut off, is no ONNX model or not a valid one.
    """
    if isinstance(source, onnx.ModelProto):
        model, where = source, "the model"
    elif isinstance(source, bytes):
        model, where = _parse(source, "the model"), "the model"
    else:
        path = Path(source)
        model, where = _read(path), str(path)
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(f"{where} is not an ONNX model: it has no graph")
    if not model.opset_import:
        raise ModelError(f"{where} is not a valid ONNX model: it does not say which opset it uses")
    order = _sorted_nodes(model.graph, where)
    if order is not None:
        warnings.warn(
            f"the nodes of {where} are not sorted; they are read in the order of their inputs",
            ModelWarning,
            stacklevel=2,
        )
        if model is source:
            model = onnx.ModelProto()
            model.CopyFrom(source)
        nodes = [model.graph.node[k] for k in order]
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(copies)
    _check(model, where)
    return model


def _read(path: Path) -> onnx.ModelProto:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    model = _parse(content, str(path))
    try:
        external_data_helper.load_external_data_for_model(model, str(path.parent))
    except Exception as error:  # onnx raises ValueError, OSError and its own C++ error type
        raise ModelError(f"{path}: its external data cannot be read: {str(error).strip().splitlines()[0]}") from error
    return model


def _parse(content: bytes, where: str) -> onnx.ModelProto:
    if not content:
        raise ModelError(f"{where} is empty")
    try:
        return onnx.load_model_from_string(content)
    except (DecodeError, ValueError) as error:
        raise ModelError(f"{where} is not an ONNX model, or it is cut off ({len(content):,} bytes)") from error


def _sorted_nodes(graph: onnx.GraphProto, where: str) -> list[int] | None:
    """The order in which every node comes after what it reads; None if it is so already. ModelError for cycles."""
    producer: dict[str, int] = {}
    for k, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in producer:
                raise ModelError(f'{where} is not a valid ONNX model: "{name}" is computed twice')
            producer[name] = k
    reads = [
        {producer[name] for name in (*node.input, *captured_names(node)) if name in producer} for node in graph.node
    ]
    if all(all(other < k for other in needed) for k, needed in enumerate(reads)):
        return None
    order: list[int] = []
    state = [0] * len(reads)  # 1: on the way, 2: done
    for root in range(len(reads)):
        stack = [root]
        while stack:
            k = stack[-1]
            if state[k] == 0:
                state[k] = 1
                waiting = sorted((other for other in reads[k] if state[other] != 2), reverse=True)
                if any(state[other] == 1 for other in waiting):
                    raise ModelError(
                        f'{where} is not a valid ONNX model: node "{graph.node[k].name}" depends on itself'
                    )
                stack.extend(waiting)
            else:
                stack.pop()
                if state[k] == 1:
                    state[k] = 2
                    order.append(k)
    return order


def _check(model: onnx.ModelProto, where: str) -> None:
    known = {one.name for one in (*model.graph.input, *model.graph.initializer)}
    known |= {one.values.name for one in model.graph.sparse_initializer}
    for node in model.graph.node:
        for name in (*filter(None, node.input), *captured_names(node)):
            if name not in known:
                raise ModelError(
                    f'{where} is not a valid ONNX model: node "{node.name or node.op_type}" reads "{name}", '
                    "which nothing computes"
                )
        known.update(filter(None, node.output))
    for one in model.graph.output:
        if one.name not in known:
            raise ModelError(f'{where} is not a valid ONNX model: nothing computes its output "{one.name}"')
    if stored_bytes(model) > PROTOBUF_LIMIT:
        return  # the checker takes models as one message
    try:
        checker.check_model(model)
    except (checker.ValidationError, ValueError) as error:
        text = str(error).strip()
        if not any(tolerated in text for tolerated in _TOLERATED):
            raise ModelError(f"{where} is not a valid ONNX model: {text.splitlines()[0]}") from error


def stored_bytes(model: onnx.ModelProto) -> int:
    """About how many bytes the tensors of a model take, those in subgraphs and attributes included."""
    total, todo = 0, [model.graph]
    while todo:
        graph = todo.pop()
        total += sum(byte_size(tensor) for tensor in graph.initializer)
        for node in graph.node:
            total += sum(byte_size(attribute.t) for attribute in node.attribute if attribute.HasField("t"))
            todo.extend(subgraphs(node))
    return total


def save_model(model: onnx.ModelProto, path: str | Path) -> None:
    """Write a model; the file is either written whole or left as it was.

    Over 2 GB, tensors go into `PATH.data` beside it.
    """
    path = Path(os.path.realpath(path))
    if stored_bytes(model) <= PROTOBUF_LIMIT:
        write_whole(path, model.SerializeToString())
        return
    outside = onnx.ModelProto()
    outside.CopyFrom(model)
    data = path.with_name(f"{path.name}.data")
    chunks, offset = [], 0
    for tensor in outside.graph.initializer:
        if tensor.HasField("raw_data") and len(tensor.raw_data) >= 1024:
            content = tensor.raw_data
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", str(offset)), ("length", str(len(content)))):
                tensor.external_data.add(key=key, value=value)
            chunks.append(content)
            offset += len(content)
    write_whole(data, *chunks)
    write_whole(path, outside.SerializeToString())


# --- inputs


def required_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that must be given: those without a stored default."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in stored]


def free_dims(model: onnx.ModelProto) -> dict[str, list[int | str | None]]:
    """The inputs that have free dimensions, with all their dimensions: a number, a name, or None."""
    found = {info.name: dims for info in model.graph.input if (dims := _dims(info.type)) is not None}
    return {name: dims for name, dims in found.items() if not all(isinstance(dim, int) for dim in dims)}


def _dims(proto: TypeProto) -> list[int | str | None] | None:
    if not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    return [dim.dim_value if is_static(dim) else dim_name(dim) for dim in proto.tensor_type.shape.dim]


def default_sizes(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, tuple[int, ...]]:
    """A concrete shape for every tensor input of known rank, for measuring.

    It is what the model says, what `shapes` says, and for dimensions that are still free the sizes at the top of this
    file. A named dimension has one size everywhere.

    Raises:
        UsageError: as `check_shapes`.
    """
    given = check_shapes(model, shapes or {})
    named: dict[str, int] = {}
    for name, axis, dim in _free(model):
        if dim and name in given:
            named.setdefault(dim, given[name][axis])
    for name, axis, dim in _free(model):
        if dim and axis == 0:
            named.setdefault(dim, FREE_BATCH)
    found: dict[str, tuple[int, ...]] = {}
    for info in model.graph.input:
        dims = _dims(info.type)
        if dims is not None:
            usual = [_usual(info.type, axis) for axis in range(len(dims))]
            sizes = [
                d if isinstance(d, int) else named.setdefault(d, usual[k]) if d else usual[k]
                for k, d in enumerate(dims)
            ]
            found[info.name] = given.get(info.name, tuple(sizes))
    return found


def _free(model: onnx.ModelProto) -> Iterator[tuple[str, int, str | None]]:
    for name, dims in free_dims(model).items():
        for axis, dim in enumerate(dims):
            if not isinstance(dim, int):
                yield name, axis, dim


def _usual(proto: TypeProto, axis: int) -> int:
    if axis == 0:
        return FREE_BATCH
    tensor = proto.tensor_type
    floating = tensor.elem_type in (
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.BFLOAT16,
    )
    if len(tensor.shape.dim) == 4 and floating:
        return FREE_CHANNELS if axis == 1 else FREE_IMAGE
    return FREE_LENGTH


def check_shapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The shapes that the caller gives to inputs, as tuples.

    Raises:
        UsageError: there is no such input, or the shape contradicts what the model says about it.
    """
    inputs = {info.name: info.type for info in model.graph.input}
    shown = ", ".join(f"{info.name} {_shown(info.type)}" for info in required_inputs(model))
    named: dict[str, tuple[int, str]] = {}
    checked: dict[str, tuple[int, ...]] = {}
    for name, sizes in shapes.items():
        if name not in inputs:
            hint = did_you_mean(name, inputs)
            raise UsageError(f'the model has no input named "{name}"; its inputs are: {shown or "none"}{hint}')
        dims = _dims(inputs[name])
        if any(size < 1 for size in sizes):
            raise UsageError(f'input "{name}": sizes must be at least 1, not {list(sizes)}')
        if dims is not None and len(dims) != len(sizes):
            raise UsageError(
                f'input "{name}" has {len(dims)} dimensions, {_shown(inputs[name])}, but {len(sizes)} were given'
            )
        for dim, size in zip(dims or [], sizes):
            if isinstance(dim, int) and dim != size:
                raise UsageError(f'input "{name}" is {_shown(inputs[name])}: {dim} cannot be {size}')
            if isinstance(dim, str):
                before, where = named.setdefault(dim, (size, name))
                if before != size:
                    raise UsageError(
                        f'the dimension "{dim}" is {before} in input "{where}" and {size} in input "{name}"'
                    )
        checked[name] = tuple(map(int, sizes))
    return checked


def _shown(proto: TypeProto) -> str:
    dims = _dims(proto)
    return "(no shape)" if dims is None else f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def with_static_inputs(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """A copy of a model whose inputs have these concrete shapes; what it says about shapes further on is dropped.

    Raises:
        UsageError: as `check_shapes`.
    """
    checked = check_shapes(model, shapes)
    static = onnx.ModelProto()
    static.CopyFrom(model)
    del static.graph.value_info[:]
    for info in static.graph.input:
        if info.name in checked:
            info.type.tensor_type.ClearField("shape")
            info.type.tensor_type.shape.SetInParent()
            for size in checked[info.name]:
                info.type.tensor_type.shape.dim.add(dim_value=size)
    for info in static.graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    return static
