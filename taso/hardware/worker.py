"""The process that runs onnxruntime: reads requests on standard input, answers on standard output.

Started by `taso.hardware.runtime.Worker` as `python -m taso.hardware.worker`; whatever a model does to it (a crash, a
hang, running out of memory), taso itself survives. A message is an 8-byte little-endian length and a pickle. A request
is `(verb, arguments)`; the answer is `("ok", value)` or `("error", text)`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import random
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any

import numpy as np

LENGTH = struct.Struct("<Q")

# Element types that numpy does not have itself: exchanged with onnxruntime as raw bytes. Name here -> ONNX number.
EXOTIC = {"bfloat16": 16, "float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20}


def send(stream: IO[bytes], message: object) -> None:
    """Write one message."""
    body = pickle.dumps(message, protocol=5)
    stream.write(LENGTH.pack(len(body)))
    stream.write(body)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; EOFError where the other side is gone."""
    return pickle.loads(_exactly(stream, LENGTH.unpack(_exactly(stream, LENGTH.size))[0]))


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return data


class Sessions:
    """The named onnxruntime sessions of this process, and what can be asked of them: one method per verb."""

    def __init__(self) -> None:
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        self.ort = onnxruntime
        self.sessions: dict[str, Any] = {}

    def load(self, name: str, model: bytes | str, level: int, threads: int, provider: str) -> dict[str, Any]:
        """Make a session; gives its inputs and outputs as (name, type, shape) lists and the providers it runs on."""
        options = self.ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = self.ort.GraphOptimizationLevel(level)
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Idle threads of one session must not spin while another one is being timed.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        providers = [provider] if provider == "CPUExecutionProvider" else [provider, "CPUExecutionProvider"]
        session = self.ort.InferenceSession(model, options, providers=providers)
        self.sessions[name] = session
        return {
            "inputs": [(one.name, one.type, one.shape) for one in session.get_inputs()],
            "outputs": [(one.name, one.type, one.shape) for one in session.get_outputs()],
            "providers": session.get_providers(),
        }

    def drop(self, name: str) -> None:
        """Forget a session; nothing happens where there is none of that name."""
        self.sessions.pop(name, None)

    def run(self, name: str, inputs: dict[str, Any], outputs: list[str] | None) -> dict[str, Any]:
        """Run a session once; gives its outputs by name."""
        session = self.sessions[name]
        types = {one.name: _element(one.type) for one in (*session.get_inputs(), *session.get_outputs())}
        wanted = [one.name for one in session.get_outputs()] if outputs is None else outputs
        if not any(types[one] in EXOTIC for one in (*inputs, *wanted) if one in types):
            return dict(zip(wanted, session.run(wanted, inputs)))
        feeds = {key: self._value(value, types.get(key, ""), "cpu") for key, value in inputs.items()}
        return dict(zip(wanted, map(_array, session.run_with_ort_values(wanted, feeds))))

    def shapes(self, name: str, inputs: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Run a session once; gives dtype and shape of every output that is a tensor."""
        arrays = self.run(name, inputs, None)
        return {key: (str(one.dtype), one.shape) for key, one in arrays.items() if isinstance(one, np.ndarray)}

    def time(
        self,
        names: list[str],
        inputs: dict[str, Any],
        min_runs: int,
        max_runs: int,
        warmup: int,
        budget_s: float,
        seed: int,
    ) -> dict[str, tuple[list[int], list[int]]]:
        """Time sessions round by round, each once a round, in shuffled order: (wall ns, calling thread's CPU ns) lists.

        Goes on until `max_runs` rounds or, once there are `min_runs`, until the budget is spent. Models so slow that
        `min_runs` would take over four budgets end there, with three rounds at least.
        """
        calls = {name: self._call(self.sessions[name], inputs) for name in names}
        start = time.perf_counter()
        for call in calls.values():
            for _ in range(warmup):
                call()
        samples: dict[str, tuple[list[int], list[int]]] = {name: ([], []) for name in names}
        order, shuffler = list(names), random.Random(seed)
        gc.collect()
        gc.disable()
        for done in range(max_runs):
            spent = time.perf_counter() - start
            if (done >= min_runs and spent > budget_s) or (done >= 3 and spent > 4 * budget_s):
                break
            shuffler.shuffle(order)
            for name in order:
                call = calls[name]
                wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
                call()
                cpu, wall = time.thread_time_ns() - cpu, time.perf_counter_ns() - wall
                samples[name][0].append(wall)
                samples[name][1].append(cpu)
        gc.enable()
        return samples

    def _call(self, session: Any, inputs: dict[str, Any]) -> Callable[[], object]:
        """One run as a function without arguments; inputs already lie where the session wants them where possible."""
        feeds = {one.name: inputs[one.name] for one in session.get_inputs() if one.name in inputs}
        plain = all(isinstance(one, np.ndarray) and one.dtype != object for one in feeds.values())
        if not plain or not all(one.type.startswith("tensor(") for one in session.get_outputs()):
            return lambda: session.run(None, feeds)
        device = "cuda" if session.get_providers()[0].startswith(("CUDA", "Tensorrt")) else "cpu"
        binding = session.io_binding()
        for one in session.get_inputs():
            if one.name in feeds:
                value = self._value(feeds[one.name], _element(one.type), device)
                binding.bind_ortvalue_input(one.name, value)
        for one in session.get_outputs():
            binding.bind_output(one.name, device)

        def run_on_device() -> None:
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()

        return run_on_device if device != "cpu" else lambda: session.run_with_iobinding(binding)

    def _value(self, array: np.ndarray[Any, Any], element: str, device: str) -> Any:
        array = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone makes a scalar rank 1
        make = self.ort.OrtValue
        if element in EXOTIC:
            raw = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
            return make.ortvalue_from_numpy_with_onnx_type(raw, EXOTIC[element])
        return make.ortvalue_from_numpy(array, device, 0)


def _element(text: str) -> str:
    """`tensor(float)` -> `float`; other kinds of value unchanged."""
    return text[len("tensor(") : -1] if text.startswith("tensor(") else text


def _array(value: Any) -> Any:
    """An OrtValue as numpy array (or list), also for the element types that numpy gets from ml_dtypes."""
    element = _element(value.data_type())
    if element not in EXOTIC:
        return value.numpy()
    import ml_dtypes

    names = {"bfloat16": "bfloat16", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz"}
    names |= {"float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz"}
    dtype = np.dtype(getattr(ml_dtypes, names[element]))
    shape = tuple(value.shape())
    raw = ctypes.string_at(value.data_ptr(), int(np.prod(shape)) * dtype.itemsize) if 0 not in shape else b""
    return np.frombuffer(raw, dtype).reshape(shape)


def _end_with_parent(parent: int) -> None:
    """End this process when the one that started it is gone, even in the middle of a run that never ends."""
    while os.getppid() == parent:
        time.sleep(2)
    os._exit(1)


def _offer_to_the_memory_killer() -> None:
    """Where memory runs out, this process is the one to go."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def main() -> None:
    """Serve requests until standard input ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not end up between our answers
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    _offer_to_the_memory_killer()
    sessions: Sessions | None = None
    while True:
        try:
            verb, arguments = receive(requests)
        except EOFError:
            return
        try:
            if sessions is None:
                sessions = Sessions()
            answer = ("ok", getattr(sessions, verb)(**arguments))
        except Exception as error:  # noqa: BLE001 - whatever a model raises is an answer, not our end
            answer = ("error", f"{type(error).__name__}: {error}")
        send(answers, answer)


if __name__ == "__main__":
    main()
