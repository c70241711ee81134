"""Reading the original's rules: expressions such as `split(conv2d(t1, t2; kernel=3x3, pad=same); axis=1)[0]`."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INPUT, PART = "input", "part"
_WORD = re.compile(r"[A-Za-z_0-9]+")
_occurrences = itertools.count()


@dataclass(frozen=True)
class Node:
    """One operator applied to others. A tensor is `input` with its name, the k-th part of a split is `part` with k.

    A constant is told from every other by a number: two that are written alike may differ in size, which is left out.
    """

    op: str
    args: tuple[Node, ...] = ()
    attrs: tuple[tuple[str, str], ...] = ()

    def attr(self, name: str) -> str:
        return dict(self.attrs)[name]

    @property
    def axis(self) -> int:
        return int(self.attr("axis"))

    @property
    def kernel(self) -> tuple[int, int]:
        height, width = self.attr("kernel").split("x")
        return int(height), int(width)


@dataclass(frozen=True)
class OriginalRule:
    """One rule as the original has it. truth: what its data says about it beyond "true for every group count"."""

    number: int
    source: tuple[Node, ...]
    target: tuple[Node, ...]
    truth: str = ""


def read_original(path: Path) -> list[OriginalRule]:
    """The rules of one of the original's files, read as JSON. Raises ValueError for what is no rule."""
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [
        OriginalRule(
            entry["id"],
            tuple(map(read_node, entry["source"])),
            tuple(map(read_node, entry["target"])),
            entry.get("truth", ""),
        )
        for entry in entries
    ]


def read_node(text: str) -> Node:
    """An expression. Raises ValueError with the place of what was not understood."""
    node, at = _node(text, 0)
    if at != len(text):
        raise ValueError(f"`{text}`: not understood from character {at} on")
    return node


def _node(text: str, at: int) -> tuple[Node, int]:
    word = _WORD.match(text, at)
    if word is None:
        raise ValueError(f"`{text}`: a name is missing at character {at}")
    name, at = word.group(), word.end()
    if not text.startswith("(", at):
        return Node(INPUT, attrs=(("name", name),)), at
    at += 1
    args: list[Node] = []
    attrs: list[tuple[str, str]] = []
    while text[at] not in ";)":
        arg, at = _node(text, at)
        args.append(arg)
        if text.startswith(", ", at):
            at += 2
    if text[at] == ";":
        end = text.index(")", at)
        for pair in text[at + 1 : end].split(","):
            key, value = pair.strip().split("=")
            if key != "shuffle":  # whether data moves or only strides: no difference in what is computed
                attrs.append((key, value))
        at = end
    if name.startswith("const"):
        attrs.append(("number", str(next(_occurrences))))
    node = Node(name, tuple(args), tuple(sorted(attrs)))
    at += 1
    while text.startswith("[", at):
        end = text.index("]", at)
        node, at = Node(PART, (node,), (("k", text[at + 1 : end]),)), end + 1
    return node, at
