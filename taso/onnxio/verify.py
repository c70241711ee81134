"""Whether two models compute the same: random inputs, comparison of outputs, and both models run side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taso.errors import MeasureError, ModelError, UsageError, did_you_mean
from taso.hardware.runtime import Value, load_with_fallback
from taso.onnxio.context import dim_name, is_static

if TYPE_CHECKING:
    import onnx

    from taso.hardware.runtime import Worker

Array = np.ndarray[Any, Any]

# Default tolerance per dtype, as a fraction of the tensor's scale and absolute. float64 outputs mostly come from models
# that compute in float32 inside, hence no finer. Dtypes not listed (integers, bool, strings) are compared exactly.
TOLERANCES = {
    "float64": (1e-3, 1e-5),
    "float32": (1e-3, 1e-5),
    "float16": (1e-2, 1e-3),
    "bfloat16": (5e-2, 1e-2),
    "complex64": (1e-3, 1e-5),
    "complex128": (1e-3, 1e-5),
}
EIGHT_BIT_TOLERANCE = (0.25, 0.05)  # the float8 types

# Values this many times the median magnitude do not set a tensor's scale: the -1e9 of an attention mask, say.
OUTLIER = 1000.0


@dataclass(frozen=True)
class Difference:
    """How one output differs between two models. Figures are over the elements that are finite on both sides.

    `scale` is the largest magnitude in the reference, outliers left out (values over 1000 times the median magnitude of
    those that are not zero). `max_rel` is the largest difference relative to the scale, or to the element itself where
    that is an outlier, or to the absolute tolerance where both are smaller. `where` is the index of the worst element.
    `ok` says whether the difference is tolerated; `problem` says in words what is wrong where it is not.
    """

    name: str
    ok: bool
    max_abs: float = 0.0
    max_rel: float = 0.0
    scale: float = 0.0
    where: tuple[int, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class VerifyResult:
    """What came of running two models on the same inputs.

    `differences` holds the worst one of each output over all input sets. Outputs in `nondeterministic` differ between
    two runs of the original itself, so that only their dtypes and shapes were compared. The levels are onnxruntime's
    optimisation levels that the models ran at.
    """

    ok: bool
    differences: tuple[Difference, ...]
    nondeterministic: tuple[str, ...]
    input_sets: int
    original_level: str
    candidate_level: str
    problem: str = ""

    @property
    def worst(self) -> Difference | None:
        """The difference to report: a failed one if there is one, else the largest relative to its scale."""
        return max(self.differences, key=_badness, default=None)


def random_inputs(
    model: onnx.ModelProto,
    shapes: Mapping[str, tuple[int, ...]],
    seed: int,
    *,
    kind: str = "normal",
    highest_int: int = 1,
    free_dim: int = 64,
) -> dict[str, Value]:
    """Random values for a model's inputs that have no default (an initializer of the same name).

    Floats are standard normal (`kind="normal"`) or in [0, 1) (`kind="uniform"`), integers in 0..`highest_int`,
    booleans and short strings even odds, a sequence two tensors. `shapes` gives inputs their shapes; a free dim
    elsewhere is 1 in first place and `free_dim` behind. Named dims are the same everywhere, so that one given shape
    settles the others. Raises UsageError for an unknown name or a shape that does not fit, ModelError for an input
    that is no tensor.
    """
    stored = {one.name for one in model.graph.initializer}
    needed = [one for one in model.graph.input if one.name not in stored]
    _check_names(shapes, [one.name for one in model.graph.input])
    named: dict[str, int] = {}
    for one in needed:
        if one.name in shapes:
            named |= _fit(one, shapes[one.name])
    rng = np.random.default_rng(seed)
    values: dict[str, Value] = {}
    for one in needed:
        kind_of_value = one.type.WhichOneof("value")
        if kind_of_value == "tensor_type":
            tensor, repeat = one.type.tensor_type, 1
        elif kind_of_value == "sequence_type" and one.type.sequence_type.elem_type.HasField("tensor_type"):
            tensor, repeat = one.type.sequence_type.elem_type.tensor_type, 2
        else:
            raise ModelError(f'input "{one.name}" is neither a tensor nor a sequence of tensors: give it a value')
        shape = shapes.get(one.name) or _free_shape(tensor, named, free_dim)
        arrays = [_random_array(rng, tensor.elem_type, tuple(shape), kind, highest_int) for _ in range(repeat)]
        values[one.name] = arrays[0] if kind_of_value == "tensor_type" else arrays
    return values


def input_sets(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], count: int, seed: int, worker: Worker
) -> list[dict[str, Value]]:
    """`count` sets of random inputs on which the model does run, normal and uniform floats in turn.

    Integers are tried wide first (0..99), then narrower, since they may be indices into something small. Raises
    MeasureError, with the first reason, where the model runs on none.
    """
    session = "input sets"
    load_with_fallback(worker, session, model.SerializeToString(), threads=1, levels=("disabled", "basic", "full"))
    try:
        first: MeasureError | None = None
        for highest in (99, 9, 1):
            sets = [
                random_inputs(
                    model, shapes, seed + position, kind=("normal", "uniform")[position % 2], highest_int=highest
                )
                for position in range(count)
            ]
            try:
                for one in sets:
                    worker.run(session, one, outputs=[])
                return sets
            except MeasureError as error:
                first = first or error
    finally:
        worker.drop(session)
    raise MeasureError(f"the model does not run on random inputs (are the input shapes right?): {first}")


def compare(
    reference: Mapping[str, Value],
    candidate: Mapping[str, Value],
    rtol: float | None = None,
    atol: float | None = None,
) -> list[Difference]:
    """Compare outputs by name, one Difference each, in the reference's order; an output that is missing is not ok.

    An element may be off by `atol` + `rtol` * max(scale, |reference element|): relative to the tensor's scale, because
    reordered sums cancel to small numbers whose own relative error says nothing. Defaults by dtype: `TOLERANCES`
    (float32: rtol 1e-3, atol 1e-5). Integers, booleans and strings must be equal, NaN and infinities in the same places
    with the same sign, dtypes and shapes the same. Sequences and maps are compared element by element.
    """
    return [
        _compare_value(name, value, candidate[name], rtol, atol)
        if name in candidate
        else Difference(name, False, problem="missing in the candidate")
        for name, value in reference.items()
    ]


def verify(
    original: bytes | str | Path,
    candidate: bytes | str | Path,
    *,
    input_sets: Sequence[Mapping[str, Value]],
    worker: Worker,
    rtol: float | None = None,
    atol: float | None = None,
) -> VerifyResult:
    """Run both models on each input set, one thread, and compare every output (see `compare` for the tolerance).

    The original runs without graph optimisations and the candidate with all, each falling back where onnxruntime fails.
    An original that gives other values in a second run is nondeterministic in those outputs. Raises MeasureError where
    the original does not run at all; a candidate that does not is a result that is not ok.
    """
    any_inputs = input_sets[0] if input_sets else {}
    levels = ("disabled", "basic", "extended", "full")
    source = load_with_fallback(worker, "original", original, threads=1, inputs=any_inputs, levels=levels)
    try:
        target = load_with_fallback(worker, "candidate", candidate, threads=1, inputs=any_inputs)
    except MeasureError as error:
        worker.drop("original")
        problem = f"the candidate does not run: {error}"
        return VerifyResult(False, (), (), 0, source.level, "none", problem)
    worst: dict[str, Difference] = {}
    unsteady: set[str] = set()
    problem = _interface_problem(source.inputs, target.inputs, "input") or _interface_problem(
        source.outputs, target.outputs, "output"
    )
    try:
        for inputs in input_sets:
            reference = worker.run("original", _fed(inputs, source.inputs))
            try:
                computed = worker.run("candidate", _fed(inputs, target.inputs))
            except MeasureError as error:
                problem = problem or f"the candidate does not run: {error}"
                break
            found = compare(reference, computed, rtol, atol)
            if inputs is input_sets[0] or not all(one.ok for one in found):
                again = worker.run("original", _fed(inputs, source.inputs))
                unsteady |= {one.name for one in compare(reference, again, 0.0, 0.0) if not one.ok}
            for one in found:
                if one.name in unsteady:
                    one = _same_kind(one.name, reference[one.name], computed.get(one.name))
                worst[one.name] = max(worst.get(one.name, one), one, key=_badness)
    finally:
        worker.drop("original")
        worker.drop("candidate")
    ok = not problem and all(one.ok for one in worst.values())
    steady_order = tuple(name for name, *_ in source.outputs if name in unsteady)
    return VerifyResult(ok, tuple(worst.values()), steady_order, len(input_sets), source.level, target.level, problem)


def _badness(one: Difference) -> tuple[bool, float]:
    return not one.ok, one.max_rel


def _random_array(rng: np.random.Generator, element: int, shape: tuple[int, ...], kind: str, highest: int) -> Array:
    from onnx import helper

    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    if dtype.kind == "O":
        return rng.choice(np.array(["a", "bc"], dtype=object), size=shape) if shape else np.array("a", dtype=object)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, size=shape), dtype=bool)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0, highest, size=shape, endpoint=True), dtype=dtype)
    draw = rng.standard_normal if kind == "normal" else rng.random
    if dtype in (np.float32, np.float64):
        return np.asarray(draw(size=shape, dtype=dtype.type))
    if dtype.kind == "c":
        return np.asarray(draw(size=shape) + 1j * draw(size=shape), dtype=dtype)
    values = np.asarray(draw(size=shape), dtype=np.float32)
    if "int" in dtype.name:  # the four-bit integers
        return np.asarray(rng.integers(0, min(highest, 7), size=shape, endpoint=True)).astype(dtype)
    converted = values.astype(dtype)
    # One of the 8-bit types has no sign: what it cannot hold becomes NaN.
    return np.abs(values).astype(dtype) if np.isnan(converted).any() else converted


def _check_names(shapes: Mapping[str, object], inputs: Sequence[str]) -> None:
    for name in shapes:
        if name not in inputs:
            hint = did_you_mean(name, inputs)
            raise UsageError(f'the model has no input named "{name}"; its inputs are: {", ".join(inputs)}{hint}')


def _fit(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> dict[str, int]:
    """The named dims that a given shape settles; UsageError where rank or a fixed dim differs."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return {}
    dims = list(tensor.shape.dim)
    declared = ", ".join(str(one.dim_value) if is_static(one) else dim_name(one) or "?" for one in dims)
    fits = len(dims) == len(shape) and all(
        not is_static(one) or one.dim_value == size for one, size in zip(dims, shape)
    )
    if not fits:
        raise UsageError(f'input "{value.name}" has shape [{declared}]; the given shape {list(shape)} does not fit it')
    return {name: size for one, size in zip(dims, shape) if (name := dim_name(one)) is not None}


