"""Instances become schemas: the rule that comes out, conditions and all, or a reason why there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taso.generate import generalise as generalise_module
from taso.generate.generalise import Failure, Schema, generalise
from taso.generate.instance import type_instance
from taso.generate.tidy import tidy
from taso.prove.prover import prove_rule
from taso.spec.parse import parse_rule
from taso.spec.spec import load_spec
from taso.spec.value import Shape

SPEC = load_spec()
SAME = "before = [1, 1], after = [1, 1]"  # pads that keep an image's size under a 3x3 kernel
CONV = "stride = stride, before = before, after = after, dilation = dilation"
SHAPES: dict[str, Shape] = {
    "x1": (1, 4, 4, 4),
    "f1": (4, 4, 3, 3),
    "f2": (4, 4, 3, 3),
    "p1": (4, 4, 1, 1),
    "v1": (4,),
    "a1": (2, 4),
    "a2": (2, 4),
    "a3": (2, 4),
    "a4": (2, 4),
    "w1": (4, 4),
    "w2": (4, 4),
}


def generalised(text: str) -> Schema | Failure:
    """What becomes of an instance, written as a rule over the tensors of SHAPES."""
    rule = parse_rule(text)
    return generalise(rule.source, rule.target, SHAPES, SPEC)


CASES = [
    pytest.param(
        f"add(conv(x1, f1; {SAME}), conv(x1, f2; {SAME})) ==> conv(x1, add(f1, f2); {SAME})",
        f"add(conv(x, y; {CONV}, group = group), conv(x, z; {CONV}, group = group))"
        f" ==> conv(x, add(y, z); {CONV}, group = group) where skip(shape(y), 2) == skip(shape(z), 2)"
        " ranks (x, y, z) in [(2, 2, 2), (3, 3, 3), (4, 4, 4)]",
        id="a convolution is linear in its kernel",
    ),
    pytest.param(
        f"mul(conv(x1, f1; {SAME}), broadcast(v1; dims = [1]))"
        f" ==> conv(x1, mul(f1, broadcast(v1; dims = [0])); {SAME})",
        f"mul(conv(x, y; {CONV}, group = group), broadcast(v; dims = [1]))"
        f" ==> conv(x, mul(y, broadcast(v; dims = [0])); {CONV}, group = group)"
        " ranks (x, y, v) in [(2, 2, 1), (3, 3, 1), (4, 4, 1)]",
        id="a scale of the channels goes into the kernel",
    ),
    pytest.param(
        "{matmul(a1, w1), matmul(a1, w2)} ==> {slice(matmul(a1, concat(w1, w2; axis = 1)); axis = 1, start = 0,"
        " stop = 4), slice(matmul(a1, concat(w1, w2; axis = 1)); axis = 1, start = 4, stop = 8)}",
        "{matmul(a, b), matmul(a, c)} ==> {slice(matmul(a, concat(b, c; axis = -1)); axis = -1, start = 0,"
        " stop = dim(b, -1)), slice(matmul(a, concat(b, c; axis = -1)); axis = -1, start = dim(b, -1),"
        " stop = dim(b, -1) + dim(c, -1))} ranks (a, b, c) in [(2, 2, 2), (3, 3, 3), (4, 4, 4)]",
        id="two products that share an input are slices of one, sizes along axes from the end",
    ),
    pytest.param(
        "slice(concat(w1, w2; axis = 0); axis = 0, start = 4, stop = 8) ==> w2",
        "slice(concat(a, b; axis = axis); axis = axis, start = start, stop = stop) ==> b"
        " where start == dim(a, axis), stop == dim(a, axis) + dim(b, axis)"
        " ranks (a, b) in [(1, 1), (2, 2), (3, 3), (4, 4)]",
        id="a slice of two joined tensors is one of them where its bounds are sizes",
    ),
    pytest.param(
        "concat(concat(a1, a2; axis = 1), concat(a3, a4; axis = 1); axis = 0)"
        " ==> concat(concat(a1, a3; axis = 0), concat(a2, a4; axis = 0); axis = 1)",
        "concat(concat(a, b; axis = 1), concat(c, d; axis = 1); axis = 0)"
        " ==> concat(concat(a, c; axis = 0), concat(b, d; axis = 0); axis = 1)"
        " where dim(b, 1) == dim(d, 1) ranks (a, b, c, d) in [(2, 2, 2, 2), (3, 3, 3, 3), (4, 4, 4, 4)]",
        id="joins along two axes change places where the sizes agree",
    ),
    pytest.param(
        f"conv(x1, identity_kernel(; channels = 4, per_group = 4, kernel = [3, 3]); {SAME}) ==> x1",
        "conv(x, identity_kernel(; channels = channels, per_group = per_group, kernel = [3, 3]); before = 1, after = 1,"
        " group = group) ==> x where channels == dim(x, 1) ranks (x) in [(4)]",
        id="a list of which nothing tells the length stays a list of numbers",
    ),
    pytest.param(
        "avg_pool_padded(x1; kernel = [3, 3], before = [1, 1], after = [1, 1])"
        f" ==> conv(x1, mul(ones(; shape = [4, 1, 3, 3]), `1 / 9`); {SAME}, group = 4)",
        "avg_pool_padded(x; kernel = 3, stride = stride, before = before, after = after)"
        " ==> conv(x, mul(ones(; shape = [dim(x, 1), 1, 3, 3]), `1 / 9`); stride = stride, before = before,"
        " after = after, group = dim(x, 1)) ranks (x) in [(4)]",
        id="the shape of a constant is written out where its place does not tell it",
    ),
    pytest.param(
        "add(matmul(a1, w1), matmul(a2, w2)) ==> matmul(concat(a1, a2; axis = 1), concat(w1, w2; axis = 0))",
        "add(matmul(a, b), matmul(c, d)) ==> matmul(concat(a, c; axis = -1), concat(b, d; axis = -2))"
        " ranks (a, b, c, d) in [(2, 2, 2, 2), (3, 3, 3, 3), (4, 4, 4, 4)]",
        id="a sum of products is one product, with axes from the end",
    ),
]


@pytest.mark.parametrize(("instance", "schema"), CASES)
def test_schema_of_an_instance(instance: str, schema: str) -> None:
    found = generalised(instance)
    assert isinstance(found, Schema), found
    expected = parse_rule(schema)
    assert (found.rule.source, found.rule.target) == (expected.source, expected.target)
    assert (found.rule.where, found.rule.ranks) == (expected.where, expected.ranks)


def test_a_smaller_kernel_is_enlarged_by_the_difference_of_the_pads() -> None:
    found = generalised(
        f"add(conv(x1, f1; {SAME}), conv(x1, p1)) ==>"
        f" conv(x1, add(f1, pad(p1; before = [0, 0, 1, 1], after = [0, 0, 1, 1])); {SAME})"
    )
    assert isinstance(found, Schema), found
    expected = parse_rule(
        f"add(conv(x, y; {CONV}, group = group), conv(x, z; stride = stride, before = before2, after = after2,"
        " dilation = dilation, group = group))"
        " ==> conv(x, add(y, pad(z; before = [0, 0] ++ (before - before2)/dilation,"
        f" after = [0, 0] ++ (after - after2)/dilation)); {CONV}, group = group)"
    )
    assert (found.rule.source, found.rule.target) == (expected.source, expected.target)
    verdict = prove_rule(found.rule, SPEC)
    assert (verdict.status, verdict.conditions) == ("proved", ())
    assert found.rule.where
    for condition in found.rule.where:
        fewer = replace(found.rule, where=tuple(c for c in found.rule.where if c != condition))
        verdict = prove_rule(fewer, SPEC, refute_first=False, tries=0)
        assert verdict.status != "proved" or verdict.conditions, "this condition is not needed"


@pytest.mark.parametrize(
    "coincidence",
    [
        "add(a1, a2) ==> add(a1, a1)",  # not even true of the instance
        "slice(concat(w1, w2; axis = 0); axis = 0, start = 0, stop = 4) ==> w2",
        "mul(matmul(w1, w2), w1) ==> mul(matmul(w2, w1), w1)",
    ],
)
def test_what_is_true_by_chance_is_refuted(coincidence: str) -> None:
    found = generalised(coincidence)
    assert isinstance(found, Failure)
    assert found.status == "refuted"


def test_sides_that_do_not_fit_are_a_failure_with_a_reason() -> None:
    found = generalised("add(a1, a2) ==> matmul(a1, w1)")
    assert isinstance(found, Failure)
    found = generalised("matmul(a1, a2) ==> matmul(a1, w1)")
    assert isinstance(found, Failure)
    assert found.status == "unknown"
    assert "cannot be typed" in found.reason


def test_tensors_get_short_names_by_rank_and_images_stay_x() -> None:
    rule = parse_rule("matmul(a1, w1) ==> matmul(a1, w1)")
    assert type_instance(rule.source, rule.target, SHAPES, SPEC).shapes == {"a": (2, 4), "b": (4, 4)}
    rule = parse_rule("mul(x1, broadcast(v1; dims = [1])) ==> mul(x1, broadcast(v1; dims = [1]))")
    assert type_instance(rule.source, rule.target, SHAPES, SPEC).shapes == {"x": (1, 4, 4, 4), "v": (4,)}


@pytest.mark.parametrize("broken", [True, False])
def test_the_tidied_rule_is_what_is_proved(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tidied rule that is false is not shipped: the untidied one is."""
    if broken:
        monkeypatch.setattr(generalise_module, "tidy", lambda rule, spec: replace(rule, target=rule.source[0].args[:1]))
    found = generalised("relu(relu(a1)) ==> relu(a1)")
    assert isinstance(found, Schema)
    expected = parse_rule("relu(relu(a)) ==> relu(a)")
    assert (found.rule.source, found.rule.target) == (expected.source, expected.target)
    proved = prove_rule(found.rule, SPEC)
    assert (proved.status, proved.ranks, proved.exact) == ("proved", found.rule.ranks, found.verdict.exact)


