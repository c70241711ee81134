"""Measured latencies on disk: one SQLite file that all taso processes of a user share."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from taso.errors import TasoError, UsageError
from taso.files import write_whole

FORMAT = 1  # of the table and of exported files

TABLE = """
create table if not exists latency (
    device text not null, runtime text not null, threads integer not null, kernel text not null,
    median_us real not null, spread_us real not null, samples integer not null, measured_at real not null,
    primary key (device, runtime, threads, kernel)
) without rowid
"""


@dataclass(frozen=True)
class Where:
    """What a latency holds for: the device's own name, the runtime with its version, and the number of threads."""

    device: str
    runtime: str
    threads: int


@dataclass(frozen=True)
class Entry:
    """One kernel's measured latency, microseconds: median, half the interquartile range, number of runs, Unix time."""

    median_us: float
    spread_us: float
    samples: int
    measured_at: float


def default_path() -> Path:
    """Where the store lies: `latency.sqlite` in $TASO_CACHE, else in the user's cache directory."""
    override = os.environ.get("TASO_CACHE")
    if override:
        return Path(override) / "latency.sqlite"
    import platformdirs

    return Path(platformdirs.user_cache_path("taso")) / "latency.sqlite"


class Store:
    """The latencies in one file; a context manager. Several processes may use a file at the same time.

    A file that is not a latency store, or cannot be opened, raises TasoError with its path.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            self._connection.execute("pragma busy_timeout = 30000")
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = normal")
            self._connection.execute(TABLE)
        except (OSError, sqlite3.Error) as error:
            advice = "set TASO_CACHE to another directory, or remove the file"
            raise TasoError(f"cannot use the latency store {self.path}: {error}; {advice}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def get(self, where: Where, kernels: Sequence[str]) -> dict[str, Entry]:
        """The entries that are known of `kernels`, by kernel key."""
        found: dict[str, Entry] = {}
        question = "select median_us, spread_us, samples, measured_at from latency where device = ? and runtime = ?"
        with closing(self._connection.cursor()) as cursor:
            for kernel in kernels:
                key = (where.device, where.runtime, where.threads, kernel)
                row = cursor.execute(question + " and threads = ? and kernel = ?", key).fetchone()
                if row is not None:
                    found[kernel] = Entry(*row)
        return found

    def put(self, where: Where, entries: Mapping[str, Entry]) -> None:
        """Remember entries by kernel key, replacing older ones, in one transaction."""
        place = (where.device, where.runtime, where.threads)
        self._write((*place, kernel, *asdict(entry).values()) for kernel, entry in entries.items())

    def devices(self) -> list[tuple[Where, int]]:
        """Where latencies were measured, and how many kernels each place has."""
        question = "select device, runtime, threads, count(*) from latency group by 1, 2, 3 order by 1, 2, 3"
        return [(Where(*place), count) for *place, count in self._connection.execute(question)]

    def like(self, device: str, threads: int) -> list[Where]:
        """Where latencies were measured on devices whose name a regular expression finds, the newest first."""
        question = "select device, runtime, threads from latency where threads = ? group by 1, 2, 3"
        rows = self._connection.execute(question + " order by max(measured_at) desc", (threads,))
        return [Where(*row) for row in rows if re.search(device, row[0])]

    def export(self, path: Path, *, device: str | None = None) -> int:
        """Write all entries (or one device's) to a JSON file, sorted; gives how many."""
        question = "select * from latency where ? is null or device = ? order by device, runtime, threads, kernel"
        rows = [list(row) for row in self._connection.execute(question, (device, device))]
        columns = [name for _, name, *_ in self._connection.execute("pragma table_info(latency)")]
        body = {"taso latencies": FORMAT, "columns": columns, "rows": rows}
        write_whole(path, (json.dumps(body, indent=0, ensure_ascii=False) + "\n").encode())
        return len(rows)

    def import_(self, path: Path) -> int:
        """Read entries from a file that `export` wrote; of two for the same kernel the newer stays. Gives how many.

        Raises UsageError, with the path, for a file that is none.
        """
        try:
            body = json.loads(path.read_text())
            if body["taso latencies"] != FORMAT:
                raise ValueError(f"its format is {body['taso latencies']}, this version reads {FORMAT}")
            rows = [_checked(dict(zip(body["columns"], row, strict=True))) for row in body["rows"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"{path} is not a file of exported latencies ({reason})") from error
        self._write(rows)
        return len(rows)

    def _write(self, rows: Iterable[Sequence[Any]]) -> None:
        command = """insert into latency values (?, ?, ?, ?, ?, ?, ?, ?) on conflict do update set
            median_us = excluded.median_us, spread_us = excluded.spread_us, samples = excluded.samples,
            measured_at = excluded.measured_at where excluded.measured_at >= measured_at"""
        self._connection.execute("begin immediate")
        try:
            self._connection.executemany(command, rows)
        except BaseException:
            self._connection.execute("rollback")
            raise
        self._connection.execute("commit")


def now() -> float:
    """The time that entries are stamped with: Unix time, seconds."""
    return time.time()


def _checked(row: dict[str, Any]) -> tuple[str, str, int, str, float, float, int, float]:
    numbers = (float(row["median_us"]), float(row["spread_us"]), int(row["samples"]), float(row["measured_at"]))
    if not 0 <= numbers[0] < float("inf"):
        raise ValueError(f"a latency of {numbers[0]} us for {row['kernel']}")
    return (str(row["device"]), str(row["runtime"]), int(row["threads"]), str(row["kernel"]), *numbers)
