"""How rules and verdicts look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from taso.report import units
from taso.report.grid import grid
from taso.rules.text import format_expr, format_term
from taso.spec import syntax as s

if TYPE_CHECKING:
    from taso.generate.generate import Funnel
    from taso.prove.prover import Verdict
    from taso.rules.recheck import Recheck


def verdict_line(verdict: Verdict) -> Text:
    """A verdict in a sentence: `proved ...`, `false: at a = ...` or `unknown: ...`."""
    if verdict.status == "refuted":
        return Text("false", style="red").append(f": {verdict.counterexample or verdict.reason}", style="default")
    if verdict.status != "proved":
        return Text("unknown", style="yellow").append(f": {verdict.reason or 'the prover gave up'}", style="default")
    line = Text("proved", style="green").append(f"{ranks_phrase(verdict.ranks)}", style="default")
    if verdict.conditions:
        line.append(" where " + ", ".join(format_expr(one) for one in verdict.conditions))
    return line.append(f"; {'exact' if verdict.exact else 'real'}; {units.duration(verdict.seconds)}")


def ranks_phrase(ranks: s.Ranks | None) -> str:
    """`, all sizes, for ranks (x, f) = (3, 3), (4, 4)`; empty where it is not known."""
    if ranks is None:
        return ""
    names = ", ".join(ranks.names)
    choices = ", ".join("(" + ", ".join(map(str, choice)) + ")" for choice in ranks.choices)
    return f", all sizes, for ranks ({names}) in {choices}"


def recheck_line(one: Recheck) -> Text:
    """What came of checking a rule of a file again."""
    line = Text(f"{one.place}: rule {one.rule.name} ")
    if one.ok:
        return line.append_text(verdict_line(one.verdict))
    return line.append(one.problem, style="red")


def rule_text(rule: s.Rule) -> str:
    """`left ==> right`, whole, on one line."""
    return f"{_side(rule.source, format_term)} ==> {_side(rule.target, format_term)}"


def rule_summary(rule: s.Rule) -> str:
    """`left ==> right` without the attributes: short enough to be read at a glance."""
    return f"{_side(rule.source, _short)} ==> {_side(rule.target, _short)}"


def _side(terms: tuple[s.Term, ...], write: Callable[[s.Term], str]) -> str:
    shown = ", ".join(map(write, terms))
    return shown if len(terms) == 1 else "{" + shown + "}"


def _short(term: s.Term) -> str:
    if isinstance(term, s.Apply):
        return f"{term.op}({', '.join(map(_short, term.args))})"
    return format_term(term)


def funnel_table(funnels: Sequence[Funnel]) -> Text:
    """What became of the graphs of each universe, station by station."""
    counts = ("terms", "values", "patterns", "candidates", "derived", "refuted", "unknown", "duplicates", "kept")
    rows = [(one.universe, *(f"{getattr(one, count):,}" for count in counts)) for one in funnels]
    if len(funnels) > 1:
        totals = (f"{sum(getattr(one, count) for one in funnels):,}" for count in counts)
        rows.append(("all", *totals))
    header = ("universe", "terms", "values", "patterns", "candid.", "derived", "refuted", "unknown", "same", "rules")
    table = grid(rows, align="l" + "r" * len(counts), header=header, indent=0, gap=1)
    covered = [one.graphs for one in funnels if one.graphs is not None]
    if covered:
        table.append(
            f"\nTerms are graphs with one output; with any number of outputs they cover {sum(covered):,} graphs."
        )
    return table
