"""The ways round in which a candidate can be of use as a rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from taso.generate.candidates import Candidate
from taso.prove.bind import tensors_of
from taso.spec import syntax as s
from taso.spec.spec import Spec
from taso.spec.traits import elementwise

GROWTH = 2  # operators that the right side of a rule may have more than the left


def directions(candidate: Candidate, ops: int, spec: Spec) -> Iterator[Candidate]:
    """The candidate as it is, then the other way round; only those that can be of use in a search.

    The right side uses tensors of the left side only, and the left is no bare tensor. A constant on the left would
    have to be recognised in a model, which holds numbers and no operators. A tensor with itself is rare there; on the
    right it is good for a square, say, where that is not more work. Writing one operator as several, or many more than
    there were, helps nothing that a rule of its own does not find.

    Args:
        ops: the largest number of operators in a graph that was enumerated.
    """
    for source, target in ((candidate.source, candidate.target), (candidate.target, candidate.source)):
        if not all(isinstance(term, s.Apply) for term in source):
            continue
        if not set(tensors_of(target)) <= set(tensors_of(source)):
            continue
        if any(_has_constant(term) or _doubled(term) for term in source):
            continue
        if any(map(_doubled, target)) and _operators(target, spec) > _operators(source, spec):
            continue
        if _small(source, target, ops, spec):
            yield replace(candidate, source=source, target=target)


def _small(source: tuple[s.Term, ...], target: tuple[s.Term, ...], ops: int, spec: Spec) -> bool:
    """Whether both sides have few enough operators.

    Telling tensors apart can make a candidate larger than what was enumerated; one operator more is let pass. A right
    side that computes with more operators than the left makes nothing faster if one of them is on a constant that it
    brings along, or if all work element by element.
    """
    before, after = (_operators(side, spec) for side in (source, target))
    more = len(source) - 1  # outputs that a split adds
    if max(before, after) > ops + 1 + 2 * more:
        return False
    if after <= before:
        return True
    if before == 1 or after > before + GROWTH or any(_has_constant(term) for term in target):
        return False
    return not all(_elementwise(term, spec) for term in (*source, *target))


def _has_constant(term: s.Term) -> bool:
    return isinstance(term, s.Apply) and (not term.args or any(_has_constant(arg) for arg in term.args))


def _elementwise(term: s.Term, spec: Spec) -> bool:
    if not isinstance(term, s.Apply):
        return True
    return elementwise(spec.operators[term.op]) and all(_elementwise(arg, spec) for arg in term.args)


def _doubled(term: s.Term) -> bool:
    """Whether some operator is applied to a tensor and itself: `add(x, x)` is better said as a scale."""
    if not isinstance(term, s.Apply):
        return False
    return (len(term.args) > 1 and len(set(term.args)) == 1) or any(_doubled(arg) for arg in term.args)


def _operators(side: Sequence[s.Term], spec: Spec) -> int:
    """How many operators a side computes with: shared ones once, constants and implicit ones (broadcast) not at all."""
    found: set[s.Term] = set()

    def walk(term: s.Term) -> None:
        if isinstance(term, s.Apply) and term not in found:
            if term.args and spec.operators[term.op].implicit is None:
                found.add(term)
            for arg in term.args:
                walk(arg)

    for term in side:
        walk(term)
    return len(found)
