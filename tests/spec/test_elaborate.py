"""Terms to typed trees: what is left out is inferred from its place, for concrete and symbolic sizes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from taso.algebra.poly import var
from taso.errors import ShapeError, SpecError
from taso.spec.elaborate import Typed, elaborate
from taso.spec.parse import parse_term
from taso.spec.spec import load_spec

SPEC = load_spec()
N, C, O, H, W = map(var, ("n", "c", "o", "h", "w"))


def typed(text: str, shapes: dict[str, tuple[object, ...]], **options: object) -> Typed:
    return elaborate(parse_term(text), SPEC, shapes, **options)  # type: ignore[arg-type]


def test_symbolic_sizes() -> None:
    tree = typed("conv(x, f; before = 1, after = 1)", {"x": (N, C, H, W), "f": (O, C, 3, 3)})
    assert tree.shape == (N, O, H, W)
    assert tree.attr["stride"] == (1, 1)
    assert tree.attr["group"] == 1


def test_a_shape_that_is_left_out_comes_from_the_place() -> None:
    tree = typed("mul(conv(x, f), broadcast(v; dims = [1]))", {"x": (N, C, H), "f": (O, C, 1), "v": (O,)})
    assert tree.args[1].attr["shape"] == (N, O, H)
    nested = typed(
        "add(mul(broadcast(v; dims = [0]), broadcast(w; dims = [1])), x)", {"x": (2, 3), "v": (2,), "w": (3,)}
    )
    assert [arg.shape for arg in nested.args[0].args] == [(2, 3), (2, 3)]


def test_constants_take_their_attributes_from_the_place() -> None:
    tree = typed("add(f, identity_kernel())", {"f": (4, 2, 3, 5)})
    assert tree.args[1].attr == {"channels": 4, "per_group": 2, "kernel": (3, 5)}
    assert typed("matmul(x, identity_matrix(; size = dim(x, 1)))", {"x": (N, C)}).args[1].shape == (C, C)


def test_the_shape_asked_for_from_outside() -> None:
    assert typed("broadcast(v; dims = [1])", {"v": (3,)}, result=(2, 3)).shape == (2, 3)
    with pytest.raises(ShapeError):
        typed("relu(v)", {"v": (3,)}, result=(2,))
    with pytest.raises(ShapeError):
        typed("relu(v)", {"v": (3,)}, result=(3, 1))


def test_literals_close_over_their_names() -> None:
    tree = typed("mul(x, `1 / dim(x, 0)`)", {"x": (4,)})
    literal = tree.args[1]
    assert literal.kind == "literal" and literal.shape == (4,)
    assert list(literal.attr.values()) == [4]
    tree = elaborate(parse_term("clip(x; high = 1 / k)"), SPEC, {"x": (4,)}, {"k": 3})
    assert tree.attr["high"] == Fraction(1, 3)


def test_macros_expand_or_stay() -> None:
    shapes = {"x": (2, 4, 3, 3), "f": (5, 4, 1, 1), "b": (5,)}
    assert typed("conv_bias(x, f, b)", shapes).head == "add"
    kept = typed("conv_bias(x, f, b)", shapes, keep_macros=True)
    assert (kept.head, kept.shape) == ("conv_bias", (2, 5, 3, 3))
    assert [arg.head for arg in kept.args] == ["x", "f", "b"]


def test_a_macro_argument_may_wait_for_the_macro() -> None:
    tree = typed("add(x, leaky_relu(broadcast(v; dims = [1])))", {"x": (2, 3), "v": (3,)})
    assert tree.shape == (2, 3)
    assert {"x", "v"} == _names(tree)


def _names(tree: Typed) -> set[str]:
    return {tree.head} if tree.kind == "var" else set().union(*map(_names, tree.args)) if tree.args else set()


def test_equal_trees_are_equal() -> None:
    a = typed("add(relu(x), relu(x))", {"x": (2,)})
    b = typed("add(relu(x), relu(x))", {"x": (2,)})
    assert a == b and hash(a) == hash(b)
    assert a != typed("add(relu(x), relu(x))", {"x": (3,)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add(x, nothing)", "no tensor is called `nothing`"),
        ("sigmoidd(x)", "did you mean `sigmoid`"),
        ("add(x)", "takes 2 tensors"),
        ("relu(x; slope = 1)", "no attribute `slope`"),
        ("fold(concat, x; axis = 0)", "outside an import"),
    ],
)
def test_mistakes_are_explained(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        typed(text, {"x": (2, 3)})


def test_what_cannot_be_inferred_is_named() -> None:
    with pytest.raises(ShapeError, match="`a number` does not follow"):
        typed("add(1, 2)", {})
    with pytest.raises(ShapeError):
        typed("matmul(a, b)", {"a": (2, 3), "b": (4, 5)})
