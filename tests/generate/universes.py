"""Small universes, and an enumerator that goes through every graph one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taso.generate.universe import World
from taso.spec import syntax as s
from taso.spec.parse import parse
from taso.spec.spec import load_spec

SPEC = load_spec()

MATRICES = """
universe matrices
  input x1, x2 [2, 2]
  const one = identity_matrix(; size = 2)
  apply matmul(a, b) = matmul(a, b)
  apply add(a, b) = add(a, b)
  apply relu(a) = relu(a)
  set ground = 1
"""
HALVES = """
universe halves
  input x1, x2 [1, 2]
  input w1, w2 [2, 2]
  apply matmul(a, b) = matmul(a, b)
  apply join(a, b) when dim(a, 1) == 2 and dim(a, 0) == 2 = concat(a, b; axis = 1)
  apply left(a) when dim(a, 1) == 4 = slice(a; axis = 1, start = 0, stop = 2)
  apply right(a) when dim(a, 1) == 4 = slice(a; axis = 1, start = 2, stop = 4)
  set pairs = [["left", "right"]]
"""
IMAGES = """
universe images
  input x1 [1, 2, 3, 3]
  input f1, f2 [2, 2, 3, 3]
  input p1 [2, 2, 1, 1]
  input v1 [2]
  const unit = identity_kernel(; channels = 2, per_group = 2, kernel = [3, 3])
  apply conv3(x, f) when dim(x, 0) == 1 and dim(f, 2) == 3 = conv(x, f; before = 1, after = 1)
  apply conv1(x, f) when dim(x, 0) == 1 and dim(f, 2) == 1 = conv(x, f)
  apply add(a, b) when rank(a) == 4 = add(a, b)
  apply scale(a, v) when dim(a, 0) == 1 and rank(v) == 1 = mul(a, broadcast(v; dims = [1]))
  apply scale_out(f, v) when dim(f, 0) == 2 and rank(v) == 1 = mul(f, broadcast(v; dims = [0]))
  apply enlarge(f) when dim(f, 2) == 1 = pad(f; before = [0, 0, 1, 1], after = [0, 0, 1, 1])
"""
REALS = """
universe reals
  input x1, x2 [6]
  apply add(a, b) = add(a, b)
  apply mul(a, b) = mul(a, b)
  apply exp(a) = exp(a)
  set real = 1
"""
TINY = """
universe tiny
  input x1, x2 [3]
  apply add(a, b) = add(a, b)
  apply relu(a) = relu(a)
"""


def universe(text: str) -> s.Universe:
    """The universe of a text."""
    (found,) = parse(text)
    assert isinstance(found, s.Universe)
    return found


@dataclass(frozen=True)
class Graph:
    """One graph with one output: its operators (a pair of outputs is one), inputs and data."""

    term: tuple[object, ...]
    operators: frozenset[object]
    inputs: frozenset[str]
    data: np.ndarray


def every_graph(text: str, ops: int, seed: int) -> list[Graph]:
    """Every graph of up to `ops` operators, one by one, nothing merged but literally equal graphs."""
    world = World(universe(text), SPEC)
    twin = {second: first for first, second in world.pairs}
    levels: list[list[Graph]] = [[]]
    for leaf, data in zip(world.leaves, world.samples(seed)):
        levels[0].append(Graph((leaf.name,), frozenset(), frozenset([leaf.name] if leaf.group >= 0 else []), data))
    for level in range(1, ops + 1):
        known = [graph for listed in levels for graph in listed]
        here: list[Graph] = []
        for number, instance in enumerate(world.instances):
            lists = [(a,) for a in known] if len(instance.params) == 1 else [(a, b) for a in known for b in known]
            for args in lists:
                below: frozenset[object] = frozenset().union(*(arg.operators for arg in args))
                if len(below) not in (level - 1, level):
                    continue
                term = (number, *(arg.term for arg in args))
                operators = below | {(twin.get(number, number), *term[1:])}
                if len(operators) != level:
                    continue
                applied = world.applied(number, tuple(arg.data.shape[1:] for arg in args))
                inputs: frozenset[str] = frozenset().union(*(arg.inputs for arg in args))
                if applied is None or (not inputs and not world.options.ground):
                    continue
                data = np.ascontiguousarray(applied.run([arg.data for arg in args], 1))
                here.append(Graph(term, operators, inputs, data))
        levels.append(here)
    return [graph for listed in levels[1:] for graph in listed]
