"""The terms of a level while it is computed: in memory, or in files that a later run can go on with.

In a folder each shape has one file per column, which only grows, and `done` says after how many shards they have which
lengths. A run that was stopped goes on behind the last line of `done`.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from taso.errors import TasoError
from taso.generate.level import Part
from taso.generate.number import Fresh
from taso.generate.universe import Concrete

_COLUMNS = (("keys", np.uint64), ("instance", np.int16), ("a", np.int32), ("b", np.int32))


class Memory:
    """Terms in memory."""

    done = 0

    def __init__(self) -> None:
        self._parts: dict[Concrete, list[Part]] = defaultdict(list)

    def put(self, parts: Sequence[Part], largest: float) -> None:
        """The terms of the next shard."""
        for part in parts:
            self._parts[part.shape].append(part)
        self.largest = max(getattr(self, "largest", 0.0), largest)

    def shapes(self) -> list[Concrete]:
        """The shapes of all terms, in order."""
        return sorted(self._parts)

    def take(self, shape: Concrete) -> Fresh:
        """All terms of a shape, which are then forgotten."""
        return Fresh.of(self._parts.pop(shape))

    def close(self) -> None:
        """Nothing is left behind."""


class Folder:
    """Terms in files. `done` is the number of shards that are there already, of this run or an earlier one."""

    def __init__(self, folder: Path, shards: int) -> None:
        """`shards` is how many there are in all: files of another division are thrown away."""
        self.folder, self.lengths = folder, dict[Concrete, int]()
        self.done, self.largest = 0, 0.0
        try:
            self._open(shards)
        except OSError as error:
            raise _full(folder, error) from error

    def _open(self, shards: int) -> None:
        journal = self.folder / "done"
        lines = journal.read_text().splitlines() if journal.exists() else []
        if not lines or json.loads(lines[0]) != {"shards": shards}:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            lines = [json.dumps({"shards": shards})]
        for number, line in enumerate(lines[1:], 1):
            try:
                entry = json.loads(line)
            except ValueError:  # the run was stopped while it wrote this line
                lines = lines[:number]
                break
            self.done, self.largest = entry["done"], entry["largest"]
            self.lengths.update({tuple(shape): length for shape, length in entry["lengths"]})
        journal.write_text("".join(line + "\n" for line in lines))
        for shape, length in self.lengths.items():
            for name, dtype in _COLUMNS:
                with self._path(shape, name).open("r+b") as file:
                    file.truncate(length * np.dtype(dtype).itemsize)

    def _path(self, shape: Concrete, column: str) -> Path:
        return self.folder / f"{'x'.join(map(str, shape)) or 'scalar'}.{column}"

    def put(self, parts: Sequence[Part], largest: float) -> None:
        """The terms of the next shard."""
        try:
            for part in parts:
                for name, dtype in _COLUMNS:
                    column = np.full(len(part), part.instance) if name == "instance" else getattr(part, name)
                    if part.shape not in self.lengths:
                        self._path(part.shape, name).unlink(missing_ok=True)
                    with self._path(part.shape, name).open("ab") as file:
                        file.write(np.ascontiguousarray(column, dtype).data)
                self.lengths[part.shape] = self.lengths.get(part.shape, 0) + len(part)
            self.done, self.largest = self.done + 1, max(self.largest, largest)
            changed = [[shape, self.lengths[shape]] for shape in sorted({part.shape for part in parts})]
            with (self.folder / "done").open("a") as file:
                file.write(json.dumps({"done": self.done, "largest": self.largest, "lengths": changed}) + "\n")
        except OSError as error:
            raise _full(self.folder, error) from error

    def shapes(self) -> list[Concrete]:
        """The shapes of all terms, in order."""
        return sorted(self.lengths)

    def take(self, shape: Concrete) -> Fresh:
        """All terms of a shape; the files stay until the whole run is over."""
        columns = {name: np.fromfile(self._path(shape, name), dtype, self.lengths[shape]) for name, dtype in _COLUMNS}
        return Fresh(columns["keys"], columns["instance"], columns["a"], columns["b"])

    def close(self) -> None:
        """The files stay, for a run that goes on."""


Spool = Memory | Folder


def _full(folder: Path, error: OSError) -> TasoError:
    return TasoError(
        f"cannot keep terms in {folder}: {error.strerror or error}. Free some space there, or choose another place with"
        " --work DIR; the same command goes on where this one stopped"
    )
