"""Where results, remarks, progress and JSON go."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taso.files import write_whole

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Output:
    """Results go to standard output, progress and remarks to standard error. Quiet prints only errors."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self.quiet, self.verbose = quiet, verbose
        self.results_to_stderr = False  # where standard output is taken by `--json -`
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:  # a terminal that has no "±" gets "?" instead of a crash
                reconfigure(errors="replace")

    @functools.cached_property
    def stdout(self) -> Console:
        """The console of results; plain text where it is not a terminal."""
        return _console(stderr=False)

    @functools.cached_property
    def stderr(self) -> Console:
        """The console of progress and remarks."""
        return _console(stderr=True)

    @property
    def width(self) -> int:
        """Columns that text may be wrapped to: the terminal's, 80 where there is none."""
        return self.stdout.width if self.stdout.is_terminal else 80

    def result(self, *renderables: RenderableType) -> None:
        """Print a result, unless quiet. Lines are never cut or wrapped where the output is not a terminal."""
        if not self.quiet:
            console = self.stderr if self.results_to_stderr else self.stdout
            console.print(*renderables, sep="\n", soft_wrap=not console.is_terminal)

    def remark(self, text: str) -> None:
        """Print a remark on standard error, unless quiet."""
        if not self.quiet:
            self.stderr.print(text, style="dim", soft_wrap=True)

    def json(self, target: str | None, data: object) -> None:
        """Write data as JSON to a file, or to standard output where `target` is `-`; nothing where it is None."""
        if target is None:
            return
        text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if target == "-":
            click.echo(text, nl=False)
        else:
            write_whole(Path(target), text.encode())

    @contextmanager
    def progress(self) -> Iterator[Callable[..., None]]:
        """A function `show(what, done, total, note)` that keeps bars on standard error, if that is a terminal."""
        if self.quiet or not self.stderr.is_terminal:
            yield lambda what, done=None, total=None, note="": None
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[note]}", style="dim"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.stderr, transient=True) as bars:
            tasks: dict[str, Any] = {}

            def show(what: str, done: float | None = None, total: float | None = None, note: str = "") -> None:
                if what not in tasks:
                    tasks[what] = bars.add_task(what, total=total, count="", note=note)
                count = "" if done is None else f"{done:,g}/{total:,g}" if total else f"{done:,g}"
                bars.update(tasks[what], completed=done, total=total, count=count, note=note)

            yield show


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    class OurConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the program here; see `exit_codes`

    return OurConsole(stderr=stderr, highlight=False, markup=False, emoji=False)


def plain(value: object) -> object:
    """Data that JSON can hold: numbers that are not finite become strings, anything unknown its text."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
