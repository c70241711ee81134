"""The `taso` command and its subcommands. Whatever is slow to import is imported inside the commands that need it."""

from __future__ import annotations

import click

from taso.cli import generate, hardware, measure, optimize, rules, spec
from taso.cli.common import Commands
from taso.version import __version__

EPILOG = """
\b
Exit codes: 0 done (or no improvement), 1 a file cannot be read or is not valid,
2 usage, 3 a check failed and nothing was written.
"""


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="taso", message="%(prog)s %(version)s")
def main() -> None:
    """Make ONNX models faster: same answers, proved rewrites, measured gains.

    Start with `taso optimize model.onnx -o faster.onnx`.
    """


main.add_command(optimize.optimize)
main.add_command(generate.gen_rules)
main.add_command(rules.prove)
main.add_command(rules.rules)
main.add_command(spec.spec)
main.add_command(measure.bench)
main.add_command(measure.verify)
main.add_command(hardware.hw)
