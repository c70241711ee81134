"""`taso prove` and `taso rules`: checking rules again, and reading them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from taso.cli.common import Commands, check_specs, command, json_option, spec_option
from taso.cli.output import Output
from taso.errors import CheckError, TasoError

if TYPE_CHECKING:
    from taso.prove.prover import Verdict
    from taso.rules.recheck import Recheck
    from taso.rules.rule import RuleSet
    from taso.spec.spec import Spec


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-e", "--expression", "texts", multiple=True, metavar="'LEFT ==> RIGHT'", help="A rule to prove. Repeatable."
)
@spec_option
@json_option
@command
def prove(
    paths: tuple[Path, ...], texts: tuple[str, ...], specs: tuple[Path, ...], json_to: str | None, output: Output
) -> None:
    """Prove rules again, or prove (or refute) a new one.

    PATHs are rules files or folders of them; without any, the shipped rules are proved. Ends with 3 if a rule is
    false, cannot be proved, or is not the one that its id names.
    """
    from taso.spec.spec import load_spec

    check_specs(specs)
    spec = load_spec(specs)
    if json_to == "-":
        output.results_to_stderr = True
    proved = _prove_texts(texts, spec, output)
    checked = _prove_files(paths, spec, output) if paths or not texts else []
    failed = sum(verdict.status != "proved" for _, verdict in proved) + sum(not one.ok for one in checked)
    rows = [{"rule": text, "ok": verdict.status == "proved", **_as_dict(verdict)} for text, verdict in proved]
    rows += [
        {"rule": one.rule.name, "place": one.place, "ok": one.ok, "problem": one.problem, **_as_dict(one.verdict)}
        for one in checked
    ]
    output.json(json_to, {"checked": len(rows), "failed": failed, "rules": rows})
    if failed:
        raise click.exceptions.Exit(CheckError.exit_code)


def _prove_texts(texts: tuple[str, ...], spec: Spec, output: Output) -> list[tuple[str, Verdict]]:
    from taso.api import prove_text
    from taso.report.rules import verdict_line

    verdicts = []
    for text in texts:
        verdict = prove_text(text, spec)
        output.result(verdict_line(verdict))
        verdicts.append((text, verdict))
    return verdicts


def _prove_files(paths: tuple[Path, ...], spec: Spec, output: Output) -> list[Recheck]:
    from taso.report import units
    from taso.report.rules import recheck_line
    from taso.rules.recheck import recheck

    rules = _read(paths)
    checked, seconds = [], 0.0
    with output.progress() as show:
        for done, entry in enumerate(rules):
            show("proving", done, len(rules), entry.name)
            one = recheck(entry, spec)
            seconds += one.verdict.seconds
            if output.verbose or not one.ok:
                output.result(recheck_line(one))
            checked.append(one)
    failed = sum(not one.ok for one in checked)
    summary = f"{units.counted(len(checked), 'rule')}: {len(checked) - failed:,} proved"
    output.result(f"{summary}{f', {failed:,} failed' if failed else ''}; {units.duration(seconds)}")
    if rules.spec_hash not in ("", spec.hash):
        output.remark(f"the rules were generated under specification {rules.spec_hash}; this one is {spec.hash}")
    return checked


def _as_dict(verdict: Verdict) -> dict[str, object]:
    counterexample = verdict.counterexample
    return {
        "status": verdict.status,
        "exact": verdict.exact,
        "seconds": verdict.seconds,
        "reason": verdict.reason,
        "counterexample": str(counterexample) if counterexample else None,
    }


@click.group(cls=Commands)
def rules() -> None:
    """The rewrite rules: list them, read one."""


def _rules_option(function: click.decorators.FC) -> click.decorators.FC:
    return click.option(
        "--rules",
        "paths",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="PATH",
        help="Rules file or folder, instead of the shipped rules. Repeatable.",
    )(function)


@rules.command("list")
@_rules_option
@json_option
@command
def list_(paths: tuple[Path, ...], json_to: str | None, output: Output) -> None:
    """List the rules, one a line."""
    from taso.report import units
    from taso.report.grid import grid
    from taso.report.rules import rule_text

    found = _read(paths)
    rows = [(entry.name, rule_text(entry.rule)) for entry in found]
    output.json(json_to, [{"id": name, "text": text, "file": str(found[name].path)} for name, text in rows])
    if json_to != "-":
        output.result(grid(rows, align="ll", indent=0))
        output.remark(f"{units.counted(len(rows), 'rule')}; `taso rules show ID` shows one with its proof")


@rules.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_rules_option
@command
def show(ids: tuple[str, ...], paths: tuple[Path, ...], output: Output) -> None:
    """Show rules by id, each with its conditions, proof and provenance."""
    from taso.rules.text import format_rule

    found = _read(paths)
    for entry in [found[name] for name in ids]:
        output.result(f"# {entry.path}:{entry.rule.pos.line}\n{format_rule(entry.rule)}")


def _read(paths: tuple[Path, ...]) -> RuleSet:
    """The rules in files and folders, or the shipped ones; TasoError where there are none."""
    from taso.rules.rule import load_rules

    found = load_rules(paths or None)
    if not len(found):
        raise TasoError(f"there are no rules in {', '.join(str(path) for path in found.paths)}")
    return found
