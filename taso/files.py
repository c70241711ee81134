"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

from taso.errors import UsageError


def check_writable(path: Path) -> None:
    """Raise OSError or UsageError now, before any work, where `path` could not be written in the end."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory; give the name of a file in it")
    folder = path.parent
    if not folder.is_dir():
        raise OSError(errno.ENOENT, "there is no such directory", str(folder))
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise OSError(errno.EACCES, "cannot be written", str(path))


def write_whole(path: Path, *content: bytes) -> None:
    """Write a file so that a reader, or a crash, meets the old content or the new one and nothing in between.

    `content` may come in several pieces. A link keeps pointing where it does; a device or a pipe is written to, not
    replaced.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with path.open("wb") as file:
            file.writelines(content)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        with beside.open("xb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(beside, stat.S_IMODE(path.stat().st_mode))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
