"""The benchmark script: its table, and that a child that crashes or hangs costs one row and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bench import optimize_all
from bench.optimize_all import Row, read, run_child, table, write


def test_table_shows_gains_and_failures() -> None:
    good = Row("net", "improved", 10, 4, 2.0, 1.0, 2.0, 1.9, 2.1, 1.01, 1e-6, 3.0, [("k3f0", 2)])
    left = Row("same", "no improvement", 10, 10, 2.0, 2.0, 0.99, 0.98, 1.0)
    text = table([good, left, Row("bad", error="ModelError: a|b\nc")])
    assert "| net | improved | 10 → 4 | 2 → 1 | 2.000x | 1.900 to 2.100 | 1.010 | 1.0e-06 | 3 | k3f0 ×2 |" in text
    assert "| same | no improvement | 10 | 2 | 1 (best candidate 0.990x) | 0.980 to 1.000 |" in text
    assert "| bad | **failed** ModelError: a\\|b c |" in text
    assert text.splitlines()[-1].startswith("| bad")  # no notes


def test_table_shows_spread_and_notes() -> None:
    row = Row("net", "improved", 10, 4, 2.0, 1.0, 2.0, spread_before_ms=0.05, spread_after_ms=0.0312)
    row.notes = ["a candidate was dropped", "two\nlines"]
    text = table([row, Row("same", "no improvement", 10, 10, 3.0, 3.0)])
    assert "| net | improved | 10 → 4 | 2 ± 0.05 → 1 ± 0.03 |" in text
    assert "| same | no improvement | 10 | 3 |" in text  # as rows of earlier runs are, which had no spread
    assert text.endswith("\n\n- net: a candidate was dropped\n- net: two lines\n")


def test_written_figures_can_be_read_back(tmp_path: Path) -> None:
    row = Row("net", "no improvement", 10, 10, 2.0, 2.0)
    write([row], {"threads": 2}, tmp_path)
    assert Row(**json.loads((tmp_path / "optimize_all.json").read_text())["models"][0]) == row
    assert sorted(path.name for path in tmp_path.iterdir()) == ["optimize_all.json", "optimize_all.md"]
    assert read({"threads": 2}, tmp_path) == [row]
    with pytest.raises(click.UsageError, match="leave out --resume"):
        read({"threads": 1}, tmp_path)
    assert read({"threads": 2}, tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ("import sys; sys.exit('out of luck')", "failed", "exit status 1: out of luck"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "failed", "exit status -11"),
        ("import time; time.sleep(600)", "too long", "stopped after"),
    ],
)
def test_child_that_ends_badly_is_a_row(
    script: str, status: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _replace_interpreter(script, tmp_path, monkeypatch)
    row = run_child("net", tmp_path, threads=1, time_budget=1, limit=2)
    assert (row.name, row.status, row.ended_well) == ("net", status, False)
    assert error in row.error


def test_an_interruption_leaves_no_child_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _replace_interpreter("import time; time.sleep(600)", tmp_path, monkeypatch)
    started: list[int] = []
    wait = subprocess.Popen.wait

    def interrupted(child: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout is None:
            return wait(child)
        started.append(child.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_child("net", tmp_path, threads=1, time_budget=1, limit=60)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_resuming_some_models_keeps_what_became_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimize_all, "machine", lambda threads: {"threads": threads})
    monkeypatch.setattr(optimize_all.signal, "signal", lambda *_: None)  # this process keeps its own handlers
    monkeypatch.setattr(optimize_all, "run_child", lambda name, *_: Row(name, "no improvement"))
    write([Row("resnet50"), Row("bert"), Row("nasrnn", "improved")], {"threads": 1}, tmp_path)
    arguments = ["--out", str(tmp_path), "--threads", "1", "--resume", "bert", "nasrnn"]
    ended = CliRunner().invoke(optimize_all.main, arguments)
    assert ended.exit_code == 1  # resnet50 still stands as failed
    found = {row.name: row.status for row in read({"threads": 1}, tmp_path)}
    assert found == {
        "resnet50": "failed",
        "bert": "no improvement",
        "nasrnn_fresh": "no improvement",
        "nasrnn": "improved",
    }


def _replace_interpreter(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = folder / "python"
    interpreter.write_text(f"#!{sys.executable}\n" + textwrap.dedent(script) + "\n")
    interpreter.chmod(0o755)
    monkeypatch.setattr(optimize_all.sys, "executable", str(interpreter))
