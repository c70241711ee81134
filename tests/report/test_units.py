"""Figures as people write them, and columns that line up."""

from __future__ import annotations

import math

import pytest
from rich.text import Text

from taso.report import units
from taso.report.grid import grid


@pytest.mark.parametrize(
    ("us", "spread", "text"),
    [
        (9.314, None, "9.31 us"),
        (92_200, None, "92.2 ms"),
        (92_200, 912, "92.2 ms ± 0.9"),
        (9_200, 12, "9.20 ms ± 0.01"),
        (922_000, 9_000, "922 ms ± 9.0"),
        (1_350_000, 20_000, "1.35 s ± 0.02"),
        (math.inf, None, "unknown"),
    ],
)
def test_latency(us: float, spread: float | None, text: str) -> None:
    assert units.latency(us, spread) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (812, "812 B"), (4_700_000, "4.70 MB"), (999_700, "1.00 MB"), (2e9, "2.00 GB")]
)
def test_size(count: float, text: str) -> None:
    assert units.size(count) == text


def test_counts_and_ratios() -> None:
    assert [units.counted(n, "rule") for n in (0, 1, 1204)] == ["0 rules", "1 rule", "1,204 rules"]
    assert [units.times(r) for r in (1.3064, 0.5, 250, 1.0484, 1)] == ["1.31x", "0.50x", "250x", "1.048x", "1.00x"]
    assert [units.duration(s) for s in (0.0312, 4.21, 200)] == ["31 ms", "4.2 s", "3 min 20 s"]


def test_columns_line_up() -> None:
    shown = grid([("Conv", "62"), ("LayerNormalization", "1,024")], align="lr", header=("operator", "n"))
    assert shown.plain.splitlines() == [
        "  operator                n",
        "  Conv                   62",
        "  LayerNormalization  1,024",
    ]


def test_wide_characters_count_twice() -> None:
    lines = grid([("文字", "1"), ("ab", "2")], align="lr").plain.splitlines()
    assert lines == ["  文字  1", "  ab    2"]


def test_styles_do_not_move_columns() -> None:
    shown = grid([(Text("a", style="red"), "x"), ("bbb", "y")], align="ll")
    assert shown.plain.splitlines() == ["  a    x", "  bbb  y"]
