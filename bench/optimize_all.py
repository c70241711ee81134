"""Optimize every network and every model of the corpus; write bench/results/optimize_all.json and a table beside it.

Each model is optimized in a process of its own, with a time limit, so that one that crashes or hangs costs one row. The
latencies are those of taso's own report: original and result timed interleaved in one run.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
import onnx
import onnxruntime

from bench import corpus
from bench.networks import NETWORKS
from taso.files import write_whole
from taso.version import __version__

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


@dataclass
class Row:
    """What became of one model. Latencies are medians in milliseconds, their spread is half the interquartile range.

    speedup: before / after, `low` to `high` at 95 %. Where nothing was improved, the original is the result, and these
             are the figures of the best candidate (1 where there was none).
    null:    the original against a second session of itself: what noise does.
    graphs:  how many rewrites the search looked at. estimated_*_us: what it took the graphs to cost.
    notes:   those of the report: candidates that could not be written or were wrong, what is odd about the model.
    """

    name: str
    status: str = "failed"  # improved, no improvement, failed, too long
    nodes_before: int = 0
    nodes_after: int = 0
    latency_before_ms: float | None = None
    latency_after_ms: float | None = None
    speedup: float = 1.0
    low: float = 1.0
    high: float = 1.0
    null: float = 1.0
    largest_difference: float = 0.0
    search_seconds: float = 0.0
    rules: list[tuple[str, int]] = field(default_factory=list)  # (id, times applied)
    wall_seconds: float = 0.0
    error: str = ""
    reason: str = ""
    spread_before_ms: float | None = None
    spread_after_ms: float | None = None
    graphs: int = 0
    estimated_before_us: float = 0.0
    estimated_after_us: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def ended_well(self) -> bool:
        return self.status in ("improved", "no improvement")


# One model, in the child


def optimize_one(name: str, folder: Path, threads: int, time_budget: float) -> Row:
    """Optimize one model in this process and describe the outcome. Raises what taso raises."""
    import taso  # only the child pays for it

    model, shapes = _model(name, folder)
    report = taso.optimize(model, input_shapes=shapes, threads=threads, time_budget=time_budget).report
    return Row(
        name,
        "improved" if report.improved else "no improvement",
        report.nodes_before,
        report.nodes_after,
        report.latency_before_ms,
        report.latency_after_ms,
        report.speedup,
        report.speedup_low,
        report.speedup_high,
        report.null_speedup,
        report.largest_difference,
        report.search_seconds,
        [(rule.name, rule.times) for rule in report.rules],
        reason=report.reason,
        spread_before_ms=None if report.latency_before is None else report.latency_before.spread_ms,
        spread_after_ms=None if report.latency_after is None else report.latency_after.spread_ms,
        graphs=report.graphs,
        estimated_before_us=report.estimated_before_us,
        estimated_after_us=report.estimated_after_us,
        notes=report.notes,
    )


def _model(name: str, folder: Path) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]] | None]:
    """A network is built, a model of the corpus is fetched; the latter often needs shapes for its inputs."""
    if name in NETWORKS:
        return NETWORKS[name](), None
    (entry,) = [entry for entry in corpus.entries([name]) if entry.name == name]
    return corpus.load(entry, folder), {key: feed.shape for key, feed in entry.feeds.items()}


# All of them, in the parent


def run_child(name: str, folder: Path, threads: int, time_budget: float, limit: float) -> Row:
    """Optimize one model in a new process and stop it, and what it started, after `limit` seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        answer, said = Path(scratch) / "row.json", Path(scratch) / "stderr"
        command = [sys.executable, "-m", "bench.optimize_all", "--child", name, str(answer)]
        command += ["--corpus", str(folder.absolute()), "--threads", str(threads), "--time-budget", str(time_budget)]
        start = time.monotonic()
        with said.open("wb") as stderr:
            child = subprocess.Popen(command, cwd=ROOT, stdout=stderr, stderr=stderr, start_new_session=True)
            try:
                child.wait(limit)
            except BaseException as error:  # the child has a session of its own: nobody else would stop it
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return Row(
                    name, "too long", wall_seconds=time.monotonic() - start, error=f"stopped after {limit:.0f} s"
                )
        if answer.exists():
            row = Row(**json.loads(answer.read_text()))
        else:
            last = said.read_text(errors="replace").strip().splitlines()[-1:]
            row = Row(name, error=f"exit status {child.returncode}: {' '.join(last)}")
        row.wall_seconds = time.monotonic() - start
        return row


