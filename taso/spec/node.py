"""A single ONNX node with concrete inputs: as a model, and what onnx's reference implementation makes of it."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from taso.errors import MeasureError, TasoError
from taso.spec.value import Value

Schema = Any  # onnx.defs.OpSchema


class NotRun(TasoError):
    """Neither runtime could run the node; it says why."""


@dataclass(frozen=True)
class NodeCase:
    """One node to run: `inputs` has None for an empty slot; `constant` are the slots that are initializers."""

    op_type: str
    domain: str
    opset: int
    inputs: tuple[np.ndarray | None, ...]
    attributes: Mapping[str, Value] = field(default_factory=dict)
    outputs: int = 1
    constant: frozenset[int] = frozenset()

    def __str__(self) -> str:
        shapes = ", ".join("-" if x is None else _shown(x, k in self.constant) for k, x in enumerate(self.inputs))
        attributes = (
            "; " + ", ".join(f"{k} = {_plain(v)}" for k, v in self.attributes.items()) if self.attributes else ""
        )
        return f"{self.op_type}({shapes}{attributes}) in opset {self.opset}"


def _shown(array: np.ndarray, constant: bool) -> str:
    return str(array.tolist()) if constant and array.size <= 8 else str(list(array.shape))


def newest_opset(domain: str = "") -> int:
    """The newest opset of a domain that the installed onnx knows; 0 if it does not know the domain."""
    if domain in ("", "ai.onnx"):
        return int(defs.onnx_opset_version())
    return max((schema.since_version for schema in _all_schemas() if schema.domain == domain), default=0)


@cache
def _all_schemas() -> tuple[Schema, ...]:
    return tuple(defs.get_all_schemas_with_history())


@cache
def schema(op_type: str, domain: str, opset: int) -> Schema | None:
    """onnx's schema of an operator as of an opset, or None if it has none (yet, or any more)."""
    try:
        found = defs.get_schema(op_type, opset, domain)
    except Exception:  # noqa: BLE001 - onnx raises its own C++ error type, which it does not export
        return None
    return None if found.deprecated else found


def is_current(op_type: str, domain: str, opset: int) -> bool:
    """Whether an opset has the operator's newest version, which is what the reference implementation knows best."""
    now, then = schema(op_type, domain, newest_opset(domain)), schema(op_type, domain, opset)
    return now is not None and then is not None and bool(now.since_version == then.since_version)


@cache
def known_types(domain: str) -> tuple[str, ...]:
    """The names of all operators of a domain."""
    return tuple(sorted({schema.name for schema in _all_schemas() if schema.domain == domain}))


def _plain(value: Value) -> Any:
    """A value of the language as onnx's helpers take it."""
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, (int, str)) else float(value)


def attribute(name: str, value: Value, of: Schema | None) -> onnx.AttributeProto:
    """An attribute of the type that the schema asks for."""
    plain = _plain(value)
    declared = of.attributes.get(name) if of is not None else None
    kind = declared.type.name if declared is not None else ""
    if kind == "FLOAT":
        plain = float(plain)
    elif kind == "FLOATS":
        plain = [float(v) for v in plain]
    elif kind in ("INTS", "FLOATS") and not plain:
        return helper.make_attribute(name, [], attr_type=onnx.AttributeProto.AttributeType.Value(kind))
    if isinstance(plain, list) and not plain:
        return helper.make_attribute(name, [], attr_type=onnx.AttributeProto.INTS)
    return helper.make_attribute(name, plain)


def node_of(
    op_type: str, domain: str, opset: int, names: list[str], attributes: Mapping[str, Value], outputs: int
) -> onnx.NodeProto:
    """The node by itself; its outputs are called y0, y1, ..."""
    while names and not names[-1]:
        names = names[:-1]
    node = helper.make_node(op_type, names, [f"y{k}" for k in range(outputs)], domain=domain)
    found = schema(op_type, domain, opset)
    node.attribute.extend(attribute(name, value, found) for name, value in attributes.items())
    return node


def legal(case: NodeCase) -> bool:
    """Whether onnx's checker and strict shape inference accept the node."""
    model, _ = model_of(case)
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {one.domain: one.version for one in model.opset_import}
    try:
        onnx.checker.check_node(model.graph.node[0], context)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except Exception:  # noqa: BLE001 - onnx raises its own C++ error types here
        return False
    return True


def model_of(
    case: NodeCase, dtype: type[np.floating[Any]] = np.float64
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model that is this node, and what to feed it; floating inputs are cast to `dtype`."""
    feeds: dict[str, np.ndarray] = {}
    inputs, initializers, names = [], [], []
    for k, array in enumerate(case.inputs):
        names.append("" if array is None else f"x{k}")
        if array is None:
            continue
        array = array.astype(dtype) if array.dtype.kind == "f" else array
        if k in case.constant:
            initializers.append(numpy_helper.from_array(array, f"x{k}"))
        else:
            feeds[f"x{k}"] = array
            inputs.append(
                helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            )
    node = node_of(case.op_type, case.domain, case.opset, names, case.attributes, case.outputs)
    outputs = [
        helper.make_tensor_value_info(f"y{k}", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
        for k in range(case.outputs)
    ]
    graph = helper.make_graph([node], "case", inputs, outputs, initializers)
    opsets = [helper.make_opsetid(case.domain, case.opset)]
    if case.domain:
        opsets.append(helper.make_opsetid("", newest_opset()))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if case.opset < 24 else 11), feeds


def run_reference(case: NodeCase) -> list[np.ndarray]:
    """The outputs by onnx's reference implementation, in float64. Raises NotRun."""
    model, feeds = model_of(case)
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds)]
    except Exception as error:  # noqa: BLE001 - it raises whatever its NumPy code raises
        raise NotRun(f"onnx's reference implementation cannot run {case}: {type(error).__name__}: {error}") from None


def run_runtime(case: NodeCase) -> tuple[list[np.ndarray], type[np.floating[Any]]]:
    """The outputs by onnxruntime and the precision it computed in: float64 if it can, else float32. Raises NotRun."""
    reason = ""
    for dtype in (np.float64, np.float32):
        model, feeds = model_of(case, dtype)
        try:
            _worker().load("case", model.SerializeToString(), level="disabled")
            outputs = _worker().run("case", feeds)
        except MeasureError as error:
            reason = str(error).strip().splitlines()[0]
            continue
        return [np.asarray(outputs[f"y{k}"]) for k in range(case.outputs)], dtype
    raise NotRun(f"onnxruntime cannot run {case}: {reason}")


@cache
def _worker() -> Any:
    """The process that runs onnxruntime; it is started when the reference implementation first disappoints."""
    from taso.hardware.runtime import Worker

    worker = Worker(threads=1, limit_s=60.0)
    atexit.register(worker.close)
    return worker
