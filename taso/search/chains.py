"""Sums (products, maxima, ...) of several tensors: rules that meet any of their terms, in whatever order they stand.

Where a rule set proves an operator associative and its meaning is symmetric, a nest of it is a list of terms. A rule
for two terms then applies to any two of them. Without this the search would have to reorder the nest step by step, and
each order would be a graph of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from taso.errors import ShapeError, SpecError
from taso.graph.graph import Arena, Node, Value
from taso.search.match import NOTHING, Bindings, match
from taso.search.rewrite import Pattern, Rewrite, RuleIndex, allowed
from taso.spec import syntax as s

LONGEST = 12  # terms of one chain; further ones are left nested


def chain(node: Node) -> tuple[list[Value], list[Node]]:
    """The terms of a nest of one operator in order, and the nodes of the nest."""
    terms: list[Value] = []
    nest: list[Node] = []
    todo = [Value(node)]
    while todo:
        value = todo.pop()
        same = value.node.op == node.op and value.node.attrs == node.attrs
        if same and (value.node is node or not value.node.constant) and len(terms) + len(todo) + 2 <= LONGEST:
            nest.append(value.node)
            todo.extend(reversed(value.node.args))
        else:
            terms.append(value)
    return terms, nest


def chain_rewrites(node: Node, index: RuleIndex, arena: Arena) -> Iterator[Rewrite]:
    """What the rules make of some terms of a chain, with the other terms around it."""
    regroup = index.regroups.get(node.op)
    if regroup is None or node.constant:
        return
    terms, nest = chain(node)
    if len(terms) < 3:
        return
    seen: set[Value] = {Value(node)}
    looks = [index.sketches.fitting(f"part {node.op}", index.part_looks.get(node.op, ()), term) for term in terms]
    for pattern in index.by_root.get(node.op, ()):
        if not 2 <= len(pattern.parts) <= len(terms):
            continue
        places = [[k for k, found in enumerate(looks) if sketch in found] for sketch in pattern.part_sketches]
        if not all(places):
            continue
        for used, bindings in _assigned(pattern.parts, places, terms, index, NOTHING):
            settled = bindings.settled()
            if settled is None or not allowed(pattern.rule, settled):
                continue
            for value in _around(pattern, settled, node, [t for k, t in enumerate(terms) if k not in used], arena):
                if value not in seen:
                    seen.add(value)
                    met = replace(settled, nodes=(*settled.nodes, *nest))
                    yield Rewrite(pattern.rule, {Value(node): value}, met, (regroup.name,))


def _assigned(
    parts: Sequence[s.Term],
    places: Sequence[Sequence[int]],
    terms: Sequence[Value],
    index: RuleIndex,
    b: Bindings,
    used: tuple[int, ...] = (),
) -> Iterator[tuple[tuple[int, ...], Bindings]]:
    """Every way to match the parts with different terms: the places of the terms, and the bindings.

    places: for each part the terms that may be it.
    """
    if len(used) == len(parts):
        yield used, b
        return
    part = parts[len(used)]
    for place in places[len(used)]:
        if place not in used:
            for found in match(part, terms[place], index.spec, b):
                yield from _assigned(parts, places, terms, index, found, (*used, place))


def _around(pattern: Pattern, b: Bindings, node: Node, rest: Sequence[Value], arena: Arena) -> Iterator[Value]:
    """The target with the other terms around it; constants go to each of the others in turn, where they may fuse."""
    type_ = node.types[0]
    try:
        target = arena.build(pattern.rule.target[0], b.tensors, b.attrs, type_.dtype, result=type_.shape)
    except (ShapeError, SpecError):
        return
    if target.type != type_:
        return
    constants = [term for term in (target, *rest) if term.node.constant]
    others = [term for term in (target, *rest) if not term.node.constant]
    for first in islice(others, len(others) if constants else 1):
        total = first
        for term in (*constants, *(other for other in others if other is not first)):
            total = arena.apply(node.op, (total, term), dict(node.attrs))
        yield total