def _free_shape(tensor: onnx.TypeProto.Tensor, named: dict[str, int], free_dim: int) -> tuple[int, ...]:
    shape = []
    for position, one in enumerate(tensor.shape.dim):
        if is_static(one):
            shape.append(one.dim_value)
            continue
        size, name = 1 if position == 0 else free_dim, dim_name(one)
        shape.append(size if name is None else named.setdefault(name, size))
    return tuple(shape)


def _compare_value(name: str, reference: Value, candidate: Value, rtol: float | None, atol: float | None) -> Difference:
    if isinstance(reference, (list, tuple)) and isinstance(candidate, (list, tuple)):
        pairs = list(zip(reference, candidate)) if len(reference) == len(candidate) else None
    elif isinstance(reference, Mapping) and isinstance(candidate, Mapping):
        same_keys = reference.keys() == candidate.keys()
        pairs = [(reference[key], candidate[key]) for key in reference] if same_keys else None
    elif reference is None or candidate is None:
        same = reference is candidate
        return Difference(name, same, problem="" if same else "only one side has a value")
    else:
        return _compare_array(name, np.asarray(reference), np.asarray(candidate), rtol, atol)
    if pairs is None:
        return Difference(name, False, problem="the number of elements or the keys differ")
    parts = [_compare_value(name, first, second, rtol, atol) for first, second in pairs]
    return max(parts, key=_badness, default=Difference(name, True))


