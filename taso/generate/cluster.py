"""Tasks on the machines of a Ray cluster.

What is shared goes through Ray's object store, once to each machine. A task whose worker is lost runs again; since
results are taken in order, what comes out does not depend on it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from taso.errors import UsageError
from taso.generate.executor import Executor

RETRIES = 5  # of a task whose worker was lost

_opened: OrderedDict[str, Any] = OrderedDict()  # of a worker process, the last few


class _Reference:
    """A Ray task as a `Task`."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def result(self) -> Any:
        try:
            return self._ray.get(self._reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None

    def cancel(self) -> None:
        self._ray.cancel(self._reference)


class Cluster(Executor):
    """All cores of a Ray cluster."""

    def __init__(self, address: str) -> None:
        """Connect to the cluster at `address`; `auto` finds the one of this machine, `local` starts one for this run.

        Raises:
            UsageError: Ray is not installed, or there is no cluster at the address.
        """
        try:
            import ray
        except ImportError:
            raise UsageError("--ray needs Ray; install it with `pip install 'taso[cluster]'`") from None
        self._ray = ray
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(f"--ray {address}: no Ray cluster can be reached there ({error})") from error
        self.processes = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._call = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)

    def share(self, value: Any) -> Any:
        """Put it into the object store."""
        return self._ray.put(value)

    def submit(self, function: Callable[..., Any], shared: Any, *args: Any) -> _Reference:
        """Begin the task as soon as a core is free."""
        return _Reference(self._ray, self._call.remote(shared.hex(), shared, function, *args))

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()


def _call(key: str, value: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Run a task; of a value that was seen before the copy is used that holds what was made from it."""
    if key not in _opened:
        while len(_opened) > 2:
            _opened.popitem(last=False)
        _opened[key] = value
    return function(_opened[key], *args)
