"""The static checker: the shipped specification is well formed, and every kind of mistake is named with its place."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from taso.errors import SpecError
from taso.resources import opspec_dir
from taso.spec.check import check_spec
from taso.spec.spec import Spec, load_spec
from tests.spec import corrupt


def problems(text: str, *, shipped: bool = True) -> list[SpecError]:
    """What the checker says about a file on top of the shipped ones."""
    spec = Spec()
    if shipped:
        for path, (written, items) in corrupt.shipped().items():
            spec.take(items, written, path)
    spec.add(text, "new.op")
    return check_spec(spec)


def test_the_shipped_specification_is_well_formed() -> None:
    assert [str(error) for error in check_spec(load_spec())] == []
    assert len(load_spec().items) > 100  # and it is not empty


def test_an_error_looks_as_promised() -> None:
    text = "op mm(a[*b, m, k], c[*b, k, n]) -> [*b, m, n]\n    out[*b, i, j] = sum(k < k) a[*b, i, l] * c[*b, k, j]\n"
    (error,) = problems(text, shipped=False)
    assert str(error) == (
        "new.op:2:41: error: index `l` is not bound\n"
        "   |     out[*b, i, j] = sum(k < k) a[*b, i, l] * c[*b, k, j]\n"
        "   |                                         ^ bound here are b, i, j, k\n"
        "   = did you mean to write `sum(l < k)`?"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # names
        ("op f(x[*s]) -> [*t] out[*i] = x[*i]", "1:18: error: `t` is not bound"),
        ("op f(x[n]; size: int) -> [n] out[i] = x[i] * siez", "did you mean `size`?"),
        ("op f(x[*s]) -> [*s] out[*i] = y[*i]", "1:31: error: no tensor is called `y`"),
        ("op f(x[*s]) -> [*s] out[*i] = x", "`x` is a tensor, not a number"),
        ("op f(x[n + m]) -> [n] out[i] = x[i]", "the size `n` does not follow from the shapes"),
        ("op f(x[*p, *q]) -> [*p] out[*i] = 0", "how the axes of `x` fall into its lists is not said"),
        ("op f(x[*s], x[*s]) -> [*s] out[*i] = x[*i]", "tensor `x` is declared twice"),
        ("op f(x[*s]; k: int, k: int) -> [*s] out[*i] = x[*i]", "attribute `k` is declared twice"),
        ("op f(x[*s]; k: ints(t)) -> [*s] out[*i] = x[*i]", "`t` is no list of sizes"),
        ("op f(x[n]; k: ints(n)) -> [n] out[i] = x[i]", "`n` is no list of sizes"),
        ("op f(x[*s]; k: real(s)) -> [*s] out[*i] = x[*i]", "takes no list in parentheses"),
        # indices and shapes
        ("op f(x[n, m]) -> [n] out[i] = x[i]", "`x` has rank 2 but is read with 1 indices"),
        ("op f(x[*p:axis, m, *q]; axis: axis) -> [*p, *q] out[*i, *j] = x[*i, *j]", "is read with"),
        ("op f(x[n, m]) -> [n, m] out[i] = x[i, 0]", "the result has 2 entries but `out` has 1 indices"),
        ("op f(x[*s]) -> [*s] out[i] = x[i]", "`i` must be starred"),
        ("op f(x[n, m]) -> [n, m] out[i, i] = x[i, i]", "index `i` is bound twice"),
        ("op f(x[n]) -> [n] out[i] = x[i + 1]", "`x` is read outside its bounds"),
        ("op f(x[n]) -> [n] out[i] = sum(*j < n) x[i]", "the bound of `j` must be a list"),
        ("op f(x[n]) -> [n] out[i] = x[x[i]]", "`x` cannot be read here"),
        ("op f(x[*s]) -> [*s] out[*i] = x[i]", "this is a list; its entries are put in place with `*`"),
        ("op f(x[n]) -> [n] out[i] = x[*i]", "behind `*` a list is expected"),
        # kinds
        ("op f(x[*s]) -> [*s] require s out[*i] = x[*i]", "a requirement is a condition, not a list"),
        ("op f(x[*s]) -> [*s] out[*i] = s", "an element is a number, not a list"),
        ('op f(x[*s]) -> [*s] out[*i] = x[*i] + "a"', "a number is expected here, not a string"),
        ("op f(x[n]; k: int = [1]) -> [n] out[i] = x[i]", "the default of `k` must be of type int"),
        ("op f(x[*s]) -> [*s] require s ++ 1 == s out[*i] = x[*i]", "`++` joins two lists"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] identity when rank(x)", "`identity when` takes a condition"),
        # functions
        ("op f(x[*s]) -> [*s] out[*i] = expp(x[*i])", "did you mean `exp`?"),
        ("op f(x[*s]) -> [*s] out[*i] = exp(x[*i], 2)", "`exp` cannot take 2 arguments"),
        ("op f(x[*s]; k: ints(s) = exp(1)) -> [*s] out[*i] = x[*i]", "functions of elements exist only where"),
        ("op f(x[n]) -> [len(n)] out[i] = 0", "`len` takes a list here"),
        ("op f(x[n]) -> [dim(x)] out[i] = 0", "`dim` takes the name of a tensor and an axis"),
        ("op f(x[n]) -> [dim(y, 0)] out[i] = 0", "no tensor is called `y`"),
        # terms
        ("macro f(x[*s]) = rleu(x)", "1:18: error: no operator is called `rleu`"),
        ("macro f(x[*s]) = add(x)", "`add` takes 2 tensors, not 1"),
        ("macro f(x[*s]) = add(x, y)", "no tensor is called `y`"),
        ("macro f(x[*s]) = softmax(x; axes = 1)", "did you mean `axis`?"),
        ("macro f(x[*s]) = softmax(x; axis = 1, axis = 2)", "attribute `axis` is written twice"),
        ("macro f(x[*s]) = softmax(x; axis = [1])", "attribute `axis` of `softmax` is of type axis, not a list"),
        ("macro f(x[*s]) = transpose(x)", "`transpose` needs the attribute `perm`"),
        ("macro f(x[*s]) = f(x)", "`f` is defined by itself: f -> f"),
        ("macro f(x[*s]) = g(x)\nmacro g(x[*s]) = neg(f(x))", "`f` is defined by itself: f -> g -> f"),
        ("macro f(x[m, n]) = matmul(x, add(x, x))\nmacro g(x[m], y[n, 2]) = matmul(x, y)", "`g` fits no random shapes"),
        ("macro f(x[*s]) = fold(add, x)", "`x` is not any number of tensors"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] implicit relu(y)", "no tensor is called `y`"),
        ("axiom add(x, y) == add(x, z)", "no tensor is called `z`"),
        ("axiom softmax(x; axis = a) == softmax(x; axis = b)", "`b` is not bound"),
        ("axiom softmax(x; axis = a + 1) == x", "`a` is not bound"),
        ("axiom relu(x) == x where k > 1", "`k` is not bound"),
        ("axiom relu(x) == x ranks (y) in [(1)]", "`ranks` names `y`"),
        ("axiom (if rank(x) == 1 then x else x) == x", None),
        ("axiom if rank(x) == 1 then x else relu(x) == x", "stands only in macros and imports"),
        # ONNX
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] onnx Rleu(x) since 1", "onnx has no operator `Rleu`"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] onnx Erf(x) since 1", "Erf does not exist in opset 1"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] onnx Relu(x, x) since 6", "Relu takes 1 inputs in opset 6, not 2"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] onnx Relu(x; alpha = 1) since 6", "Relu has no attribute `alpha`"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] onnx Softmax(x; axis = [1]) since 13", "`axis` of Softmax is a whole"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] onnx MaxPool(x) since 8", "MaxPool needs the attribute `kernel_shape`"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] onnx Pad(x; pads = [1]) since 2", "no attribute `pads` in opset 11"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] onnx Relu(none) since 6", "input 1 of Relu cannot be left out"),
        ("op f(x[*s], y[*s]) -> [*s] out[*i] = x[*i] onnx Sub(x, y) variadic since 7", "the form is not variadic"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] onnx Relu(x) since 9 until 6", "is no range of opsets"),
        ("op f(x[*s]) -> [*s] out[*i] = x[*i] onnx Relu(z) since 9", "no tensor is called `z`"),
        ("import Rleu(x) since 1 = x", "did you mean `Relu`?"),
        ("import Relu(x; alpha = 1) since 6 = x", "Relu has no attribute `alpha`"),
        ("import Relu(x, y) since 6 = x", "Relu takes at most 1 inputs"),
        ("import Relu(x) since 6 when len(k) == 1 = x", "`k` is not bound"),
        ("import Relu(x) since 6 = y", "no tensor is called `y`"),
        ("import Sum(xs...) since 8 = xs", "`fold` makes one of them"),
        ("import Sum(xs...) since 8 = fold(relu, xs)", "`fold` takes an operator of two tensors"),
        ("import Sum(xs..., y) since 8 = y", "only the last input can be variadic"),
        ("import Relu(x; k) since 6 = x", "Relu has no attribute `k`"),
        # universes
        ("universe u input a, a [1]", "input `a` is declared twice"),
        ("universe u input a [0]", "sizes are at least 1"),
        ("universe u input a [2] apply f(x) = relu(a)", "no tensor is called `a`"),
        ("universe u input a [2] apply f(x) when dim(y, 0) == 2 = relu(x)", "no tensor is called `y`"),
        ("universe u input a [2] const c = ones(; size = 2)", "`ones` has no attribute `size`"),
        ("universe u input a [2] apply f(x) = relu(x) apply f(y) = neg(y)", "instance `f` is declared twice"),
    ],
)  # fmt: skip
def test_mistakes(text: str, message: str | None) -> None:
    if message is None:  # terms have no parentheses of their own
        with pytest.raises(SpecError, match="unexpected"):
            problems(text)
        return
    found = problems(text)
    assert any(message in str(error) for error in found), [str(error) for error in found]
    for error in found:
        assert error.path == "new.op" and 0 < error.line <= text.count("\n") + 1 and error.column > 0
        assert text.splitlines()[error.line - 1] in str(error)


def test_all_mistakes_are_found_at_once() -> None:
    text = "op f(x[*s]) -> [*t] out[*i] = y[*i]\nmacro g(x[*s]) = nothing(x)\nimport Rleu(x) since 1 = z\n"
    assert [error.line for error in problems(text)] == [1, 1, 2, 3]


def test_an_unknown_domain_is_not_held_against_a_form() -> None:
    text = 'op f(x[*s]) -> [*s] out[*i] = x[*i] onnx Mine(x; k = 1) since 1 in "my.domain"\n'
    assert problems(text) == []


@pytest.mark.parametrize("seed", range(8))
def test_damage_is_never_a_traceback(seed: int) -> None:
    """Damaged files are refused with a place, or are still well formed."""
    rng = random.Random(seed)
    refused = 0
    for _ in range(40):
        path, text = corrupt.damaged(rng)
        try:
            found = check_spec(corrupt.spec_with(path, text))
        except SpecError as error:
            found = [error]
        for error in found:
            assert error.line > 0 and error.column > 0 and Path(error.path).is_relative_to(opspec_dir()), str(error)
        refused += bool(found)
    assert refused > 10  # the damage is real
