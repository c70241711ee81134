"""`taso spec check`: what is wrong with a specification is said with its place, or with the values that differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from taso.cli import main

SOFTSIGN = """
op softsign(x[*s]) -> [*s]
    out[*i] = x[*i] / (1 + abs(x[*i]))
    onnx Softsign(x) since 1
import Softsign(x) since 1 = softsign(x)
"""


def check(tmp_path: Path, text: str, *arguments: str) -> Result:
    path = tmp_path / "extra.op"
    path.write_text(text)
    return CliRunner().invoke(main, ["spec", "check", "--tries", "6", "--spec", str(path), *arguments])


def test_everything_agrees_with_onnx_also_an_operator_from_outside(tmp_path: Path) -> None:
    result = check(tmp_path, SOFTSIGN, "--json", "-")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    rows = {row["op"]: row for row in told["rows"]}
    assert rows["softsign"]["status"] == "same" and rows["softsign"]["cases"] > 0
    assert told["axioms"] and all(axiom["status"] == "proved" for axiom in told["axioms"])


def test_a_wrong_meaning_and_a_false_axiom_end_with_3_and_show_values(tmp_path: Path) -> None:
    text = SOFTSIGN.replace("1 + abs", "2 + abs") + "axiom relu(add(a, b)) == add(relu(a), relu(b))"
    result = check(tmp_path, text)
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    at = next(k for k, line in enumerate(lines) if line.split()[:1] == ["differs"])
    assert lines[at].endswith("softsign") and "Softsign" in lines[at + 1]
    assert "refuted  relu(add(a, b))" in result.stdout and "the left side is" in result.stdout
    assert "1 refuted" in lines[-1]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("op twice(x[*s]) = [*s]", "1:17"),
        ("op twice(x[*s]) -> [*s]\n    out[*i] = 2 * y[*i]", "2:19"),
        ("op twice(x[*s]) -> [*s]\n    out[*i] = x[*i] + x[*j]", "2:"),
        ("macro twice(x[*s]) = ad(x, x)", "1:22"),
        ("op relu(x[*s]) -> [*s] out[*i] = x[*i]", "1:1"),
    ],
)
def test_what_is_not_well_formed_ends_with_1_and_its_place(tmp_path: Path, text: str, place: str) -> None:
    result = check(tmp_path, text)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{tmp_path / 'extra.op'}:{place}")
    assert "Traceback" not in result.stderr


def test_a_missing_file_ends_with_1() -> None:
    result = CliRunner().invoke(main, ["spec", "check", "--spec", "nowhere.op"])
    assert result.exit_code == 1
    assert "nowhere.op" in result.stderr
