"""Exceptions that taso raises on purpose: each says what was wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable

TEXT = "<text>"  # the "file" of text that is in none


class TasoError(Exception):
    """Base class of everything that taso raises on purpose. `exit_code` is what the command line ends with."""

    exit_code = 1


class ModelError(TasoError):
    """The model cannot be read, is not valid ONNX, or cannot be run by any runtime level."""


class UsageError(TasoError):
    """The caller asked for something that does not exist: an input name, a rank, a rule, a target."""

    exit_code = 2


class CheckError(TasoError):
    """The optimized model does not compute what the original computes; nothing was written."""

    exit_code = 3


class SpecError(TasoError):
    """A specification, rules or universe file is wrong; the message names file, line and column and shows the line."""

    def __init__(
        self,
        message: str,
        *,
        path: str = TEXT,
        line: int = 0,
        column: int = 0,
        source: str = "",
        hint: str = "",
        note: str = "",
    ) -> None:
        """`source` is the whole text; `note` stands behind the mark under the shown line, `hint` on its own line.

        Lines and columns count from 1; 0 is one that is not known. What is not known is not printed.
        """
        self.problem, self.path, self.line, self.column, self.hint, self.note = message, path, line, column, hint, note
        lines = source.splitlines()
        mark = f"{' ' * (column - 1)}^ {note}".rstrip()
        shown = f"\n   | {lines[line - 1]}\n   | {mark}" if 0 < line <= len(lines) and column > 0 else ""
        advice = f"\n   = {hint}" if hint else ""
        super().__init__(f"{self.place}{': ' if self.place else ''}error: {message}{shown}{advice}")

    @property
    def place(self) -> str:
        """`file:line:column`, as far as it is known; empty if nothing is."""
        if self.line < 1:
            return "" if self.path == TEXT else self.path
        return f"{self.path}:{self.line}:{self.column}" if self.column > 0 else f"{self.path}:{self.line}"

    def placed(self, path: str, source: str) -> SpecError:
        """The same error with the file that it is in."""
        return SpecError(
            self.problem, path=path, line=self.line, column=self.column, source=source, hint=self.hint, note=self.note
        )


class ShapeError(TasoError):
    """The shapes or attributes given to an operator do not fit its specification."""


class ExportError(TasoError):
    """A graph has a value that no ONNX operator of the model's opset can compute."""


class ProofError(TasoError):
    """A rule that must hold was refuted or could not be proved; the message names the rule."""


class MeasureError(TasoError):
    """The runtime failed, crashed or ran out of time while a kernel or a model was being measured."""


def did_you_mean(name: str, known: Iterable[str], form: str = ' (did you mean "{}"?)') -> str:
    """The known name that was probably meant, in the words of `form`; empty if none is close. Case does not count."""
    from difflib import get_close_matches  # only when something is wrong

    meant: dict[str, str] = {}
    for one in known:
        meant.setdefault(one.lower(), one)
    close = get_close_matches(name.lower(), meant, 1)
    return form.format(meant[close[0]]) if close else ""
