"""How many graphs an enumeration covers, counted without going through them.

A *graph* is a set of operators, each applied to inputs, constants or results of others of the set; the two outputs of
a split come from one operator, and the arguments of a commutative operator have no order. A *term* is a graph with one
output that everything else leads to. A *sequence* is a graph with an order in which it can be computed, as Jia et al.
(2019) count.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from taso.generate.universe import Concrete, World
    from taso.generate.values import Values

MOST_GRAPHS = 4  # operators up to which graphs with several outputs are counted


@dataclass(frozen=True)
class Counts:
    """What was covered at one level.

    terms: looked at and hashed; at the last level one of those that are renamings of each other.
    named: terms with all renamings.
    values: what the terms compute that no smaller term does.
    sequences, graphs: with this many operators and any number of outputs; None beyond four.
    """

    level: int
    terms: int
    named: int
    values: int
    sequences: int | None = None
    graphs: int | None = None


def renamings(world: World, masks: np.ndarray, counts: np.ndarray) -> int:
    """How many terms there are with all renamings, given how many use which first inputs of each class."""
    groups: Counter[int] = Counter(leaf.group for leaf in world.leaves if leaf.group >= 0)
    total = 0
    for mask, count in zip(masks.tolist(), counts.tolist()):
        used: Counter[int] = Counter(
            leaf.group for k, leaf in enumerate(world.leaves) if leaf.group >= 0 and mask >> k & 1
        )
        ways = 1
        for group, k in used.items():
            ways *= comb(groups[group], k)
        total += ways * count
    return total


# --- sequences


def sequences(world: World, shapes: dict[Concrete, int], ops: int) -> list[int]:
    """How many sequences of 1, 2, ... `ops` operators there are.

    How many operators can come next depends only on how many tensors of each shape there are, and those that came
    already are among them; so the states are multisets of operators by the shapes that they produce.

    Args:
        shapes: at least the shapes of all results that can be arguments, with the fewest operators that make one.
    """
    steps = _Steps(world, shapes, ops)
    states: dict[tuple[int, ...], int] = {(): 1}
    found = []
    for size in range(ops):
        keys = np.array(list(states), np.int64).reshape(len(states), size)
        weights = np.array(list(states.values()), np.int64)
        choices = steps.choices(keys)  # (states, classes)
        found.append(int((choices.sum(axis=1) * weights).sum()))
        if size + 1 < ops:
            after: dict[tuple[int, ...], int] = {}
            for key, row, weight in zip(keys.tolist(), choices, weights.tolist()):
                for produced in np.nonzero(row)[0].tolist():
                    state = tuple(sorted([*key, produced]))
                    after[state] = after.get(state, 0) + weight * int(row[produced])
            states = after
    return found


class _Steps:
    """Which operators can come next, by what they produce, given how many tensors of each shape there are."""

    def __init__(self, world: World, shapes: dict[Concrete, int], ops: int) -> None:
        kinds = {shape: k for k, shape in enumerate(shapes)}
        self.leaves, constants = np.zeros(len(shapes), np.int64), np.zeros(len(shapes), np.int64)
        for leaf in world.leaves:
            self.leaves[kinds[leaf.shape]] += 1
            constants[kinds[leaf.shape]] += leaf.group < 0
        self.constants = np.zeros_like(constants) if world.options.ground else constants
        produced: dict[tuple[Concrete, ...], int] = {}
        self.terms: list[tuple[int, int, int, bool]] = []  # class produced, argument shapes (or -1), commutative
        halves = [[world.applied(k, (shape,)) for k in pair] for pair in world.pairs for shape in shapes]
        apart = all(one is None or two is None or one.shape == two.shape for one, two in halves)
        seconds, firsts = {b: a for a, b in world.pairs}, {a: b for a, b in world.pairs}
        for number, instance in enumerate(world.instances):
            for ka, a in enumerate(shapes):
                for kb, b in enumerate(shapes if len(instance.params) == 2 else [()]):
                    given = (a, b) if len(instance.params) == 2 else (a,)
                    # two tensors of different shapes that each need all operators before do not come together: they
                    # would need the same operator last
                    if apart and a != b and shapes[a] == shapes.get(b) == ops - 1 and ops > 1:
                        continue
                    applied = world.applied(number, given)
                    first = seconds.get(number)
                    if applied is None or (first is not None and world.applied(first, given) is not None):
                        continue  # the second output comes with the first
                    other = world.applied(firsts[number], given) if number in firsts else None
                    results: tuple[Concrete, ...] = (applied.shape,) if other is None else (applied.shape, other.shape)
                    commutes = len(given) == 2 and a == b and world.commutes(number, a)
                    at = produced.setdefault(results, len(produced))
                    self.terms.append((at, ka, kb if len(given) == 2 else -1, commutes))
        self.classes = len(produced)
        self.results = np.zeros((self.classes, len(shapes)), np.int64)  # tensors of each shape that a class adds
        for shapes_of, at in produced.items():
            for shape in shapes_of:
                if shape in kinds:
                    self.results[at, kinds[shape]] += 1

    def choices(self, states: np.ndarray) -> np.ndarray:
        """For states (count, size) of classes of operators: how many new operators of each class (count, classes)."""
        there = np.zeros((len(states), self.classes), np.int64)
        for column in states.T:
            there[np.arange(len(states)), column] += 1
        tensors = self.leaves + there @ self.results
        return np.asarray(self._applicable(tensors) - self._applicable(self.constants[None]) - there)

    def _applicable(self, tensors: np.ndarray) -> np.ndarray:
        found = np.zeros((len(tensors), self.classes), np.int64)
        for at, ka, kb, commutes in self.terms:
            a = tensors[:, ka]
            found[:, at] += a if kb < 0 else a * (a + 1) // 2 if commutes else a * tensors[:, kb]
        return found


# --- graphs


def graphs(table: Values, level: int, operators: int) -> int:
    """How many graphs of exactly `level` (at most MOST_GRAPHS) operators there are, with any number of outputs.

    They are counted by their outputs, which no other operator uses: with one output they are the `operators` of the
    level; with several these share operators or not.

    Args:
        table: all terms of the lower levels, none left out.
        operators: how many operators have exactly `level` operators below and with them.
    """
    if level == 1:
        return operators
    one = table.level == 1
    ones = len(np.unique(table.top[one]))
    if level == 2:
        return operators + comb(ones, 2)
    twos, two_nodes = _operators(table, 2)
    _, over = np.unique(two_nodes[:, 0], return_counts=True)  # of each operator with leaves: how many use just it
    pairs = sum(comb(k, 2) for k in over.tolist())
    if level == 3:
        return operators + len(twos) * (ones - 1) + pairs + comb(ones, 3)
    threes, below = _operators(table, 3)
    first = np.isin(below, np.unique(table.top[one]))  # which of the two operators below are applied to leaves only
    inside = int(first.sum())  # operators with leaves inside a graph of three, all graphs of three together
    counts = np.unique(two_nodes[:, 0], return_counts=True)
    over_of = dict(zip(counts[0].tolist(), counts[1].tolist()))
    containing = sum(over_of.get(node, 0) for node in below[first].tolist())  # a two over something in a three
    contained = len(below) * 2 - inside  # the two is itself inside the three
    _, same = np.unique(below, axis=0, return_counts=True)
    two_outputs = (
        len(threes) * ones - inside
        + comb(len(twos), 2) - pairs
        + containing - contained
        + sum(comb(k, 2) for k in same.tolist())
    )  # fmt: skip
    three_outputs = sum(k * comb(ones - 1, 2) + comb(k, 2) * (ones - 1) + comb(k, 3) for k in over.tolist())
    return int(operators + two_outputs + three_outputs + comb(ones, 4))


def _operators(table: Values, level: int) -> tuple[np.ndarray, np.ndarray]:
    """The operators of a level, and those below each of them as rows."""
    ids = np.nonzero(table.level == level)[0]
    tops, at = np.unique(table.top[ids], return_index=True)
    nodes = table.nodes[ids[at]][:, -level:]
    return tops, nodes[nodes != tops[:, None]].reshape(len(tops), level - 1)
