"""The results as a table and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.original.verdicts import KINDS, Outcome, contradicts, median

_VARIANT = "_ungrouped"


def as_json(outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, Any]:
    """Everything, rule by rule; times in seconds of processor time, rounded."""
    return {
        name: [
            {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(outcome).items()}
            for outcome in found
        ]
        for name, found in outcomes.items()
    }


def table(outcomes: Mapping[str, Sequence[Outcome]], rules: int, equalities: int) -> str:
    """Counts of verdicts for each file, times, and whatever is not as it should be."""
    groups: dict[str, list[Outcome]] = {}
    for name, found in outcomes.items():
        groups[name] = [outcome for outcome in found if not outcome.name.endswith(_VARIANT)]
        groups[f"{name}, of the refuted without groups"] = [o for o in found if o.name.endswith(_VARIANT)]
    groups = {name: found for name, found in groups.items() if found}
    lines = [
        "# The rules of the original TASO under our prover and our rules",
        "",
        f"{rules} rules, and {equalities} equalities that are proved and not shipped. From `bench.original check`.",
        "",
        "| verdict | " + " | ".join(groups) + " |",
        "|---|" + "--:|" * len(groups),
    ]
    counts = {name: Counter(outcome.verdict for outcome in found) for name, found in groups.items()}
    lines += [f"| {kind} | " + " | ".join(str(counts[name][kind]) for name in groups) + " |" for kind in KINDS]
    lines.append("| all | " + " | ".join(str(len(found)) for found in groups.values()) + " |")
    every = [outcome for found in groups.values() for outcome in found]
    proving = [outcome.prove_seconds for outcome in every]
    deriving = [outcome.derive_seconds for outcome in every]
    steps = Counter(outcome.steps for outcome in every if outcome.verdict.startswith("derived"))
    lines += [
        "",
        (
            f"Proving and refuting: {sum(proving):.1f} s of one core in all, median {1000 * median(proving):.0f} ms,"
            f" longest {1000 * max(proving, default=0.0):.0f} ms. Deriving: {sum(deriving):.1f} s."
        ),
        "Steps of the derived ones: " + (", ".join(f"{n} of {k}" for k, n in sorted(steps.items())) or "none") + ".",
        f"Verdicts that differ from what the original's data claims: {sum(map(contradicts, every))}.",
    ]
    lines += _listed("Not derived", [o for o in every if o.verdict == "proved, not derived"])
    lines += _listed("Unknown", [o for o in every if o.verdict == "unknown"])
    lines += _listed("Other than claimed", list(filter(contradicts, every)))
    return "\n".join(lines) + "\n"


def _listed(title: str, outcomes: Sequence[Outcome]) -> list[str]:
    if not outcomes:
        return []
    return ["", f"## {title}", "", ", ".join(f"{o.name}{f' ({o.reason})' if o.reason else ''}" for o in outcomes)]
