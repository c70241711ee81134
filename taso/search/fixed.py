"""Constants that an operator leaves as they are: `relu(v)` in a pattern is met by a constant without negative elements.

So a rule may ask for the sign of a factor without a condition on values: its source says `relu(v)` (or `abs(v)`), it is
proved for every tensor `v`, and a weight that relu does not change is matched as its own relu.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from taso.errors import TasoError
from taso.graph.graph import CONSTANT, Node, Value
from taso.search.uniform import LARGE
from taso.spec import syntax as s
from taso.spec.lower import run
from taso.spec.spec import Spec
from taso.spec.traits import copies, elementwise

_arrays: WeakKeyDictionary[Node, Any] = WeakKeyDictionary()
_stays: WeakKeyDictionary[Node, dict[str, bool]] = WeakKeyDictionary()


def stays(op: s.Operator, value: Value, spec: Spec) -> bool:
    """Whether a value is a small constant that an operator does not change, and is not that operator's own result.

    Only of operators that change nothing when they are applied again; at most `LARGE` elements are looked at.
    """
    node = value.node
    if not node.constant or value.index != 0 or node.op == op.name or not _idempotent(op):
        return False
    known = _stays.setdefault(node, {})
    if op.name not in known:
        array = _array(node, spec)
        known[op.name] = array is not None and bool(np.array_equal(run(op, [array], {}), array))
    return known[op.name]


@cache
def _idempotent(op: s.Operator) -> bool:
    """Whether an operator of one tensor, element by element and without attributes, is seen to do nothing twice."""
    if len(op.params) != 1 or op.attrs or not elementwise(op):
        return False
    numbers = np.random.default_rng(11).normal(size=64) * 4
    with np.errstate(all="ignore"):
        once = np.asarray(run(op, [numbers], {}))
        twice = np.asarray(run(op, [once], {}))
    return bool(np.isfinite(once).all() and np.array_equal(once, twice) and not np.array_equal(numbers, once))


def _array(node: Node, spec: Spec) -> np.ndarray[Any, Any] | None:
    """The elements of a small constant; None for others. What is computed from constants is computed here too."""
    if node not in _arrays:
        _arrays[node] = _computed(node, spec)
    found: np.ndarray[Any, Any] | None = _arrays[node]
    return found


def _computed(node: Node, spec: Spec) -> np.ndarray[Any, Any] | None:
    sizes = node.types[0].shape if node.types else None
    if sizes is None or not all(isinstance(size, int) for size in sizes) or math.prod(map(int, sizes)) > LARGE:  # type: ignore[arg-type]
        return None
    if node.op == CONSTANT:
        array = np.asarray(node.payload)
        return array.astype(np.float64) if array.dtype.kind == "f" else None
    op = spec.operators.get(node.op)
    if op is None or not (copies(op) or elementwise(op)):
        return None
    args = [_array(arg.node, spec) for arg in node.args]
    if any(arg is None for arg in args):
        return None
    try:
        with np.errstate(all="ignore"):
            return np.asarray(run(op, args, dict(node.attrs)), np.float64)
    except TasoError:
        return None