def machine(threads: int) -> dict[str, str | int]:
    """What the figures were measured on, and with which rules."""
    import taso

    rules = taso.load_rules()
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count() or 0,
        "threads": threads,
        "onnxruntime": onnxruntime.__version__,
        "python": platform.python_version(),
        "taso": __version__,
        "rules": f"{len(rules)} of spec {rules.spec_hash}",
    }


def table(rows: list[Row]) -> str:
    """The rows as a table in Markdown, with the notes below it."""
    lines = [
        "| model | outcome | nodes | latency ms | speedup | 95 % | noise | largest difference | search s | rules |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        if not row.ended_well:
            reason = row.error.replace("|", "\\|").replace("\n", " ")[:120]
            lines.append(f"| {row.name} | **{row.status}** {reason} | | | | | | | {row.wall_seconds:.0f} | |")
            continue
        rules = ", ".join(f"{rule} ×{times}" for rule, times in row.rules) or "-"
        improved = row.status == "improved"
        before = _milliseconds(row.latency_before_ms, row.spread_before_ms)
        after = f" → {_milliseconds(row.latency_after_ms, row.spread_after_ms)}" if improved else ""
        speedup = f"{row.speedup:.3f}x" if improved else f"1 (best candidate {row.speedup:.3f}x)"
        lines.append(
            f"| {row.name} | {row.status} | {row.nodes_before}{f' → {row.nodes_after}' if improved else ''}"
            f" | {before}{after} | {speedup} | {row.low:.3f} to {row.high:.3f}"
            f" | {row.null:.3f} | {row.largest_difference:.1e} | {row.search_seconds:.0f} | {rules} |"
        )
    notes = [f"- {row.name}: {note}".replace("\n", " ") for row in rows for note in row.notes]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _milliseconds(latency: float | None, spread: float | None) -> str:
    if latency is None:
        return "-"
    return f"{latency:.3g}" if spread is None else f"{latency:.3g} ± {spread:.1g}"


def write(rows: list[Row], about: dict[str, str | int], folder: Path) -> None:
    """Write both files, each all or nothing; called after every model, so that an interrupted run leaves its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = json.dumps({"machine": about, "models": [asdict(row) for row in rows]}, indent=1) + "\n"
    heading = "Measured on " + ", ".join(f"{key} {value}" for key, value in about.items()) + ".\n\n"
    for name, text in (("optimize_all.json", figures), ("optimize_all.md", heading + table(rows))):
        write_whole(folder / name, text.encode())


def read(about: dict[str, str | int], folder: Path) -> list[Row]:
    """The rows of an earlier run. Raises UsageError if that was on another machine or with other rules."""
    path = folder / "optimize_all.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    if found["machine"] != about:
        raise click.UsageError(f"{path} was measured on {found['machine']}, not {about}; leave out --resume")
    return [Row(**row) for row in found["models"]]


@click.command(help="Optimize the networks and corpus models whose names begin with NAME, or all of them.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="folder of the results")
@click.option("--corpus", "folder", type=click.Path(path_type=Path), default=None, help="folder of the corpus")
@click.option("--threads", type=int, default=os.cpu_count() or 1, show_default=True)
@click.option("--time-budget", type=float, default=60.0, show_default=True, help="seconds of search for a model")
@click.option("--limit", type=float, default=600.0, show_default=True, help="seconds after which a model is given up")
@click.option("--resume", is_flag=True, help="keep the rows that the results have, and go on with the other models")
@click.option("--child", nargs=2, default=None, hidden=True)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def main(
    out: Path,
    folder: Path | None,
    threads: int,
    time_budget: float,
    limit: float,
    resume: bool,
    child: tuple[str, str] | None,
    names: tuple[str, ...],
) -> None:
    folder = folder or corpus.default_folder()
    if child:
        row = optimize_one(child[0], folder, threads, time_budget)
        Path(child[1]).write_text(json.dumps(asdict(row)))
        return
    everything = [*NETWORKS, *(entry.name for entry in corpus.entries())]
    chosen = [name for name in everything if not names or name.startswith(names)]
    if not chosen:
        raise click.UsageError(f"no model begins with {' or '.join(names)}; there are: {', '.join(everything)}")
    about = machine(threads)
    rows = read(about, out) if resume else []
    done = {row.name for row in rows if row.ended_well}
    rows = [row for row in rows if row.ended_well or row.name not in chosen]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # as Ctrl-C: the child is stopped too
    for name in chosen:
        if name in done:
            continue
        row = run_child(name, folder, threads, time_budget, limit)
        rows.append(row)
        write(rows, about, out)
        figures = f"{row.speedup:.2f}x" if row.ended_well else row.error
        click.echo(f"{name}: {row.status} {figures} ({row.wall_seconds:.0f} s)", err=True)
    click.echo(table(rows), nl=False)
    if not all(row.ended_well for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