def _compare_array(name: str, reference: Array, candidate: Array, rtol: float | None, atol: float | None) -> Difference:
    if (reference.dtype, reference.shape) != (candidate.dtype, candidate.shape):
        return _same_kind(name, reference, candidate)
    relative, absolute = _tolerance(reference.dtype)
    if (relative, absolute) == (0.0, 0.0):
        return _compare_exact(name, reference, candidate)
    relative, absolute = (relative if rtol is None else rtol), (absolute if atol is None else atol)
    wide = np.complex128 if reference.dtype.kind == "c" else np.float64
    one, two = reference.astype(wide), candidate.astype(wide)
    finite = np.isfinite(one) & np.isfinite(two)
    same_special = (one == two) | (np.isnan(one) & np.isnan(two))
    if not np.all(finite | same_special):
        where = _index(np.argmin(finite | same_special), one.shape)
        problem = f"at {list(where)} the original gives {one[where]}, the candidate {two[where]}"
        return Difference(name, False, math.inf, math.inf, 0.0, where, problem)
    magnitude = np.where(finite, np.abs(np.where(finite, one, 0)), 0.0)
    off = np.abs(np.where(finite, one, 0) - np.where(finite, two, 0))
    if off.size == 0:
        return Difference(name, True)
    scale = _scale(magnitude)
    largest = float(off.max())
    excess = off - (absolute + relative * np.maximum(scale, magnitude))
    ok = not bool(np.any(excess > 0))
    where = _index(np.argmax(off if ok else excess), off.shape)
    size = np.maximum(np.maximum(scale, magnitude), max(absolute, float(np.finfo(np.float64).tiny)))
    with np.errstate(over="ignore"):
        largest_relative = float((off / size).max())
    problem = ""
    if not ok:
        problem = f"at {list(where)} the original gives {one[where]:.9g}, the candidate {two[where]:.9g}"
        problem += f" (off by {off[where]:.3g}; the tensor's scale is {scale:.3g})"
    return Difference(name, ok, largest, largest_relative, scale, where, problem)


