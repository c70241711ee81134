"""Proposes how the bound variables of one term may correspond to those of another; what it says is not yet proved.

Reads of the same tensor are paired by backtracking and their indices equated; the equations are solved for the
variables of the second term. Functions are entered, and their inner bound variables solved for along the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taso.algebra.poly import Quantity, names, substitute, var
from taso.prove.decide import World
from taso.prove.facts import solved
from taso.prove.terms import Factor, Fn, Max, Piece, Read, Size, Sum

Solution = dict[str, Quantity]


class OutOfSteps(Exception):
    """The search for correspondences was given up; the answer is then "unknown"."""


@dataclass(frozen=True)
class State:
    """`unknowns` to solve for, what they are so far, and equations that are not solvable yet."""

    unknowns: frozenset[str]
    solution: Solution
    deferred: tuple[Quantity, ...] = ()

    def equate(self, gaps: list[Quantity]) -> State | None:
        """With further equations `gap == 0`; None if one cannot hold."""
        solution = dict(self.solution)
        work: list[Quantity] = [*gaps, *self.deferred]
        progress = True
        while progress:
            progress = False
            left: list[Quantity] = []
            for gap in work:
                gap = substitute(gap, solution)
                if isinstance(gap, int):
                    if gap != 0:
                        return None
                    continue
                found = solved(gap, self.unknowns)
                if found is None:
                    left.append(gap)
                    continue
                values = dict([found])
                solution = {k: substitute(v, values) for k, v in solution.items()} | values
                progress = True
            work = left
        return State(self.unknowns, solution, tuple(work))

    def with_unknowns(self, more: tuple[str, ...]) -> State:
        return State(self.unknowns | frozenset(more), self.solution, self.deferred)


class Matcher:
    """Backtracking over correspondences; `steps` bounds the work of one proof."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _step(self) -> None:
        self.world.steps -= 1
        if self.world.steps < 0:
            raise OutOfSteps

    def atoms(self, fixed: tuple[Factor, ...], moving: tuple[Factor, ...], state: State) -> Iterator[State]:
        """All ways to pair two products of atoms."""
        self._step()
        if not fixed:
            yield state
            return
        pick = min(
            range(len(fixed)),
            key=lambda k: (not isinstance(fixed[k], Read), sum(m.head == fixed[k].head for m in moving)),
        )
        atom, rest = fixed[pick], fixed[:pick] + fixed[pick + 1 :]
        for k, other in enumerate(moving):
            if other.head != atom.head:
                continue
            left = moving[:k] + moving[k + 1 :]
            for found in self._pair(atom, other, state):
                yield from self.atoms(rest, left, found)

    def _pair(self, fixed: Factor, moving: Factor, state: State) -> Iterator[State]:
        match fixed, moving:
            case Read(_, index), Read(_, other):
                found = state.equate([a - b for a, b in zip(index, other)])
                if found is not None:
                    yield found
            case Size(a), Size(b):
                found = state.equate([a - b])
                if found is not None:
                    yield found
            case Fn(_, args), Fn(_, others):
                yield from self._args(args, others, state)
            case Max(pieces), Max(others_):
                if len(pieces) == len(others_):
                    yield from self.pieces(pieces, others_, state)
                else:
                    yield state

    def _args(self, args: tuple[Sum, ...], others: tuple[Sum, ...], state: State) -> Iterator[State]:
        if not args:
            yield state
            return
        for found in self.sums(args[0], others[0], state):
            yield from self._args(args[1:], others[1:], found)

    def sums(self, fixed: Sum, moving: Sum, state: State) -> Iterator[State]:
        self._step()
        if len(fixed) != len(moving) or not fixed:
            yield state  # no proposal; the verification may still succeed
            return
        first = fixed[0]
        for k, other in enumerate(moving):
            if other.coefficient != first.coefficient or other.heads != first.heads:
                continue
            other = other.renamed(self.world)
            for found in self.atoms(first.atoms, other.atoms, state.with_unknowns(other.bound)):
                yield from self.sums(fixed[1:], moving[:k] + moving[k + 1 :], found)

    def pieces(self, fixed: tuple[Piece, ...], moving: tuple[Piece, ...], state: State) -> Iterator[State]:
        self._step()
        if not fixed:
            yield state
            return
        for k, other in enumerate(moving):
            if len(other.bound) != len(fixed[0].bound):
                continue
            other = other.renamed(self.world)
            for found in self.sums(fixed[0].body, other.body, state.with_unknowns(other.bound)):
                yield from self.pieces(fixed[1:], moving[:k] + moving[k + 1 :], found)


def completed(state: State, moving: tuple[str, ...], fixed: tuple[str, ...]) -> Iterator[Solution]:
    """Full correspondences moving -> quantities over the fixed variables; what is left open is paired in all ways."""
    solution = {b: state.solution[b] for b in moving if b in state.solution}
    inner = state.unknowns - set(moving)
    for name in [b for b, value in solution.items() if names(value) & inner]:
        del solution[name]  # only known through a variable inside a function
    free = [b for b in moving if b not in solution]
    used = set().union(*map(names, solution.values())) if solution else set()
    candidates = [b for b in fixed if b not in used]
    if len(candidates) < len(free) or used & set(free):
        candidates = list(fixed)
    if len(free) > 4:
        return
    for chosen in _arrangements(candidates, len(free)):
        values: Solution = {name: var(other) for name, other in zip(free, chosen)}
        yield {k: substitute(v, values) for k, v in solution.items()} | values


def _arrangements(items: list[str], count: int) -> Iterator[tuple[str, ...]]:
    if count == 0:
        yield ()
        return
    for k, item in enumerate(items):
        for rest in _arrangements(items[:k] + items[k + 1 :], count - 1):
            yield (item, *rest)


def is_bijection(mapping: Solution, moving: tuple[str, ...], fixed: tuple[str, ...]) -> bool:
    """Whether `moving = mapping(fixed)` can be solved for the fixed variables, each step with coefficient +-1.

    Each equation is then used for exactly one variable, so that the equations and their solution say the same: the map
    is a bijection of all integer vectors.
    """
    if len(moving) != len(fixed):
        return False
    state = State(frozenset(fixed), {}).equate([var(b) - mapping[b] for b in moving])
    return state is not None and set(state.solution) == set(fixed)
