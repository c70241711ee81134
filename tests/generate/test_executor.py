"""Wherever shards run and however often a run is stopped, the same comes out."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

import numpy as np
import pytest

from taso.errors import TasoError, UsageError
from taso.generate import enumerate as enumeration
from taso.generate import executor, spool
from taso.generate.device import array_module
from taso.generate.enumerate import enumerate_universe
from taso.generate.executor import Processes, Serial, read_shared, write_shared
from taso.generate.values import Enumeration
from tests.generate.universes import HALVES, IMAGES, SPEC, universe


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small levels count as large ones."""
    monkeypatch.setattr(enumeration, "SIDE_BY_SIDE", 100)
    monkeypatch.setattr(enumeration, "SPOOLED", 100)


def same(one: Enumeration, two: Enumeration) -> bool:
    columns = ("instance", "a", "b", "level", "value")
    rows = ("instance", "a", "b", "of", "nodes", "mask")
    return (
        one.counts == two.counts
        and one.largest == two.largest
        and all(np.array_equal(getattr(one.found, c), getattr(two.found, c)) for c in columns)
        and all(np.array_equal(getattr(one.table, c), getattr(two.table, c)) for c in rows)
    )


def alone(text: str) -> Enumeration:
    return enumerate_universe(universe(text), SPEC, 3)


def test_what_is_shared_comes_back(tmp_path: Path) -> None:
    value = {"a": np.arange(7, dtype=np.int16), "b": [np.eye(3), "text"], "c": np.zeros((0, 4))}
    write_shared(tmp_path / "value", value)
    back = read_shared(tmp_path / "value")
    np.testing.assert_array_equal(back["a"], value["a"])
    np.testing.assert_array_equal(back["b"][0], np.eye(3))
    assert back["b"][1] == "text" and back["c"].shape == (0, 4)
    assert not back["a"].flags.writeable


def test_serial_runs_when_asked() -> None:
    ran: list[int] = []
    with Serial() as here:
        task = here.submit(lambda shared, k: ran.append(k) or shared, here.share("x"), 3)
        assert not ran
        assert task.result() == "x" and ran == [3]


def test_processes_find_the_same() -> None:
    with Processes(2) as pool:
        assert same(enumerate_universe(universe(IMAGES), SPEC, 3, executor=pool), alone(IMAGES))


def test_files_hold_the_same_as_memory(tmp_path: Path) -> None:
    found = enumerate_universe(universe(IMAGES), SPEC, 3, work=tmp_path)
    assert same(found, alone(IMAGES))
    assert found.work is not None and (found.work / "3" / "done").exists()
    assert same(enumerate_universe(universe(IMAGES), SPEC, 3, work=tmp_path), alone(IMAGES))


class Stop(Exception):
    """Pressed Ctrl-C."""


@pytest.mark.parametrize("after", [0, 1, 5, 17])
def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    put, count = spool.Folder.put, itertools.count()

    def stopping(self: spool.Folder, *args: object) -> None:
        if next(count) == after:
            raise Stop
        put(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(spool.Folder, "put", stopping)
    with pytest.raises(Stop):
        enumerate_universe(universe(IMAGES), SPEC, 3, work=tmp_path)
    (journal,) = list(tmp_path.glob("*/2/done")) or list(tmp_path.glob("*/3/done"))
    with journal.open("a") as file:
        file.write('{"done": 99, "larg')  # stopped within a line
    for column in journal.parent.glob("*.keys"):
        with column.open("ab") as data:
            data.write(b"rest of a shard")
    monkeypatch.setattr(spool.Folder, "put", put)
    computed: list[object] = []
    run = enumeration.Level.run
    monkeypatch.setattr(enumeration.Level, "run", lambda self, shard: computed.append(shard) or run(self, shard))
    assert same(enumerate_universe(universe(IMAGES), SPEC, 3, work=tmp_path), alone(IMAGES))
    if after > 1:
        total = len(computed)
        computed.clear()
        alone(IMAGES)
        assert total < 2 * len(computed)  # the other half is `alone`


def test_a_full_disk_is_said_and_what_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, count = Path.open, itertools.count()

    def full(self: Path, *args: object, **options: object) -> object:
        if args and args[0] == "ab" and next(count) == 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(self, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(TasoError, match=r"No space left on device. Free some space there, or .* --work DIR"):
        enumerate_universe(universe(IMAGES), SPEC, 3, work=tmp_path)
    monkeypatch.setattr(Path, "open", opened)
    assert list(tmp_path.glob("*/*/done"))
    assert same(enumerate_universe(universe(IMAGES), SPEC, 3, work=tmp_path), alone(IMAGES))


def test_too_little_memory_is_said_before_it_starts() -> None:
    with pytest.raises(TasoError, match=r"needs about .* GB of memory; 0.0 GB are allowed. Give more with --memory"):
        enumerate_universe(universe(HALVES), SPEC, 3, memory=1 << 20)


def test_devices() -> None:
    assert array_module("cpu") is np
    with pytest.raises(UsageError, match="no device is called 'tpu'"):
        array_module("tpu")


def test_the_processes_of_an_executor_are_no_more_than_asked_for() -> None:
    assert executor.local(1).processes == 1
    assert executor.local(3).processes == 3
