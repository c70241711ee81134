"""The graph: equal nodes are one object, rewrites share what they do not change, and nothing recurses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taso.algebra.poly import var
from taso.errors import ShapeError
from taso.graph.graph import Arena, Graph, TensorType, Value
from taso.spec.parse import parse_term
from taso.spec.spec import load_spec


def start() -> tuple[Arena, dict[str, Value]]:
    arena = Arena(load_spec())
    n = var("n")
    return arena, {name: arena.input(name, TensorType("float", (n, 4))) for name in "xyz"}


def build(arena: Arena, tensors: dict[str, Value], text: str) -> Value:
    return arena.build(parse_term(text), tensors, {}, "float")


def test_equal_terms_are_one_value() -> None:
    arena, tensors = start()
    assert build(arena, tensors, "add(relu(x), y)") is not None
    assert build(arena, tensors, "add(relu(x), y)").node is build(arena, tensors, "add(relu(x), y)").node
    assert build(arena, tensors, "add(y, relu(x))") == build(arena, tensors, "add(relu(x), y)")  # it commutes
    assert build(arena, tensors, "sub(y, relu(x))") != build(arena, tensors, "sub(relu(x), y)")


def test_equal_constants_are_one_and_others_not() -> None:
    arena, _ = start()
    one = arena.constant(np.ones(3, np.float32), "float")
    assert one == arena.constant(np.ones(3, np.float32), "float")
    assert one != arena.constant(np.ones(3, np.float64), "double")
    assert one != arena.constant(np.ones((1, 3), np.float32), "float")
    assert arena.constant(np.array(0.0, np.float32), "float") != arena.constant(np.array(-0.0, np.float32), "float")


def test_what_changes_nothing_is_left_out() -> None:
    arena, tensors = start()
    assert build(arena, tensors, "transpose(transpose(x; perm = [0, 1]); perm = [0, 1])") == tensors["x"]
    assert build(arena, tensors, "slice(x; axis = 1, start = 0, stop = 4)") == tensors["x"]


def test_shapes_are_symbolic() -> None:
    arena, tensors = start()
    assert build(arena, tensors, "concat(x, concat(y, z; axis = 0); axis = 0)").shape == (3 * var("n"), 4)


@pytest.mark.parametrize(
    "text", ["add(x, transpose(y; perm = [1, 0]))", "matmul(x, y)", "slice(x; axis = 1, start = 3, stop = 5)"]
)
def test_what_does_not_fit_is_refused(text: str) -> None:
    arena, tensors = start()
    with pytest.raises(ShapeError):
        build(arena, tensors, text)


def test_types_do_not_mix() -> None:
    arena, tensors = start()
    tensors["d"] = arena.input("d", TensorType("double", (var("n"), 4)))
    with pytest.raises(ShapeError, match="element types"):
        build(arena, tensors, "add(x, d)")


def test_constants_know_that_they_are() -> None:
    arena, tensors = start()
    tensors["c"] = arena.constant(np.ones((3, 4), np.float32), "float")
    assert build(arena, tensors, "relu(neg(c))").node.constant
    assert not build(arena, tensors, "concat(x, c; axis = 0)").node.constant


def test_replacing_rebuilds_what_is_above_and_keeps_the_rest() -> None:
    arena, tensors = start()
    inner, other = build(arena, tensors, "add(x, y)"), build(arena, tensors, "neg(z)")
    top = build(arena, tensors, "mul(relu(add(x, y)), neg(z))")
    graph = Graph((top, other), tuple(tensors.values()))
    new = build(arena, tensors, "sub(x, neg(y))")
    changed = graph.replace({inner: new}, arena)
    assert changed is not None
    assert changed.outputs == (build(arena, tensors, "mul(relu(sub(x, neg(y))), neg(z))"), other)
    assert graph.outputs == (top, other)
    assert list(arena.older(changed.outputs[0])) == [changed.outputs[0], top]
    assert list(arena.older(new)) == [new, inner]


def test_replacing_back_and_forth_ends() -> None:
    arena, tensors = start()
    old, new = build(arena, tensors, "sub(x, y)"), build(arena, tensors, "add(x, neg(y))")
    graph = Graph((old,), tuple(tensors.values()))
    there = graph.replace({old: new}, arena)
    assert there is not None
    back = there.replace({new: old}, arena)
    assert back == graph
    assert set(arena.older(old)) == {old, new}


def test_a_replacement_that_depends_on_itself_is_refused() -> None:
    arena, tensors = start()
    old = build(arena, tensors, "add(x, y)")
    graph = Graph((build(arena, tensors, "relu(add(x, y))"),), tuple(tensors.values()))
    assert graph.replace({old: build(arena, tensors, "neg(add(x, y))")}, arena) is None
    first, second = build(arena, tensors, "neg(x)"), build(arena, tensors, "abs(x)")
    assert Graph((first,), ()).replace({first: second, second: first}, arena) is None


def test_several_replacements_at_once() -> None:
    arena, tensors = start()
    graph = Graph((build(arena, tensors, "add(relu(x), relu(y))"),), tuple(tensors.values()))
    changes = {build(arena, tensors, f"relu({name})"): build(arena, tensors, f"abs({name})") for name in "xy"}
    changed = graph.replace(changes, arena)
    assert changed is not None and changed.outputs[0] == build(arena, tensors, "add(abs(x), abs(y))")


def test_thousands_of_nodes() -> None:
    arena, tensors = start()
    values = [tensors["x"]]
    for k in range(5000):
        values.append(arena.apply("relu" if k % 2 else "neg", (values[-1],), {}))
    graph = Graph((values[-1],), (tensors["x"],))
    assert len(graph.nodes()) == 5001
    changed = graph.replace({values[1]: build(arena, tensors, "abs(x)")}, arena)
    assert changed is not None and len(changed.nodes()) == 5001 and len(changed.users()) == 5000


@given(st.lists(st.tuples(st.sampled_from(["add", "mul", "max"]), st.integers(0, 20), st.integers(0, 20)), max_size=12))
def test_nodes_come_after_their_arguments(steps: list[tuple[str, int, int]]) -> None:
    arena, tensors = start()
    values = list(tensors.values())
    for op, left, right in steps:
        values.append(arena.apply(op, (values[left % len(values)], values[right % len(values)]), {}))
    order = Graph(tuple(values[-3:]), tuple(tensors.values())).nodes()
    place = {node: k for k, node in enumerate(order)}
    assert len(place) == len(order)
    assert all(place[arg.node] < place[node] for node in order for arg in node.args)
