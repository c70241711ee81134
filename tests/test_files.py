"""Files are written whole or not at all, and what cannot be written is said before any work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from taso.errors import UsageError
from taso.files import check_writable, write_whole


def test_replaces_the_content_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(b"old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.onnx"]


def test_keeps_the_mode_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_whole(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"anything")
        assert os.read(reader, 100) == b"anything"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_failure_leaves_the_old_content_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(b"old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.onnx"]


def test_says_beforehand_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        check_writable(tmp_path)
    with pytest.raises(OSError, match="no such directory"):
        check_writable(tmp_path / "missing" / "a.onnx")
    check_writable(tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()
