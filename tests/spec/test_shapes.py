"""Signatures: shapes and attributes bind names, results follow, and what does not fit is refused with a reason."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taso.algebra.poly import floordiv, var
from taso.errors import ShapeError
from taso.spec import syntax as s
from taso.spec.elaborate import elaborate
from taso.spec.parse import parse, parse_term
from taso.spec.shapes import Declared, solve, structural
from taso.spec.spec import Spec, load_spec

A, B, C = var("a"), var("b"), var("c")


def shape(op: str, *shapes: tuple[Any, ...], **attrs: Any) -> Any:
    return solve(load_spec().declared(op), shapes, attrs).result


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "expected"),
    [
        ("add", [(A, 3), (A, 3)], {}, (A, 3)),
        ("matmul", [(2, 3), (3, 4)], {}, (2, 4)),
        ("matmul", [(C, A, B), (C, B, 7)], {}, (C, A, 7)),
        ("transpose", [(A, B, C)], {"perm": (2, 0, 1)}, (C, A, B)),
        ("transpose", [(A, B)], {"perm": (-1, -2)}, (B, A)),
        ("concat", [(A, 2), (A, B)], {"axis": 1}, (A, B + 2)),
        ("concat", [(A, 2), (A, B)], {"axis": -1}, (A, B + 2)),
        ("slice", [(5, A)], {"axis": 0, "start": 1, "stop": 5, "step": 2}, (2, A)),
        ("broadcast", [(A,)], {"dims": (1,), "shape": (B, A, 3)}, (B, A, 3)),
        ("reduce_sum", [(A, B, C)], {"axes": (0, 2)}, (B,)),
        ("reduce_sum", [(A, B, C)], {"axes": (-1,)}, (A, B)),
        ("pad", [(A, 4)], {"before": (1, 0), "after": 2}, (A + 3, 6)),
        ("conv", [(1, 4, 7, 7), (8, 4, 3, 3)], {}, (1, 8, 5, 5)),
        ("conv", [(1, 4, 7), (6, 2, 3)], {"group": 2, "stride": (2,), "before": (1,), "after": (1,)}, (1, 6, 4)),
        ("conv", [(1, 4, A, A), (8, 4, 3, 3)], {"before": (1, 1), "after": (1, 1)}, (1, 8, A, A)),
        (
            "conv",
            [(1, 4, A), (8, 4, 3)],
            {"stride": (2,), "before": (1,), "after": (1,)},
            (1, 8, floordiv(A - 1, 2) + 1),
        ),
        ("identity_kernel", [], {"channels": 4, "per_group": 2, "kernel": (3, 3)}, (4, 2, 3, 3)),
    ],
)
def test_results(op: str, shapes: list[Any], attrs: dict[str, Any], expected: Any) -> None:
    assert shape(op, *shapes, **attrs) == expected


def test_a_real_default_divides_reals_and_others_round_down() -> None:
    spec = Spec()
    spec.add(
        "op scale(x[*s]; by: real) -> [*s] out[*i] = by * x[*i]\n"
        "macro sixth(x[n]; by: real = 1 / 6, half: int = 7 / 2, mean: real = 1 / n) = scale(x; by = by)",
        "a.op",
    )
    assert solve(spec.declared("sixth"), [(4,)], {}).attrs == {"by": Fraction(1, 6), "half": 3, "mean": Fraction(1, 4)}
    typed = elaborate(parse_term("sixth(x)"), spec, {"x": (4,)})
    assert (typed.head, typed.attr) == ("scale", {"by": Fraction(1, 6)})


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "reason"),
    [
        ("add", [(2,), (3,)], {}, "is not"),
        ("add", [(2,)], {}, "takes 2 tensors, not 1"),
        ("matmul", [(2, 3), (4, 4)], {}, "is not"),
        ("matmul", [(3,), (3,)], {}, "rank 1 does not fit"),
        ("concat", [(2, 2), (3, 2)], {"axis": 1}, "is not"),
        ("concat", [(2, 2), (2, 2)], {"axis": 2}, "out of range"),
        ("concat", [(2, 2), (2, 2)], {"axis": -3}, "out of range"),
        ("concat", [(2, 2), (2, 2)], {}, "its shape does not say|missing"),
        ("transpose", [(2, 3)], {"perm": (0, 0)}, "no permutation"),
        ("transpose", [(2, 3)], {"perm": (0,)}, "no permutation"),
        ("reduce_sum", [(2, 3)], {"axes": (2,)}, "out of range"),
        ("reduce_sum", [(2, 3)], {"axes": (1, -1)}, "has an axis twice"),
        ("reshape", [(2, 3)], {"shape": (4,)}, "requirement is not met"),
        ("reshape", [(A, 3)], {"shape": (B, 3)}, "cannot be decided"),
        ("slice", [(4,)], {"axis": 0, "start": 2, "stop": 5}, "requirement is not met"),
        ("conv", [(1, 3, 5), (4, 2, 3)], {"group": 2}, "is not divisible by"),
        ("conv", [(1, 4, 5, 5), (4, 4, 3)], {}, "entries|lengths"),
        ("pad", [(2, 2)], {"before": (1,), "after": 0}, "1 entries where 2 are expected"),
        ("add", [(2,), (2,)], {"axis": 0}, "has no attribute axis"),
    ],
)
def test_refusals(op: str, shapes: list[Any], attrs: dict[str, Any], reason: str) -> None:
    with pytest.raises(Exception, match=reason) as caught:
        shape(op, *shapes, **attrs)
    assert caught.type.__module__.startswith("taso.")


def test_an_omitted_shape_is_what_the_place_asks_for() -> None:
    broadcast = load_spec().declared("broadcast")
    solved = solve(broadcast, [(A,)], {"dims": (1,)}, result=(2, A))
    assert solved.attrs["shape"] == (2, A) and solved.result == (2, A)
    with pytest.raises(ShapeError, match="shape is missing"):
        solve(broadcast, [(A,)], {"dims": (1,)})


def test_partial_solving_says_what_it_can() -> None:
    matmul = load_spec().declared("matmul")
    solved = solve(matmul, [(A, B), None], {}, partial=True)
    assert solved.result is None and solved.scope.values["k"] == B


def test_a_list_is_as_long_as_its_list() -> None:
    conv = load_spec().declared("conv")
    solved = solve(conv, [(1, 4, 7, 7), (8, 4, 3, 3)], {"stride": 2})
    assert solved.attrs["stride"] == (2, 2) and solved.attrs["before"] == (0, 0)


def test_structural_attributes() -> None:
    assert structural(load_spec().declared("concat")) == {"axis"}
    assert structural(load_spec().declared("conv")) == set()


SPLIT = "op f(x[*p:axis, g*c, *q], y[*q, g]; axis: axis, g: int) -> [*q, c, *p] out[*j, k, *i] = x[*i, k, *j]"


@given(
    p=st.lists(st.integers(1, 5), max_size=3),
    q=st.lists(st.integers(1, 5), max_size=3),
    g=st.integers(1, 4),
    c=st.integers(1, 4),
)
def test_names_are_recovered_from_shapes(p: list[int], q: list[int], g: int, c: int) -> None:
    (item,) = parse(SPLIT)
    assert isinstance(item, s.Operator)
    declared: Declared = item
    solved = solve(declared, [(*p, g * c, *q), (*q, g)], {"axis": len(p), "g": g})
    assert solved.result == (*q, c, *p)
    assert solved.scope.values["p"] == tuple(p) and solved.scope.values["c"] == c
