"""`taso optimize`: the main job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taso.cli.common import (
    SEED,
    Real,
    check_specs,
    command,
    hw_option,
    json_option,
    shape_option,
    spec_option,
    threads_option,
)
from taso.cli.output import Output
from taso.files import check_writable, write_whole

if TYPE_CHECKING:
    from taso.optimize import Result


@click.command()
@click.argument("source", metavar="IN.onnx", type=click.Path(path_type=Path))
@click.argument("target", metavar="[OUT.onnx]", required=False, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="OUT.onnx", help="Where the result goes.")
@hw_option
@shape_option
@threads_option
@click.option(
    "--alpha",
    type=Real(1),
    metavar="A",
    default=1.05,
    show_default=True,
    help="How much worse than the best an intermediate graph may be.",
)
@click.option(
    "--budget", type=click.IntRange(0), metavar="N", default=1000, show_default=True, help="Graphs to expand."
)
@click.option("--time-budget", type=Real(0, min_open=True), metavar="SECONDS", help="Stop searching after this long.")
@click.option("--exact", is_flag=True, help="Only rules that move data: nothing is rounded differently.")
@click.option(
    "--max-growth",
    type=Real(0),
    metavar="F",
    default=0.1,
    show_default=True,
    help="By what part of its size the file may grow.",
)
@click.option(
    "--seed", type=SEED, metavar="N", default=0, show_default=True, help="For the random inputs and the search."
)
@click.option(
    "--check", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Random inputs to compare on."
)
@click.option(
    "--rtol",
    type=Real(0),
    metavar="R",
    help="Tolerance, relative to a tensor's scale.  [default: by dtype]",
)
@click.option("--atol", type=Real(0), metavar="R", help="Absolute tolerance.  [default: by dtype]")
@click.option(
    "--rules",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="PATH",
    help="Rules file or folder, instead of the shipped rules. Repeatable.",
)
@click.option("--only-rule", "only_rules", multiple=True, metavar="ID", help="Use only this rule. Repeatable.")
@click.option("--skip-rule", "skip_rules", multiple=True, metavar="ID", help="Do not use this rule. Repeatable.")
@click.option(
    "--min-speedup",
    type=Real(1),
    metavar="R",
    default=1.01,
    show_default=True,
    help="A smaller measured speedup counts as none.",
)
@spec_option
@json_option
@command
def optimize(
    source: Path,
    target: Path | None,
    out: Path | None,
    input_shapes: dict[str, tuple[int, ...]],
    specs: tuple[Path, ...],
    json_to: str | None,
    output: Output,
    **options: Any,
) -> None:
    """Write a faster model that computes the same, or the same model if there is none.

    The result is compared with the original on random inputs and timed against it before it is written.
    """
    written = _one_target(target, out)
    content = source.read_bytes()  # now, because OUT may be IN
    check_writable(written)
    check_specs(specs)

    from taso.optimize import optimize as run
    from taso.report.table import report_lines

    with output.progress() as show:
        result = run(source, input_shapes=input_shapes, spec=specs, progress=show, **options)
    _write(result, source, content, written)
    output.json(json_to, {"input": str(source), "output": str(written), **result.report.to_dict()})
    if json_to != "-":
        output.result(*report_lines(result.report, source.name, width=output.width, verbose=output.verbose))
        output.result(_written_line(result, source, written))


def _one_target(target: Path | None, out: Path | None) -> Path:
    """OUT, which is given exactly once. Raises click's usage error otherwise."""
    if target is not None and out is not None:
        raise click.UsageError("the output is given twice; give it as OUT.onnx or with -o, not both")
    chosen = target or out
    if chosen is None:
        raise click.UsageError("say where the result goes: taso optimize IN.onnx -o OUT.onnx")
    return chosen


def _write(result: Result, source: Path, content: bytes, written: Path) -> None:
    """Write the result, or where nothing was improved the input's own bytes."""
    from taso.onnxio.load import save_model

    if result.report.improved:
        save_model(result.model, written)
    elif written.exists() and os.path.samefile(source, written):
        return
    elif _has_files_beside(content) and written.resolve().parent != source.resolve().parent:
        save_model(result.model, written)  # its bytes alone would not find their tensors from there
    else:
        write_whole(written, content)


def _has_files_beside(content: bytes) -> bool:
    """Whether tensors of a model lie in other files."""
    import onnx

    model = onnx.load_model_from_string(content)
    return any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer)


def _written_line(result: Result, source: Path, written: Path) -> str:
    if result.report.improved:
        return f"\nwrote {written}"
    return f"\n{written} is the same as {source}"
