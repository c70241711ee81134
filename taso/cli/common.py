"""What all commands share: -q and -v, errors as words and exit codes, and the options that several of them have."""

from __future__ import annotations

import functools
import math
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from taso.cli.output import Output
from taso.errors import SpecError, TasoError, UsageError, did_you_mean
from taso.files import check_writable

MOST_ELEMENTS = 2**40  # of an input; more is a slip of the keyboard
INTERRUPTED = 130  # what a shell reports for a program that SIGINT ended

_F = TypeVar("_F", bound=Callable[..., Any])


class Commands(click.Group):
    """A group that suggests the command that was probably meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            commands = self.list_commands(ctx)
            hint = did_you_mean(name, commands)
            ctx.fail(f'there is no command "{name}"; the commands are: {", ".join(commands)}{hint}')
        return super().resolve_command(ctx, args)


class Real(click.FloatRange):
    """A number in a range; "nan", which is in every range, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


SEED = click.IntRange(0)


def command(function: _F) -> Callable[..., Any]:
    """Make a function a command: with `output`, -q and -v, and exceptions turned into words and exit codes."""

    @click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
    @click.option("-v", "--verbose", is_flag=True, help="Say more; show the traceback of an error.")
    @functools.wraps(function)
    def run(*args: Any, quiet: bool, verbose: bool, **options: Any) -> Any:
        with exit_codes(verbose), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            if options.get("json_to") not in (None, "-"):
                _check_json(Path(options["json_to"]), options)
            return function(*args, output=Output(quiet=quiet, verbose=verbose), **options)

    return run


def _check_json(path: Path, options: Mapping[str, Any]) -> None:
    """Refuse, before any work, a JSON file that cannot be written or that would replace another file of the command."""
    values = [value if isinstance(value, tuple) else (value,) for value in options.values()]
    named = [one for listed in values for one in listed if isinstance(one, Path)]
    if any(os.path.realpath(one) == os.path.realpath(path) for one in named):
        raise UsageError(f"--json would replace {path}; give it another name")
    if path.parent not in named:  # a folder that is named may be one that the command makes
        check_writable(path)


@contextmanager
def exit_codes(verbose: bool) -> Iterator[None]:
    """End the program with the right exit code, and say in one paragraph what was wrong."""
    try:
        yield
    except (click.exceptions.Exit, click.ClickException):
        raise
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; nothing was left half-written", INTERRUPTED, verbose)
    except SpecError as error:  # says `error` itself, behind its place
        _fail(str(error), error.exit_code, verbose, prefix="" if error.place else "taso: ")
    except TasoError as error:
        _fail(str(error), error.exit_code, verbose)
    except BrokenPipeError:  # the reader of our output has gone, as `taso rules list | head` does
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
        raise click.exceptions.Exit(0) from None
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        _fail(f"{about}{error.strerror or error}", 1, verbose)
    except MemoryError:
        _fail("out of memory", 1, verbose)
    except Exception as error:  # noqa: BLE001 - the last resort: a bug of ours, said without a page of traceback
        advice = "" if verbose else "; this is a bug in taso: run the command with -v and report what it prints"
        _fail(f"{type(error).__name__}: {error}{advice}", 1, verbose)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    click.echo(f"taso: warning: {message}", err=True)


def _fail(message: str, code: int, verbose: bool, prefix: str = "taso: error: ") -> None:
    if verbose:
        traceback.print_exc(file=sys.stderr)
    click.echo(f"{prefix}{message}", err=True)
    raise click.exceptions.Exit(code)


def parse_shapes(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """`NAME:1,3,224,224`, repeated, as a dictionary. Names may contain colons; the shape follows the last one.

    Raises click.BadParameter for text that is not of this form, a tensor that fits into no memory, and for an input
    that is given two shapes.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _colon, sizes = text.rpartition(":")
        if not name or not re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", sizes):
            raise click.BadParameter(f'"{text}" is not of the form NAME:1,3,224,224')
        shape = tuple(map(int, sizes.split(",")))
        if math.prod(shape) > MOST_ELEMENTS:
            raise click.BadParameter(f'"{name}": no machine has the memory for a tensor of shape {list(shape)}')
        if shapes.setdefault(name, shape) != shape:
            raise click.BadParameter(f'"{name}" is given two shapes: {list(shapes[name])} and {list(shape)}')
    return shapes


def shape_option(function: _F) -> _F:
    """`--input-shape NAME:1,3,224,224`."""
    return click.option(
        "--input-shape",
        "input_shapes",
        multiple=True,
        callback=parse_shapes,
        metavar="NAME:SHAPE",
        help="Shape of an input whose dims are free, as NAME:1,3,224,224. Repeatable.",
    )(function)


def threads_option(function: _F) -> _F:
    """`--threads N`; so many that they only wait for each other are refused."""
    most = max(64, os.cpu_count() or 1)
    return click.option(
        "--threads", type=click.IntRange(1, most), metavar="N", help="Threads of the runtime.  [default: all CPUs]"
    )(function)


def hw_option(function: _F) -> _F:
    """`--hw`: the hardware target."""
    return click.option(
        "--hw", default="auto", show_default=True, metavar="TARGET", help="Hardware target; see `taso hw list`."
    )(function)


def spec_option(function: _F) -> _F:
    """`--spec FILE.op`: operators beside the shipped ones."""
    return click.option(
        "--spec",
        "specs",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="FILE.op",
        help="Operators in addition to the shipped ones. Repeatable.",
    )(function)


def check_specs(specs: tuple[Path, ...]) -> None:
    """Raise SpecError for the first problem of the files that `--spec` names, before anything is computed with them."""
    if not specs:
        return
    from taso.spec.check import check_item
    from taso.spec.spec import load_spec

    spec, shipped = load_spec(specs), len(load_spec().items)
    for item in spec.items[shipped:]:
        for problem in check_item(item, spec):
            raise problem


def json_option(function: _F) -> _F:
    """`--json FILE`."""
    return click.option("--json", "json_to", metavar="FILE", help="Write the result as JSON; - is standard output.")(
        function
    )
