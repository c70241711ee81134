"""Are the axioms true? Each is proved for all sizes, or refuted with a counterexample."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from taso.errors import TasoError
from taso.prove.prover import prove_rule
from taso.rules.text import format_expr, format_term
from taso.spec import syntax as s
from taso.spec.spec import Spec


@dataclass(frozen=True)
class AxiomResult:
    """What became of an axiom.

    Attributes:
        text: the axiom in one line; `place` is its file and line.
        status: proved, refuted or unknown.
        detail: the counterexample, the conditions under which it was proved, or why it is not decided.
    """

    text: str
    place: str
    status: str
    detail: str
    milliseconds: float


def check_axioms(spec: Spec, *, progress: Callable[[str], None] | None = None) -> list[AxiomResult]:
    """Prove or refute every axiom of a specification, from left to right: wherever both sides are defined."""
    results: list[AxiomResult] = []
    for axiom in spec.axioms:
        text = axiom_text(axiom)
        if progress is not None:
            progress(text)
        results.append(_decide(axiom, text, spec))
    return results


def axiom_text(axiom: s.Axiom) -> str:
    """An axiom as it is written, in one line."""
    where = f" where {', '.join(map(format_expr, axiom.where))}" if axiom.where else ""
    return f"{format_term(axiom.left)} == {format_term(axiom.right)}{where}"


def _decide(axiom: s.Axiom, text: str, spec: Spec) -> AxiomResult:
    place = f"{spec.homes.get(id(axiom), '<text>')}:{axiom.pos.line}"
    rule = s.Rule("axiom", (axiom.left,), (axiom.right,), axiom.where, axiom.ranks)
    start = time.perf_counter()
    try:
        verdict = prove_rule(rule, spec)
    except TasoError as error:
        return AxiomResult(text, place, "unknown", str(error), 1e3 * (time.perf_counter() - start))
    detail = verdict.reason
    if verdict.status == "refuted":
        detail = str(verdict.counterexample)
    elif verdict.status == "proved":
        detail = ", ".join(map(format_expr, verdict.conditions))
        detail = f"where {detail}" if detail else ""
    return AxiomResult(text, place, verdict.status, detail, 1e3 * verdict.seconds)
