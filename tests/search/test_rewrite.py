"""Rules against graphs: where they apply, and that what they make computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from taso.algebra.poly import var
from taso.graph.graph import Graph
from taso.search.chains import chain_rewrites
from taso.search.partition import Surroundings, rebuilt
from taso.search.rewrite import Rewrite, RuleIndex, apply, rewrites
from tests.search.graphs import Bench, rules


def all_rewrites(bench: Bench, graph: Graph, index: RuleIndex) -> list[Rewrite]:
    around = Surroundings.of(graph.outputs)
    return list(rewrites(around.nodes, around.users, around.everything, index, bench.arena))


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.input("x", 2, 4, 6, 6)
    for name in ("f", "h"):
        made.constant(name, 4, 4, 3, 3)
    for name in ("v", "w"):
        made.constant(name, 4)
    return made


def test_a_rewrite_computes_the_same(bench: Bench) -> None:
    graph = bench.graph("relu(mul(conv(x, f; before = 1, after = 1), broadcast(v; dims = [1])))")
    (one,) = all_rewrites(bench, graph, RuleIndex(rules(), bench.spec))
    after = apply(graph, one, bench.arena)
    assert after is not None and one.rule.name == "scale"
    assert [node.op for node in after.nodes() if not node.constant] == ["<input>", "conv", "relu"]
    assert np.array_equal(bench.compute(graph)[0], bench.compute(after)[0])


def test_several_outputs_change_together() -> None:
    bench = Bench()
    bench.input("x", 3, 4)
    for name, n in (("w", 2), ("v", 3), ("u", 5)):
        bench.constant(name, 4, n)
    graph = bench.graph("matmul(x, w)", "relu(matmul(x, v))", "matmul(x, u)")
    index = RuleIndex(rules(), bench.spec)
    pairs = all_rewrites(bench, graph, index)
    assert len(pairs) == 3  # each pair once: the sides of the rule are alike
    for one in pairs:
        after = apply(graph, one, bench.arena)
        assert after is not None
        assert sum(node.op == "matmul" for node in after.nodes()) == 2
        for left, right in zip(bench.compute(graph), bench.compute(after)):
            assert np.array_equal(left, right)


def test_outputs_that_depend_on_each_other_are_seen() -> None:
    bench = Bench()
    bench.input("x", 4, 4)
    bench.constant("w", 4, 4)
    text = "rule rows {matmul(x, w), matmul(y, w)} ==> {slice(matmul(concat(x, y; axis = 0), w); axis = 0, start = 0, stop = dim(x, 0)), slice(matmul(concat(x, y; axis = 0), w); axis = 0, start = dim(x, 0), stop = dim(x, 0) + dim(y, 0))}"  # noqa: E501
    graph = bench.graph("matmul(relu(matmul(x, w)), w)")
    around = Surroundings.of(graph.outputs)
    (one,) = all_rewrites(bench, graph, RuleIndex(rules(text), bench.spec))
    assert around.circular(one.changes)
    assert apply(graph, one, bench.arena) is None
    assert rebuilt(graph.outputs, one.changes, (), bench.arena) is None


@pytest.mark.parametrize(
    ("condition", "applies"),
    [("", 1), ("where dim(f, 0) == 4", 1), ("where dim(f, 0) == 5", 0), ("ranks (x, f) in [(4, 4)]", 1)]
    + [("ranks (x, f) in [(3, 3), (5, 5)]", 0), ("where d == 1, b == [1, 1]", 1), ("where b == 0", 0)],
)
def test_a_rule_applies_only_where_it_was_proved(bench: Bench, condition: str, applies: int) -> None:
    text = f"rule r relu(conv(x, f; before = b, after = b, dilation = d)) ==> conv(relu(x), f; before = b, after = b, dilation = d) {condition}"  # noqa: E501
    graph = bench.graph("relu(conv(x, f; before = 1, after = 1))")
    assert len(all_rewrites(bench, graph, RuleIndex(rules(text), bench.spec))) == applies


def test_a_condition_that_free_sizes_leave_open_does_not_hold() -> None:
    bench = Bench()
    bench.input("z", var("n"), 4)
    graph = bench.graph("neg(neg(z))")
    applies = {
        where: len(all_rewrites(bench, graph, RuleIndex(rules(f"rule r neg(neg(x)) ==> x where {where}"), bench.spec)))
        for where in ("dim(x, 1) == 4", "dim(x, 0) >= 1", "dim(x, 0) == 2")
    }
    assert applies == {"dim(x, 1) == 4": 1, "dim(x, 0) >= 1": 1, "dim(x, 0) == 2": 0}


def test_empty_tensors_are_left_alone() -> None:
    bench = Bench()
    bench.input("z", 0, 4)
    graph = bench.graph("neg(neg(z))")
    assert all_rewrites(bench, graph, RuleIndex(rules("rule r neg(neg(x)) ==> x"), bench.spec)) == []


def test_a_target_that_does_not_fit_is_no_rewrite(bench: Bench) -> None:
    text = "rule r relu(x) ==> transpose(relu(x); perm = [1, 0, 2, 3])"
    assert all_rewrites(bench, bench.graph("relu(x)"), RuleIndex(rules(text), bench.spec)) == []


def test_rules_that_cannot_be_matched_are_named() -> None:
    bench = Bench()
    text = """
    rule anything x ==> neg(neg(x))
    rule apart {relu(x), relu(y)} ==> {relu(x), relu(y)}
    rule from_nowhere relu(x) ==> add(relu(x), y)
    """
    index = RuleIndex(rules(text), bench.spec)
    assert [rule.name for rule, _ in index.unused] == ["anything", "apart", "from_nowhere"]


def test_a_rule_meets_any_terms_of_a_sum(bench: Bench) -> None:
    graph = bench.graph(
        "add(add(add(conv(x, f; before = 1, after = 1), broadcast(v; dims = [1])), relu(x)),"
        " add(conv(x, h; before = 1, after = 1), broadcast(w; dims = [1])))"
    )
    index = RuleIndex(rules(), bench.spec)
    assert index.regroups["add"].name == "regroup"
    found = list(chain_rewrites(graph.outputs[0].node, index, bench.arena))
    assert {one.rule.name for one in found} == {"merge_kernels", "shifts"}
    assert all(one.also == ("regroup",) for one in found)
    for one in found:
        after = apply(graph, one, bench.arena)
        assert after is not None
        assert np.array_equal(bench.compute(graph)[0], bench.compute(after)[0])


def test_without_a_proof_of_associativity_sums_are_taken_as_they_stand(bench: Bench) -> None:
    graph = bench.graph("add(add(conv(x, f; before = 1, after = 1), x), conv(x, h; before = 1, after = 1))")
    index = RuleIndex([rule for rule in rules() if rule.name != "regroup"], bench.spec)
    assert list(chain_rewrites(graph.outputs[0].node, index, bench.arena)) == []
    assert all_rewrites(bench, graph, index) == []
