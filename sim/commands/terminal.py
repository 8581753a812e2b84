"""What the command line writes: results to stdout, progress to stderr; and where, if it says so."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.table import Table

EXIT_CANNOT_WRITE = 1
EXIT_BROKEN_PIPE = 141  # what a shell says of a program that SIGPIPE ended
LOG_EVERY_S = 10.0  # between lines that say how far a thing is, where there is no terminal
_ANY_WIDTH = 100_000  # columns of a table that does not go to a terminal: as many as it needs


def folder(text: str | Path) -> Path:
    """The value of an option that names a folder."""
    if not str(text):
        raise typer.BadParameter("must name a folder, found ''; leave it out for 'runs'")
    return Path(text)


def print_line(text: object) -> None:
    """Write a line to stdout; a reader that went away is none of our business, a full disk is the user's."""
    try:
        typer.echo(_encodable(str(text)), color=True)  # as it is: whoever coloured it knew where it goes
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes what is left when Python ends
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        typer.echo(f"cannot write the result: {error.strerror}", err=True)
        raise typer.Exit(EXIT_CANNOT_WRITE) from None


def _encodable(text: str) -> str:
    """Text with escapes for what stdout cannot show, such as a file name that is no text."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def print_json(value: object) -> None:
    """Write a value to stdout as indented JSON."""
    print_line(json.dumps(value, indent=2))


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write rows of text to stdout as a table."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*headings)
    for row in rows:
        table.add_row(*map(Text, row))  # Text: brackets in a name are no markup
    print_table(table)


def print_table(table: Table) -> None:
    """Write a table to stdout: as wide as a terminal is (or COLUMNS says), else as wide as it needs."""
    from rich.console import Console

    text = io.StringIO()
    on_terminal = sys.stdout.isatty()
    width = None if on_terminal else _ANY_WIDTH
    console = Console(file=text, force_terminal=on_terminal or None, width=width)  # None: FORCE_COLOR decides
    console.print(table, crop=False)  # a terminal too narrow for one column wraps it: nothing is cut
    print_line("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float, float], None]]:
    """A bar on a terminal's stderr, gone when it is done; elsewhere a line for each thing as it begins."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Log()
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(task, description=text, completed=done, total=total)


class _Log:
    """Tells what begins, once, and now and then how far it is."""

    def __init__(self) -> None:
        self._last, self._told_s = "", time.monotonic()

    def __call__(self, text: str, done: float, total: float) -> None:
        what, _, _ = text.partition(": ")
        now_s = time.monotonic()
        if what != self._last:
            typer.echo(f"{what} ({int(done)} of {int(total)} steps done)", err=True)
        elif now_s - self._told_s >= LOG_EVERY_S:
            typer.echo(f"{text} ({100 * done / total:.0f} % of all steps done)", err=True)
        else:
            return
        self._last, self._told_s = what, now_s
