"""`taso hw`: the hardware targets."""

from __future__ import annotations

import click

from taso.cli.common import Commands, command, json_option
from taso.cli.output import Output


@click.group(cls=Commands)
def hw() -> None:
    """Hardware targets: what can be optimized for."""


@hw.command("list")
@json_option
@command
def list_(output: Output, json_to: str | None) -> None:
    """List the targets, and which of them this machine has."""
    from taso.hardware.runtime import runtime_version
    from taso.hardware.target import attached, detect_target, device_name, list_targets
    from taso.report.grid import grid

    found = detect_target()
    rows = [
        {
            "name": target.name,
            "kind": target.kind,
            "provider": target.provider,
            "attached": attached(target),
            "device": device_name(target) if attached(target) else None,
            "auto": target.name == found.name,
            "description": target.description,
        }
        for target in list_targets()
    ]
    output.json(json_to, {"runtime": runtime_version(), "targets": rows})
    if json_to == "-":
        return
    output.result(
        grid(
            [
                (
                    f"{row['name']}{' (auto)' if row['auto'] else ''}",
                    "here: " + str(row["device"]) if row["attached"] else "not attached",
                    str(row["description"]),
                )
                for row in rows
            ],
            align="lll",
            header=("target", "device", "what it is"),
        )
    )
    output.remark(f"  {runtime_version()}; latencies of targets that are not attached are imported or estimated")
