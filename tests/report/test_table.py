"""The report of an optimization: what it shows, and that it fits a terminal."""

from __future__ import annotations

from dataclasses import replace

from taso.report.table import MOST_RULES, report_lines
from taso.result import AppliedRule, Latency, Report

RULE = AppliedRule("k3f0a1", 28, 8100.0, "rule k3f0a1  relu(relu(x))  ==>  relu(x)", "index-terms, all sizes; real")
REPORT = Report(
    improved=True,
    nodes_before=330,
    nodes_after=206,
    operators_before={"Conv": 62, "Mul": 86, "Add": 182},
    operators_after={"Conv": 62, "Mul": 20, "Add": 120, "HardSwish": 4},
    size_before=4_700_000,
    size_after=4_600_000,
    latency_before=Latency(92.2, 0.9, 41, "full"),
    latency_after=Latency(70.4, 0.7, 41, "full"),
    speedup=1.31,
    speedup_low=1.29,
    speedup_high=1.33,
    rules=[RULE],
    largest_difference=2.4e-7,
    checked=3,
    opset=12,
    target="cpu",
    device="AMD EPYC 7763 64-Core Processor",
    runtime="onnxruntime 1.32.0",
    threads=2,
)


def shown(report: Report, **options: bool) -> list[str]:
    return "\n".join(one.plain for one in report_lines(report, "det.onnx", **options)).splitlines()


def test_shows_the_counts_that_changed_and_no_others() -> None:
    rows = [line.split() for line in shown(REPORT)]
    assert ["nodes", "330", "206"] in rows
    assert ["Mul", "86", "20"] in rows and ["HardSwish", "0", "4"] in rows
    assert not any(row[:1] == ["Conv"] for row in rows)


def test_shows_size_latency_with_spread_and_speedup() -> None:
    text = "\n".join(shown(REPORT))
    assert "4.70 MB" in text and "4.60 MB" in text
    assert "92.2 ms ± 0.9" in text and "70.4 ms ± 0.7" in text and "1.31x" in text
    assert "41 interleaved runs each; 95 %: 1.29x to 1.33x" in text


def test_shows_each_rule_with_times_gain_proof_and_text() -> None:
    lines = shown(REPORT)
    at = next(k for k, line in enumerate(lines) if line.split()[:1] == ["k3f0a1"])
    assert lines[at].split(maxsplit=4)[1:] == ["28", "8.10", "ms", "index-terms, all sizes; real"]
    assert lines[at + 1].strip() == "relu(relu(x)) ==> relu(x)"
    assert any("2.4e-07 of scale, over 3 random inputs (tolerance 1e-03)" in line for line in lines)


def test_many_rules_are_summed_up_unless_verbose() -> None:
    many = replace(REPORT, rules=[replace(RULE, gain_us=1000.0)] * (MOST_RULES + 3))
    assert any("and 3 rules more (3.00 ms); -v shows all" in line for line in shown(many))
    assert sum(line.split()[:1] == ["k3f0a1"] for line in shown(many, verbose=True)) == MOST_RULES + 3


def test_fits_80_columns_also_with_long_rules_and_notes() -> None:
    inner = "x"
    for _ in range(9):
        inner = f"add(relu({inner}), y)"
    long = replace(RULE, text=f"rule k3f0a1  {inner}  ==>  {inner}")
    noted = replace(REPORT, rules=[long], notes=["a remark of many words " * 8], rtol=1e-4)
    assert max(map(len, shown(noted))) <= 80


def test_says_no_improvement_and_why() -> None:
    text = "\n".join(shown(replace(REPORT, improved=False, reason="no cheaper graph was found", rules=[])))
    assert "no improvement\n  no cheaper graph was found" in text
    assert "after" not in text


def test_an_estimate_is_called_one() -> None:
    guess = replace(
        REPORT,
        latency_before=None,
        latency_after=None,
        estimated_before_us=92_000,
        estimated_after_us=70_000,
        source="estimated",
    )
    text = "\n".join(shown(guess))
    assert "latency, estimated" in text and "±" not in text
