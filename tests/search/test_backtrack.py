"""The search as a whole, with invented prices."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taso.graph.graph import Graph
from taso.search.backtrack import Candidate, Limits, Search
from taso.search.cost import Costs, TableCost, walk
from taso.search.partition import Likeness, Surroundings, rebuilt
from taso.search.rewrite import RuleIndex
from tests.search.graphs import Bench, price, rules


def search(bench: Bench, graph: Graph, text: str | None = None, **limits: float) -> tuple[list[Candidate], Search]:
    index = RuleIndex(rules() if text is None else rules(text), bench.spec)
    made = Search(index, Costs(TableCost(price)), bench.arena, Limits(**limits))  # type: ignore[arg-type]
    return list(made.run(graph)), made


def counts(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in walk(graph.outputs))


def blocks(bench: Bench, count: int) -> Graph:
    """Blocks of two convolutions with a scale and a shift each, summed, relu: each can become one convolution."""
    bench.tensors["now"] = bench.input("x", 1, 4, 6, 6)
    for k in range(count):
        for name in ("f", "h"):
            bench.constant(name, 4, 4, 3, 3)
        for name in ("s", "t", "v", "w"):
            bench.constant(name, 4)
        one, two = (
            f"add(mul(conv(now, {f}; before = 1, after = 1), broadcast({a}; dims = [1])), broadcast({b}; dims = [1]))"
            for f, a, b in (("f", "s", "v"), ("h", "t", "w"))
        )
        bench.tensors["now"] = bench.value(f"relu(add({one}, {two}))")
    return Graph((bench.tensors["now"],), (bench.tensors["x"],))


def test_blocks_become_one_convolution_each() -> None:
    bench = Bench()
    graph = blocks(bench, 5)
    found, made = search(bench, graph, budget=0)
    assert counts(found[-1].graph) == {"conv": 5, "add": 5, "relu": 5}
    costs = [candidate.cost.latency for candidate in found]
    assert costs == sorted(costs, reverse=True)
    assert found[-1].cost == made.costs.graph(found[-1].graph)
    assert np.array_equal(bench.compute(graph)[0], bench.compute(found[-1].graph)[0])


def test_a_step_up_is_taken_if_it_leads_further_down() -> None:
    bench = Bench()
    bench.input("x", 8, 8)
    bench.constant("w", 8, 8)
    text = """
    rule up relu(x) ==> neg(neg(max(x, 0)))
    rule down neg(neg(max(exp(x), 0))) ==> exp(x)
    """
    graph = bench.graph("matmul(relu(exp(x)), w)")
    found, _ = search(bench, graph, text, alpha=1.2)
    assert counts(found[-1].graph) == {"matmul": 1, "exp": 1}
    assert [step.rule for step in found[-1].steps] == ["up", "down"]
    assert found[-1].steps[0].gain < 0 < found[-1].steps[1].gain
    assert search(bench, graph, text, alpha=1.0)[0] == []  # and not where it may not
    assert search(bench, graph, text, alpha=1.2, budget=0)[0] == []


def test_constants_may_not_outgrow_their_limit() -> None:
    bench = Bench()
    bench.input("x", 1, 4)
    for name in ("w", "v"):
        bench.constant(name, 4, 4)
    text = "rule r add(matmul(x, w), matmul(x, v)) ==> matmul(x, add(w, v))"
    graph = bench.graph("concat(add(matmul(x, w), matmul(x, v)), matmul(x, sub(w, v)); axis = 1)")
    before = search(bench, graph, text)[1].costs.graph(graph).constant_bytes
    assert before == 3 * 64
    assert len(search(bench, graph, text, constant_bytes=before)[0]) == 1  # two constants become one
    grown = bench.graph("concat(add(matmul(x, w), matmul(x, v)), add(matmul(neg(x), w), matmul(exp(x), v)); axis = 1)")
    before = search(bench, grown, text)[1].costs.graph(grown).constant_bytes
    assert before == 2 * 64
    assert search(bench, grown, text, constant_bytes=before)[0] == []  # a third one beside the two that stay
    assert len(search(bench, grown, text, constant_bytes=before + 64)[0]) == 1


def test_the_same_search_gives_the_same_result() -> None:
    results = []
    for _ in range(2):
        bench = Bench()
        found, made = search(bench, blocks(bench, 2))
        results.append(([c.steps for c in found], made.visited, made.expanded))
    assert results[0] == results[1]


def test_nothing_is_done_after_the_deadline() -> None:
    bench = Bench()
    assert search(bench, blocks(bench, 1), deadline=-math.inf)[0] == []


OPS = [
    "relu({})",
    "neg({})",
    "transpose({}; perm = [1, 0])",
    "add({}, {})",
    "matmul({}, {})",
    "mul({}, c)",
    "add({}, c)",
]


@st.composite
def programs(draw: st.DrawFn) -> list[str]:
    """Terms over `a`, `b` (4 x 4) and the constant `c`, some of them sharing subterms."""
    terms = ["a", "b"]
    for _ in range(draw(st.integers(3, 9))):
        op = draw(st.sampled_from(OPS))
        terms.append(op.format(*(draw(st.sampled_from(terms[-5:])) for _ in range(op.count("{}")))))
    return [terms[-1], *draw(st.lists(st.sampled_from(terms[2:]), max_size=2))]


ALGEBRA = """
rule twice transpose(transpose(x; perm = p); perm = q) ==> transpose(x; perm = select(p, q))
rule same transpose(x; perm = p) ==> x where p == range(rank(x))
rule negneg neg(neg(x)) ==> x
rule swap transpose(relu(x); perm = p) ==> relu(transpose(x; perm = p))
rule back relu(transpose(x; perm = p)) ==> transpose(relu(x); perm = p)
rule both transpose(matmul(x, y); perm = [1, 0]) ==> matmul(transpose(y; perm = [1, 0]), transpose(x; perm = [1, 0]))
rule factor add(matmul(x, y), matmul(x, z)) ==> matmul(x, add(y, z))
rule right add(matmul(x, z), matmul(y, z)) ==> matmul(add(x, y), z)
rule cancel add(x, neg(x)) ==> sub(x, x)
rule sums add(neg(x), neg(y)) ==> neg(add(x, y))
rule idempotent relu(relu(x)) ==> relu(x)
rule regroup add(add(x, y), z) ==> add(x, add(y, z))
rule associate matmul(matmul(x, y), z) ==> matmul(x, matmul(y, z))
rule columns {matmul(x, w), matmul(x, v)} ==> {
    slice(matmul(x, concat(w, v; axis = -1)); axis = 1, start = 0, stop = dim(w, -1)),
    slice(matmul(x, concat(w, v; axis = -1)); axis = 1, start = dim(w, -1), stop = dim(w, -1) + dim(v, -1))}
