"""The original's rules under our prover and our rules.

python -m bench.original convert shipped.json generated.json    # once: write tests/rules/original
python -m bench.original equalities                             # once: what the generator finds and does not ship
python -m bench.original check                                  # write bench/results/original.{json,md}
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from bench.original.report import as_json, table
from bench.original.unshipped import unshipped
from bench.original.variants import variants
from bench.original.verdicts import Judge, Outcome
from taso.files import write_whole
from taso.rules.rule import load_rules
from taso.rules.text import read_rules, write_rules
from taso.spec import syntax as s
from taso.spec.spec import load_spec

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "rules" / "original"
RESULTS = ROOT / "bench" / "results"
FILES = ("shipped", "generated")
EQUALITIES = FOLDER / "equalities.rules"
SOURCE = {
    "shipped": "The rules that TASO ships (Jia et al. 2019, Apache License 2.0), read in this language.",
    "generated": "The rules that TASO's released generator finds (Jia et al. 2019, Apache License 2.0), read in this"
    " language.",
}
READING = (
    "Made by `python -m bench.original convert`. Numbers are those of the original. Group counts are what the left",
    "side leaves free. `_ungrouped`: the same without groups, where groups make it false. Averages are averages, with",
    "9 times the average where only the plain sum, which the original computes, makes the sides equal.",
)


@click.group()
def main() -> None:
    """Read, judge and derive the rules of the original TASO."""


@main.command()
@click.argument("shipped", type=click.Path(exists=True, path_type=Path))
@click.argument("generated", type=click.Path(exists=True, path_type=Path))
def convert(shipped: Path, generated: Path) -> None:
    """Write the original's two files of rules, as JSON, in our language."""
    spec = load_spec()
    for name, path in zip(FILES, (shipped, generated)):
        rules = list(variants(path, name, spec))
        write_rules(FOLDER / f"{name}.rules", rules, [SOURCE[name], *READING])
        click.echo(f"{name}: {len(rules)} rules")


@main.command()
@click.option("--universe", default="taso", show_default=True)
def equalities(universe: str) -> None:
    """Write the equalities that the generator finds and that are not shipped as rules."""
    spec = load_spec()
    header = [
        f"Equalities of up to two operators that `taso gen-rules` finds in the universe `{universe}` and does not",
        "ship: no search could use them, since a constant stands on the side that would have to be met in a model.",
        "Made by `python -m bench.original equalities`.",
    ]
    write_rules(EQUALITIES, unshipped(universe, spec), header)


@main.command()
@click.argument("names", nargs=-1)
@click.option("--rules", type=click.Path(exists=True, path_type=Path), help="Other rules than the shipped ones.")
def check(names: tuple[str, ...], rules: Path | None) -> None:
    """Judge all rules, or those of some names, and write the results (of all)."""
    spec = load_spec()
    known = [entry.rule for entry in load_rules(None if rules is None else [rules])]
    more = [entry.rule for entry in read_rules(EQUALITIES)] if EQUALITIES.exists() else []
    judge = Judge(spec, known, more)
    outcomes: dict[str, list[Outcome]] = {}
    for name in FILES:
        entries: list[s.Rule] = [entry.rule for entry in read_rules(FOLDER / f"{name}.rules")]
        chosen = [rule for rule in entries if not names or rule.name in names]
        outcomes[name] = []
        for k, rule in enumerate(chosen):
            outcomes[name].append(judge.judge(rule))
            if sys.stderr.isatty():
                click.echo(f"\r{name} {k + 1}/{len(chosen)}", nl=False, err=True)
    text = table(outcomes, len(known), len(more))
    click.echo(text)
    if not names:
        write_whole(RESULTS / "original.md", text.encode())
        write_whole(RESULTS / "original.json", (json.dumps(as_json(outcomes), indent=1) + "\n").encode())
    else:
        for outcome in (o for found in outcomes.values() for o in found):
            click.echo(f"{outcome.name}: {outcome.verdict} {' '.join(outcome.chain)} {outcome.counterexample}")


if __name__ == "__main__":
    main()
