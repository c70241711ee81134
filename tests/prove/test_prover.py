"""What a verdict says: ranks, conditions, exactness, counterexamples and errors."""

from __future__ import annotations

import dataclasses

import pytest

from taso.errors import SpecError
from taso.prove.prover import prove_rule, refute_rule
from taso.prove.verdict import Verdict
from taso.spec.parse import parse_expr, parse_rule
from taso.spec.spec import Spec, load_spec


def prove(text: str, **options: int) -> Verdict:
    return prove_rule(parse_rule(text), load_spec(), **options)  # type: ignore[arg-type]


def test_all_ranks_are_tried() -> None:
    verdict = prove("add(x, y) ==> add(y, x)", max_rank=3)
    assert verdict.status == "proved"
    assert verdict.ranks is not None
    assert verdict.ranks.names == ("x", "y")
    assert verdict.ranks.choices == ((0, 0), (1, 1), (2, 2), (3, 3))


def test_ranks_that_the_right_side_does_not_fit_are_left_out() -> None:
    verdict = prove("neg(neg(x)) ==> transpose(transpose(x; perm=[1, 0]); perm=[1, 0])")
    assert verdict.status == "proved"
    assert verdict.ranks is not None
    assert verdict.ranks.choices == ((2,),)


def test_a_missing_condition_is_reported_and_suffices() -> None:
    rule = parse_rule(
        "add(conv(x, f; stride=s), conv(x, g; stride=s)) ==> conv(x, add(f, g); stride=s)"
        " ranks (x, f, g) in [(4, 4, 4)]"
    )
    verdict = prove_rule(rule, load_spec())
    assert verdict.status == "proved"
    assert len(verdict.conditions) == 2  # the kernels' two spatial sizes
    again = prove_rule(dataclasses.replace(rule, where=verdict.conditions), load_spec())
    assert again.status == "proved"
    assert again.conditions == ()


def test_a_condition_on_attributes_is_reported() -> None:
    text = "slice(concat(x, y; axis=0); axis=0, start=u, stop=v) ==> slice(x; axis=0, start=u, stop=v)"
    verdict = prove(text)
    assert verdict.status == "proved"
    assert verdict.conditions
    assert refute_rule(parse_rule(text), load_spec()) is not None  # as it stands it is false


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("transpose(transpose(x; perm=p); perm=inverse(p)) ==> x", True),
        ("relu(concat(x, y; axis=0)) ==> concat(relu(x), relu(y); axis=0)", True),
        ("concat(add(x, x), add(y, y); axis=0) ==> add(concat(x, y; axis=0), concat(x, y; axis=0))", True),
        ("exp(transpose(x; perm=[1, 0])) ==> transpose(exp(x); perm=[1, 0])", True),
        ("add(x, y) ==> add(y, x)", False),
        ("matmul(matmul(x, y), z) ==> matmul(x, matmul(y, z))", False),
        ("mul(x, 2) ==> add(x, x)", False),
        ("mul(x, 0) ==> mul(mul(x, x), 0)", False),
    ],
)  # fmt: skip
def test_exact(text: str, exact: bool) -> None:
    verdict = prove(text)
    assert verdict.status == "proved", verdict.reason
    assert verdict.exact is exact


def test_counterexample_reads_well() -> None:
    verdict = prove("relu(add(a, b)) ==> add(relu(a), relu(b))")
    assert verdict.status == "refuted"
    text = str(verdict.counterexample)
    assert text.startswith("at a = [")
    assert "(shape [1]) the left side is " in text
    assert ", the right side is " in text


def test_counterexample_of_an_undefined_right_side() -> None:
    verdict = prove("matmul(x, y) ==> matmul(y, x)")
    assert verdict.status == "refuted"
    assert "is not defined" in str(verdict.counterexample) or "the right side is" in str(verdict.counterexample)


