"""`taso optimize` from the command line, on real small models and with rules proved here."""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner, Result

from taso.cli import main
from taso.errors import CheckError
from taso.rules.rule import rule_id
from taso.rules.text import write_rules
from taso.spec.parse import parse_rule
from tests.cli.models import one_matmul, two_convolutions

MERGE = (
    "add(conv(x, f; stride = s, before = b, after = a, dilation = d, group = g),"
    " conv(x, h; stride = s, before = b, after = a, dilation = d, group = g))"
    " ==> conv(x, add(f, h); stride = s, before = b, after = a, dilation = d, group = g) ranks (x, f) in [(4, 4)]"
)
JOB = importlib.import_module("taso.optimize")


@pytest.fixture(autouse=True)
def quick(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timings, and latencies of this test's own."""
    monkeypatch.setenv("TASO_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(JOB, "TIMING_SECONDS", 0.3)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    rule = parse_rule(MERGE)
    path = tmp_path / "merge.rules"
    write_rules(path, [replace(rule, name=rule_id(rule), records=("proved index-terms, all sizes; real",))])
    return path


@pytest.fixture
def always_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept a candidate whatever a busy machine measures; what counts as faster is tested with timing.py."""
    monkeypatch.setattr(JOB, "faster_beyond_noise", lambda comparison, min_speedup: True)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["optimize", *(str(one) for one in arguments)])


def operators(path: Path) -> list[str]:
    return sorted(node.op_type for node in onnx.load(path).graph.node)


# --- the main job


@pytest.mark.usefixtures("always_faster")
def test_merges_two_convolutions_and_reports_it(tmp_path: Path, rules: Path) -> None:
    model, out, told = two_convolutions(tmp_path / "a.onnx"), tmp_path / "b.onnx", tmp_path / "b.json"
    result = run(model, "-o", out, "--rules", rules, "--json", told, "--input-shape", "x:2,8,16,16")
    assert result.exit_code == 0, result.output
    assert operators(out).count("Conv") == 1 and "Add" not in operators(out)
    report = json.loads(told.read_text())
    assert report["improved"] and report["operators_before"]["Conv"] == 2 and report["operators_after"]["Conv"] == 1
    assert [rule["times"] for rule in report["rules"]] == [1]
    assert 0 < report["largest_difference"] < 1e-4
    lines = result.stdout.splitlines()
    assert f"wrote {out}" == lines[-1]
    assert any(line.split() == ["Conv", "2", "1"] for line in lines)
    assert any("add(conv(x, f), conv(x, h)) ==> conv(x, add(f, h))" in line for line in lines)
    assert any("largest difference" in line for line in lines)
    assert max(map(len, lines[:-1])) <= 80


@pytest.mark.usefixtures("always_faster")
def test_the_output_may_be_the_second_argument_or_the_input_itself(tmp_path: Path, rules: Path) -> None:
    model = two_convolutions(tmp_path / "a.onnx")
    original = model.read_bytes()
    assert run(model, tmp_path / "b.onnx", "--rules", rules, "-q").output == ""
    assert model.read_bytes() == original
    assert run(model, model, "--rules", rules).exit_code == 0
    assert operators(model).count("Conv") == 1
    assert model.read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_no_improvement_writes_the_bytes_of_the_input(tmp_path: Path, rules: Path) -> None:
    model, out = one_matmul(tmp_path / "a.onnx"), tmp_path / "b.onnx"
    model.write_bytes(model.read_bytes() + b"\xa2\x06\x00")  # field 100: not what onnx itself would write
    result = run(model, "-o", out, "--rules", rules)
    assert result.exit_code == 0, result.output
    assert "no improvement" in result.stdout
    assert out.read_bytes() == model.read_bytes()


def test_no_improvement_in_place_does_not_touch_the_file(tmp_path: Path, rules: Path) -> None:
    model = one_matmul(tmp_path / "a.onnx")
    before = model.stat()
    assert run(model, model, "--rules", rules).exit_code == 0
    assert (model.stat().st_mtime_ns, model.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_no_improvement_elsewhere_takes_along_the_tensors_that_lie_beside(tmp_path: Path, rules: Path) -> None:
    model, out = one_matmul(tmp_path / "a.onnx"), tmp_path / "other" / "b.onnx"
    onnx.save(onnx.load(model), model, save_as_external_data=True, location="a.data", size_threshold=0)
    assert (tmp_path / "a.data").exists()
    out.parent.mkdir()
    assert run(model, "-o", out, "--rules", rules).exit_code == 0
    assert onnx.load(out).graph.initializer[0].raw_data == onnx.load(model).graph.initializer[0].raw_data


@pytest.mark.usefixtures("always_faster")
def test_json_on_standard_output_stands_alone(tmp_path: Path, rules: Path) -> None:
    result = run(two_convolutions(tmp_path / "a.onnx"), "-o", tmp_path / "b.onnx", "--rules", rules, "--json", "-")
    assert json.loads(result.stdout)["output"] == str(tmp_path / "b.onnx")


# --- refusals


def test_a_failed_check_ends_with_3_and_writes_nothing(
    tmp_path: Path, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*_: object, **__: object) -> None:
        raise CheckError("the optimized model does not compute what the original computes: output y")

    monkeypatch.setattr(JOB._Job, "checked", differs)
    out = tmp_path / "b.onnx"
    out.write_bytes(b"precious")
    result = run(two_convolutions(tmp_path / "a.onnx"), "-o", out, "--rules", rules)
    assert result.exit_code == 3
    assert "does not compute what the original computes" in result.stderr
    assert out.read_bytes() == b"precious"


@pytest.mark.parametrize("arguments", [[], ["b.onnx", "-o", "c.onnx"]])
def test_the_output_is_given_exactly_once(tmp_path: Path, arguments: list[str]) -> None:
    result = run(one_matmul(tmp_path / "a.onnx"), *arguments)
    assert result.exit_code == 2
    assert "output" in result.stderr or "where the result goes" in result.stderr


def test_an_unknown_input_lists_the_inputs(tmp_path: Path, rules: Path) -> None:
    model = two_convolutions(tmp_path / "a.onnx")
    result = run(model, "-o", tmp_path / "b.onnx", "--rules", rules, "--input-shape", "xs:1,8,16,16")
    assert result.exit_code == 2
    assert 'no input named "xs"' in result.stderr and "x [batch, 8, 16, 16]" in result.stderr
    assert 'did you mean "x"?' in result.stderr
    assert not (tmp_path / "b.onnx").exists()


def test_an_unknown_rule_or_target_is_a_usage_error(tmp_path: Path, rules: Path) -> None:
    model, out = one_matmul(tmp_path / "a.onnx"), tmp_path / "b.onnx"
    for option, value in (("--only-rule", "z00000"), ("--skip-rule", "z00000"), ("--hw", "h1oo")):
        result = run(model, "-o", out, "--rules", rules, option, value)
        assert result.exit_code == 2, option
        assert value in result.stderr
    assert not out.exists()


def test_a_skipped_rule_is_not_used(tmp_path: Path, rules: Path) -> None:
    name = rule_id(parse_rule(MERGE))
    model, out = two_convolutions(tmp_path / "a.onnx"), tmp_path / "b.onnx"
    result = run(model, "-o", out, "--rules", rules, "--skip-rule", name)
    assert result.exit_code == 0, result.output
    assert out.read_bytes() == model.read_bytes()


@pytest.mark.parametrize("content", [b"", b"nothing", b"\x08\x08"])
def test_an_unreadable_model_ends_with_1(tmp_path: Path, rules: Path, content: bytes) -> None:
    model = tmp_path / "a.onnx"
    model.write_bytes(content)
    result = run(model, "-o", tmp_path / "b.onnx", "--rules", rules)
    assert result.exit_code == 1
    assert "a.onnx" in result.stderr and "Traceback" not in result.stderr
    assert sorted(os.listdir(tmp_path)) == ["a.onnx", "merge.rules"]


def test_missing_input_and_unwritable_output_end_with_1(tmp_path: Path, rules: Path) -> None:
    missing = run(tmp_path / "a.onnx", "-o", tmp_path / "b.onnx", "--rules", rules)
    assert (missing.exit_code, "a.onnx" in missing.stderr) == (1, True)
    nowhere = run(one_matmul(tmp_path / "a.onnx"), "-o", tmp_path / "no" / "b.onnx", "--rules", rules)
    assert (nowhere.exit_code, "no such directory" in nowhere.stderr) == (1, True)


def test_a_wrong_rules_file_names_its_place(tmp_path: Path) -> None:
    bad = tmp_path / "bad.rules"
    bad.write_text("rule a  relu(x ==> x\n")
    result = run(one_matmul(tmp_path / "a.onnx"), "-o", tmp_path / "b.onnx", "--rules", bad)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{bad}:1:")
