"""The enumerator on another device: nothing of the host is mixed in, and CuPy has what is called."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from taso.generate import enumerate as enumeration
from taso.generate.enumerate import enumerate_universe
from tests.generate.test_executor import same
from tests.generate.universes import HALVES, IMAGES, REALS, SPEC, universe


class DeviceArray(np.ndarray):
    """An array that, like CuPy's, neither computes with arrays of the host nor is indexed by them."""

    def __getitem__(self, index: Any) -> Any:
        listed = index if isinstance(index, tuple) else (index,)
        _refuse_host(listed)
        return super().__getitem__(index)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        _refuse_host(inputs)
        plain = [_plain(value) for value in inputs]
        target = None if out is None else tuple(map(_plain, out))
        result = getattr(ufunc, method)(*plain, out=target, **options)
        return out[0] if out is not None else _device(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise TypeError(f"numpy.{func.__name__} is given an array of the device")

    def get(self) -> np.ndarray:
        """A copy on the host."""
        return np.array(_plain(self))


def _plain(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        return value.view(np.ndarray)
    return type(value)(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _device(value: Any) -> Any:
    return value.view(DeviceArray) if isinstance(value, np.ndarray) else value


def _refuse_host(values: Any) -> None:
    for value in values:
        if type(value) is np.ndarray and value.ndim:
            raise TypeError("an array of the host is mixed with one of the device")
        if isinstance(value, (list, tuple)):
            _refuse_host(value)


class Device(ModuleType):
    """NumPy with arrays that know that they are on a device; notes which functions are called with what."""

    def __init__(self) -> None:
        super().__init__("device")
        self.called: set[tuple[str, int, tuple[str, ...]]] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if not callable(found) or isinstance(found, type):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self.called.add((name, len(args), tuple(sorted(options))))
            if name != "asarray":
                _refuse_host([*args, *options.values()])
            result = found(*map(_plain, args), **{key: _plain(value) for key, value in options.items()})
            return options["out"] if "out" in options else _device(result)

        return call


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    found = Device()
    monkeypatch.setattr(enumeration, "array_module", lambda name: found if name == "cuda" else np)
    yield found


@pytest.mark.parametrize(("text", "ops"), [(IMAGES, 3), (HALVES, 3), (REALS, 2)])
def test_another_device_finds_the_same_and_cupy_has_what_it_calls(text: str, ops: int, device: Device) -> None:
    found = enumerate_universe(universe(text), SPEC, ops, device="cuda")
    assert same(found, enumerate_universe(universe(text), SPEC, ops))
    assert len(device.called) > 10
    cupy = pytest.importorskip("cupy")
    for name, count, options in sorted(device.called):
        function = getattr(cupy, name)
        if isinstance(function, cupy.ufunc):
            assert count <= function.nin + function.nout and set(options) <= {"out", "dtype", "casting"}
        else:
            inspect.signature(function).bind(*range(count), **dict.fromkeys(options))
