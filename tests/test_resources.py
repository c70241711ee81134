"""An installation finds its specifications and rules, in the source tree and in a wheel's layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from taso import resources
from taso.errors import TasoError

ROOT = Path(__file__).resolve().parent.parent


def test_source_tree_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("opspec", "rules", "taso/_opspec", "taso/_rules"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "setup.py").touch()
    monkeypatch.setattr(resources, "PACKAGE", tmp_path / "taso")
    assert resources.opspec_dir() == tmp_path / "opspec"
    assert resources.rules_dir() == tmp_path / "rules"


def test_wheel_ignores_folders_beside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("opspec", "rules", "taso/_opspec", "taso/_rules"):  # site-packages/rules belongs to somebody else
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(resources, "PACKAGE", tmp_path / "taso")
    assert resources.opspec_dir() == tmp_path / "taso" / "_opspec"
    assert resources.rules_dir() == tmp_path / "taso" / "_rules"


def test_missing_data_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PACKAGE", tmp_path / "taso")
    with pytest.raises(TasoError, match="_rules"):
        resources.rules_dir()


def test_every_folder_of_modules_is_a_package() -> None:
    """setup.py packs regular packages only: a folder without __init__.py would be missing from the wheel."""
    folders = {path.parent for path in (ROOT / "taso").rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []
