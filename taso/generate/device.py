"""Which array module the enumerator computes with: NumPy, or CuPy on a GPU."""

from __future__ import annotations

from types import ModuleType

from taso.errors import UsageError

DEVICES = ("auto", "cpu", "cuda")


def array_module(device: str) -> ModuleType:
    """NumPy for `cpu`, CuPy for `cuda`, and for `auto` CuPy where it is installed and finds a GPU.

    Raises:
        UsageError: `cuda` without CuPy or without a GPU.
    """
    import numpy as np

    if device == "cpu":
        return np
    if device not in DEVICES:
        raise UsageError(f"no device is called {device!r}; there are {', '.join(DEVICES)}")
    try:
        import cupy
    except ImportError:
        if device == "auto":
            return np
        raise UsageError("--device cuda needs CuPy; install it with `pip install 'taso[gpu]'`") from None
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if device == "auto":
            return np
        raise UsageError(f"--device cuda: no GPU can be used ({error})") from error
    if count:
        return cupy  # type: ignore[no-any-return]
    if device == "auto":
        return np
    raise UsageError("--device cuda: there is no GPU in this machine")
