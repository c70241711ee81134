"""ONNX tensors and element types: between TensorProto, NumPy arrays and the names that the graph uses."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

Array = np.ndarray[Any, Any]

ARITHMETIC = ("float", "double")  # element types in which the meaning of arithmetic operators is taken to hold
SMALL = 4096  # elements: constants up to here are looked into while a model is read
LAZY_BYTES = 1 << 20  # initializers above this stay where they are until somebody asks for their elements


def dtype_name(element: int) -> str:
    """The graph's name of an ONNX element type: "float", "int64", ...; "" for UNDEFINED (0)."""
    return TensorProto.DataType.Name(element).lower() if element else ""


def element_type(dtype: str) -> int:
    """The ONNX element type of a name; the inverse of `dtype_name`."""
    return int(TensorProto.DataType.Value(dtype.upper())) if dtype else 0


def byte_size(tensor: onnx.TensorProto) -> int:
    """About how many bytes a tensor takes in a file."""
    if not tensor.HasField("raw_data"):
        return int(tensor.ByteSize())
    # Not len(raw_data): reading it would copy it.
    item: int = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    return math.prod(map(int, tensor.dims)) * item


def from_array(array: Array, dtype: str, name: str) -> onnx.TensorProto:
    """A tensor of an element type with an array's elements."""
    tensor = numpy_helper.from_array(np.asarray(array), name)
    wanted = element_type(dtype)
    if wanted and tensor.data_type != wanted:
        tensor = onnx.helper.make_tensor(name, wanted, array.shape, np.asarray(array).ravel().tolist())
    return tensor


class Stored:
    """A large constant that stays in the model: `numpy.asarray` reads its elements when they are needed."""

    def __init__(self, tensor: onnx.TensorProto) -> None:
        self.tensor = tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = numpy_helper.to_array(self.tensor)
        return array if dtype is None else array.astype(dtype)


def exact(number: float, dtype: str) -> Fraction | float:
    """A float32 attribute or scalar as the language's number: the shortest decimal that rounds to it.

    0.01 is stored as 0.00999999977...; the graph should say 1/100, which rounds to the same float32. In double
    arithmetic the stored number itself counts. Infinities stay floats.
    """
    if not np.isfinite(number):
        return float(number)
    return Fraction(float(number)) if dtype == "double" else Fraction(str(np.float32(number)))
