"""Hardware targets: which device a target is, how to recognise it, and what it can do at best (`targets/*.toml`)."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from taso.errors import UsageError, did_you_mean

TARGETS = Path(__file__).parent / "targets"


@dataclass(frozen=True)
class Target:
    """A kind of device to optimize for."""

    name: str
    description: str
    kind: str  # "cpu" or "gpu"
    provider: str  # onnxruntime's execution provider
    device: str  # regular expression that finds the device's own name
    dtypes: tuple[str, ...]  # numpy names of the element types its kernels take
    operators: tuple[str, ...]  # specification files of operators that only it has, relative to opspec/
    peak: Mapping[str, float]  # dtype -> operations per second (one thread's, on a CPU)
    bandwidth: float  # bytes per second
    launch_us: float  # time of a kernel that does nothing, microseconds

    def peak_for(self, dtype: str) -> float:
        """Operations per second for a dtype; types without an entry count as float32."""
        return self.peak.get(dtype, self.peak["float32"])


@cache
def list_targets() -> tuple[Target, ...]:
    """All targets that taso knows, the CPU first, then by name."""
    targets = [_read(path) for path in TARGETS.glob("*.toml")]
    return tuple(sorted(targets, key=lambda target: (target.kind != "cpu", target.name)))


def load_target(name: str) -> Target:
    """The target of that name; `auto` is the one of this machine. UsageError, with the valid names, for others."""
    if name == "auto":
        return detect_target()
    targets = {target.name: target for target in list_targets()}
    if name in targets:
        return targets[name]
    hint = did_you_mean(name, [*targets, "auto"])
    raise UsageError(f'there is no hardware target "{name}"; the targets are: auto, {", ".join(targets)}{hint}')


@cache
def detect_target() -> Target:
    """The target of this machine: a GPU that the installed runtime can use, else the CPU."""
    targets = list_targets()
    gpus = [target for target in targets if target.kind == "gpu" and attached(target)]
    return gpus[0] if gpus else next(target for target in targets if target.kind == "cpu")


def attached(target: Target) -> bool:
    """Whether kernels of this target can be measured here: device present, and a runtime with its provider."""
    return _has_provider(target.provider) and _matching_device(target) is not None


def device_name(target: Target) -> str:
    """The device's own name for itself, e.g. `AMD EPYC 7763 64-Core Processor`; the target's name if not attached."""
    return _matching_device(target) or target.name


def _matching_device(target: Target) -> str | None:
    devices = _gpus() if target.kind == "gpu" else (_processor(),)
    return next((name for name in devices if re.search(target.device, name)), None)


@cache
def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    name = found.group(1) if found else platform.processor() or platform.machine() or "unknown processor"
    return " ".join(name.split())


@cache
def _gpus() -> tuple[str, ...]:
    """Names of the NVIDIA devices: from the kernel module where it tells, else from nvidia-smi."""
    names = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        found = re.search(r"^Model:\s*(.+)$", path.read_text(errors="replace"), re.MULTILINE)
        names += [found.group(1).strip()] if found else []
    program = shutil.which("nvidia-smi")
    if names or program is None:
        return tuple(names)
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in told.splitlines() if line.strip())


def _has_provider(provider: str) -> bool:
    """Whether the installed runtime comes with a provider, told by its distribution: importing it takes too long."""
    distributions = ["onnxruntime-gpu"] if provider != "CPUExecutionProvider" else ["onnxruntime", "onnxruntime-gpu"]
    for distribution in distributions:
        try:
            metadata.version(distribution)
            return True
        except metadata.PackageNotFoundError:
            continue
    return False


def _read(path: Path) -> Target:
    with path.open("rb") as file:
        entries: dict[str, Any] = tomllib.load(file)
    entries["dtypes"] = tuple(entries["dtypes"])
    entries["operators"] = tuple(entries["operators"])
    entries["peak"] = MappingProxyType(entries["peak"])
    return Target(name=path.stem, **entries)
