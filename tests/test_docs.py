"""What the documentation shows is what the program accepts and prints."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from taso.cli import main
from taso.spec.builtins import BUILTINS
from taso.spec.functions import FUNCTIONS
from taso.spec.parse import parse

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(path: Path) -> list[str]:
    """The indented blocks of a page, without their indentation."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", path.read_text(), re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE).strip("\n") for block in found]


def test_declarations_in_the_language_reference_parse() -> None:
    words = ("op ", "macro ", "universe ", "content ", "axiom ", "role ", "rule ")
    shown = [block for block in blocks(ROOT / "docs" / "language.md") if block.startswith(words)]
    complete = [block for block in shown if not re.search(r"\b[A-Z]{4,}\b", block)]  # not those with placeholders
    assert len(complete) >= 3
    for block in complete:
        assert parse(block)


def test_the_language_reference_names_every_function() -> None:
    text = (ROOT / "docs" / "language.md").read_text()
    for name in BUILTINS:
        assert re.search(rf"`{name}\(", text), name
    for name in FUNCTIONS:
        assert re.search(rf"\b{name}\b", text), name


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_rules_that_are_proved_or_refuted_in_the_documentation_are(path: Path) -> None:
    shown = re.findall(r"^ *\$ taso prove -e '([^']+)'\n(?: *(false.*)\n)?", path.read_text(), re.MULTILINE)
    for rule, answer in shown:
        result = CliRunner().invoke(main, ["prove", "-e", rule])
        assert result.exit_code == (3 if answer else 0), result.output
        assert result.stdout.startswith("false: at " if answer else "proved")  # which values it names may change


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_options_in_the_documentation_exist(path: Path) -> None:
    known = {"--version", "--help", "--export", "--import"}
    commands: list[click.Command] = [main]
    while commands:
        command = commands.pop()
        known |= {option for parameter in command.params for option in parameter.opts}
        commands += list(command.commands.values()) if isinstance(command, click.Group) else []
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text())) <= known


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_option_of_optimize_is_documented() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for parameter in main.commands["optimize"].params:
        for option in parameter.opts:
            if option.startswith("--"):
                assert option in text, option
