"""How long it takes to enumerate every graph, how many there are, and how much memory that needs.

Each enumeration runs in a process of its own, so that its memory is its own; the memory of processes that share pages
is counted once (proportional set size). The results go to bench/results/generate.{json,md}.

usage: python -m bench.generate [--universe NAME] [--ops N ...] [--processes N] [--out FILE]
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import click
import numpy as np

from taso.files import write_whole
from taso.generate.enumerate import enumerate_universe
from taso.generate.executor import local
from taso.report import units
from taso.spec.spec import load_spec

RESULTS = Path(__file__).with_name("results") / "generate.json"


class Watch:
    """The most memory that this process and its children had at once, in bytes, looked at five times a second."""

    def __init__(self) -> None:
        self.most = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            self.most = max(self.most, sum(map(_memory, _family(os.getpid()))))


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(found for child in below for found in _family(int(child)))]


def _memory(pid: int) -> int:
    """Proportional set size of a process, in bytes; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def measure(universe: str, ops: int, processes: int) -> dict[str, Any]:
    """Enumerate once, here, and say what it took."""
    spec = load_spec()
    progress: Callable[[str, int, int], None] | None = None
    if sys.stderr.isatty():
        progress = lambda what, done, total: print(f"\r{what}: {done / total:.0%} ", end="", file=sys.stderr)
    start = time.monotonic()
    with Watch() as watch, tempfile.TemporaryDirectory(prefix="taso-") as work, local(processes) as executor:
        found = enumerate_universe(
            spec.universes[universe], spec, ops, executor=executor, work=Path(work), progress=progress
        )
    wall = time.monotonic() - start
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "universe": universe,
        "ops": ops,
        "processes": processes,
        "levels": [asdict(counts) for counts in found.counts],
        "equal": len(found.found),
        "largest": found.largest,
        "wall_s": wall,
        "cpu_s": sum(usage.ru_utime + usage.ru_stime for usage in (own, children)),
        "memory_bytes": watch.most,
        "terms_per_s": found.terms / wall,
    }


def table(results: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    lines = [
        "| universe | operators | terms | renamed too | graphs | sequences | values | wall | CPU | memory | terms/s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        for counts in one["levels"]:
            last = counts["level"] == one["ops"]
            tail = " | | |"
            if last:
                memory = units.size(one["memory_bytes"])
                tail = f"{one['wall_s']:.1f} s | {one['cpu_s']:.1f} s | {memory} | {one['terms_per_s']:,.0f}"
            cells = [
                one["universe"],
                counts["level"],
                *(counts[k] for k in ("terms", "named", "graphs", "sequences", "values")),
            ]
            lines.append("| " + " | ".join(f"{c:,}" if isinstance(c, int) else c or "" for c in cells) + f" | {tail} |")
    return "\n".join(lines)


@click.command()
@click.option("--universe", default="taso", show_default=True)
@click.option("--ops", type=click.IntRange(1, 5), multiple=True, default=(3, 4), show_default=True)
@click.option("--processes", type=click.IntRange(1), default=os.cpu_count(), show_default="cores")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=RESULTS, show_default=True)
@click.option("--single", is_flag=True, hidden=True)
def main(universe: str, ops: tuple[int, ...], processes: int, out: Path, single: bool) -> None:
    """Measure enumerations of a universe, one after another."""
    if single:
        print(json.dumps(measure(universe, ops[0], processes)))
        return
    results = []
    for count in ops:
        command = [sys.executable, "-m", "bench.generate", "--single", "--universe", universe, "--ops", str(count)]
        done = subprocess.run([*command, "--processes", str(processes)], stdout=subprocess.PIPE, text=True, check=True)
        results.append(json.loads(done.stdout))
        print(table(results[-1:]), flush=True)
    machine = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    write_whole(out, json.dumps({"machine": machine, "results": results}, indent=1).encode() + b"\n")
    write_whole(out.with_suffix(".md"), _page(results, machine).encode())


def _page(results: list[dict[str, Any]], machine: dict[str, Any]) -> str:
    words = ", ".join(f"{key} {value}" for key, value in machine.items())
    return (
        "# Enumerating every graph\n\nWritten by `python -m bench.generate`. Time, memory and rate are those of"
        f" all levels together.\nTerms, graphs and sequences: see docs/enumeration.md. {words}.\n\n{table(results)}\n"
    )


if __name__ == "__main__":
    main()
