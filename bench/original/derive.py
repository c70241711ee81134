"""Chains of rules from one side of a rule to the other, on concrete graphs.

Rules are used as equalities, both ways: a rule says that its sides are equal where the left one is defined, so the
right one may be replaced by the left where that builds, its conditions hold and all its tensors are known. The search
goes from both sides at once; graphs are hash-consed, so meeting is identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from taso.graph.graph import Arena, Graph, TensorType, Value
from taso.search.rewrite import RuleIndex, rewrites
from taso.spec import syntax as s
from taso.spec.spec import Spec
from taso.spec.value import Shape

BACK = "~"  # after a rule's name: used from right to left


@dataclass(frozen=True)
class Limits:
    """steps: how far each side goes; graphs: how many each side may see; growth: operators beyond the larger side."""

    steps: int = 3
    graphs: int = 300
    growth: int = 2


class Chains:
    """Looks for chains of some rules."""

    def __init__(self, spec: Spec, rules: Iterable[s.Rule]) -> None:
        self.spec = spec
        self.rules = [both for rule in rules for both in (rule, _turned(rule)) if both is not None]
        self.index = RuleIndex(self.rules, spec)

    def find(
        self,
        source: Sequence[s.Term],
        target: Sequence[s.Term],
        shapes: Mapping[str, Shape],
        attrs: Mapping[str, object],
        limits: Limits,
        only: frozenset[str] | None = None,
    ) -> list[str] | None:
        """The names of the rules that lead from `source` to `target`, in order; None if no chain was found.

        Outputs that can be derived one by one are. `only` restricts the rules to those of some names,
        either way round.

        Raises:
            ShapeError: a side does not fit these shapes.
        """
        arena = Arena(self.spec)
        self.index.forget()
        tensors = {name: arena.input(name, TensorType("float", tuple(shape))) for name, shape in shapes.items()}
        before = tuple(arena.build(term, tensors, attrs, "float") for term in source)
        after = tuple(
            arena.build(term, tensors, attrs, "float", result=v.shape) for term, v in zip(target, before, strict=True)
        )
        inputs = tuple(tensors.values())
        index = self.index
        if only is not None:
            index = RuleIndex([rule for rule in self.rules if rule.name.removesuffix(BACK) in only], self.spec)
        if len(before) > 1:
            parts = [
                self._meet(Graph((a,), inputs), Graph((b,), inputs), arena, index, limits)
                for a, b in zip(before, after)
            ]
            if all(part is not None for part in parts):
                return [name for part in parts for name in part or ()]
        return self._meet(Graph(before, inputs), Graph(after, inputs), arena, index, limits)

    def _meet(self, source: Graph, target: Graph, arena: Arena, index: RuleIndex, limits: Limits) -> list[str] | None:
        if source.outputs == target.outputs:
            return []
        largest = max(len(source.nodes()), len(target.nodes())) + limits.growth
        sides = [_Side(source), _Side(target)]
        for _ in range(2 * limits.steps):
            side, other = sorted(sides, key=lambda each: (each.steps >= limits.steps, len(each.frontier)))
            if side.steps >= limits.steps or not (side.frontier or other.frontier):
                return None
            if not side.frontier:
                side, other = other, side
            met = side.grow(arena, index, limits, largest, other)
            if met is not None:
                return [*sides[0].chain(met), *(_other_way(name) for name in reversed(sides[1].chain(met)))]
        return None


class _Side:
    """The graphs that were reached from one side, and from where."""

    def __init__(self, start: Graph) -> None:
        self.frontier = [start]
        self.steps = 0
        self.origin: dict[tuple[Value, ...], tuple[tuple[Value, ...], str] | None] = {start.outputs: None}

    def grow(
        self, arena: Arena, index: RuleIndex, limits: Limits, largest: int, other: _Side
    ) -> tuple[Value, ...] | None:
        """One step further; the outputs of a graph that the other side has too."""
        reached: list[Graph] = []
        self.steps += 1
        for graph in self.frontier:
            nodes = graph.nodes()
            for rewrite in rewrites(nodes, graph.users(), set(nodes), index, arena):
                result = graph.replace(rewrite.changes, arena)
                if result is None or result.outputs in self.origin:
                    continue
                self.origin[result.outputs] = (graph.outputs, rewrite.rule.name)
                if result.outputs in other.origin:
                    return result.outputs
                if len(result.nodes()) <= largest:
                    reached.append(result)
                if len(self.origin) > limits.graphs:
                    self.frontier = []
                    return None
        self.frontier = sorted(reached, key=lambda graph: len(graph.nodes()))
        return None

    def chain(self, outputs: tuple[Value, ...]) -> list[str]:
        """The rules that led from the start to some outputs."""
        names: list[str] = []
        at = self.origin[outputs]
        while at is not None:
            outputs, name = at
            names.append(name)
            at = self.origin[outputs]
        return names[::-1]


def _turned(rule: s.Rule) -> s.Rule | None:
    """The rule from right to left, if that can be matched at all."""
    if not all(isinstance(term, s.Apply) for term in rule.target):
        return None
    return replace(rule, name=rule.name + BACK, source=rule.target, target=rule.source)


def _other_way(name: str) -> str:
    return name.removesuffix(BACK) if name.endswith(BACK) else name + BACK
