"""Text to syntax tree. Errors name file, line and column, show the line and say what was expected."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, cast

import lark

from taso.errors import TEXT, SpecError
from taso.spec import syntax as s
from taso.spec.builder import Builder, Misread

# Tokens that are not one text are called by what they are; the others are shown as they are written.
_READABLE = {
    "NAME": "a name", "INT": "a number", "NUMBER": "a number", "STRING": "a string", "COMPARE": "a comparison",
    "RECORD": "a record", "REDUCE": "`sum`/`max`/`min`", "FLAG": "`broadcasting`/`variadic`",
    "CONTENT": "`content`/`extent`", "BACKQUOTE": "a quoted expression", "$END": "the end",
}  # fmt: skip
_SHOWN = 8  # of what could stand at a place


@cache
def _parser(start: str) -> lark.Lark:
    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, parser="lalr", start=start, propagate_positions=True, maybe_placeholders=True)


def parse(text: str, path: str = TEXT) -> list[s.Item]:
    """The declarations in a text, in order.

    Raises:
        SpecError: at the first place that does not fit the grammar.
    """
    return cast(list[s.Item], _tree(text, path, "start"))


def parse_file(path: Path) -> list[s.Item]:
    """The declarations of a file. Raises SpecError as `parse` does, also if the file cannot be read."""
    return parse(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file. Raises SpecError if it cannot be read or is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", path=str(path)) from error
    except UnicodeDecodeError as error:
        raise SpecError("cannot be read: this is not a text file (in UTF-8)", path=str(path)) from error


def parse_rule(text: str, path: str = TEXT) -> s.Rule:
    """One rule; `left ==> right` without `rule NAME` is accepted too and is called `r`."""
    body = text.strip()
    item = _tree(body if body.startswith("rule ") else f"rule r {body}", path, "rule")
    return cast(s.Rule, item)


def parse_term(text: str, path: str = TEXT) -> s.Term:
    """One term."""
    return cast(s.Term, _tree(text, path, "term"))


def parse_expr(text: str, path: str = TEXT) -> s.Expr:
    """One expression or condition."""
    return cast(s.Expr, _tree(text, path, "cond"))


def _tree(text: str, path: str, start: str) -> Any:
    try:
        tree = _parser(start).parse(text)
    except lark.exceptions.UnexpectedInput as error:
        raise _explain(error, text, path, start) from None
    try:
        return Builder(text).transform(tree)
    except lark.exceptions.VisitError as error:
        if isinstance(error.orig_exc, Misread):
            misread = error.orig_exc
            raise SpecError(
                str(misread), path=path, line=misread.pos.line, column=misread.pos.column, source=text
            ) from None
        raise


def _explain(error: lark.exceptions.UnexpectedInput, text: str, path: str, start: str) -> SpecError:
    if isinstance(error, lark.exceptions.UnexpectedToken):
        found = "end" if error.token.type == "$END" else f"`{error.token}`"
        wanted = set(error.accepts or error.expected)
    elif isinstance(error, lark.exceptions.UnexpectedCharacters):
        found, wanted = f"`{text[error.pos_in_stream or 0]}`", set(error.allowed or ())
    else:
        found, wanted = "end", set(getattr(error, "expected", ()))
    expected = sorted({_readable(name, start) for name in wanted})
    if len(expected) > _SHOWN:
        shown = ", ".join([*expected[:_SHOWN], "..."])
    else:
        shown = " or ".join(filter(None, [", ".join(expected[:-1]), *expected[-1:]]))
    line, column = error.line, error.column
    if found == "end" or line is None or line < 1:  # point behind the last character
        lines = text.rstrip().splitlines() or [""]
        line, column = len(lines), len(lines[-1]) + 1
    advice = f"; expected {shown}" if shown else ""
    return SpecError(f"unexpected {found}{advice}", path=path, line=line, column=column, source=text)


def _readable(terminal: str, start: str) -> str:
    """What a person calls a terminal of the grammar."""
    return _READABLE.get(terminal) or f"`{_parser(start).get_terminal(terminal).pattern.value}`"
