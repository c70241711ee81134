"""What becomes of one rule: proved or refuted, and if it is true, how it follows from our rules."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import numpy as np

from bench.original.derive import BACK, Chains, Limits
from bench.original.examples import Example, examples
from taso.prove.prover import prove_rule
from taso.prove.refute import compare_sides
from taso.spec import syntax as s
from taso.spec.spec import Spec

Kind = Literal[
    "the same graph", "in our set", "derived", "derived with equalities", "refuted", "proved, not derived", "unknown"
]
KINDS: tuple[Kind, ...] = (
    "the same graph",
    "in our set",
    "derived",
    "derived with equalities",
    "refuted",
    "proved, not derived",
    "unknown",
)
TIERS = (Limits(2, 200, 2), Limits(3, 800, 2), Limits(3, 4000, 4))
_SEEDS = (20191027, 7)  # each rule is derived at the sizes that both give


@dataclass
class Outcome:
    """One rule's verdict.

    chain: the rules that lead from the left side to the right one, in order; `~` after a name: from right to left.
    counterexample: in words, replayed. reason: why nothing was found out.
    prove_seconds, derive_seconds: of processor time.
    claim: what the original's data says about the rule; empty if it says that it is true.
    """

    name: str
    verdict: Kind
    chain: list[str] = field(default_factory=list)
    counterexample: str = ""
    reason: str = ""
    prove_seconds: float = 0.0
    derive_seconds: float = 0.0
    claim: str = ""

    @property
    def steps(self) -> int:
        return len(self.chain)


class Judge:
    """Gives verdicts, with the shipped rules and with equalities besides that are proved but not shipped."""

    def __init__(self, spec: Spec, rules: Iterable[s.Rule], equalities: Iterable[s.Rule] = ()) -> None:
        self.spec = spec
        shipped, more = list(rules), list(equalities)
        self.levels = [("derived", Chains(spec, shipped))]
        if more:
            self.levels.append(("derived with equalities", Chains(spec, [*shipped, *more])))

    def judge(self, rule: s.Rule, tiers: Sequence[Limits] = TIERS) -> Outcome:
        """Prove or refute a rule, replay its counterexample, or derive it.

        Raises:
            AssertionError: a counterexample does not hold when it is replayed.
        """
        start = time.process_time()
        verdict = prove_rule(rule, self.spec)
        outcome = Outcome(rule.name, "unknown", claim=claim(rule), prove_seconds=time.process_time() - start)
        if verdict.status == "refuted":
            found = verdict.counterexample
            assert found is not None
            tensors = {name: np.array(tensor) for name, tensor in found.tensors.items()}
            assert compare_sides(rule, self.spec, tensors, found.attrs) is not None, rule.name
            outcome.verdict, outcome.counterexample = "refuted", str(found)
        elif verdict.status == "proved" and not verdict.conditions:
            start = time.process_time()
            self._derive(rule, outcome, tiers)
            outcome.derive_seconds = time.process_time() - start
        else:
            outcome.reason = verdict.reason or f"it needs {len(verdict.conditions)} more conditions"
        return outcome

    def _derive(self, rule: s.Rule, outcome: Outcome, tiers: Sequence[Limits]) -> None:
        outcome.verdict = "proved, not derived"
        cases = [example for seed in _SEEDS for example in examples(rule, self.spec, seed)]
        if not cases:
            outcome.reason = "no sizes were found for which both sides are defined"
            return
        for limits in tiers:
            for kind, chains in self.levels:
                chain = _everywhere(chains, rule, cases, limits)
                if chain is None:
                    continue
                outcome.chain = chain
                short: dict[int, Kind] = {0: "the same graph", 1: "in our set"}
                outcome.verdict = "derived" if kind == "derived" else "derived with equalities"
                if kind == "derived":
                    outcome.verdict = short.get(len(chain), "derived")
                return


def _everywhere(chains: Chains, rule: s.Rule, cases: Sequence[Example], limits: Limits) -> list[str] | None:
    """A chain for the first case whose rules lead from side to side in all others too."""
    chain: list[str] | None = None
    for case in cases:
        only = None if chain is None else frozenset(name.removesuffix(BACK) for name in chain)
        found = chains.find(rule.source, rule.target, case.shapes, case.attrs, limits, only)
        if found is None:
            return None
        chain = found if chain is None else chain
    return chain


def claim(rule: s.Rule) -> str:
    """What the original's data says about a rule, from its record."""
    for record in rule.records:
        _, found, said = record.partition("; claimed: ")
        if found:
            return said
    return ""


def contradicts(outcome: Outcome) -> bool:
    """Whether a verdict is another one than the claim; a variant without groups is claimed to be true."""
    return (outcome.verdict == "refuted") is not outcome.claim.startswith("false") or outcome.verdict == "unknown"


def median(values: Iterable[float]) -> float:
    """The middle one of some numbers, 0 of none."""
    ordered = sorted(values)
    return next(islice(ordered, len(ordered) // 2, None), 0.0)
