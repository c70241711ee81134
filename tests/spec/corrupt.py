"""Random damage to a specification: one token deleted, renamed, exchanged for another one or for a number."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

from taso.resources import opspec_dir
from taso.spec import syntax as s
from taso.spec.parse import parse
from taso.spec.spec import Spec

TOKEN = re.compile(r'"[^"\n]*"|[A-Za-z_]\w*|\d+(?:\.\d+)?|==|!=|<=|>=|\+\+|->|\.\.\.|[^\sA-Za-z_0-9]')


@cache
def shipped() -> dict[str, tuple[str, list[s.Item]]]:
    """Text and declarations of every shipped file, by path."""
    paths = sorted([*opspec_dir().rglob("*.op"), *opspec_dir().rglob("*.universe")])
    texts = {str(path): Path(path).read_text(encoding="utf-8") for path in paths}
    return {path: (text, parse(text, path)) for path, text in texts.items()}


def damaged(rng: random.Random) -> tuple[str, str]:
    """A path and what its text has become."""
    path = rng.choice(sorted(shipped()))
    text = shipped()[path][0]
    tokens = [
        token
        for token in TOKEN.finditer(text)
        if "#" not in text[text.rfind("\n", 0, token.start()) + 1 : token.start()]
    ]
    token = rng.choice(tokens)
    alike = [other.group() for other in tokens if other.group()[0].isalnum() == token.group()[0].isalnum()]
    new = rng.choice(["", token.group() + "q", rng.choice(alike), rng.choice(alike), str(rng.randint(0, 5))])
    return path, text[: token.start()] + new + text[token.end() :]


def spec_with(path: str, text: str) -> Spec:
    """The shipped specification with one file's text replaced. Raises SpecError as reading it would."""
    spec = Spec()
    for other, (written, items) in shipped().items():
        if other == path:
            spec.add(text, path)
        else:
            spec.take(items, written, other)
    return spec
