"""A sum of products of two arrays as one batched matrix product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

Array = Any


def contract(left: Array, right: Array, axes: Sequence[int], xp: ModuleType) -> Array:
    """Sum `left * right` over `axes`, which stay with size 1.

    Both arrays have the same number of axes; an axis of size 1 repeats. An axis is a batch axis if both have it, a row
    (column) axis if only the left (right) one has it, and contracted if it is summed and both have it.
    """
    for axis in axes:  # an axis that only one of them has is summed before the product
        if left.shape[axis] != 1 and right.shape[axis] == 1:
            left = left.sum(axis=axis, keepdims=True)
        elif right.shape[axis] != 1 and left.shape[axis] == 1:
            right = right.sum(axis=axis, keepdims=True)
    rank = left.ndim
    has_left, has_right = [n != 1 for n in left.shape], [n != 1 for n in right.shape]
    summed = [k for k in axes if has_left[k] and has_right[k]]
    free = [k for k in range(rank) if k not in summed]
    batch = [k for k in free if has_left[k] and has_right[k]]
    rows = [k for k in free if has_left[k] and not has_right[k]]
    columns = [k for k in free if has_right[k] and not has_left[k]]
    shape = left.shape
    count = math.prod(shape[k] for k in batch)
    height, depth = math.prod(shape[k] for k in rows), math.prod(shape[k] for k in summed)
    width = math.prod(right.shape[k] for k in columns)
    alone = [k for k in range(rank) if not has_left[k] and not has_right[k]]
    a = left.transpose([*batch, *rows, *summed, *_rest(rank, batch, rows, summed)]).reshape(count, height, depth)
    b = right.transpose([*batch, *summed, *columns, *_rest(rank, batch, summed, columns)]).reshape(count, depth, width)
    product = xp.matmul(a, b)
    sizes = [shape[k] for k in (*batch, *rows)] + [right.shape[k] for k in columns]
    order = [*batch, *rows, *columns, *summed, *alone]
    product = product.reshape(sizes + [1] * (len(summed) + len(alone)))
    return product.transpose([order.index(k) for k in range(rank)])


def _rest(rank: int, *used: Sequence[int]) -> list[int]:
    taken = {k for group in used for k in group}
    return [k for k in range(rank) if k not in taken]
