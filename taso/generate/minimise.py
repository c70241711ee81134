"""Which equalities follow from rules that are already there: bounded rewriting of the concrete graphs.

A rule is worth keeping if no short chain of the kept rules takes its left side to its right side. Graphs are
hash-consed and commutative operators have one order of arguments, so "the same graph" is identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from taso.errors import ShapeError, SpecError
from taso.graph.graph import Arena, Graph, TensorType, Value
from taso.search.rewrite import RuleIndex, rewrites
from taso.spec import syntax as s
from taso.spec.spec import Spec
from taso.spec.value import Shape


class Derivation:
    """Rewrites concrete instances with the rules kept so far."""

    def __init__(self, spec: Spec, rules: Iterable[s.Rule] = (), *, steps: int = 3, graphs: int = 120) -> None:
        """`steps` is the length of a chain, `graphs` how many graphs are looked at before giving up."""
        self.spec, self.steps, self.graphs = spec, steps, graphs
        self.rules: list[s.Rule] = list(rules)
        self.index = RuleIndex(self.rules, spec)

    def add(self, rule: s.Rule) -> None:
        """Keep a rule from now on."""
        self.rules.append(rule)
        self.index = RuleIndex(self.rules, self.spec)

    def derives(self, source: Sequence[s.Term], target: Sequence[s.Term], shapes: Mapping[str, Shape]) -> bool:
        """Whether the kept rules take `source` to `target` within the limits (also if both are the same graph)."""
        self.index.forget()
        arena = Arena(self.spec)
        tensors = {name: arena.input(name, TensorType("float", tuple(shape))) for name, shape in shapes.items()}
        try:
            before = _graph(arena, source, tensors)
            after = _graph(arena, target, tensors, tuple(v.shape for v in before.outputs))
        except (ShapeError, SpecError):
            return False
        goal, seen, frontier = after.outputs, {before.outputs}, [before]
        if before.outputs == goal:
            return True
        for _ in range(self.steps):
            reached: list[Graph] = []
            for graph in frontier:
                nodes = graph.nodes()
                for rewrite in rewrites(nodes, graph.users(), set(nodes), self.index, arena):
                    result = graph.replace(rewrite.changes, arena)
                    if result is None:
                        continue
                    outputs = result.outputs
                    if outputs == goal:
                        return True
                    if outputs not in seen:
                        seen.add(outputs)
                        reached.append(result)
                    if len(seen) > self.graphs:
                        return False
            frontier = reached
        return False


def _graph(
    arena: Arena, terms: Sequence[s.Term], tensors: Mapping[str, Value], shapes: Sequence[Shape | None] | None = None
) -> Graph:
    wanted = shapes or [None] * len(terms)
    outputs = tuple(arena.build(term, tensors, {}, "float", result=shape) for term, shape in zip(terms, wanted))
    return Graph(outputs, tuple(tensors.values()))