def test_verdicts_do_not_depend_on_chance() -> None:
    text = "mul(add(x, y), z) ==> mul(x, add(y, z))"
    first, second = prove(text), prove(text)
    assert str(first.counterexample) == str(second.counterexample)
    assert first.status == second.status == "refuted"


def test_positive_factor_of_relu_needs_its_condition() -> None:
    assert prove("relu(mul(x, `c`)) ==> mul(relu(x), `c`) where c > 0").status == "proved"
    assert prove("relu(mul(x, `c`)) ==> mul(relu(x), `c`)").status == "refuted"


def test_too_many_combinations_are_unknown_not_proved() -> None:
    text = "transpose(transpose(x; perm=p); perm=q) ==> transpose(x; perm=select(p, q)) ranks (x) in [(4)]"
    verdict = prove(text, max_instances=5)
    assert verdict.status == "unknown"
    assert "combinations" in verdict.reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("relu(x) ==> relu(y)", "tensor `y`"),
        ("relu(x) ==> rleu(x)", "did you mean `relu`"),
        ("relu(x) ==> slice(x; axis=0, start=u, stop=v)", "uses `u`"),
    ],
)
def test_wrong_rules_are_errors(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        prove(text)


def test_a_division_that_the_left_side_lacks_is_not_believed() -> None:
    """Over the rationals both are equal wherever both are defined; at z = 0 only the left one is."""
    rule = parse_rule("add(x, mul(z, y)) ==> add(add(x, mul(z, y)), sub(div(y, z), div(y, z)))")
    assert prove_rule(rule, load_spec(), refute_first=False).status != "proved"


@pytest.mark.parametrize("function", ["relu", "exp"])
def test_a_window_that_may_be_empty_has_no_value(function: str) -> None:
    """Where a window lies wholly in the padding the maximum is -inf: then relu and exp do not pass through it."""
    spec = Spec()
    spec.add(
        """
        op relu(x[*s]) -> [*s] out[*i] = max(x[*i], 0)
        op exp(x[*s]) -> [*s] out[*i] = exp(x[*i])
        op windows(x[h]; kernel: int, before: int) -> [h + 2 * before - kernel + 1]
            require kernel >= 1, before >= 0, h + 2 * before >= kernel
            out[y] = max(r < kernel) x[y + r - before | -inf]
        """,
        "windows.op",
    )
    rule = parse_rule(f"windows({function}(x); kernel=k, before=b) ==> {function}(windows(x; kernel=k, before=b))")
    assert prove_rule(rule, spec).status == "refuted"
    assert prove_rule(dataclasses.replace(rule, where=(parse_expr("b < k"),)), spec).status == "proved"


def test_a_verdict_does_not_depend_on_what_was_proved_before() -> None:
    pooled = "relu(max_pool(x; kernel=k, stride=s)) ==> max_pool(relu(x); kernel=k, stride=s)"
    others = "concat(relu(x), relu(y); axis=k) ==> relu(concat(x, y; axis=k))", "add(x, y) ==> sub(x, y)"
    first = prove(pooled)
    for text in others:
        prove(text)
    again = prove(pooled)
    assert dataclasses.replace(again, seconds=0) == dataclasses.replace(first, seconds=0)
    assert first.status == "proved"


def test_without_tries_a_false_rule_is_unknown() -> None:
    rule = parse_rule("relu(x) ==> neg(x)")
    assert prove_rule(rule, load_spec(), refute_first=False, tries=0).status == "unknown"
    assert prove_rule(rule, load_spec(), refute_first=False).status == "refuted"


def test_the_first_counterexample_is_one_and_the_smallest_no_larger() -> None:
    rule = parse_rule("matmul(a, b) ==> matmul(b, a)")
    first, smallest = (refute_rule(rule, load_spec(), first=first) for first in (True, False))
    assert first is not None and smallest is not None
    sizes = [sum(tensor.size for tensor in found.tensors.values()) for found in (first, smallest)]
    assert sizes[1] <= sizes[0]
