"""The command line answers at once: whatever is slow to import is imported by the command that needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from taso.cli import main
from taso.version import __version__

HEAVY = {"numpy", "onnx", "onnxruntime", "z3", "lark", "rich", "sqlite3", "multiprocessing"}
COMMANDS = ["optimize", "gen-rules", "prove", "spec", "bench", "verify", "rules", "hw"]


def imported_by(*code: str) -> set[str]:
    """The top-level modules that a fresh Python has after running a statement."""
    program = "\n".join([*code, "import sys", "print(*sys.modules)"])
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return {name.split(".")[0] for name in told.splitlines()[-1].split()}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["optimize", "--help"], ["prove", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = ["from taso.cli import main", "try:", f"    main({arguments!r})", "except SystemExit:", "    pass"]
    assert not imported_by(*code) & HEAVY


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert not imported_by("import taso") & (HEAVY | {"click"})


def test_importing_modules_does_not_hide_the_functions() -> None:
    program = (
        "import taso, taso.prove, taso.errors\n"
        "from taso.prove import verdict\n"
        "assert not isinstance(taso.prove, type(taso)) and callable(taso.prove), taso.prove\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_help_names_every_command_and_exit_code() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output
    for command in COMMANDS:
        assert f"\n  {command} " in shown
    assert "Exit codes" in shown


@pytest.mark.parametrize("command", [[c] for c in COMMANDS] + [["rules", "list"], ["rules", "show"], ["hw", "list"]])
def test_every_command_has_help(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("Usage: ") and len(lines[2].strip()) > 10


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, f"taso {__version__}\n")


def test_a_wrong_command_suggests_the_right_one() -> None:
    result = CliRunner().invoke(main, ["optimise"])
    assert result.exit_code == 2
    assert 'did you mean "optimize"' in result.stderr


def test_runs_as_a_module() -> None:
    told = subprocess.run([sys.executable, "-m", "taso", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"taso {__version__}\n"
