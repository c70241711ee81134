"""docs/adding-an-operator.md, done: an operator from outside, rules discovered and proved, one applied to a model."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

import taso
from taso.cli import main
from tests.cli.models import joined_softsigns

GUIDE = Path(__file__).parents[2] / "docs" / "adding-an-operator.md"


def softsign_op() -> str:
    """The file that the guide builds up, step by step: its first three fenced blocks."""
    return "".join(re.findall(r"```\n(.*?)```", GUIDE.read_text(), re.DOTALL)[:3])


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(main, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with softsign.op and the rules that were generated for it."""
    path = tmp_path_factory.mktemp("softsign")
    (path / "softsign.op").write_text(softsign_op())
    arguments = ["--spec", path / "softsign.op", "--universe", "softsign", "--ops", "2", "-o", path / "rules"]
    shown = run("gen-rules", *arguments)
    assert "softsign" in shown and f"wrote {path / 'rules' / 'core.rules'}" in shown
    return path


def test_rules_are_schemas_and_are_proved_again(folder: Path) -> None:
    listed = run("rules", "list", "--rules", folder / "rules")
    assert "concat(softsign(a), softsign(b); axis = axis) ==> softsign(concat(a, b; axis = axis))" in listed
    count = len(listed.splitlines())
    proved = run("prove", folder / "rules", "--spec", folder / "softsign.op")
    assert proved.startswith(f"{count} rules: {count} proved")


def test_the_same_command_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    arguments = ["--spec", folder / "softsign.op", "--universe", "softsign", "--ops", "2", "-o", tmp_path]
    run("gen-rules", *arguments)
    assert (tmp_path / "core.rules").read_bytes() == (folder / "rules" / "core.rules").read_bytes()


def test_what_the_guide_prints_is_what_is_printed(folder: Path) -> None:
    guide = GUIDE.read_text()
    listed = run("rules", "list", "--rules", folder / "rules").splitlines()
    shown = [line.strip() for line in guide.splitlines() if re.match(r"    [a-z][0-9a-f]{5}  .* ==> ", line)]
    assert shown and set(shown) <= set(listed)


def test_a_rule_is_applied_to_a_model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = importlib.import_module("taso.optimize")
    monkeypatch.setenv("TASO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(job, "TIMING_SECONDS", 0.3)
    monkeypatch.setattr(job, "faster_beyond_noise", lambda comparison, min_speedup: True)
    model, out = joined_softsigns(tmp_path / "a.onnx", pairs=1), tmp_path / "b.onnx"
    arguments = ["--spec", folder / "softsign.op", "--rules", folder / "rules", "--json", "-"]
    told = json.loads(run("optimize", model, "-o", out, *arguments))
    assert told["operators_before"]["Softsign"] == 2 and told["operators_after"]["Softsign"] == 1
    assert any("softsign(concat(a, b" in rule["text"] for rule in told["rules"])
    assert [node.op_type for node in onnx.load(out).graph.node] == ["Concat", "Softsign"]
    assert taso.verify(model, out).ok


def test_without_the_file_the_operator_is_unknown(folder: Path) -> None:
    result = CliRunner().invoke(main, ["prove", str(folder / "rules")])
    assert result.exit_code == 1
    assert "no operator is called `softsign`" in result.stderr
