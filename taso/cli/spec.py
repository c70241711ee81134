"""`taso spec check`: is the specification right?"""

from __future__ import annotations

from pathlib import Path

import click

from taso.cli.common import Commands, command, json_option, spec_option
from taso.cli.output import Output
from taso.errors import CheckError


@click.group(cls=Commands)
def spec() -> None:
    """The operator specifications."""


@spec.command()
@spec_option
@click.option(
    "--tries", type=click.IntRange(1), metavar="N", default=20, show_default=True, help="Random cases an operator."
)
@json_option
@command
def check(specs: tuple[Path, ...], tries: int, json_to: str | None, output: Output) -> None:
    """Check the specification: its text, every operator against ONNX's reference, every axiom by proof.

    Ends with 1 if a file is wrong as it stands, and with 3 if an operator does not mean what ONNX means, or an axiom
    is refuted.
    """
    from taso.report.spec import spec_lines
    from taso.resources import opspec_dir
    from taso.spec.check import check_spec
    from taso.spec.conform import check_all
    from taso.spec.spec import read_spec

    loaded = read_spec([opspec_dir(), *specs])
    problems = check_spec(loaded)
    if problems:
        for problem in problems[1:]:
            click.echo(str(problem), err=True)
        raise problems[0]
    with output.progress() as show:
        report = check_all(
            loaded, tries=tries, progress=lambda what, done, total: show("checking", done, total, what[:40])
        )
    output.json(json_to, report.to_dict())
    if json_to != "-":
        output.result(*spec_lines(report, verbose=output.verbose))
    if not report.ok:
        raise click.exceptions.Exit(CheckError.exit_code)
