"""Proofs side by side: tasks that generalise candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taso.errors import SpecError
from taso.generate.candidates import Candidate
from taso.generate.executor import Executor, Task
from taso.generate.generalise import Failure, Schema, generalise
from taso.spec.spec import Spec

Outcome = Schema | Failure


@dataclass
class Proofs:
    """What proofs need: the texts of the specification, from which each process makes its own."""

    files: Mapping[str, str]
    spec: Spec | None = None

    def opened(self) -> Spec:
        """The specification; made once in each process."""
        if self.spec is None:
            self.spec = Spec()
            for path, text in self.files.items():
                self.spec.add(text, path)
        return self.spec


class Pool:
    """Generalises candidates where an executor runs them."""

    def __init__(self, spec: Spec, executor: Executor) -> None:
        self.executor, self.processes = executor, executor.processes
        self._shared = executor.share(Proofs(spec.files, spec if executor.processes == 1 else None))

    def submit(self, candidate: Candidate) -> Task:
        """Begin to generalise a candidate; the result is a schema, or why there is none."""
        return self.executor.submit(generalised, self._shared, candidate)


def generalised(proofs: Proofs, candidate: Candidate) -> Outcome:
    """The schema of a candidate, or why there is none."""
    try:
        return generalise(candidate.source, candidate.target, candidate.shapes, proofs.opened())
    except SpecError as error:
        return Failure("unknown", str(error))
