"""`taso bench` and `taso verify`: two models side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taso.cli.common import SEED, Real, command, hw_option, json_option, shape_option, threads_option
from taso.cli.output import Output
from taso.errors import CheckError

if TYPE_CHECKING:
    from taso.hardware.timing import Comparison, Timing

Shapes = dict[str, tuple[int, ...]]


@click.command()
@click.argument("models", metavar="A.onnx [B.onnx]", nargs=-1, required=True, type=click.Path(path_type=Path))
@hw_option
@shape_option
@threads_option
@click.option("--runs", type=click.IntRange(11), metavar="N", default=1000, show_default=True, help="Rounds at most.")
@click.option(
    "--time-budget",
    type=Real(0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop after about this long.",
)
@click.option(
    "--seed",
    type=SEED,
    metavar="N",
    default=0,
    show_default=True,
    help="For the random inputs and the order of the runs.",
)
@json_option
@command
def bench(
    models: tuple[Path, ...],
    hw: str,
    input_shapes: Shapes,
    threads: int | None,
    runs: int,
    time_budget: float,
    seed: int,
    json_to: str | None,
    output: Output,
) -> None:
    """Time one or two models, interleaved, on random inputs.

    Every round runs each model once, in shuffled order, with onnxruntime at its full level; a second session of A
    says how much of a difference is noise.
    """
    if len(models) > 2:
        raise click.UsageError(f"give one or two models, not {len(models)}")
    from taso.api import time_models
    from taso.hardware.target import load_target

    target = load_target(hw)
    with output.progress() as show:
        show("timing")
        timings, comparison = time_models(
            models,
            target=target,
            input_shapes=input_shapes,
            threads=threads,
            runs=runs,
            time_budget=time_budget,
            seed=seed,
        )
    output.json(json_to, bench_as_dict(models, timings, comparison))
    if json_to != "-":
        from taso.report.timing import timing_table

        output.result(timing_table(timings, comparison))


def bench_as_dict(models: tuple[Path, ...], timings: list[Timing], comparison: Comparison | None) -> dict[str, Any]:
    """What `taso bench --json` writes. Times are in milliseconds."""
    rows = [
        {
            "model": str(path),
            "median_ms": one.median_us / 1000,
            "spread_ms": one.spread_us / 1000,
            "runs": len(one.samples_us),
            "clock": one.clock,
            "level": one.level,
        }
        for path, one in zip(models, timings)
    ]
    if comparison is None:
        return {"models": rows}
    bounds = {"speedup": comparison.speedup, "low": comparison.low, "high": comparison.high, "null": comparison.null}
    return {"models": rows, **bounds}


@click.command()
@click.argument("original", metavar="A.onnx", type=click.Path(path_type=Path))
@click.argument("candidate", metavar="B.onnx", type=click.Path(path_type=Path))
@shape_option
@click.option(
    "--check", "sets", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Random inputs to try."
)
@click.option("--seed", type=SEED, metavar="N", default=0, show_default=True, help="For the random inputs.")
@click.option(
    "--rtol",
    type=Real(0),
    metavar="R",
    help="Tolerance, relative to a tensor's scale.  [default: by dtype]",
)
@click.option("--atol", type=Real(0), metavar="R", help="Absolute tolerance.  [default: by dtype]")
@json_option
@command
def verify(
    original: Path,
    candidate: Path,
    input_shapes: Shapes,
    sets: int,
    seed: int,
    rtol: float | None,
    atol: float | None,
    json_to: str | None,
    output: Output,
) -> None:
    """Compare the outputs of two models on random inputs.

    Ends with 0 if they are equal within the tolerance and with 3 if they differ.
    """
    from dataclasses import asdict

    from taso.api import verify as verify_models
    from taso.report.timing import difference_lines

    found = verify_models(
        original,
        candidate,
        input_shapes=input_shapes,
        check=sets,
        seed=seed,
        rtol=rtol,
        atol=atol,
    )
    output.json(json_to, asdict(found))
    if json_to != "-":
        output.result(difference_lines(found))
    if not found.ok:
        raise click.exceptions.Exit(CheckError.exit_code)
