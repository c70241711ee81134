"""How long a kernel would take at best: the estimate for a device that is not at hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taso.hardware.target import Target

if TYPE_CHECKING:
    import onnx

# What real kernels reach of the data sheet's figures, as a rule: the estimate is meant to order graphs, not to be met.
ARITHMETIC_REACHED = 0.5
BANDWIDTH_REACHED = 0.7


@dataclass(frozen=True)
class Work:
    """What a kernel has to do: arithmetic operations, bytes read and written, and the dtype it computes in."""

    flops: float
    bytes: float
    dtype: str = "float32"


def estimate(work: Work, target: Target) -> float:
    """Microseconds by the roofline model (Williams et al. 2009): arithmetic or memory, whichever takes longer."""
    arithmetic = work.flops / (ARITHMETIC_REACHED * target.peak_for(work.dtype))
    memory = work.bytes / (BANDWIDTH_REACHED * target.bandwidth)
    return target.launch_us + 1e6 * max(arithmetic, memory)


def work_of(model: onnx.ModelProto) -> Work:
    """Count what can be counted without knowing the operators: the tensors' sizes, one operation an output element.

    Inputs, initializers and outputs count once each; dims that are not static count as 1. Callers that know an
    operator's meaning should give its true number of operations instead.
    """
    import numpy as np
    from onnx import helper

    def tensor(kind: int, dims: list[int]) -> tuple[int, float, np.dtype[np.generic]]:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        elements = math.prod(dims)
        return elements, elements * float(dtype.itemsize), dtype

    graph = model.graph
    weights = [tensor(one.data_type, list(one.dims)) for one in graph.initializer]
    stored = {one.name for one in graph.initializer}
    inputs = [_declared(one) for one in graph.input if one.name not in stored]
    outputs = [_declared(one) for one in graph.output]
    read = weights + [tensor(*one) for one in inputs if one]
    written = [tensor(*one) for one in outputs if one]
    moved = sum(size for _, size, _ in read + written)
    dtype = written[0][2].name if written else "float32"
    return Work(float(sum(elements for elements, _, _ in written)), moved, dtype)


def _declared(value: onnx.ValueInfoProto) -> tuple[int, list[int]] | None:
    tensor = value.type.tensor_type
    return (tensor.elem_type, [one.dim_value or 1 for one in tensor.shape.dim]) if tensor.elem_type else None
