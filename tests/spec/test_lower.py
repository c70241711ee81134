"""Array code against a slow interpreter that evaluates one element at a time, and against NumPy by hand."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from taso.errors import ShapeError, SpecError
from taso.spec import syntax as s
from taso.spec.evaluate import Scope, elements, evaluate, holds
from taso.spec.functions import erf
from taso.spec.lower import run, run_term
from taso.spec.parse import parse, parse_term
from taso.spec.sample import Sample, draw
from taso.spec.spec import Spec, load_spec

SPEC = load_spec()
ELEMENT = {
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "erf": math.erf,
    "pow": math.pow,
    "abs": abs,
}


def element(expr: s.Expr, scope: Scope, tensors: dict[str, np.ndarray]) -> float:
    """One element of a result, straight from the syntax tree."""

    def of(inner: s.Expr) -> float:
        return element(inner, scope, tensors)

    match expr:
        case s.Read(tensor, index, fill):
            at = elements(index, scope)
            inside = all(0 <= i < n for i, n in zip(at, tensors[tensor].shape, strict=True))
            if not inside:
                assert fill is not None, f"{tensor} is read at {at}"
                return of(fill)
            return float(tensors[tensor][at])
        case s.Reduce(kind, binders, body):
            bounds = []
            for binder in binders:
                bound = evaluate(binder.bound, scope)
                bounds.extend(bound if binder.starred else (bound,))
            found = []
            for point in itertools.product(*map(range, bounds)):
                values, rest = dict(scope.values), list(point)
                for binder in binders:
                    length = len(evaluate(binder.bound, scope)) if binder.starred else 1
                    taken, rest = tuple(rest[:length]), rest[length:]
                    values[binder.name] = taken if binder.starred else taken[0]
                found.append(element(body, Scope(values, scope.shapes), tensors))
            return {"sum": sum, "max": lambda v: max(v, default=-math.inf), "min": lambda v: min(v, default=math.inf)}[
                kind
            ](found)
        case s.If(condition, then, otherwise):
            return of(then) if holds(condition, scope) else of(otherwise)
        case s.Neg(inner):
            return -of(inner)
        case s.Bin(op, left, right):
            a, b = of(left), of(right)
            return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[op]()
        case s.Call(("max" | "min") as name, (left, right)):
            return max(of(left), of(right)) if name == "max" else min(of(left), of(right))
        case s.Call(function, args) if function in ELEMENT:
            return float(ELEMENT[function](*map(of, args)))
    return float(evaluate(expr, scope))


def interpret(op: s.Operator, sample: Sample, tensors: list[np.ndarray]) -> np.ndarray:
    """The whole result, one element at a time."""
    assert sample.result is not None
    out = np.zeros(sample.result)
    named = dict(zip((p.name for p in op.params), tensors))
    lengths = [len(elements((s.Star(item.value),), sample.scope)) if item.starred else 1 for item in op.result]
    for point in np.ndindex(*sample.result):
        values, rest = dict(sample.scope.values), list(point)
        for item, length in zip(op.index, lengths):
            assert isinstance(item.value, s.Name)
            taken, rest = tuple(rest[:length]), rest[length:]
            values[item.value.id] = taken if item.starred else taken[0]
        out[point] = element(op.body, Scope(values, sample.scope.shapes), named)
    return out


@pytest.mark.parametrize("name", sorted(SPEC.operators))
def test_an_operator_computes_what_its_declaration_says(name: str) -> None:
    op = SPEC.operators[name]
    rng, data, seen = random.Random(name), np.random.default_rng(7), 0
    for _ in range(12):
        sample = draw(op, rng)
        if sample is None or np.prod(sample.result) * math.prod(map(math.prod, sample.shapes)) > 20_000:
            continue
        tensors = [data.integers(1, 6, shape) * 1.0 for shape in sample.shapes]
        if name not in ("log", "sqrt", "pow"):
            tensors = [t * data.choice([-1.0, 1.0], t.shape) for t in tensors]
        result = run(op, tensors, sample.attrs, SPEC)
        assert result.shape == sample.result
        np.testing.assert_allclose(result, interpret(op, sample, tensors), rtol=1e-12, atol=1e-12)
        seen += 1
    assert seen >= 3


def term(text: str, **tensors: np.ndarray) -> np.ndarray:
    return run_term(parse_term(text), SPEC, tensors)


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(-5, 6, shape) * 1.0


def test_a_convolution_is_exact_on_whole_numbers() -> None:
    x, f = whole(2, 4, 6, 5), whole(6, 2, 3, 2)
    got = term("conv(x, f; stride = [2, 1], before = [1, 0], after = [1, 1], dilation = [1, 2], group = 2)", x=x, f=f)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 1)))
    expected = np.zeros(got.shape)
    for b, p, y, z in np.ndindex(*got.shape):
        for q, r, t in np.ndindex(2, 3, 2):
            expected[b, p, y, z] += padded[b, (p // 3) * 2 + q, y * 2 + r, z + t * 2] * f[p, q, r, t]
    np.testing.assert_array_equal(got, expected)


def test_a_batch_is_the_stack_of_its_members() -> None:
    x, f = whole(5, 2, 4, 4, 3), whole(5, 3, 4, 3, 1)
    op = SPEC.operators["conv"]
    together = run(op, [x, f], {"before": (1, 0)}, SPEC, batched=True)
    for k in range(5):
        np.testing.assert_array_equal(together[k], run(op, [x[k], f[k]], {"before": (1, 0)}, SPEC))


@pytest.mark.parametrize("name", ["matmul", "add", "concat"])
def test_batch_axes_of_size_one_repeat(name: str) -> None:
    a, b = whole(3, 2, 4, 4), whole(5, 2, 4, 4, seed=1)
    attrs = {"axis": 0} if name == "concat" else {}
    op = SPEC.operators[name]
    block = run(op, [a[:, None], b[None]], attrs, SPEC, batched=3 - 1)
    assert block.shape[:2] == (3, 5)
    for i, j in np.ndindex(3, 5):
        np.testing.assert_array_equal(block[i, j], run(op, [a[i], b[j]], attrs, SPEC))


def test_the_type_of_the_arguments_stays() -> None:
    x = whole(2, 3).astype(np.float32)
    for text in ("mul(x, 3)", "avg_pool(reshape(x; shape = [1, 2, 3]); kernel = [2])", "sigmoid(x)", "add(x, `1 / 3`)"):
        assert term(text, x=x).dtype == np.float32


def test_empty_tensors_and_sizes_of_one() -> None:
    assert term("matmul(a, b)", a=np.zeros((2, 0)), b=np.zeros((0, 3))).tolist() == [[0.0] * 3] * 2
    assert term("add(x, x)", x=np.zeros((0, 3))).shape == (0, 3)
    assert term("reduce_max(x; axes = [0])", x=np.zeros((0, 2))).tolist() == [-math.inf, -math.inf]
    assert term("concat(a, b; axis = 0)", a=np.zeros((0, 2)), b=np.ones((1, 2))).tolist() == [[1.0, 1.0]]
    assert term("pad(x; before = [1], after = [1], value = 7)", x=np.zeros(0)).tolist() == [7.0, 7.0]
    assert term("conv(x, f)", x=np.full((1, 1, 1), 2.0), f=np.full((1, 1, 1), 3.0)).tolist() == [[[6.0]]]


def test_a_scalar_is_a_tensor_too() -> None:
    result = term("mul(broadcast(s; dims = [], shape = [2]), 2)", s=np.array(4.0))
    assert result.tolist() == [8.0, 8.0]
    assert term("relu(s)", s=np.array(-4.0)).shape == ()


def test_macros_are_expanded() -> None:
    x = np.random.default_rng(1).standard_normal((3, 4))
    np.testing.assert_allclose(term("softmax(x)", x=x), np.exp(x) / np.exp(x).sum(-1, keepdims=True))
    np.testing.assert_allclose(term("hard_swish(x)", x=x), x * np.clip(x / 6 + 0.5, 0, 1))
    normal = term("layer_norm(x, ones(), zeros())", x=x)
    np.testing.assert_allclose(normal.mean(-1), 0, atol=1e-12)


def test_equal_subterms_and_chosen_terms() -> None:
    macros = Spec()
    for path, text in SPEC.files.items():
        macros.add(text, path)
    macros.add("macro turned(x[*s]; turn: bool = false) = if turn then transpose(x; perm = [1, 0]) else x", "more.op")
    x = whole(2, 3)
    np.testing.assert_array_equal(run_term(parse_term("turned(x; turn = true)"), macros, {"x": x}), x.T)
    np.testing.assert_array_equal(run_term(parse_term("turned(x)"), macros, {"x": x}), x)


def test_a_read_outside_the_tensor_is_refused() -> None:
    (op,) = parse("op bad(x[n]) -> [n] out[i] = x[i + 1]")
    assert isinstance(op, s.Operator)
    with pytest.raises(SpecError, match="read outside its bounds"):
        run(op, [np.zeros(3)], {})
    (op,) = parse("op good(x[n]) -> [n] out[i] = if i < n - 1 then x[i + 1] else 0")
    assert isinstance(op, s.Operator)
    assert run(op, [np.array([1.0, 2.0])], {}).tolist() == [2.0, 0.0]


def test_conditions_on_elements() -> None:
    (op,) = parse("op leaky(x[*s]; slope: real) -> [*s] out[*i] = if x[*i] > 0 then x[*i] else slope * x[*i]")
    assert isinstance(op, s.Operator)
    assert run(op, [np.array([-2.0, 3.0])], {"slope": 0.5}).tolist() == [-1.0, 3.0]


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ShapeError):
        term("add(x, y)", x=np.zeros(2), y=np.zeros(3))
    with pytest.raises(ShapeError, match="does not follow from its place"):
        term("broadcast(x; dims = [0])", x=np.zeros(2))


def test_erf() -> None:
    x = np.concatenate([np.linspace(-7, 7, 2001), [0.0, 0.46875, -0.46875, np.inf, -np.inf]])
    np.testing.assert_allclose(erf(np, x), [math.erf(v) for v in x], rtol=1e-14, atol=1e-15)
    assert np.isnan(erf(np, np.array(np.nan)))
