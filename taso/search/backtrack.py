"""The search: ever cheaper graphs that are equal to a given one (Jia et al. 2019, section 5).

First downhill: everywhere at once, the rewrites that save something by themselves, as long as there are any. Then
backtracking, window by window: there a step may cost more if that leads further down. What a rewrite saves is computed
from its neighbourhood only, so that a step takes the same time in a large graph as in a small one.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from taso.graph.graph import Arena, Graph, Node, Value
from taso.search.chains import chain_rewrites
from taso.search.cost import Cost, Costs, walk
from taso.search.partition import Likeness, Outputs, Region, Surroundings, rebuilt
from taso.search.rewrite import Rewrite, RuleIndex, rewrites

REACH = 4  # how many levels below its root a rule may meet a node
MANY = 1 << 30
NOISE = 0.05  # measured latencies of kernels are this uncertain
SIDEWAYS = 0.02  # what a rewrite that does not make the graph smaller has to save, as a part of its neighbourhood


class Step(NamedTuple):
    """A rule that was applied, and the microseconds that this saved by itself (negative for a step up)."""

    rule: str
    gain: float


Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Limits:
    """How far to search.

    alpha:          a step may cost up to this times the best so far (in a window `1 + 6 * (alpha - 1)` times its own).
    budget:         how many graphs are expanded by backtracking.
    deadline:       when to stop, on the clock of `time.monotonic`.
    constant_bytes: how large the constants may become in total.
    window:         how many nodes backtracking looks at together.
    depth:          how many steps that save nothing may be made on the way to a new best.
    """

    alpha: float = 1.05
    budget: int = 1000
    deadline: float = math.inf
    constant_bytes: float = math.inf
    window: int = 32
    depth: int = 4


@dataclass(frozen=True)
class Candidate:
    """A graph that is equal to the original one, its cost and the steps that led to it, in order."""

    graph: Graph
    cost: Cost
    steps: Steps


@dataclass(frozen=True)
class Move:
    """A rewrite and what it does.

    before: the microseconds that `place` took before.
    gain:   the microseconds that it saves.
    growth: by how many bytes constants grow.
    nodes:  by how many nodes the graph grows.
    place:  the nodes from which this was computed.
    """

    rewrite: Rewrite
    before: float
    gain: float
    growth: int
    nodes: int
    place: frozenset[Node]

    def worth(self, tolerance: float) -> float:
        """What it saves, a little more if it makes the graph smaller, a little less if it does not.

        Exchanging kernels for as many others that seem slightly faster is mostly exchanging one error for another.
        """
        return self.gain + (tolerance if self.nodes < 0 else -SIDEWAYS) * self.before

    @property
    def steps(self) -> Steps:
        return (*(Step(name, 0.0) for name in self.rewrite.also), Step(self.rewrite.rule.name, self.gain))


@dataclass(frozen=True)
class State:
    """What a window is at one moment of its search; `fresh` are the nodes that are new since the last improvement."""

    outputs: Outputs
    latency: float
    growth: int = 0
    steps: Steps = ()
    fresh: frozenset[Node] = frozenset()


# Called as progress(graphs looked at, best latency in microseconds).
Progress = Callable[[int, float], None]


@dataclass
class Search:
    """One search: rules, costs and limits, and what is remembered while it runs."""

    index: RuleIndex
    costs: Costs
    arena: Arena
    limits: Limits = field(default_factory=Limits)
    progress: Progress | None = None
    expanded: int = 0  # by backtracking
    visited: int = 0  # all rewrites that were costed

    def __post_init__(self) -> None:
        self.likeness = Likeness(self.index.spec, self.costs.model.look)
        self._priced: dict[object, Cost] = {}  # by what a part looks like
        self._single: dict[Node, tuple[Rewrite, ...]] = {}
        self._moved: dict[tuple[Node, tuple[Value, ...]], Node] = {}
        self._hopeless: set[object] = set()  # what windows look like that were searched in vain

    def run(self, graph: Graph) -> Iterator[Candidate]:
        """Yield ever cheaper graphs equal to `graph`, deterministically (but for the deadline)."""
        start = Candidate(graph, self.costs.graph(graph), ())
        yield from self._told(self._phases(start))

    def _phases(self, start: Candidate) -> Iterator[Candidate]:
        """Downhill, then backtracking; only what is cheaper than all before.

        What makes the graph smaller goes first: a kernel that is exchanged for others no longer merges with more. Once
        trusting a smaller graph more than a slightly higher sum of measured latencies, once strictly.
        """
        lowest = start
        for tolerance in (NOISE, 0.0):
            for candidate in self._descend(start, most=0, tolerance=tolerance):
                if _saves(lowest.cost.latency - candidate.cost.latency, lowest.cost.latency):
                    yield (lowest := candidate)
        for candidate in self._descend(lowest):
            yield (lowest := candidate)
        yield from self._backtrack(lowest)

    def _told(self, candidates: Iterator[Candidate]) -> Iterator[Candidate]:
        for candidate in candidates:
            if self.progress is not None:
                self.progress(self.visited, candidate.cost.latency)
            yield candidate

    # --- downhill

    def _descend(
        self,
        best: Candidate,
        focus: Container[Node] | None = None,
        *,
        most: int = MANY,
        tolerance: float = 0.0,
    ) -> Iterator[Candidate]:
        """All rewrites that save something by themselves and do not touch each other, again and again.

        most:      by how many nodes a rewrite may make the graph larger.
        tolerance: by what part a rewrite that makes the graph smaller may seem to make it slower.
        """
        while time.monotonic() < self.limits.deadline:
            around = Surroundings.of(best.graph.outputs)
            moves = [move for move in self._moves(around, focus) if move.nodes <= most]
            moves = [move for move in moves if _saves(move.worth(tolerance), best.cost.latency)]
            moves.sort(key=lambda move: -move.worth(tolerance))  # stable: equals stay in the graph's order
            found = self._together(best, around, moves)
            if found is None:
                return
            best, focus = found
            yield best

    def _together(self, best: Candidate, around: Surroundings, moves: list[Move]) -> tuple[Candidate, set[Node]] | None:
        """Make as many moves at once as do not touch each other; if they do not go together, the first that helps."""
        picked: list[Move] = []
        taken: set[Node] = set()
        room = self.limits.constant_bytes - best.cost.constant_bytes
        for move in moves:
            if taken.isdisjoint(move.place) and move.growth <= room:
                picked.append(move)
                taken |= move.place
                room -= max(0, move.growth)
        found = self._made(best, around, self._compatible(best, picked), moves)
        for move in moves if found is None and len(picked) > 1 else []:
            found = found or self._made(best, around, [move], moves)
        return found

    def _compatible(self, best: Candidate, picked: list[Move]) -> list[Move]:
        """The moves that can be made together: usually all, unless two would make values depend on each other."""
        kept, size = list[Move](), len(picked)
        while picked and size:  # the longest run of moves that goes with what is kept, by halving
            part = picked[:size]
            changes = {old: new for move in (*kept, *part) for old, new in move.rewrite.changes.items()}
            if rebuilt(best.graph.outputs, changes, (), self.arena, self._moved) is not None:
                kept, picked, size = kept + part, picked[size:], len(picked) - size
            elif size > 1:
                size //= 2
            else:
                picked = picked[1:]
                size = len(picked)
        return kept

    def _made(
        self, best: Candidate, around: Surroundings, picked: list[Move], moves: list[Move]
    ) -> tuple[Candidate, set[Node]] | None:
        """The graph after some moves, with the nodes around which there may be more to do; None if it is no better."""
        changes = {old: new for move in picked for old, new in move.rewrite.changes.items()}
        moved = rebuilt(best.graph.outputs, changes, (), self.arena, self._moved) if changes else None
        if moved is None:
            return None
        outputs, became = moved
        graph = Graph(outputs, best.graph.inputs)
        cost = self.costs.graph(graph)
        smaller = all(move.gain > 0 or move.nodes < 0 for move in picked) and any(move.gain <= 0 for move in picked)
        worse = cost.latency >= best.cost.latency and not smaller
        if worse or cost.constant_bytes > self.limits.constant_bytes:
            return None
        new = [node for node in walk(changes.values(), around.everything)]
        open_ = [node for move in moves if move not in picked for node in move.place]
        steps = best.steps + tuple(step for move in picked for step in move.steps)
        return Candidate(graph, cost, steps), {became.get(node, node) for node in (*new, *open_)}

    # --- backtracking

    def _backtrack(self, best: Candidate) -> Iterator[Candidate]:
        """Search window after window; where one improves, go on downhill from there."""
        around = Surroundings.of(best.graph.outputs)
        todo = list(around.nodes)
        settled: set[Node] = set()
        while todo and not self._over():
            seed = todo.pop(0)
            if seed in settled or seed not in around.everything:
                continue
            region = around.region(around.around(seed, self.limits.window))
            settled |= around.around(seed, self.limits.window // 2)
            after = self._window(region, best)
            if after is None:
                continue
            changes = {old: new for old, new in zip(region.outputs, after.outputs) if old != new}
            moved = rebuilt(best.graph.outputs, changes, (), self.arena, self._moved)
            if moved is None:
                continue
            graph = Graph(moved[0], best.graph.inputs)
            cost = self.costs.graph(graph)
            if cost.latency >= best.cost.latency or cost.constant_bytes > self.limits.constant_bytes:
                continue
            fresh = {moved[1].get(node, node) for node in walk(after.outputs, region.outside)}
            best = Candidate(graph, cost, best.steps + after.steps)
            yield best
            became = moved[1]
            for lower in self._descend(best, fresh):
                best = lower
                yield best
            around = Surroundings.of(best.graph.outputs)
            settled = {became.get(node, node) for node in settled} - fresh
            later = {became.get(node, node) for node in todo}
            todo = [node for node in around.nodes if node in fresh or node in later or node not in settled]

    def _window(self, region: Region, whole: Candidate) -> State | None:
        """Algorithm 2 on one window: the cheapest first, and nothing that costs more than the best by a factor."""
        signature = self.likeness.signature(region)
        if signature in self._hopeless:
            return None
        cost = self._costs([region])[0]
        start = best = State(region.outputs, cost.latency)
        if not 0 < start.latency < math.inf:
            return None
        room = self.limits.constant_bytes - whole.cost.constant_bytes
        slack = 1 + 6 * (self.limits.alpha - 1)
        tick = itertools.count()
        seen: set[object] = set()
        queue: list[tuple[float, int, int, State, Move | None]] = [(start.latency, next(tick), 0, start, None)]
        budget = max(20, self.limits.window * 2)
        while queue and budget > 0 and not self._over():
            latency, _, since, state, move = heapq.heappop(queue)
            if latency > slack * best.latency:
                break
            made = state if move is None else self._next(state, move, region)
            if made is None or (key := self.likeness.key(made.outputs)) in seen:
                continue
            seen.add(key)
            budget, self.expanded = budget - 1, self.expanded + 1
            if _saves(best.latency - made.latency, whole.cost.latency):
                best, since = made, 0
                made = State(made.outputs, made.latency, made.growth, made.steps)
            if since > self.limits.depth:
                continue
            around = Surroundings.of(made.outputs, region.outside)
            for after in self._moves(around, made.fresh or None):
                if made.latency - after.gain <= slack * best.latency and made.growth + after.growth <= room:
                    spent = since + (not _saves(after.gain, whole.cost.latency))
                    heapq.heappush(queue, (made.latency - after.gain, next(tick), spent, made, after))
        if best is start:
            self._hopeless.add(signature)
            return None
        return best

    def _next(self, state: State, move: Move, region: Region) -> State | None:
        inside = set(walk(state.outputs, region.outside))
        moved = rebuilt(state.outputs, move.rewrite.changes, region.outside, self.arena, self._moved)
        if moved is None or moved[0] == state.outputs:
            return None
        new = [node for node in walk(move.rewrite.changes.values(), region.outside) if node not in inside]
        fresh = frozenset(moved[1].get(node, node) for node in (*state.fresh, *new))
        growth = state.growth + move.growth
        return State(moved[0], state.latency - move.gain, growth, (*state.steps, *move.steps), fresh)

    def _over(self) -> bool:
        return self.expanded >= self.limits.budget or time.monotonic() >= self.limits.deadline

    # --- moves

    def _moves(self, around: Surroundings, focus: Container[Node] | None) -> list[Move]:
        """All rewrites and what they save; with `focus` only those at or next to these nodes. Costed in one batch."""
        before: dict[frozenset[Node], Region] = {}
        found: list[tuple[Rewrite, frozenset[Node], Region]] = []
        for rewrite in self._rewrites(around, focus):
            if len(rewrite.changes) > 1 and around.circular(rewrite.changes):
                continue
            if self.index.reorders(rewrite.rule) and not _shares(rewrite, around):
                continue
            place = around.place(rewrite.nodes)
            region = before.get(place)
            if region is None:
                region = before[place] = around.region(place)
            moved = rebuilt(region.outputs, rewrite.changes, region.outside, self.arena, self._moved)
            if moved is not None and moved[0] != region.outputs:
                after = Region(tuple(walk(moved[0], region.outside)), moved[0], region.outside)
                found.append((rewrite, place, after))
        costs = self._costs([*before.values(), *(after for _, _, after in found)])
        old, new = dict(zip(before, costs)), costs[len(before) :]
        self.visited += len(found)
        return [
            Move(
                rewrite,
                was.latency,
                was.latency - cost.latency,
                cost.constant_bytes - was.constant_bytes,
                len(after.nodes) - len(before[place].nodes),
                place,
            )
            for (rewrite, place, after), cost in zip(found, new)
            if math.isfinite(cost.latency) and math.isfinite((was := old[place]).latency)
        ]

    def _costs(self, regions: list[Region]) -> list[Cost]:
        """What parts of graphs cost; of parts that look the same only one is looked at. Measured in one batch."""
        signatures = [self.likeness.signature(region) for region in regions]
        fresh = {sign: region for sign, region in zip(signatures, regions) if sign not in self._priced}
        covers = [self.costs.cover(region.outputs, region.outside) for region in fresh.values()]
        self._priced.update(zip(fresh, self.costs.of(covers)))
        return [self._priced[sign] for sign in signatures]

    def _rewrites(self, around: Surroundings, focus: Container[Node] | None) -> Iterator[Rewrite]:
        nodes: list[Node] | tuple[Node, ...] = around.nodes
        near: set[Node] | None = None
        if focus is not None:
            near = around.next_to(node for node in around.nodes if node in focus)
            roots = around.above(near, REACH)
            nodes = [node for node in around.nodes if node in roots]
        for rewrite in self._everywhere(nodes, around):
            if near is None or not near.isdisjoint(rewrite.nodes):
                yield rewrite

    def _everywhere(self, nodes: list[Node] | tuple[Node, ...], around: Surroundings) -> Iterator[Rewrite]:
        for node in nodes:
            if node not in self._single:  # what one node may become depends on what is below it only
                one = rewrites([node], {}, (), self.index, self.arena, outputs=1)
                self._single[node] = (*one, *chain_rewrites(node, self.index, self.arena))
            for rewrite in self._single[node]:
                if all(met.constant or met in around.everything for met in rewrite.nodes):
                    yield rewrite
        yield from rewrites(nodes, around.users, around.everything, self.index, self.arena, outputs=2)


def _shares(rewrite: Rewrite, around: Surroundings) -> bool:
    """Whether a nest in another order has a part that the graph computes already.

    Nothing else is gained by reordering: chains are matched in any order anyway.
    """
    todo = [new.node for new in rewrite.changes.values()]
    op = todo[0].op
    while todo:
        node = todo.pop()
        if node in around.everything and node not in rewrite.nodes:
            return True
        todo.extend(arg.node for arg in node.args if arg.node.op == op and not arg.node.constant)
    return False


def _saves(gain: float, whole: float) -> bool:
    """Whether a gain is more than rounding: latencies are sums of measured ones."""
    return gain > max(1e-3, 1e-7 * whole)
