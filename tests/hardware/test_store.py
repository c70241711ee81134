from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from taso.errors import TasoError, UsageError
from taso.hardware.store import Entry, Store, Where, default_path

HERE = Where("some device", "onnxruntime 1.0", 1)
ENTRY = Entry(12.5, 0.25, 40, 1000.0)

WRITER = """
import sys
from pathlib import Path
from taso.hardware.store import Entry, Store, Where
with Store(Path(sys.argv[1])) as store:
    for position in range(100):
        entry = Entry(1.0, 0.0, 11, 1.0)
        store.put(Where("d", "r", 1), {f"{sys.argv[2]} {position}": entry, "shared": entry})
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "latency.sqlite"


def test_entries_come_back_also_from_a_new_connection(path: Path) -> None:
    with Store(path) as store:
        store.put(HERE, {"conv 3x3": ENTRY, "ключ": ENTRY})
        assert store.get(HERE, ["conv 3x3", "other", "ключ"]) == {"conv 3x3": ENTRY, "ключ": ENTRY}
    with Store(path) as store:
        assert store.get(HERE, ["conv 3x3"]) == {"conv 3x3": ENTRY}


@pytest.mark.parametrize(
    "elsewhere",
    [
        Where("other device", HERE.runtime, 1),
        Where(HERE.device, "onnxruntime 2.0", 1),
        Where(HERE.device, HERE.runtime, 2),
    ],
)
def test_a_latency_holds_for_its_device_runtime_and_threads_only(path: Path, elsewhere: Where) -> None:
    with Store(path) as store:
        store.put(HERE, {"k": ENTRY})
        assert store.get(elsewhere, ["k"]) == {}


def test_a_newer_entry_replaces_an_older_one(path: Path) -> None:
    newer = Entry(10.0, 0.1, 40, 2000.0)
    with Store(path) as store:
        store.put(HERE, {"k": ENTRY})
        store.put(HERE, {"k": newer})
        store.put(HERE, {"k": ENTRY})
        assert store.get(HERE, ["k"]) == {"k": newer}
        assert store.devices() == [(HERE, 1)]


def test_two_processes_write_at_the_same_time(path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with Store(path) as store:
        assert store.devices() == [(Where("d", "r", 1), 201)]


def test_export_and_import_carry_everything(path: Path, tmp_path: Path) -> None:
    other = Where("other device", "onnxruntime 2.0", 4)
    with Store(path) as store, Store(tmp_path / "second.sqlite") as second:
        store.put(HERE, {"k": ENTRY, "l": ENTRY})
        store.put(other, {"k": ENTRY})
        assert store.export(tmp_path / "all.json") == 3
        assert store.export(tmp_path / "one.json", device="other device") == 1
        assert second.import_(tmp_path / "all.json") == 3
        assert second.devices() == store.devices()
        assert second.get(other, ["k"]) == {"k": ENTRY}
        second.export(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "all.json").read_bytes()


def test_import_keeps_what_is_newer(path: Path, tmp_path: Path) -> None:
    with Store(path) as store:
        store.put(HERE, {"k": ENTRY})
        store.export(tmp_path / "old.json")
        newer = Entry(10.0, 0.1, 40, 2000.0)
        store.put(HERE, {"k": newer})
        store.import_(tmp_path / "old.json")
        assert store.get(HERE, ["k"]) == {"k": newer}


def test_what_is_no_export_is_refused_and_changes_nothing(path: Path, tmp_path: Path) -> None:
    with Store(path) as store:
        store.put(HERE, {"k": ENTRY})
        store.export(tmp_path / "e.json")
        body = json.loads((tmp_path / "e.json").read_text())
        bad_row = {**body, "rows": [*body["rows"], ["d", "r", 1, "k2", "fast", 0, 1, 1]]}
        negative = {**body, "rows": [["d", "r", 1, "k2", -1, 0, 1, 1]]}
        for wrong in [
            "{",
            "[]",
            "{}",
            json.dumps({**body, "taso latencies": 99}),
            json.dumps(bad_row),
            json.dumps(negative),
        ]:
            (tmp_path / "wrong.json").write_text(wrong)
            with pytest.raises(UsageError, match="wrong.json"):
                store.import_(tmp_path / "wrong.json")
        with pytest.raises(UsageError, match="absent.json"):
            store.import_(tmp_path / "absent.json")
        assert store.devices() == [(HERE, 1)]


def test_a_file_that_is_no_store_is_an_error_for_people(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("this is not a database, and long enough for SQLite to notice it" * 10)
    with pytest.raises(TasoError, match=r"latency\.sqlite.*TASO_CACHE"):
        Store(path)


def test_the_environment_says_where_the_store_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TASO_CACHE", str(tmp_path))
    assert default_path() == tmp_path / "latency.sqlite"
    monkeypatch.delenv("TASO_CACHE")
    assert default_path().name == "latency.sqlite" and "taso" in str(default_path())
