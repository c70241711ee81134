"""Where tasks run: in this process, in others of this machine, or (`cluster`) on the machines of a Ray cluster.

A task is a function of something that many tasks share and of arguments of its own. What is shared is handed over
once: local processes map it into their memory from a file.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, Self

MAX_PROCESSES = 16
_ALIGNED = 64


class Task(Protocol):
    """Something that runs, or will."""

    def result(self) -> Any:
        """What came out; waits for it. Raises what the function raised."""

    def cancel(self) -> Any:
        """Nobody will ask for the result."""


class Shared(Protocol):
    """Something handed over to all processes; `key` names it."""

    key: str


class Executor(ABC):
    """Runs tasks, as many side by side as `processes`. A context manager."""

    processes: int

    @abstractmethod
    def share(self, value: Any) -> Any:
        """Hand over something that many tasks need."""

    @abstractmethod
    def submit(self, function: Callable[..., Any], shared: Any, *args: Any) -> Task:
        """Begin `function(value, *args)` with the value that was shared."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Later:
    """A task of this process: it runs when its result is asked for."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._call = function, args

    def result(self) -> Any:
        function, args = self._call
        return function(*args)

    def cancel(self) -> None:
        pass


class Serial(Executor):
    """Everything in this process."""

    processes = 1

    def share(self, value: Any) -> Any:
        """Nothing is to be done."""
        return value

    def submit(self, function: Callable[..., Any], shared: Any, *args: Any) -> Task:
        """The function runs when its result is asked for."""
        return _Later(function, shared, *args)


class Processes(Executor):
    """Other Python processes of this machine, started when the first task comes."""

    def __init__(self, processes: int | None = None) -> None:
        """`processes` is by default the number of cores, at most MAX_PROCESSES."""
        self.processes = processes or min(os.cpu_count() or 1, MAX_PROCESSES)
        self._pool: ProcessPoolExecutor | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def share(self, value: Any) -> str:
        """Write it to a file that the processes map into their memory, and return the file's path."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="taso-")
        path = Path(self._folder.name) / uuid.uuid4().hex
        write_shared(path, value)
        return str(path)

    def submit(self, function: Callable[..., Any], shared: str, *args: Any) -> Future[Any]:
        """Begin the task as soon as a process is free."""
        if self._pool is None:
            # new interpreters, since a fork copies the locks of the threads that numpy and z3 may have started
            self._pool = ProcessPoolExecutor(self.processes, get_context("spawn"), _one_thread)
        return self._pool.submit(_call, function, shared, *args)

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._folder is not None:
            self._folder.cleanup()


def local(processes: int | None = None) -> Executor:
    """Processes of this machine, or this one alone if that is all."""
    found = Processes(processes)
    return found if found.processes > 1 else Serial()


# --- what processes share

_opened: OrderedDict[str, Any] = OrderedDict()  # of a worker process, the last few


def _one_thread() -> None:
    """A process's matrix products use one thread: the others have the other cores."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _call(function: Callable[..., Any], path: str, *args: Any) -> Any:
    if path not in _opened:
        while len(_opened) > 2:
            _opened.popitem(last=False)
        _opened[path] = read_shared(Path(path))
    return function(_opened[path], *args)


def write_shared(path: Path, value: Any) -> None:
    """Write an object so that the arrays in it can be mapped into memory."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    sizes = pickle.dumps([view.nbytes for view in views])
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + len(sizes).to_bytes(8, "little") + head + sizes)
        for view in views:
            file.write(b"\0" * (-file.tell() % _ALIGNED))
            file.write(view)


def read_shared(path: Path) -> Any:
    """What `write_shared` wrote; its arrays are read-only and only come into memory where they are read."""
    with path.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    lengths = [int.from_bytes(mapped[at : at + 8], "little") for at in (0, 8)]
    at = 16 + lengths[0]
    sizes = pickle.loads(mapped[at : at + lengths[1]])
    at += lengths[1]
    buffers = []
    for size in sizes:
        at += -at % _ALIGNED
        buffers.append(mapped[at : at + size])
        at += size
    return pickle.loads(mapped[16 : 16 + lengths[0]], buffers=buffers)
