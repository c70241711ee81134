"""Constants that hold one number everywhere: what a number in a pattern matches."""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from taso.errors import TasoError
from taso.graph.graph import CONSTANT, Node, Value
from taso.spec import syntax as s
from taso.spec.lower import run
from taso.spec.spec import Spec
from taso.spec.traits import copies, elementwise

# Elements: so small a constant may be what an operator does (sizes, the scales of a resize) rather than weights.
TELLING = 16
LARGE = 1 << 16  # a constant that is not in memory is only read up to this many elements

_known: WeakKeyDictionary[Node, float | None] = WeakKeyDictionary()


def uniform(value: Value, spec: Spec) -> float | None:
    """The number that all elements of a constant are, or None where the value is not such a constant.

    Never evaluates anything large: a copy of equal numbers is that number, an operator that works element by element is
    computed on one element.
    """
    if not value.node.constant or value.index != 0:
        return None
    todo = [value.node]
    while todo:  # arguments first, without recursion: constants may be deep
        node = todo[-1]
        missing = [arg.node for arg in node.args if arg.node not in _known]
        if node in _known or not missing:
            todo.pop()
            if node not in _known:
                _known[node] = _number(node, spec)
        else:
            todo.extend(missing)
    return _known[value.node]


def _number(node: Node, spec: Spec) -> float | None:
    if node.op == CONSTANT:
        sizes = node.types[0].shape or ()
        return _only(node.payload, math.prod(size for size in sizes if isinstance(size, int)))
    op = spec.operators.get(node.op)
    if op is None:
        return None
    if not op.params:
        return float(op.body.value) if isinstance(op.body, s.Num) else None
    numbers = [_known[arg.node] for arg in node.args]
    if any(number is None for number in numbers):
        return None
    if copies(op):
        return numbers[0] if all(number == numbers[0] for number in numbers) else None
    if not elementwise(op):
        return None
    try:
        with np.errstate(all="ignore"):
            result = run(op, [np.asarray([number], np.float64) for number in numbers], dict(node.attrs))
    except TasoError:
        return None
    return float(result[0])


def _only(payload: Any, size: int) -> float | None:
    """The one number in an array, or None if there are several (or none, or no numbers, or too many to look at)."""
    if not isinstance(payload, np.ndarray):
        if size > LARGE:
            return None
        payload = np.asarray(payload)
    if payload.size == 0 or payload.dtype.kind not in "fiu":
        return None
    first = payload.flat[0]
    return float(first) if payload.size == 1 or bool((payload == first).all()) else None


def telling(node: Node) -> Any:
    """The elements of a stored constant of at most `TELLING`, to be compared; None for other nodes."""
    sizes = node.types[0].shape or ()
    if node.op != CONSTANT or math.prod(size for size in sizes if isinstance(size, int)) > TELLING:
        return None
    array = np.asarray(node.payload)
    return tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()


def same_number(wanted: Any, actual: Any) -> bool:
    """Whether two numbers are equal up to the rounding of float32 (relative 1e-6; zero is only equal to zero)."""
    a, b = float(wanted), float(actual)
    return a == b or math.isclose(a, b, rel_tol=1e-6)