def _compare_exact(name: str, reference: Array, candidate: Array) -> Difference:
    equal = reference == candidate
    if np.all(equal):
        return Difference(name, True)
    where = _index(np.argmin(equal), reference.shape)
    problem = f"at {list(where)} the original gives {reference[where]!r}, the candidate {candidate[where]!r}"
    if reference.dtype.kind not in "iu":
        return Difference(name, False, math.inf, math.inf, 0.0, where, problem)
    one, two = reference.astype(np.float64), candidate.astype(np.float64)
    largest, scale = float(np.abs(one - two).max()), float(np.abs(one).max())
    return Difference(name, False, largest, largest / scale if scale else math.inf, scale, where, problem)


def _same_kind(name: str, reference: Value, candidate: Value) -> Difference:
    """Compare dtype and shape alone."""
    if not isinstance(reference, np.ndarray) or not isinstance(candidate, np.ndarray):
        same = type(reference) is type(candidate)
        return Difference(name, same, problem="" if same else "the kinds of value differ")
    one, two = ((array.dtype.name, list(array.shape)) for array in (reference, candidate))
    problem = "" if one == two else f"the original gives {one[0]}{one[1]}, the candidate {two[0]}{two[1]}"
    return Difference(name, one == two, problem=problem)


def _tolerance(dtype: np.dtype[Any]) -> tuple[float, float]:
    default = EIGHT_BIT_TOLERANCE if dtype.name.startswith("float8") else (0.0, 0.0)
    return TOLERANCES.get(dtype.name, default)


def _scale(magnitude: Array) -> float:
    nonzero = magnitude[magnitude > 0]
    if nonzero.size == 0:
        return 0.0
    ordinary = nonzero[nonzero <= OUTLIER * np.median(nonzero)]
    return float(ordinary.max())


def _index(flat: np.intp, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(one) for one in np.unravel_index(flat, shape))


def _fed(inputs: Mapping[str, Value], declared: Sequence[tuple[str, str, object]]) -> dict[str, Value]:
    names = {name for name, *_ in declared}
    return {name: value for name, value in inputs.items() if name in names}


def _interface_problem(
    original: Sequence[tuple[str, str, object]], candidate: Sequence[tuple[str, str, object]], what: str
) -> str:
    """Whether names, their order or types differ, in words; `""` if not."""
    one, two = ([f"{name}: {kind}" for name, kind, _ in side] for side in (original, candidate))
    return "" if one == two else f"the {what}s differ: {', '.join(one) or 'none'} against {', '.join(two) or 'none'}"
