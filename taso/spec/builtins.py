"""The functions that expressions over dimensions, indices and attributes may call, by name (`BUILTINS`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from taso.algebra.poly import Quantity, floordiv
from taso.spec.value import Shape, Value


def _normalize(axis: Value, rank: int) -> Value:
    """Negative axes count from the end."""
    if isinstance(axis, tuple):
        return tuple(_normalize(a, rank) for a in axis)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} for rank {rank}")
    return axis + rank if axis < 0 else axis


def merge(kept: tuple[Value, ...], placed: tuple[Value, ...], axes: tuple[int, ...]) -> tuple[Value, ...]:
    """The list that has `placed` at the positions `axes` and `kept` in order at the others."""
    total, rest = len(kept) + len(placed), iter(kept)
    where = dict(zip(axes, placed, strict=True))
    if len(where) < len(axes) or any(not 0 <= k < total for k in where):
        raise ValueError(f"{axes} are no {len(placed)} positions in a list of {total}")
    return tuple(where[k] if k in where else next(rest) for k in range(total))


def ravel(index: tuple[Value, ...], shape: tuple[Value, ...]) -> Value:
    """The row-major position of an index."""
    flat: Value = 0
    for i, extent in zip(index, shape, strict=True):
        flat = flat * extent + i
    return flat


def unravel(flat: Value, shape: tuple[Value, ...]) -> tuple[Value, ...]:
    """The index at a row-major position."""
    out: list[Value] = []
    for extent in reversed(shape[1:]):
        rest = floordiv(flat, extent)
        out.append(flat - rest * extent)
        flat = rest
    if shape:
        out.append(flat)
    return tuple(reversed(out))


def numpy_shape(*shapes: Shape) -> Shape:
    """The shape that NumPy broadcasting gives. Raises ValueError where it is not known for symbolic sizes."""
    rank = max(map(len, shapes), default=0)
    out: list[Quantity] = []
    for k in range(rank):
        extents = {shape[k - rank] for shape in shapes if k - rank + len(shape) >= 0} - {1}
        if len(extents) > 1:
            raise ValueError(f"sizes {sorted(map(str, extents))} do not broadcast")
        out.append(extents.pop() if extents else 1)
    return tuple(out)


def stretched(shape: Shape, to: Shape) -> tuple[int, ...]:
    """The axes of `to` along which NumPy broadcasting of `shape` moves data: those of equal size that is not 1.

    Raises ValueError if `shape` has more axes.
    """
    offset = len(to) - len(shape)
    if offset < 0:
        raise ValueError(f"{shape} has more axes than {to}")
    return tuple(k for k in range(len(to)) if k >= offset and shape[k - offset] == to[k] != 1)


def onnx_reshape(shape: Shape, source: Shape) -> tuple[int, ...]:
    """The target of an ONNX Reshape: 0 where a symbolic size is the source's at that place, -1 for one other symbol.

    Raises ValueError where that cannot say it.
    """
    out: list[int] = []
    for k, size in enumerate(shape):
        if isinstance(size, int):
            if size == 0:
                raise ValueError("a size of 0 in a reshape cannot be written for all opsets")
            out.append(size)
        else:
            out.append(0 if k < len(source) and source[k] == size else -1)
    if out.count(-1) > 1:
        raise ValueError(f"more than one free size in the reshape to {shape}")
    return tuple(out)


def extra_ones(long: Shape, short: Shape) -> tuple[int, ...]:
    """The axes of size 1 that `long` has beyond `short`; empty if that is not all that tells them apart."""
    axes: list[int] = []
    matched = 0
    for axis, size in enumerate(long):
        if matched < len(short) and size == short[matched]:
            matched += 1
        elif size == 1:
            axes.append(axis)
        else:
            return ()
    return tuple(axes) if matched == len(short) else ()


def _slice_bound(value: int, size: int) -> int:
    return max(0, min(size, value + size if value < 0 else value))


def _scaled(shape: Shape, scales: tuple[Value, ...]) -> Shape:
    """Each size times a positive number, rounded down. Raises TypeError where a symbolic size meets a fraction."""
    for size, scale in zip(shape, scales, strict=True):
        if not isinstance(size, int) and not isinstance(scale, int):
            raise TypeError(f"{size} times {scale}")
    return tuple(
        size * scale if isinstance(scale, int) else math.floor(size * scale) for size, scale in zip(shape, scales)
    )


def _product(values: tuple[Value, ...]) -> Value:
    total: Value = 1
    for value in values:
        total = total * value
    return total


def _resolve(shape: tuple[Value, ...], source: Shape, copy_zero: Value = 1) -> tuple[Value, ...]:
    """ONNX's Reshape: 0 copies the source's size at the place (unless `copy_zero` is 0), one -1 is what is left."""
    sizes = [source[k] if d == 0 and copy_zero else d for k, d in enumerate(shape)]
    if -1 in sizes:
        rest = floordiv(_product(source), _product(tuple(d for d in sizes if d != -1)))
        sizes = [rest if d == -1 else d for d in sizes]
    return tuple(sizes)


def _same(size: Shape, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> list[int]:
    """The padding for which a window operator gives ceil(size / stride) positions (ONNX's auto_pad SAME_*)."""
    total = []
    for n, k, s_, d in zip(size, kernel, stride, dilation, strict=True):
        if not isinstance(n, int):
            raise TypeError(f"the size {n} is not known")
        total.append(max((-(-n // s_) - 1) * s_ + d * (k - 1) + 1 - n, 0))
    return total


def same_before(auto_pad: str, *sizes: Any) -> tuple[int, ...]:
    """The part of the padding in front: the smaller half for SAME_UPPER, the larger one otherwise."""
    return tuple(n // 2 if auto_pad == "SAME_UPPER" else n - n // 2 for n in _same(*sizes))


def same_after(auto_pad: str, *sizes: Any) -> tuple[int, ...]:
    """The rest of the padding, behind."""
    return tuple(n - n // 2 if auto_pad == "SAME_UPPER" else n // 2 for n in _same(*sizes))


BUILTINS: dict[str, Callable[..., Value]] = {
    "len": len,
    "range": lambda *a: tuple(range(*a)),
    "select": lambda values, at: tuple(values[k] for k in at),
    "drop": lambda values, at: tuple(v for k, v in enumerate(values) if k not in at),
    "replace": lambda values, at, new: tuple(new if k in at else v for k, v in enumerate(values)),
    "merge": merge,
    "scaled": _scaled,
    "identical": lambda a, b: a == b,  # as they are written; `==` is open where symbolic sizes may turn out equal
    "inverse": lambda perm: tuple(perm.index(k) for k in range(len(perm))),
    "reverse": lambda values: tuple(reversed(values)),
    "sorted": lambda values: tuple(sorted(values)),
    "ravel": ravel,
    "unravel": unravel,
    "product": _product,
    "sum": lambda *values: sum(values[0] if len(values) == 1 and isinstance(values[0], tuple) else values),
    "take": lambda values, n: values[:n],
    "skip": lambda values, n: values[n:],
    "at": lambda values, k: values[k],
    "fill": lambda n, value: (value,) * n,
    "flatten": lambda lists: tuple(item for one in lists for item in one),
    "normalize": _normalize,
    "numpy_shape": numpy_shape,
    "stretched": stretched,
    "onnx_reshape": onnx_reshape,
    "extra_ones": extra_ones,
    "slice_start": _slice_bound,
    "slice_stop": lambda start, stop, size: max(_slice_bound(start, size), _slice_bound(stop, size)),
    "resolve": _resolve,
    "same_before": same_before,
    "same_after": same_after,
    "max": lambda *values: max(values[0] if len(values) == 1 else values),
    "min": lambda *values: min(values[0] if len(values) == 1 else values),
    "abs": abs,
    "ceil_div": lambda a, b: -floordiv(-a, b),
    "real": lambda value: Fraction(value),
    "sqrt": lambda value: math.sqrt(value),
    "known": lambda value: (
        all(isinstance(v, int) for v in value) if isinstance(value, tuple) else isinstance(value, int)
    ),
}
