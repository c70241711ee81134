"""The enumerator against going through every graph one by one."""

from __future__ import annotations

import numpy as np
import pytest

from taso.errors import SpecError
from taso.generate.enumerate import enumerate_universe
from taso.generate.universe import World
from taso.generate.values import Enumeration, compute_all
from tests.generate.universes import HALVES, IMAGES, MATRICES, REALS, SPEC, TINY, every_graph, universe

Key = tuple[tuple[int, ...], tuple[float, ...]]


def key(data: np.ndarray, real: bool) -> Key:
    """The value as something to compare; real numbers to seven digits."""
    flat = [float(f"{v:.7g}") for v in data.ravel()] if real else data.ravel().tolist()
    return data.shape[1:], tuple(v + 0.0 for v in flat)


def found_values(found: Enumeration) -> dict[Key, int]:
    """The data of every value that was found, the last level's computed again, and its level."""
    table, out = found.table, {}
    for value in np.nonzero(table.of == np.arange(len(table)))[0]:
        if table.row[value] >= 0:
            data = found.data[int(table.kind[value])][table.row[value]]
        else:
            at = slice(value, value + 1)
            columns = table.instance[at], table.a[at], table.b[at]
            ((_, row),) = compute_all(found.world, found.shapes, found.data, table, *columns)
            data = row.reshape(found.world.options.samples, *found.shapes[int(table.kind[value])])
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
    found = enumerate_universe(universe(text), SPEC, ops)
    values = found_values(found)
    expected: dict[Key, int] = {}
    for graph in every_graph(text, ops, found.seed):
        if np.isfinite(graph.data).all() and (len(graph.operators) < ops or first_inputs(found.world, graph.inputs)):
            its = key(graph.data, found.world.options.real)
            expected[its] = min(expected.get(its, ops), len(graph.operators))
    leaves = {key(data, found.world.options.real) for data in found.world.samples(found.seed)}
    assert values.keys() <= expected.keys() | leaves  # nothing is made up
    return expected, values


@pytest.mark.parametrize(("text", "ops"), EXACT)
def test_no_value_is_missed(text: str, ops: int) -> None:
    expected, values = compare(text, ops)
    assert expected.keys() <= values.keys()
    for its, level in expected.items():
        assert values[its] <= level


def test_terms_are_counted_one_by_one() -> None:
    """At one operator every argument is an input, so terms and graphs are the same."""
    for text in (MATRICES, HALVES, IMAGES):
        found = enumerate_universe(universe(text), SPEC, 1)
        graphs = [g for g in every_graph(text, 1, found.seed) if first_inputs(found.world, g.inputs)]
        assert found.terms == len(graphs)
        assert found.counts == [(1, found.terms, found.values)]


def test_the_same_seed_finds_the_same() -> None:
    one, two = (enumerate_universe(universe(IMAGES), SPEC, 3) for _ in range(2))
    for column in ("instance", "a", "b", "level", "value"):
        np.testing.assert_array_equal(getattr(one.found, column), getattr(two.found, column))


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
    assert len(told) == 2 * 2 and all(0 <= done < of for _, done, of in told)


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
