"""The enumerator against going through every graph one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from taso.errors import SpecError
from taso.generate.enumerate import enumerate_universe
from taso.generate.hashing import Hasher
from taso.generate.universe import World
from taso.generate.values import Enumeration
from tests.generate.universes import HALVES, IMAGES, MATRICES, REALS, SPEC, TINY, Graph, every_graph, universe

Key = tuple[tuple[int, ...], tuple[float, ...]]


def key(data: np.ndarray, real: bool) -> Key:
    """The value as something to compare; real numbers to seven digits."""
    flat = [float(f"{v:.7g}") for v in data.ravel()] if real else data.ravel().tolist()
    return data.shape[1:], tuple(v + 0.0 for v in flat)


def found_values(found: Enumeration) -> dict[Key, int]:
    """The data of every value that was found, the last level's computed again, and its level."""
    table, out = found.table, {}
    hasher = Hasher(found.world, found.base.seed)
    for value in np.nonzero(table.of == np.arange(len(table)))[0]:
        (data,) = found.base.data_of(np.array([value]), hasher)
        out[key(data, found.world.options.real)] = int(table.level[value])
    return out


def first_inputs(world: World, inputs: frozenset[str]) -> bool:
    """Whether a graph uses the first inputs of each class: the others are renamings."""
    for entry in world.universe.inputs:
        used = [name in inputs for name in entry.names]
        if used != sorted(used, reverse=True):
            return False
    return True


EXACT = [(MATRICES, 1), (MATRICES, 3), (HALVES, 2), (HALVES, 3), (IMAGES, 3), (REALS, 2), (TINY, 3), (TINY, 4)]


def compare(text: str, ops: int) -> tuple[dict[Key, int], dict[Key, int]]:
    """What going through every graph finds and what the enumerator finds: values with their fewest operators."""
    found = enumerate_universe(universe(text), SPEC, ops, keep_last=True)
    values = found_values(found)
    expected: dict[Key, int] = {}
    for graph in every_graph(text, ops, found.base.seed):
        if np.isfinite(graph.data).all() and (len(graph.operators) < ops or first_inputs(found.world, graph.inputs)):
            its = key(graph.data, found.world.options.real)
            expected[its] = min(expected.get(its, ops), len(graph.operators))
    leaves = {key(data, found.world.options.real) for data in found.world.samples(found.base.seed)}
    assert values.keys() <= expected.keys() | leaves  # nothing is made up
    return expected, values


@pytest.mark.parametrize(("text", "ops"), EXACT)
def test_no_value_is_missed(text: str, ops: int) -> None:
    expected, values = compare(text, ops)
    assert expected.keys() <= values.keys()
    for its, level in expected.items():
        assert values[its] <= level


Operator = tuple[object, ...]


def one_order(term: Operator, world: World, shapes: dict[Operator, tuple[int, ...]]) -> Operator:
    """The term with the arguments of commutative operators in one order."""
    if len(term) == 1:
        return term
    number, *args = term
    below = [one_order(arg, world, shapes) for arg in args]  # type: ignore[arg-type]
    a, b = shapes[args[0]], shapes[args[-1]]  # type: ignore[index]
    if len(args) == 2 and a == b and world.commutes(number, a):  # type: ignore[arg-type]
        below.sort(key=repr)
    return number, *below


def sets_of_operators(
    listed: list[Graph], world: World, ops: int, keep: Callable[[Graph], bool] = lambda graph: True
) -> tuple[list[set[Operator]], list[set[frozenset[Operator]]]]:
    """By number of operators: the terms that are graphs with one output, and all graphs with any number of outputs."""
    shapes: dict[Operator, tuple[int, ...]] = {graph.term: graph.data.shape[1:] for graph in listed}
    shapes |= {(leaf.name,): leaf.shape for leaf in world.leaves}
    terms: list[set[Operator]] = [set() for _ in range(ops + 1)]
    single: set[frozenset[Operator]] = set()
    for graph in filter(keep, listed):
        operators = frozenset(one_order(op, world, shapes) for op in graph.operators)  # type: ignore[arg-type]
        terms[len(operators)].add(one_order(graph.term, world, shapes))
        single.add(operators)
    every: list[set[frozenset[Operator]]] = [{frozenset()}, *(set() for _ in range(ops))]
    for size in range(1, ops + 1):  # every graph is a smaller one and one more graph with one output
        for graph_of in single:
            for smaller in (s for listed_of in every[:size] for s in listed_of):
                if len(smaller | graph_of) == size:
                    every[size].add(smaller | graph_of)
    return terms, every


