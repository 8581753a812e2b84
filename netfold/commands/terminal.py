"""Output of the command line: results go to stdout, progress to stderr."""

from __future__ import annotations

import io
import json
import math
import os
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netfold.errors import escaped
from netfold.kernels.compile_progress import COMPILING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

    from netfold.sim.report.result_display import VerbResult


EXIT_CHECK_FAILED = 1
EXIT_CANNOT_WRITE = 1
EXIT_BROKEN_PIPE = 141
"""What a shell reports of a program that SIGPIPE ended."""
LOG_EVERY_S = 10.0
"""Time between progress lines, without a terminal."""
_ANY_WIDTH = 100_000  # columns of a table that is not printed to a terminal


NoCode = Annotated[
    bool, typer.Option("--no-code", help="Refuse scenarios that name Python files, which would run.")
]


JsonOrTable = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
JsonOrText = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Workers = Annotated[int, typer.Option(min=1, max=4096, help="Workers.")]
DrawsSeed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all random draws.")]
ScenarioFile = Annotated[Path, typer.Argument(metavar="FILE", help="Scenario file; - for standard input.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a value, for example topology.rate=10Gbps."),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Use this seed instead of the file's.")]
RUNS = Path("runs")
_LINE_COLUMNS = 110


def folder(text: str | Path) -> Path:
    """The value of an option that names a folder."""
    if not str(text):
        raise typer.BadParameter("must name a folder, found ''; remove the option to use 'runs'")
    return Path(text)


Out = Annotated[Path, typer.Option(metavar="DIR", parser=folder, help="Folder of all runs.")]


def print_line(text: object) -> None:
    # Names and texts from files may have control characters.
    _write(escaped(str(text)))


def print_error(text: object) -> None:
    typer.echo(escaped(str(text)), err=True)


def _write(text: str) -> None:
    """Write a line to stdout; report a full disk, and exit quietly if the reader has closed the pipe."""
    try:
        typer.echo(_encodable(text), color=True)  # colours were chosen for this output
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python still flushes at exit
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        typer.echo(f"cannot write the result: {error.strerror}", err=True)
        raise typer.Exit(EXIT_CANNOT_WRITE) from None


def _encodable(text: str) -> str:
    """Text with escapes for characters that stdout cannot encode, as in some file names."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def print_wrapped(text: str, indent: str = "", hanging: int = 4, columns: int = _LINE_COLUMNS) -> None:
    """Write a paragraph to stdout; all lines but the first are `hanging` columns further in."""
    further = indent + hanging * " "
    print_line(textwrap.fill(text, columns, initial_indent=indent, subsequent_indent=further))


def print_json(value: object) -> None:
    print_line(json.dumps(value, indent=2))


def print_table(table: Table) -> None:
    """Write a table to stdout, as wide as the terminal or COLUMNS; without a terminal as wide as it needs."""
    from rich.console import Console

    text = io.StringIO()
    on_terminal = sys.stdout.isatty()
    width = None if on_terminal else _ANY_WIDTH
    console = Console(file=text, force_terminal=on_terminal or None, width=width)  # None: FORCE_COLOR decides
    # A terminal too narrow for one column wraps it: nothing is cut.
    console.print(EscapedTable(table), crop=False)
    _write("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def show(result: VerbResult, as_json: bool) -> None:
    """Print what a verb came to: its tables and the lines below them, or one JSON object."""
    if as_json:
        print_json(result.as_dict())
        return
    for table in result.tables():
        print_table(table)
    for line in result.lines():
        print_line(line)


def exit_with(passes: bool) -> None:
    """End the command with the exit status of a failed check, if one has failed."""
    if not passes:
        raise typer.Exit(EXIT_CHECK_FAILED)


def write_figure(path: Path, svg: bytes | None) -> None:
    """Write a figure where `path` says.

    Raises
    ------
    DataError
        The file's name does not end in ".svg", or there is nothing to draw.
    UnwrittenError
        The file cannot be written.
    """
    from netfold.errors import DataError, UnwrittenError

    if path.suffix.lower() != ".svg":
        raise DataError(f"--draw {path}: figures are SVG", f"use {path.with_suffix('.svg').name}")
    if svg is None:
        raise DataError(f"--draw {path}: nothing to draw", "no variant has finished a step")
    try:
        path.write_bytes(svg)
    except OSError as error:
        reason = error.strerror or error
        raise UnwrittenError(f"cannot write {path}: {reason}", "give another file with --draw") from error


@contextmanager
def progress_bar(has_lines: bool = True) -> Iterator[Callable[[str, float, float], None]]:
    """Show progress on stderr: a bar on a terminal, which is removed at the end; otherwise lines of text."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Log() if has_lines else lambda *_: None
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(task, description=text, completed=done, total=total)


@contextmanager
def under_way(text: str) -> Iterator[None]:
    """Say on stderr what is being done: on a terminal until it is done, otherwise in a line."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        print_error(text)
        yield
        return
    with console.status(text):
        yield


class _Log:
    """Writes a line when the first activity begins, and then one every `LOG_EVERY_S` seconds."""

    def __init__(self) -> None:
        self._last, self._written_s = "", time.monotonic()
        self._begun_s: float | None = None  # when the first step began: compiling says nothing of the rest

    def __call__(self, text: str, done: float, total: float) -> None:
        what, _, _ = text.partition(": ")
        now_s = time.monotonic()
        if self._begun_s is None and what != COMPILING:
            self._begun_s = now_s
        if self._last and now_s - self._written_s < LOG_EVERY_S:
            return
        if what != self._last:
            # How many kernels are needed is found while they are compiled: at first, one of one.
            print_error(what if what == COMPILING else f"{what} ({int(done)} of {int(total)} steps done)")
        elif what == COMPILING:
            print_error(f"{text} ({int(done)} of {int(total)} done)")
        else:
            left_s = (now_s - (self._begun_s or now_s)) * (total - done) / done if done else math.inf
            left = f", about {left_s:.0f} s left" if left_s < math.inf else ""
            print_error(f"{text} ({100 * done / total:.0f} % of all steps done{left})")
        self._last, self._written_s = what, now_s


# `netfold report`, and the report that `run` and `sweep` write once their results are printed.


COMPARISON_FOLDER = Path("comparison")
"""Where the page of several runs is written by default."""
NoReport = Annotated[
    bool, typer.Option("--no-report", help="Write no figures and no page; `netfold report` does it later.")
]


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run or sweep folder, or several run folders.")
    ],
    figure: Annotated[
        str, typer.Option(metavar="FIGURE", help="Write only this figure, for a paper or a document.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="File of the figure, SVG, PDF or PNG, by default figures/FIGURE-INCHESin.pdf; without "
            "--figure the folder of the page of several runs, by default comparison.",
        ),
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(
            metavar="INCHES",
            help="Width of the figure; by default 3.3 of a PDF, a column of a paper, and 9 of others.",
            min=3,
            max=9,
        ),
    ] = None,
) -> None:
    """Write the figures and the page of a run or a sweep, or write them again; or one page of several runs.

    The page of several runs answers as `netfold compare` does: within variants of equal workload, and divided
    by the first run. It names variants with the number of their run.

    \b
    netfold report runs/latest
    netfold report runs/latest --figure bounds --out bounds.svg
    netfold report runs/mine/* --out compared

    The page and figures/ have the names of figures: throughput, bounds, training and others, and of a sweep
    its metrics.
    """
    if len(folders) > 1:
        from netfold.sim.report.compare import compare  # late: polars is slow to import

        folder = COMPARISON_FOLDER if figure or out is None else out
        print_line(compare(folders).report(folder, figure, width, out if figure else None))
    elif out is not None and not figure:
        raise typer.BadParameter(
            "the report of one run is in its folder; give --figure, whose file this is, or several runs",
            param_hint="--out",
        )
    else:
        print_line(write_report(folders[0], figure, width, out))


def report_printed(folder: Path, is_wanted: bool, as_json: bool) -> None:
    """Write the report of a folder whose results are printed, if it is wanted, and say where they are."""
    command = f"netfold report {shlex.quote(str(folder))}"
    if is_wanted:
        try:
            with under_way("writing the report"):
                write_report(folder)
        except BaseException:
            print_error(f"the results are complete, only the report is missing; to write it: {command}")
            raise
    if not as_json:
        written = f"Report: {folder}/report.html"
        print_line(written if is_wanted else f"Results: {folder}\nTo write a report: {command}")


def write_report(
    folder: Path, figure: str = "", width_inches: float | None = None, out: Path | None = None
) -> Path:
    """Write the figures and the page of a run or a sweep, or one figure; returns what is written."""
    from netfold.sim.report.html_report import (  # late: matplotlib is slow to import
        build_figure,
        build_report,
    )
    from netfold.sim.results.folder import is_sweep

    if not is_sweep(folder):
        return build_figure(folder, figure, width_inches, out) if figure else build_report(folder)
    from netfold.sim.studies.sweep_output import load_sweep  # late: it imports all that scenarios may name

    sweep = load_sweep(folder)
    return sweep.write_figure(figure, width_inches, out) if figure else sweep.report()


class EscapedTable:
    """A table of rich whose texts are escaped when it is rendered; its own colours are not."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segment in console.render(self._table, options):
            yield Segment(escaped(segment.text), segment.style)
