"""`taso prove` and `taso rules`, on small rules files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from taso.cli import main
from taso.rules.rule import rule_id
from taso.rules.text import write_rules
from taso.spec.parse import parse_rule

RULES = (
    "relu(relu(x)) ==> relu(x) ranks (x) in [(1,), (2,)]",
    "add(matmul(x, v), matmul(x, w)) ==> matmul(x, add(v, w)) ranks (x, v, w) in [(2, 2, 2)]",
)

Edit = Callable[[str], str]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


@pytest.fixture
def rules_file(tmp_path: Path) -> Path:
    parsed = [parse_rule(text) for text in RULES]
    path = tmp_path / "small.rules"
    records = ("proved index-terms, all sizes; real", "found  test @ 2 ops")
    write_rules(path, [replace(rule, name=rule_id(rule), records=records) for rule in parsed], ["spec none; made up"])
    return path


def ids(path: Path) -> list[str]:
    return [line.split()[1] for line in path.read_text().splitlines() if line.startswith("rule ")]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


# --- prove -e


def test_proves_a_rule_from_the_command_line() -> None:
    result = run("prove", "-e", "relu(relu(x)) ==> relu(x)")
    assert result.exit_code == 0
    assert result.stdout.startswith("proved, all sizes, for ranks (x) in (")


def test_refutes_with_a_counterexample_that_is_one() -> None:
    result = run("prove", "-e", "relu(add(a, b)) ==> add(relu(a), relu(b))", "--json", "-")
    assert result.exit_code == 3
    found = json.loads(result.stdout)["rules"][0]
    assert found["status"] == "refuted"
    assert "the left side is" in found["counterexample"]


def test_several_expressions_fail_if_one_does() -> None:
    result = run("prove", "-e", "relu(relu(x)) ==> relu(x)", "-e", "neg(x) ==> x")
    assert result.exit_code == 3
    assert [line.split(",")[0].split(":")[0] for line in result.stdout.splitlines()] == ["proved", "false"]


def test_shows_where_a_rule_does_not_parse() -> None:
    result = run("prove", "-e", "relu(add(a, b) ==> a")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[:3] == [
        "<rule>:1:16: error: unexpected `==>`; expected `)`, `,` or `;`",
        "   | relu(add(a, b) ==> a",
        "   |                ^",
    ]


def test_suggests_an_operator() -> None:
    result = run("prove", "-e", "rela(a) ==> a")
    assert result.exit_code == 1
    assert "did you mean `relu`?" in result.stderr


# --- prove files


def test_proves_a_file_again(rules_file: Path) -> None:
    result = run("prove", rules_file.parent)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("2 rules: 2 proved;")


def test_verbose_prints_each_rule(rules_file: Path) -> None:
    result = run("prove", rules_file, "-v")
    assert result.exit_code == 0
    for name in ids(rules_file):
        assert f"rule {name} proved" in result.stdout


def test_a_false_rule_is_named_with_a_counterexample(rules_file: Path) -> None:
    edit(rules_file, "matmul(x, add(v, w))", "matmul(x, add(v, v))")
    result = run("prove", rules_file)
    assert result.exit_code == 3
    assert f"rule {ids(rules_file)[1]} is false: at " in result.stdout
    assert result.stdout.splitlines()[-1].startswith("2 rules: 1 proved, 1 failed")


def test_a_true_rule_under_a_wrong_id_was_changed(rules_file: Path) -> None:
    edit(rules_file, "relu(relu(x))", "relu(relu(relu(x)))")
    result = run("prove", rules_file)
    assert result.exit_code == 3
    assert f"rule {ids(rules_file)[0]} has an id that does not fit its text" in result.stdout


def test_a_claim_of_ranks_that_do_not_fit_is_found(rules_file: Path) -> None:
    edit(rules_file, "in [(2, 2, 2)]", "in [(2, 2, 2), (2, 3, 2)]")
    result = run("prove", rules_file)
    assert result.exit_code == 3
    assert f"rule {ids(rules_file)[1]} " in result.stdout


def test_a_missing_condition_is_found(tmp_path: Path) -> None:
    text = "slice(x; axis = 0, start = n, stop = m) ==> x ranks (x) in [(1,)]"
    rule = parse_rule(text)
    path = tmp_path / "slice.rules"
    write_rules(path, [replace(rule, name=rule_id(rule))])
    result = run("prove", path)
    assert result.exit_code == 3
    assert f"rule {rule_id(rule)} " in result.stdout


def test_prove_json_has_a_row_a_rule(rules_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert run("prove", rules_file, "--json", out).exit_code == 0
    told = json.loads(out.read_text())
    assert (told["checked"], told["failed"]) == (2, 0)
    assert [row["rule"] for row in told["rules"]] == ids(rules_file)


@pytest.mark.parametrize("content", ["rule x relu(x)", "op relu2(x[*s]) -> [*s] out[*i] = x[*i]", "\x00\xff"])
def test_a_file_that_holds_no_rules_names_the_place(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.rules"
    path.write_bytes(content.encode("latin-1"))
    result = run("prove", path)
    assert result.exit_code == 1
    assert str(path) in result.stderr and "Traceback" not in result.stderr


def test_a_missing_file_and_an_empty_folder(tmp_path: Path) -> None:
    missing = run("prove", tmp_path / "nothing.rules")
    assert missing.exit_code == 1 and "no such file" in missing.stderr
    empty = run("prove", tmp_path)
    assert empty.exit_code == 1 and "there are no rules" in empty.stderr


# --- rules


def test_list_prints_one_line_a_rule(rules_file: Path) -> None:
    result = run("rules", "list", "--rules", rules_file)
    assert result.exit_code == 0
    first, second = ids(rules_file)
    assert result.stdout.splitlines() == [
        f"{first}  relu(relu(x)) ==> relu(x)",
        f"{second}  add(matmul(x, v), matmul(x, w)) ==> matmul(x, add(v, w))",
    ]


def test_show_prints_the_whole_rule(rules_file: Path) -> None:
    name = ids(rules_file)[1]
    result = run("rules", "show", name, "--rules", rules_file)
    assert result.exit_code == 0
    assert "ranks (x, v, w) in [(2, 2, 2)]" in result.stdout
    assert "proved index-terms" in result.stdout


def test_an_unknown_rule_is_a_usage_error_with_a_suggestion(rules_file: Path) -> None:
    name = ids(rules_file)[0]
    wrong = name[:-1] + ("0" if name[-1] != "0" else "1")
    result = run("rules", "show", wrong, "--rules", rules_file)
    assert result.exit_code == 2
    assert f"did you mean `{name}`" in result.stderr
