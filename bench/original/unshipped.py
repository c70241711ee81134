"""Equalities that `taso gen-rules` finds and does not ship, because no search could use them either way round.

A model holds numbers, not `identity_kernel`, so nothing is gained by knowing what a convolution with one does; in a
chain of equalities it is needed. They are generalised and proved like every rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from taso.generate.candidates import find_candidates
from taso.generate.directions import directions
from taso.generate.enumerate import enumerate_universe
from taso.generate.generalise import Failure, generalise
from taso.generate.generate import SEED
from taso.prove.bind import tensors_of
from taso.rules.rule import rule_id
from taso.spec import syntax as s
from taso.spec.spec import Spec

OPS = 2


def unshipped(universe: str, spec: Spec, ops: int = OPS) -> Iterator[s.Rule]:
    """The proved schemas of the candidates of which no direction is of use to a search, in the order they are found."""
    found, _ = find_candidates(enumerate_universe(spec.universes[universe], spec, ops, seed=SEED))
    seen: set[s.Rule] = set()
    for candidate in found:
        if next(directions(candidate, ops, spec), None) is not None:
            continue
        if not set(tensors_of(candidate.target)) <= set(tensors_of(candidate.source)):
            continue
        outcome = generalise(candidate.source, candidate.target, candidate.shapes, spec)
        if isinstance(outcome, Failure):
            continue
        plain = replace(outcome.rule, name="r", records=())
        if plain not in seen:
            seen.add(plain)
            kind = "exact" if outcome.verdict.exact else "real"
            records = f"proved index-terms, all sizes; {kind}", f"found  {universe} @ {candidate.level} ops"
            yield replace(plain, name=rule_id(plain), records=records)
