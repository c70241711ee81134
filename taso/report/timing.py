"""How timings and comparisons of two models look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from taso.report import units
from taso.report.grid import grid

if TYPE_CHECKING:
    from taso.hardware.timing import Comparison, Timing
    from taso.onnxio.verify import VerifyResult


def timing_table(timings: Sequence[Timing], comparison: Comparison | None) -> Text:
    """One line a model, and one that compares them."""
    rows = [
        (one.name, units.latency(one.median_us, one.spread_us), str(len(one.samples_us)), one.level) for one in timings
    ]
    table = grid(rows, align="lrrl", header=("model", "median", "runs", "level"))
    if comparison is None:
        return table
    before, after = timings[0].name, timings[1].name
    table.append(
        f"\n  {after} is {units.times(comparison.speedup)} as fast as {before}"
        f"\n  (95 %: {units.times(comparison.low)} to {units.times(comparison.high)};"
        f" noise, {before} against itself: {units.times(comparison.null)})"
    )
    return table


def difference_lines(result: VerifyResult) -> Text:
    """The verdict, and one line an output."""
    verdict = Text("same" if result.ok else "different", style="green" if result.ok else "red")
    verdict.append(f", over {units.counted(result.input_sets, 'random input')}", style="default")
    if result.problem:
        verdict.append(f"\n  {result.problem}")
    rows = []
    for one in result.differences:
        if one.name in result.nondeterministic:
            what = "differs between two runs of the original itself; only dtype and shape compared"
        elif one.problem:
            what = one.problem
        else:
            what = f"largest difference {one.max_abs:.1e} of {one.scale:.3g}" if one.max_abs else "identical"
        rows.append((one.name, what))
    return Text("\n").join([verdict, grid(rows, align="ll")]) if rows else verdict
