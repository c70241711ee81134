"""What a slip of the hand meets: one sentence, the right exit code, and no file touched."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx
import pytest
from click.testing import CliRunner, Result

from taso.cli import main
from taso.cli.optimize import _write
from tests.cli.models import one_matmul, two_convolutions

RULE = "rule a00001  relu(relu(x))  ==>  relu(x)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, which is the current one, with models, rules and files that are neither."""
    monkeypatch.chdir(tmp_path)
    one_matmul(tmp_path / "a.onnx")
    whole = two_convolutions(tmp_path / "c.onnx").read_bytes()
    (tmp_path / "half.onnx").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "text.onnx").write_text("hello\n")
    (tmp_path / "some.rules").write_text(RULE)
    (tmp_path / "broken.rules").write_text("rule a00001  relu(x) ==>\n")
    (tmp_path / "bytes.rules").write_bytes(b"\xff\xfe\x00rule")
    (tmp_path / "unbound.op").write_text("op twice(x[*s]) -> [*s] out[*i] = 2 * y[*i]\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


def run(line: str) -> Result:
    return CliRunner().invoke(main, line.split())


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("optimize none.onnx -o b.onnx", 1, "taso: error: none.onnx: No such file or directory\n"),
        ("optimize folder -o b.onnx", 1, "taso: error: folder: Is a directory\n"),
        ("optimize half.onnx -o b.onnx", 1, "half.onnx is not an ONNX model, or it is cut off"),
        ("optimize empty.onnx -o b.onnx", 1, "empty.onnx is empty"),
        ("bench text.onnx", 1, "text.onnx is not an ONNX model"),
        ("verify a.onnx none.onnx", 1, "none.onnx: there is no such file"),
        ("optimize a.onnx -o folder", 2, "folder is a directory; give the name of a file in it"),
        ("optimize a.onnx -o none/b.onnx", 1, "taso: error: none: there is no such directory\n"),
        ("optimize c.onnx -o b.onnx --input-shape x:1,2,3", 2, 'input "x" has 4 dimensions, [batch, 8, 16, 16], but 3'),
        ("optimize c.onnx -o b.onnx --input-shape x:-1,8,16,16", 2, "is not of the form NAME:1,3,224,224"),
        ("optimize c.onnx -o b.onnx --input-shape x:0,8,16,16", 2, "sizes must be at least 1"),
        ("optimize c.onnx -o b.onnx --input-shape X:1,8,16,16", 2, 'x [batch, 8, 16, 16] (did you mean "x"?)'),
        (f"verify c.onnx c.onnx --input-shape x:{10**20},8,16,16", 2, "no machine has the memory"),
        ("bench a.onnx c.onnx", 2, 'a.onnx and c.onnx do not take the same inputs: input "x" has 4 dimensions'),
        ("bench a.onnx --hw cpuu", 2, 'the targets are: auto, cpu, a100, h100, h200, t4, v100 (did you mean "cpu"?)'),
        ("bench a.onnx --seed -1", 2, "-1 is not in the range x>=0"),
        ("bench a.onnx --time-budget nan", 2, "nan is not a number"),
        ("bench a.onnx --threads 1000000", 2, "is not in the range 1<=x<="),
        ("verify a.onnx a.onnx --rtol nan", 2, "nan is not a number"),
        ("optimize a.onnx -o b.onnx --rules none.rules", 1, "none.rules: error: no such file or folder\n"),
        ("optimize a.onnx -o b.onnx --rules broken.rules", 1, "broken.rules:1:25: error: unexpected end; expected "),
        ("optimize a.onnx -o b.onnx --rules bytes.rules", 1, "bytes.rules: error: cannot be read: this is not a"),
        ("rules show a00002 --rules some.rules", 2, "`a00002` (did you mean `a00001`?); the rules are a00001"),
        ("optimize a.onnx -o b.onnx --skip-rule zzz", 2, "no rule is called `zzz`; the rules are "),
        ("optimize a.onnx -o b.onnx --spec unbound.op", 1, "unbound.op:1:39: error: no tensor is called `y`\n"),
        ("prove --spec unbound.op -e twice(x)==>x", 1, "unbound.op:1:39: error: no tensor is called `y`\n"),
        ("prove folder", 1, "there are no rules in folder"),
        ("prove some.rules", 3, ""),
        ("gen-rules --universe linera -o rules", 2, 'there are affine, ... (did you mean "linear"?)'),
        ("rules lst", 2, 'the commands are: list, show (did you mean "list"?)'),
        ("hw lsit", 2, 'there is no command "lsit"; the commands are: list (did you mean "list"?)'),
        ("spec chekc", 2, '(did you mean "check"?)'),
        ("", 2, "[OPTIONS] COMMAND [ARGS]... ... Start with `taso optimize"),
    ],
)
def test_is_refused_in_one_sentence(folder: Path, line: str, code: int, message: str) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    result = run(line)
    assert result.exit_code == code, result.output
    for part in message.split(" ... "):
        assert part in result.stderr
    assert "Traceback" not in result.stderr and "bug in taso" not in result.stderr
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("optimize a.onnx -o b.onnx --json none/b.json", 1),
        ("optimize a.onnx -o b.onnx --json folder", 2),
        ("optimize a.onnx -o b.onnx --json ./b.onnx", 2),
        ("optimize a.onnx -o b.onnx --json a.onnx", 2),
        ("bench a.onnx --json folder/../a.onnx", 2),
        ("rules list --rules some.rules --json some.rules", 2),
    ],
)
def test_a_json_file_that_cannot_be_or_must_not_be_written_is_refused_before_any_work(
    folder: Path, line: str, code: int
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    result = run(line)
    assert result.exit_code == code
    assert result.stderr.startswith("taso: error: ") and "Traceback" not in result.stderr
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_json_file_may_lie_in_a_folder_that_the_command_makes(folder: Path) -> None:
    result = run("gen-rules --universe linear --ops 1 -o new --json new/told.json")
    assert result.exit_code == 0, result.output
    assert (folder / "new" / "told.json").exists() and (folder / "new" / "core.rules").exists()


def test_a_pipe_as_the_output_is_written_to_and_not_replaced(folder: Path) -> None:
    """Whether the model was improved or not."""
    source, pipe = folder / "a.onnx", folder / "pipe"
    content = source.read_bytes()
    os.mkfifo(pipe)
    for improved in (False, True):
        result = SimpleNamespace(report=SimpleNamespace(improved=improved), model=onnx.load_model_from_string(content))
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        _write(cast(Any, result), source, content, pipe)
        assert onnx.load_model_from_string(os.read(reader, 1 << 16)).graph.node
        os.close(reader)
        assert pipe.is_fifo()
