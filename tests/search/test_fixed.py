"""Constants that stand for an operator of themselves: relu of what is not negative."""

from __future__ import annotations

import numpy as np
import pytest

from taso.graph.graph import Value
from taso.search.fixed import stays
from taso.search.match import match_macro, match_term
from taso.search.rewrite import RuleIndex, rewrites
from taso.spec import syntax as s
from taso.spec.parse import parse, parse_term
from tests.search.graphs import Bench, rules

THROUGH = """
rule through mul(relu(x), broadcast(relu(v); dims = [1])) ==> relu(mul(x, broadcast(relu(v); dims = [1])))
rule into mul(conv(x, f; before = b, after = a), broadcast(relu(v); dims = [1]))
    ==> conv(x, mul(f, broadcast(relu(v); dims = [0])); before = b, after = a)
"""


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.input("x", 2, 3, 8, 8)
    made.input("i", 3)
    made.constant("f", 3, 3, 3, 3)
    for name, numbers in {
        "good": [2, 0.5, 0],
        "bad": [2, -0.5, 1],
        "undefined": [1, float("nan"), 2],
        "endless": [1, float("inf"), 2],
    }.items():
        made.tensors[name] = made.arena.constant(np.array(numbers, np.float32), "float")
    made.tensors["whole"] = made.arena.constant(np.array([1, 2, 3], np.int64), "int64")
    made.tensors["large"] = made.arena.constant(np.ones((1 << 16) + 1, np.float32), "float")
    return made


def test_what_an_operator_leaves_as_it_is(bench: Bench) -> None:
    relu, abs_, exp, neg, clip = (bench.spec.operators[name] for name in ("relu", "abs", "exp", "neg", "clip"))
    good, bad = bench.tensors["good"], bench.tensors["bad"]
    for op in (relu, abs_):
        assert stays(op, good, bench.spec) and not stays(op, bad, bench.spec)
    for name in ("undefined", "x", "i", "whole", "large"):
        assert not stays(relu, bench.tensors[name], bench.spec), name
    zero = bench.arena.constant(np.zeros(3, np.float32), "float")
    assert not any(stays(op, zero, bench.spec) for op in (exp, neg, clip))  # not even where it is true of one constant
    assert not stays(relu, bench.value("relu(good)"), bench.spec)  # which is met as it is


def test_what_is_computed_from_constants_counts_too(bench: Bench) -> None:
    relu = bench.spec.operators["relu"]
    assert stays(relu, bench.value("div(good, sqrt(add(good, 1)))"), bench.spec)
    assert stays(relu, bench.value("mul(bad, bad)"), bench.spec)
    assert stays(relu, bench.value("reshape(good; shape = [3, 1])"), bench.spec)
    assert not stays(relu, bench.value("sub(good, bad)"), bench.spec)
    assert not stays(relu, bench.value("mul(i, i)"), bench.spec)


def test_a_rule_meets_a_constant_as_its_own_relu(bench: Bench) -> None:
    pattern = parse_term("mul(relu(a), broadcast(relu(b); dims = [1]))")
    (one,) = match_term(pattern, bench.value("mul(relu(x), broadcast(good; dims = [1]))"), bench.spec)
    assert one.tensors["b"] == bench.tensors["good"]
    for other in ("bad", "i", "undefined"):
        value = bench.value(f"mul(relu(x), broadcast({other}; dims = [1]))")
        assert list(match_term(pattern, value, bench.spec)) == []


def test_not_at_the_root_and_not_in_a_macro(bench: Bench) -> None:
    assert list(match_term(parse_term("relu(a)"), bench.tensors["good"], bench.spec)) == []
    (macro,) = parse("macro lifted(x[*s], y[*s]) = add(x, relu(y))")
    assert isinstance(macro, s.Macro)
    value: Value = bench.value("add(i, good)")
    assert list(match_macro(macro, value, bench.spec)) == []


@pytest.mark.parametrize(("factor", "moves"), [("good", True), ("bad", False)])
def test_a_factor_moves_through_relu_into_a_convolution(bench: Bench, factor: str, moves: bool) -> None:
    graph = bench.graph(f"mul(relu(conv(x, f; before = 1, after = 1)), broadcast({factor}; dims = [1]))")
    index = RuleIndex(rules(THROUGH), bench.spec)
    seen = [graph]
    for _ in range(2):
        nodes = seen[-1].nodes()
        for rewrite in rewrites(nodes, seen[-1].users(), set(nodes), index, bench.arena):
            changed = seen[-1].replace(rewrite.changes, bench.arena)
            if changed is not None and all(changed.outputs != other.outputs for other in seen):
                seen.append(changed)
                break
    assert (len(seen) == 3) is moves
    if moves:
        top = seen[-1].outputs[0].node
        assert top.op == "relu" and top.args[0].node.op == "conv"
        for before, after in zip(bench.compute(graph), bench.compute(seen[-1])):
            np.testing.assert_allclose(before, after)
