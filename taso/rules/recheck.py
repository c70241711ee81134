"""Proving the rules of a file again: what `taso prove rules/` does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from taso.errors import SpecError
from taso.rules.rule import RuleEntry, rule_id
from taso.rules.text import format_expr
from taso.spec import syntax as s
from taso.spec.spec import Spec

if TYPE_CHECKING:
    from taso.prove.prover import Verdict


@dataclass(frozen=True)
class Recheck:
    """What came of one rule. `problem` says in words why it does not stand; it is "" for a rule that does."""

    rule: s.Rule
    path: str
    problem: str
    verdict: Verdict

    @property
    def ok(self) -> bool:
        """Whether the rule is the one that its id names, and is proved."""
        return not self.problem

    @property
    def place(self) -> str:
        """`file:line` of the rule, or the file alone where the line is not known."""
        return f"{self.path}:{self.rule.pos.line}" if self.rule.pos.line else self.path


def recheck(entry: RuleEntry, spec: Spec) -> Recheck:
    """Prove a rule again for all the ranks it claims, and check that its id fits its text.

    Raises SpecError, with the rule's place, for a rule that names what the specification does not have.
    """
    from taso.prove.prover import prove_rule

    rule, path = entry.rule, str(entry.path)
    try:
        verdict = prove_rule(rule, spec)
    except SpecError as error:
        raise SpecError(
            error.problem,
            path=path,
            line=error.line,
            column=error.column,
            source=entry.path.read_text(encoding="utf-8"),
            hint=error.hint,
        ) from error
    return Recheck(rule, path, _problem(rule, verdict), verdict)


def _problem(rule: s.Rule, verdict: Verdict) -> str:
    """Why a rule with this verdict does not stand; "" if it does."""
    if verdict.status == "refuted":
        return f"is false: {verdict.counterexample or verdict.reason}"
    if verdict.status != "proved":
        return f"is not proved: {verdict.reason or 'the prover gave up'}"
    if verdict.conditions:
        needed = ", ".join(format_expr(condition) for condition in verdict.conditions)
        return f"holds only where {needed}, which it does not say"
    missing = _unproved_ranks(rule, verdict)
    if missing:
        return f"claims to hold for ranks that are not proved: {missing}"
    expected = rule_id(rule)
    return (
        ""
        if rule.name == expected
        else f"has an id that does not fit its text (that would be {expected}): it was changed"
    )


def _unproved_ranks(rule: s.Rule, verdict: Verdict) -> str:
    """The rank choices that the rule claims and the verdict does not cover, as text; "" if there are none."""
    if rule.ranks is None:
        return ""
    if verdict.ranks is None:
        return ", ".join(map(str, rule.ranks.choices))
    order = [verdict.ranks.names.index(name) if name in verdict.ranks.names else None for name in rule.ranks.names]
    proved = {tuple(None if k is None else choice[k] for k in order) for choice in verdict.ranks.choices}
    return ", ".join(str(choice) for choice in rule.ranks.choices if choice not in proved)
