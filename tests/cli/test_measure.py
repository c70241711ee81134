"""`taso verify`, `taso bench` and `taso hw`, on real small models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from taso.cli import main
from tests.cli import models


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


# --- verify


def test_equal_models_end_with_0(tmp_path: Path) -> None:
    a, b = models.one_matmul(tmp_path / "a.onnx"), models.one_matmul(tmp_path / "b.onnx", factor=1.000001)
    result = run("verify", a, b)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("same, over 3 random inputs")


def test_different_models_end_with_3_and_say_where(tmp_path: Path) -> None:
    a, b = models.one_matmul(tmp_path / "a.onnx"), models.one_matmul(tmp_path / "b.onnx", factor=1.1)
    result = run("verify", a, b, "--check", "1", "--json", tmp_path / "v.json")
    assert result.exit_code == 3
    assert result.stdout.startswith("different") and "the original gives" in result.stdout
    told = json.loads((tmp_path / "v.json").read_text())
    assert told["ok"] is False and told["differences"][0]["name"] == "y"


def test_a_wide_tolerance_makes_them_the_same(tmp_path: Path) -> None:
    a, b = models.one_matmul(tmp_path / "a.onnx"), models.one_matmul(tmp_path / "b.onnx", factor=1.1)
    assert run("verify", a, b, "--rtol", "0.5").exit_code == 0


def test_other_outputs_are_different(tmp_path: Path) -> None:
    a, b = models.one_matmul(tmp_path / "a.onnx"), models.two_convolutions(tmp_path / "b.onnx")
    result = run("verify", a, b)
    assert result.exit_code == 3
    assert result.stdout.startswith("different")


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_an_unknown_input_name_is_a_usage_error(tmp_path: Path, command: str) -> None:
    a = models.two_convolutions(tmp_path / "a.onnx")
    result = run(command, a, a, "--input-shape", "xx:1,8,16,16")
    assert result.exit_code == 2
    assert 'no input named "xx"' in result.stderr and "x [batch, 8, 16, 16]" in result.stderr


@pytest.mark.parametrize("shape", ["x:1,8,16", "x:1,9,16,16"])
def test_a_shape_that_contradicts_the_model_is_a_usage_error(tmp_path: Path, shape: str) -> None:
    a = models.two_convolutions(tmp_path / "a.onnx")
    result = run("verify", a, a, "--input-shape", shape)
    assert result.exit_code == 2
    assert "[batch, 8, 16, 16]" in result.stderr


@pytest.mark.parametrize("shape", ["x", "x:", ":1,2", "x:1,a", "x:1,-2", "x:1,,2"])
def test_a_shape_that_is_none_is_a_usage_error(tmp_path: Path, shape: str) -> None:
    a = models.two_convolutions(tmp_path / "a.onnx")
    assert run("verify", a, a, "--input-shape", shape).exit_code == 2


def test_two_shapes_for_one_input_are_a_usage_error(tmp_path: Path) -> None:
    a = models.two_convolutions(tmp_path / "a.onnx")
    result = run("verify", a, a, "--input-shape", "x:1,8,16,16", "--input-shape", "x:2,8,16,16")
    assert result.exit_code == 2 and "two shapes" in result.stderr


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x08\x12\x04taso"])
def test_what_is_no_model_ends_with_1(tmp_path: Path, content: bytes) -> None:
    good, bad = models.one_matmul(tmp_path / "good.onnx"), tmp_path / "bad.onnx"
    bad.write_bytes(content)
    for pair in ((good, bad), (bad, good)):
        result = run("verify", *pair)
        assert result.exit_code == 1
        assert "bad.onnx" in result.stderr and "Traceback" not in result.stderr


def test_a_missing_file_ends_with_1_and_verbose_shows_the_traceback(tmp_path: Path) -> None:
    good = models.one_matmul(tmp_path / "good.onnx")
    quiet = run("verify", good, tmp_path / "missing.onnx")
    assert quiet.exit_code == 1
    assert quiet.stderr == f"taso: error: {tmp_path / 'missing.onnx'}: there is no such file\n"
    assert "Traceback" in run("verify", good, tmp_path / "missing.onnx", "-v").stderr


# --- bench


def test_bench_times_two_models(tmp_path: Path) -> None:
    small, large = tmp_path / "small.onnx", tmp_path / "large.onnx"
    models.two_convolutions(small), models.two_convolutions(large, size=64)
    result = run("bench", large, small, "--time-budget", "0.3", "--runs", "40", "--threads", "1", "--json", "-")
    assert result.exit_code != 0  # the inputs of the first do not fit the second
    result = run("bench", large, large, "--time-budget", "0.3", "--runs", "40", "--threads", "1", "--json", "-")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [row["model"] for row in told["models"]] == [str(large), str(large)]
    assert all(row["runs"] >= 11 and row["median_ms"] > 0 for row in told["models"])
    assert told["low"] <= told["speedup"] <= told["high"]


def test_bench_prints_a_table(tmp_path: Path) -> None:
    a = models.one_matmul(tmp_path / "a.onnx")
    b = models.one_matmul(tmp_path / "b.onnx")
    result = run("bench", a, b, "--time-budget", "0.2", "--threads", "1")
    assert result.exit_code == 0
    assert "b.onnx is " in result.stdout and "x as fast as a.onnx" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_bench_takes_one_model_but_not_three(tmp_path: Path) -> None:
    a = models.one_matmul(tmp_path / "a.onnx")
    assert run("bench", a, "--time-budget", "0.1").exit_code == 0
    assert run("bench", a, a, a).exit_code == 2


def test_an_unknown_target_lists_the_targets(tmp_path: Path) -> None:
    a = models.one_matmul(tmp_path / "a.onnx")
    result = run("bench", a, "--hw", "h10")
    assert result.exit_code == 2
    assert "the targets are: auto, cpu" in result.stderr and 'did you mean "h100"?' in result.stderr


# --- hw


def test_hw_list_marks_this_machine() -> None:
    result = run("hw", "list", "--json", "-")
    told = {row["name"]: row for row in json.loads(result.stdout)["targets"]}
    assert {"cpu", "v100", "h100"} <= told.keys()
    assert told["cpu"]["attached"] and sum(row["auto"] for row in told.values()) == 1
    shown = run("hw", "list").stdout
    assert all(name in shown for name in told)
