"""How the command line behaves when something goes wrong, is interrupted, or nobody listens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from taso.cli import main
from taso.cli.output import plain
from taso.errors import CheckError, MeasureError, ModelError, SpecError, TasoError, UsageError
from taso.hardware import target
from tests.cli.models import one_matmul


def hw_list(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["hw", "list", *arguments])


def fails_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(target, "list_targets", fail)
    monkeypatch.setattr(target, "detect_target", fail)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TasoError("a"), 1),
        (ModelError("a"), 1),
        (MeasureError("a"), 1),
        (UsageError("a"), 2),
        (CheckError("a"), 3),
    ],
)
def test_each_error_has_its_exit_code(error: TasoError, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_with(error, monkeypatch)
    result = hw_list()
    assert (result.exit_code, result.stderr, result.stdout) == (code, "taso: error: a\n", "")


def test_a_specification_error_begins_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_with(SpecError("wrong", path="a.op", line=1, column=2, source="op"), monkeypatch)
    result = hw_list()
    assert (result.exit_code, result.stderr) == (1, "a.op:1:2: error: wrong\n   | op\n   |  ^\n")


def test_an_operating_system_error_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_with(PermissionError(13, "Permission denied", "a.onnx"), monkeypatch)
    result = hw_list()
    assert (result.exit_code, result.stderr) == (1, "taso: error: a.onnx: Permission denied\n")


def test_a_bug_of_ours_shows_its_traceback_only_with_v(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_with(ZeroDivisionError("oops"), monkeypatch)
    short, long = hw_list(), hw_list("-v")
    assert short.exit_code == long.exit_code == 1
    assert "ZeroDivisionError: oops" in short.stderr and "run the command with -v" in short.stderr
    assert "Traceback" not in short.stderr and "Traceback" in long.stderr


def test_ctrl_c_says_that_nothing_is_half_written(monkeypatch: pytest.MonkeyPatch) -> None:
    fails_with(KeyboardInterrupt(), monkeypatch)
    result = hw_list()
    assert result.exit_code == 130
    assert result.stderr == "taso: error: interrupted; nothing was left half-written\n"


def test_warnings_are_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    real = target.list_targets

    def warn() -> tuple[target.Target, ...]:
        warnings.warn("a remark", UserWarning, stacklevel=1)
        return real()

    monkeypatch.setattr(target, "list_targets", warn)
    result = hw_list()
    assert result.exit_code == 0
    assert result.stderr.startswith("taso: warning: a remark\n")


def test_quiet_prints_nothing() -> None:
    result = hw_list("-q")
    assert (result.exit_code, result.output) == (0, "")


def test_json_to_standard_output_is_all_there_is(tmp_path: Path) -> None:
    told = json.loads(hw_list("--json", "-").stdout)
    assert hw_list("--json", str(tmp_path / "a.json")).stdout
    assert json.loads((tmp_path / "a.json").read_text()) == told


def test_json_has_no_number_that_json_does_not_have() -> None:
    data = plain({"a": float("inf"), "b": [float("nan"), 1.5, (2, None)], 3: Path("x")})
    assert data == {"a": "inf", "b": ["nan", 1.5, [2, None]], "3": "x"}
    json.dumps(data, allow_nan=False)


def test_output_that_is_no_terminal_has_no_escape_codes() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "taso", "hw", "list"],
        capture_output=True,
        check=True,
        env={**os.environ, "TERM": "xterm"},
    )
    assert b"\x1b" not in told.stdout + told.stderr


def test_an_ascii_terminal_does_not_crash() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "taso", "prove", "-e", "relu(x) ==> y"]
    told = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "UnicodeEncodeError" not in told.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "taso", "hw", "list", "-v"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (process.returncode, b"Traceback" in process.stderr) == (0, False)


def test_ctrl_c_ends_a_running_measurement_and_its_worker(tmp_path: Path) -> None:
    model = one_matmul(tmp_path / "a.onnx")
    command = [sys.executable, "-m", "taso", "bench", str(model), "--time-budget", "60", "--runs", "100000000"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # what a shell starts in the background ignores interrupts, and so would everything below it; no threads here
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        deadline = time.monotonic() + 60
        while not (workers := children.read_text().split()) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert workers
    assert process.returncode == 130, told
    assert b"interrupted" in told and b"Traceback" not in told
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
