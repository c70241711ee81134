"""onnxruntime behind a wall: models run in a process of their own, with a time limit on every request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from taso.errors import MeasureError
from taso.hardware.worker import receive, send

if TYPE_CHECKING:
    import onnx

# onnxruntime's graph optimisation levels, from the one that users get to the one that changes nothing.
LEVELS = {"full": 99, "extended": 2, "basic": 1, "disabled": 0}

# What a model's input or output holds: a numpy array, or for sequences and maps a list or dict of them.
Value = Any

DEFAULT_LIMIT_S = 120.0


class WorkerLost(MeasureError):
    """The worker process crashed, was killed for memory or ran out of time; the next request starts a fresh one."""


@dataclass(frozen=True)
class Loaded:
    """What a session says about itself: (name, onnxruntime type, dims) for each input and output."""

    inputs: tuple[tuple[str, str, tuple[int | str | None, ...]], ...]
    outputs: tuple[tuple[str, str, tuple[int | str | None, ...]], ...]
    providers: tuple[str, ...]
    level: str


@dataclass(frozen=True)
class RawTiming:
    """Samples of one session in round order, in nanoseconds: wall clock, and CPU time of the calling thread."""

    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]


def runtime_version() -> str:
    """The installed runtime, e.g. `onnxruntime 1.32.0` (`onnxruntime none` if missing), without importing it."""
    for distribution in ("onnxruntime-gpu", "onnxruntime"):
        try:
            return f"{distribution} {metadata.version(distribution)}"
        except metadata.PackageNotFoundError:
            continue
    return "onnxruntime none"


def available_threads() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Worker:
    """A process that runs onnxruntime sessions for us; use it as a context manager.

    Sessions have names. A request that takes longer than its limit kills the process; a crash is noticed. Both raise
    `WorkerLost` (a MeasureError) and the next request starts a new process, in which every session is loaded again.
    An error that onnxruntime reports itself raises MeasureError and leaves the process as it was.
    """

    threads: int = 1
    provider: str = "CPUExecutionProvider"
    limit_s: float = DEFAULT_LIMIT_S
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _sessions: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the process and have it import onnxruntime now, rather than with the first request."""
        self._ask("drop", {"name": ""}, None)

    def close(self) -> None:
        """End the process and forget all sessions."""
        self._sessions.clear()
        self._end()

    def load(
        self, name: str, model: bytes | str | Path, *, level: str = "full", threads: int | None = None,
        limit_s: float | None = None,
    ) -> Loaded:  # fmt: skip
        """Load a model (bytes, or the path of a file) as session `name`, replacing one of the same name.

        `level` is a key of LEVELS, `threads` the session's thread count. Raises MeasureError where onnxruntime refuses.
        """
        arguments = {
            "name": name,
            "model": model if isinstance(model, bytes) else str(model),
            "level": LEVELS[level],
            "threads": self.threads if threads is None else threads,
            "provider": self.provider,
        }
        self._sessions.pop(name, None)
        told = self._ask("load", arguments, limit_s)
        self._sessions[name] = arguments
        inputs, outputs = ([(one, kind, tuple(dims)) for one, kind, dims in told[key]] for key in ("inputs", "outputs"))
        return Loaded(tuple(inputs), tuple(outputs), tuple(told["providers"]), level)

    def drop(self, name: str) -> None:
        """Forget session `name`."""
        if self._sessions.pop(name, None) is not None and self._process is not None:
            self._ask("drop", {"name": name}, None)

    def run(
        self, name: str, inputs: Mapping[str, Value], *, outputs: Sequence[str] | None = None,
        limit_s: float | None = None,
    ) -> dict[str, Value]:  # fmt: skip
        """Run session `name` once; gives the outputs asked for (all if None) by name."""
        wanted = None if outputs is None else list(outputs)
        answer: dict[str, Value] = self._ask("run", {"name": name, "inputs": dict(inputs), "outputs": wanted}, limit_s)
        return answer

    def output_shapes(
        self, name: str, inputs: Mapping[str, Value], *, limit_s: float | None = None
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Run session `name` once; gives (numpy dtype name, shape) of each tensor output, without moving the data."""
        answer: dict[str, tuple[str, tuple[int, ...]]]
        answer = self._ask("shapes", {"name": name, "inputs": dict(inputs)}, limit_s)
        return answer

    def time(
        self, names: Sequence[str], inputs: Mapping[str, Value], *, min_runs: int = 11, max_runs: int = 1000,
        warmup: int = 2, budget_s: float = 1.0, seed: int = 0, limit_s: float | None = None,
    ) -> dict[str, RawTiming]:  # fmt: skip
        """Time sessions interleaved: every round runs each of them once, in an order shuffled with `seed`.

        Each session is fed those of `inputs` that it has. Rounds: at least `min_runs`, at most `max_runs`, in between
        until `budget_s` is over (a model for which `min_runs` would take over four budgets gets fewer, three at least).
        """
        arguments = {
            "names": list(names),
            "inputs": dict(inputs),
            "min_runs": min_runs,
            "max_runs": max(max_runs, min_runs),
            "warmup": warmup,
            "budget_s": budget_s,
            "seed": seed,
        }
        answer = self._ask("time", arguments, limit_s or (self.limit_s + 5 * budget_s))
        return {name: RawTiming(tuple(wall), tuple(cpu)) for name, (wall, cpu) in answer.items()}

    def _ask(self, verb: str, arguments: dict[str, Any], limit_s: float | None) -> Any:
        if self._process is None:
            self._start()
        return self._exchange(verb, arguments, limit_s or self.limit_s)

    def _start(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [environment.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "taso.hardware.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is ours to handle
        )
        for name, arguments in list(self._sessions.items()):
            try:
                self._exchange("load", arguments, self.limit_s)
            except MeasureError:
                self._sessions.pop(name, None)
                raise

    def _exchange(self, verb: str, arguments: dict[str, Any], limit_s: float) -> Any:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        watchdog = threading.Timer(limit_s, give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            send(process.stdin, (verb, arguments))
            outcome, value = receive(process.stdout)
        except (EOFError, OSError) as error:
            status = self._end()
            reason = f"took longer than {limit_s:g} s and was stopped" if late.is_set() else _death(status)
            raise WorkerLost(f"onnxruntime {reason} (request: {verb})") from error
        except BaseException:
            self._end()  # interrupted between question and answer: the pipe is out of step
            raise
        finally:
            watchdog.cancel()
        if outcome == "error":
            raise MeasureError(f"onnxruntime: {value}")
        return value

    def _end(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            if process.stdin is not None:
                process.stdin.close()  # asks an idle worker to end
            status = process.wait(timeout=1)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            status = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return status


def _death(status: int) -> str:
    if status >= 0:
        return f"ended unexpectedly with status {status}"
    name = signal.Signals(-status).name
    return "was killed, probably for running out of memory" if name == "SIGKILL" else f"crashed ({name})"


def load_with_fallback(
    worker: Worker, name: str, model: bytes | str | Path, *, threads: int | None = None,
    inputs: Mapping[str, Value] | None = None, levels: Sequence[str] = ("full", "extended", "basic", "disabled"),
) -> Loaded:  # fmt: skip
    """Load a model at the first of `levels` at which onnxruntime takes it (and, with `inputs`, also runs it once).

    onnxruntime rejects some valid models at its full level, and crashes on others. Gives what `Worker.load` gives, with
    the level that worked; raises MeasureError with the first level's reason where none does.
    """
    first: MeasureError | None = None
    for level in levels:
        try:
            loaded = worker.load(name, model, level=level, threads=threads)
            if inputs is not None:
                worker.run(name, {key: inputs[key] for key, *_ in loaded.inputs if key in inputs}, outputs=[])
            return loaded
        except MeasureError as error:
            first = first or error
            worker.drop(name)
    raise MeasureError(f"no optimisation level runs the model; at level {levels[0]}: {first}")


def node_output_shapes(
    model: onnx.ModelProto, inputs: Mapping[str, Value], worker: Worker
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Every tensor that the main graph's nodes compute on `inputs`: name -> (numpy dtype name, shape).

    Runs the model once with optimisations off and all node outputs made graph outputs. Raises MeasureError.
    """
    import onnx

    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    known = {one.name for one in exposed.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                known.add(name)
                exposed.graph.output.append(onnx.ValueInfoProto(name=name))  # without a type: onnxruntime infers it
    session = "all node outputs"
    levels = ("disabled", "basic", "extended", "full")
    load_with_fallback(worker, session, exposed.SerializeToString(), inputs=inputs, levels=levels)
    try:
        return worker.output_shapes(session, inputs)
    finally:
        worker.drop(session)
