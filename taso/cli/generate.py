"""`taso gen-rules`: discovering rules."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import click

from taso.cli.common import SEED, check_specs, command, hw_option, json_option, spec_option
from taso.cli.output import Output
from taso.files import check_writable
from taso.generate.device import DEVICES
from taso.report import units


def _bytes(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Bytes, written as 512MB, 4GB or 1.5GiB."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)i?b?\s*", value, re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f"{value!r} is no amount of memory; write it like 512MB or 4GB", ctx, param)
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


@click.command("gen-rules")
@hw_option
@click.option(
    "--ops", type=click.IntRange(1, 5), metavar="N", default=3, show_default=True, help="Operators in a graph, at most."
)
@click.option(
    "--universe", "universes", multiple=True, metavar="NAME", help="What to enumerate. Repeatable.  [default: all]"
)
@spec_option
@click.option(
    "--seed", type=SEED, metavar="N", default=20191027, show_default=True, help="For the values that tell graphs apart."
)
@click.option(
    "-o",
    "--out",
    "out_dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("rules"),
    show_default=True,
    metavar="DIR",
    help="Where the rules files go.",
)
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    default="auto",
    show_default=True,
    help="What enumerates: auto takes a GPU where CuPy finds one.",
)
@click.option("--processes", type=click.IntRange(1), metavar="N", help="Processes side by side.  [default: one a core]")
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Run on a Ray cluster instead; auto finds the one of this machine, local starts one.",
)
@click.option(
    "--memory",
    callback=_bytes,
    metavar="SIZE",
    default="4GB",
    show_default=True,
    help="What an enumeration may use; more than this is kept in files.",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where a run that is stopped leaves what the same command goes on with.  [default: in the cache folder]",
)
@json_option
@command
def gen_rules(
    hw: str,
    ops: int,
    universes: tuple[str, ...],
    specs: tuple[Path, ...],
    seed: int,
    out_dir: Path,
    device: str,
    processes: int | None,
    ray: str | None,
    memory: int,
    work: Path | None,
    json_to: str | None,
    output: Output,
) -> None:
    """Discover rewrite rules from the specification, and prove them.

    Enumerates every graph of up to --ops operators over each universe, finds those that are equal, proves each
    candidate for all shapes, and writes the rules as text. The same command gives the same bytes.
    """
    from taso.generate.generate import default_work, generate_rules
    from taso.report.rules import funnel_table

    check_specs(specs)
    out_dir.mkdir(parents=True, exist_ok=True)
    check_writable(out_dir / "core.rules")
    with output.progress() as show:
        result = generate_rules(
            hw=hw,
            ops=ops,
            universes=tuple(dict.fromkeys(universes)),
            extra=specs,
            seed=seed,
            device=device,
            processes=processes,
            ray=ray,
            memory=memory,
            work=work or default_work(),
            progress=show,
            out_dir=out_dir,
        )
    output.json(
        json_to,
        {
            "rules": len(result.rules),
            "files": result.files,
            "funnel": [asdict(funnel) for funnel in result.funnels],
            "unproved": result.unproved,
        },
    )
    if json_to != "-":
        output.result(funnel_table(result.funnels))
        for path in result.files:
            output.result(f"wrote {path} ({units.counted(len(result.rules), 'rule')})")
    if output.verbose:
        for text in result.unproved:
            output.remark(f"not proved: {text}")
