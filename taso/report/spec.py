"""How the check of a specification looks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from taso.report import units
from taso.report.grid import Cell, grid

if TYPE_CHECKING:
    from taso.spec.axioms import AxiomResult
    from taso.spec.conform import Conformance, SpecReport

STYLES = {"same": "green", "proved": "green", "differs": "red", "refuted": "red", "unknown": "yellow"}


def spec_lines(report: SpecReport, *, verbose: bool = False) -> Iterator[Text]:
    """A line an operator, macro and import line, what differs, the axioms, and a summary.

    With `verbose` also the remarks, such as which nodes only onnxruntime could decide.
    """
    cells: list[tuple[Cell, ...]] = [
        (_status(row.status), f"{row.cases:,}", f"{row.max_error:.0e}" if row.max_error else "0", row.op)
        for row in report.rows
    ]
    heading, *lines = grid(cells, align="lrrl", header=("", "cases", "error", "operator or import")).split("\n")
    yield heading
    for row, line in zip(report.rows, lines):
        yield line
        yield from (Text(f"      {failure}", style="red") for failure in row.failures)
        if verbose:
            yield from (Text(f"      {note}", style="dim") for note in row.notes)
    if report.axioms:
        yield Text("\n  axioms", style="dim")
        for axiom in report.axioms:
            yield _axiom(axiom, verbose)
    yield Text(f"\n{_summary(report.rows, report.axioms)}")


def _status(status: str) -> Text:
    return Text(status, style=STYLES.get(status, "dim"))


def _axiom(axiom: AxiomResult, verbose: bool) -> Text:
    line = Text("  ").append_text(_status(axiom.status)).append(f"  {axiom.text}", style="default")
    if axiom.detail and (verbose or axiom.status != "proved"):
        line.append(f"\n      {axiom.place}: {axiom.detail}")
    return line


def _summary(rows: list[Conformance], axioms: list[AxiomResult]) -> str:
    different = sum(not row.ok for row in rows)
    cases = units.counted(sum(row.cases for row in rows), "case")
    outcome = f"{different:,} of them different from ONNX" if different else "none different from ONNX"
    verdicts = [axiom.status for axiom in axioms]
    kinds = [f"{verdicts.count(one):,} {one}" for one in ("proved", "refuted", "unknown") if one in verdicts]
    counted = (
        units.counted(len(rows), "operator and import") if len(rows) == 1 else f"{len(rows):,} operators and imports"
    )
    return f"{counted}, {outcome} ({cases}); {units.counted(len(axioms), 'axiom')}: {', '.join(kinds) or 'none'}"