def orders(graph: frozenset[Operator], pairs: dict[int, int]) -> int:
    """In how many orders the operators of a graph can be computed."""
    if not graph:
        return 1

    def inside(op: Operator) -> set[Operator]:
        found: set[Operator] = set()
        for arg in op[1:]:
            if len(arg) > 1:  # type: ignore[arg-type]
                found |= {(pairs.get(arg[0], arg[0]), *arg[1:])} | inside(arg)  # type: ignore[index, arg-type, misc]
        return found

    used = {below for op in graph for below in inside(op)}
    return sum(orders(graph - {op}, pairs) for op in graph if op not in used)


COUNTED = [(MATRICES, 2), (HALVES, 2), (HALVES, 3), (IMAGES, 2), (TINY, 3), (TINY, 4)]


@pytest.mark.parametrize(("text", "ops"), COUNTED)
def test_terms_graphs_and_sequences_are_counted_as_one_by_one(text: str, ops: int) -> None:
    found = enumerate_universe(universe(text), SPEC, ops)
    terms, every = sets_of_operators(every_graph(text, ops, found.base.seed), found.world, ops)
    pairs = {second: first for first, second in found.world.pairs}
    for counts in found.counts:
        assert counts.named == len(terms[counts.level])
        assert counts.graphs == len(every[counts.level])
        assert counts.sequences == sum(orders(graph, pairs) for graph in every[counts.level])


@pytest.mark.parametrize(("text", "ops"), COUNTED)
def test_nothing_is_left_out_but_renamings(text: str, ops: int) -> None:
    found = enumerate_universe(universe(text), SPEC, ops)
    listed = every_graph(text, ops, found.base.seed)
    terms, _ = sets_of_operators(listed, found.world, ops, lambda graph: first_inputs(found.world, graph.inputs))
    assert found.counts[-1].terms == len(terms[ops])


def test_the_same_seed_finds_the_same() -> None:
    one, two = (enumerate_universe(universe(IMAGES), SPEC, 3) for _ in range(2))
    for column in ("instance", "a", "b", "level", "value"):
        np.testing.assert_array_equal(getattr(one.found, column), getattr(two.found, column))
    for column in ("instance", "a", "b", "of", "nodes"):
        np.testing.assert_array_equal(getattr(one.table, column), getattr(two.table, column))


def test_another_seed_finds_the_same_values() -> None:
    one, two = (enumerate_universe(universe(HALVES), SPEC, 3, seed=seed) for seed in (1, 2))
    assert one.counts == two.counts
    np.testing.assert_array_equal(one.found.value, two.found.value)


def test_shared_operators_count_once() -> None:
    found = enumerate_universe(universe(TINY), SPEC, 3)
    table = found.table
    for value in np.nonzero(table.level > 0)[0]:
        nodes = table.nodes[value]
        assert (nodes >= 0).sum() == table.level[value]
        assert len(set(nodes[nodes >= 0])) == table.level[value]


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    enumerate_universe(universe(TINY), SPEC, 2, progress=lambda *step: told.append(step))
    assert {text for text, _, _ in told} == {"tiny, 1 operators", "tiny, 2 operators"}
    assert all(0 < done <= of for _, done, of in told)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("universe u input x [2] apply f(x) = nothing(x)", "no operator is called"),
        ("universe u input x [2] apply f(x) = relu(x) set speed = 3", "no option is called `speed`"),
        ("universe u input x [2] apply f(x) = relu(x) set pairs = [[\"f\", \"g\"]]", "no instance is called `g`"),
        ("universe u input x [2] apply f(a, b, c) = add(a, add(b, c))", "takes 3 tensors"),
    ],
)  # fmt: skip
def test_an_impossible_universe_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        enumerate_universe(universe(text), SPEC, 2)


def test_at_least_one_operator() -> None:
    with pytest.raises(SpecError, match="at least 1"):
        enumerate_universe(universe(TINY), SPEC, 0)
