"""How the report of an optimization looks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.text import Text

from taso.report import units
from taso.report.grid import Cell, grid
from taso.report.rules import rule_summary
from taso.result import AppliedRule, Latency, Report
from taso.spec.parse import parse_rule

MOST_RULES = 12  # shown; the rest with -v


def report_lines(report: Report, name: str, *, width: int = 80, verbose: bool = False) -> Iterator[Text]:
    """The report in blocks: the model, what changed, the rules, the check, remarks.

    Args:
        name: what to call the model.
        width: columns that rules and notes are wrapped to.
        verbose: show all rules, whole.
    """
    yield _model(report, name)
    if report.improved:
        yield _changes(report)
        yield from _rules(report.rules, width, verbose)
        yield _check(report)
    else:
        yield _no_improvement(report, width)
    yield _effort(report)
    for note in report.notes:
        yield Text(textwrap.fill(f"note: {note}", width, initial_indent="  ", subsequent_indent="    "), style="yellow")


def _model(report: Report, name: str) -> Text:
    line = Text(name, style="bold")
    facts = f"{units.counted(report.nodes_before, 'node')} · opset {report.opset} · {units.size(report.size_before)}"
    line.append(f"  {facts} · {report.understood:.0%} of run time understood", style="default")
    threads = units.counted(report.threads, "thread")
    device = "not attached" if report.device == report.target else report.device
    return line.append(f"\n{report.target}: {device}, {report.runtime}, {threads}", style="dim")


def _changes(report: Report) -> Text:
    rows: list[tuple[Cell, ...]] = [("nodes", f"{report.nodes_before:,}", f"{report.nodes_after:,}", "")]
    before, after = report.operators_before, report.operators_after
    changed = [name for name in {**before, **after} if before.get(name, 0) != after.get(name, 0)]
    for name in sorted(changed, key=lambda name: (-before.get(name, 0), -after.get(name, 0), name)):
        rows.append((name, f"{before.get(name, 0):,}", f"{after.get(name, 0):,}", ""))
    rows.append(("size", units.size(report.size_before), units.size(report.size_after), ""))
    speedup = Text(units.times(report.speedup), style="bold green")
    if report.latency_before is None or report.latency_after is None:
        times = (report.estimated_before_us, report.estimated_after_us)
        rows.append(("latency, estimated", *(units.latency(one) for one in times), speedup))
    else:
        rows.append(("latency", _latency(report.latency_before), _latency(report.latency_after), speedup))
    table = Text("\n").append_text(grid(rows, align="lrrl", header=("", "before", "after", "")))
    if report.latency_before is not None:
        bounds = f"95 %: {units.times(report.speedup_low)} to {units.times(report.speedup_high)}"
        noise = f"noise {units.times(report.null_speedup)}"
        table.append(f"\n  {report.latency_before.runs} interleaved runs each; {bounds}; {noise}", style="dim")
    return table


def _latency(one: Latency) -> str:
    return units.latency(1000 * one.median_ms, 1000 * one.spread_ms)


def _rules(rules: list[AppliedRule], width: int, verbose: bool) -> Iterator[Text]:
    if not rules:
        return
    shown = rules if verbose else rules[:MOST_RULES]
    rows = [(one.name, f"{one.times:,}", units.latency(one.gain_us), one.proof or "by definition") for one in shown]
    heading, *lines = grid(rows, align="lrrl", header=("rule", "times", "gain (est.)", "proved")).split("\n")
    yield Text("\n").append_text(heading)
    for one, line in zip(shown, lines):
        yield line
        text = one.text if verbose else rule_summary(parse_rule(one.text))
        yield Text(textwrap.indent(text, "      ") if verbose else _wrapped(text, width), style="dim")
    rest = rules[len(shown) :]
    if rest:
        gain = units.latency(sum(one.gain_us for one in rest))
        yield Text(f"  and {units.counted(len(rest), 'rule')} more ({gain}); -v shows all", style="dim")


def _wrapped(text: str, width: int) -> str:
    """A rule in lines that fit, broken at its arrow if it is too long for one."""
    if len(text) + 6 <= width:
        return " " * 6 + text
    left, right = text.split(" ==> ")
    parts = (f"{left}", f"==> {right}")
    return "\n".join(textwrap.fill(part, width, initial_indent=" " * 6, subsequent_indent=" " * 10) for part in parts)


def _check(report: Report) -> Text:
    from taso.onnxio.verify import TOLERANCES

    tolerance = TOLERANCES["float32"][0] if report.rtol is None else report.rtol
    largest = (
        f"largest difference {report.largest_difference:.1e} of scale" if report.largest_difference else "no difference"
    )
    inputs = units.counted(report.checked, "random input")
    return Text(f"\n  {largest}, over {inputs} (tolerance {tolerance:.0e})")


def _no_improvement(report: Report, width: int) -> Text:
    reason = textwrap.fill(report.reason, width, initial_indent="  ", subsequent_indent="  ")
    line = Text("\n").append("no improvement", style="bold").append(f"\n{reason}", style="default")
    if report.latency_before is not None:
        line.append(f"\n  latency {_latency(report.latency_before)} ({report.latency_before.runs} runs)")
    return line


def _effort(report: Report) -> Text:
    found = f"{units.counted(report.graphs, 'graph')} with {units.counted(report.rules_available, 'rule')}"
    kernels = f"{units.counted(report.kernels, 'kernel')} {report.source} ({report.kernels_known:,} known before)"
    spent = f"{units.duration(report.search_seconds)} searching, {units.duration(report.total_seconds)} in all"
    return Text(f"  {found}; {kernels}\n  {spent}", style="dim")
