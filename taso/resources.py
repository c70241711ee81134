"""Where the operator specifications and the rules lie: in the source tree, or packed into an installed wheel."""

from __future__ import annotations

from pathlib import Path

from taso.errors import TasoError

PACKAGE = Path(__file__).resolve().parent


def opspec_dir() -> Path:
    """Return the folder of the operator specifications (*.op) and universes.

    Raises TasoError if the installation lacks it.
    """
    return _folder("opspec")


def rules_dir() -> Path:
    """Return the folder of the shipped rules (*.rules).

    Raises TasoError if the installation lacks it.
    """
    return _folder("rules")


def _folder(name: str) -> Path:
    """The source tree comes first, so that an editable installation sees what is being edited."""
    in_tree, packed = PACKAGE.parent / name, PACKAGE / f"_{name}"
    is_checkout = (PACKAGE.parent / "setup.py").is_file()
    if is_checkout and in_tree.is_dir():
        return in_tree
    if packed.is_dir():
        return packed
    raise TasoError(f"this installation of taso has no {name}/: looked for {in_tree} and {packed}; reinstall it")
