"""Proofs side by side: processes that generalise candidates."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Self

from taso.errors import SpecError
from taso.generate.candidates import Candidate
from taso.generate.generalise import Failure, Schema, generalise
from taso.spec.spec import Spec

MAX_PROCESSES = 16
Outcome = Schema | Failure

_spec = Spec()  # of a worker process


class Task:
    """A candidate that is being generalised, or will be when its outcome is asked for."""

    def __init__(self, candidate: Candidate, spec: Spec, executor: ProcessPoolExecutor | None) -> None:
        self._candidate, self._spec = candidate, spec
        self._future: Future[Outcome] | None = None if executor is None else executor.submit(_work, candidate)

    def outcome(self) -> Outcome:
        """The schema, or why there is none."""
        return _generalised(self._candidate, self._spec) if self._future is None else self._future.result()

    def cancel(self) -> None:
        """Nobody will ask for the outcome."""
        if self._future is not None:
            self._future.cancel()


class Pool:
    """Generalises candidates in `processes` other processes; in this one, when asked, if `processes` is 1."""

    def __init__(self, spec: Spec, processes: int | None = None) -> None:
        """`processes` is by default the number of cores, at most MAX_PROCESSES."""
        self.spec = spec
        self.processes = processes or min(os.cpu_count() or 1, MAX_PROCESSES)
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.processes > 1:
            # new interpreters, since a fork copies the locks of the threads that numpy and z3 may have started
            self._executor = ProcessPoolExecutor(self.processes, get_context("spawn"), _start, (self.spec.files,))
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def submit(self, candidate: Candidate) -> Task:
        """Begin to generalise a candidate."""
        return Task(candidate, self.spec, self._executor)


def _start(files: Mapping[str, str]) -> None:
    """Make a worker's specification from the texts of the files."""
    for path, text in files.items():
        _spec.add(text, path)


def _work(candidate: Candidate) -> Outcome:
    return _generalised(candidate, _spec)


def _generalised(candidate: Candidate, spec: Spec) -> Outcome:
    try:
        return generalise(candidate.source, candidate.target, candidate.shapes, spec)
    except SpecError as error:
        return Failure("unknown", str(error))