# --- tidying


def test_tidy_writes_numbers_into_terms_and_leaves_out_defaults() -> None:
    rule = parse_rule(
        f"conv(x, add(y, z); {CONV}, group = group) ==> add(conv(x, y; {CONV}, group = group),"
        f" conv(x, z; {CONV}, group = group)) where stride == 1, before == 2, group == 1 ranks (x, y, z) in [(4, 4, 4)]"
    )
    tidied = tidy(rule, SPEC)
    expected = parse_rule(
        "conv(x, add(y, z); before = 2, after = after, dilation = dilation) ==> add(conv(x, y; before = 2, after ="
        " after, dilation = dilation), conv(x, z; before = 2, after = after, dilation = dilation))"
    )
    assert (tidied.source, tidied.target, tidied.where) == (expected.source, expected.target, ())
    before, after = prove_rule(rule, SPEC), prove_rule(tidied, SPEC)
    assert before.status == after.status == "proved"
    assert (before.ranks, before.conditions, before.exact) == (after.ranks, after.conditions, after.exact)


def test_tidy_keeps_a_condition_on_a_symbol_that_is_joined_to_a_list() -> None:
    """A number cannot stand in `[0, 0] ++ before`; a condition on sizes stays in any case."""
    rule = parse_rule(
        "pad(x; before = [0, 0] ++ before, after = [0, 0] ++ after) ==> x"
        " where before == 0, after == 0, dim(x, 0) == 1 ranks (x) in [(3), (4)]"
    )
    assert {str(c) for c in tidy(rule, SPEC).where} == {str(c) for c in rule.where}
    assert (tidy(rule, SPEC).source, tidy(rule, SPEC).target) == (rule.source, rule.target)