"""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_every_graph_on_the_way_computes_the_same(terms: list[str]) -> None:
    bench = Bench()
    bench.input("a", 4, 4)
    bench.input("b", 4, 4)
    bench.constant("c", 4, 4)
    graph = bench.graph(*terms)
    found, made = search(bench, graph, ALGEBRA, budget=30, alpha=1.1)
    expected = bench.compute(graph)
    latency = made.costs.graph(graph).latency
    for candidate in found:
        assert candidate.cost.latency < latency
        latency = candidate.cost.latency
        for left, right in zip(expected, bench.compute(candidate.graph)):
            assert np.array_equal(left, right)


@settings(max_examples=40, deadline=None)
@given(programs(), st.data())
def test_a_part_and_what_is_outside_make_the_whole(terms: list[str], data: st.DataObject) -> None:
    """Rebuilding a part with nothing changed changes nothing; its nodes are exactly those chosen."""
    bench = Bench()
    bench.input("a", 4, 4)
    bench.input("b", 4, 4)
    bench.constant("c", 4, 4)
    graph = bench.graph(*terms)
    around = Surroundings.of(graph.outputs)
    if not around.nodes:
        return
    chosen = set(data.draw(st.lists(st.sampled_from(around.nodes), min_size=1)))
    region = around.region(chosen)
    assert set(walk(region.outputs, region.outside)) <= chosen
    same = rebuilt(region.outputs, {}, region.outside, bench.arena)
    assert same is not None and same[0] == region.outputs


@pytest.mark.parametrize(
    ("left", "right", "alike"), [("add(x, y)", "add(y, x)", True), ("sub(x, y)", "sub(y, x)", False)]
)
def test_the_order_of_symmetric_operators_does_not_matter(left: str, right: str, alike: bool) -> None:
    bench = Bench()
    bench.input("x", 4)
    bench.input("y", 4)
    likeness = Likeness(bench.spec, lambda _: None)
    keys = [likeness.key((bench.value(f"relu({text})"),)) for text in (left, right)]
    assert (keys[0] == keys[1]) is alike
