"""`netfold sweep`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netfold.errors import NetfoldError
from netfold.sim.commands.reports import NoReport, report_printed
from netfold.sim.commands.terminal import NoCode, folder, print_error, print_json, print_line, print_table

if TYPE_CHECKING:
    from netfold.sim.studies.sweep import Ended, OnPoint
    from netfold.sim.studies.sweep_output import Sweep

_EXIT_CHECK_FAILED = 1


def sweep(  # noqa: PLR0913  one argument an option
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Scenario file; - for standard input.")],
    over: Annotated[
        list[str] | None,
        typer.Option("--over", metavar="PATH=VALUES", help="Sweep a key: topology.rate=10Gbps,100Gbps."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a value, for example topology.rate=10Gbps."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Use this seed instead of the file's.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Points at a time; by default the cores.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", parser=folder, help="Folder of all runs.")] = Path(
        "runs"
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Run points again that are kept.")] = False,
    trust_kept: Annotated[
        bool, typer.Option("--trust-kept", help="Take kept points of your own models, too (see below).")
    ] = False,
    no_code: NoCode = False,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Keep the run folder of every point.")
    ] = False,
    scheduler: Annotated[
        str, typer.Option(metavar="ADDRESS", help="local, or a Dask scheduler: tcp://HOST:8786.")
    ] = "local",
    scheduler_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file of a Dask scheduler.")
    ] = None,
    no_report: NoReport = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
) -> None:
    """Run every point of a scenario's `sweep`, several at a time.

    All points are checked before the first one runs. Each finished point is kept at once: a sweep that was
    stopped goes on with the same command, and only what changed runs again. Where netfold cannot know what
    has changed, such as data that your own model reads, points run again unless --trust-kept takes them.
    Python files that a scenario names (model: ./mine.py:make) run; a line on stderr says so, and --no-code
    refuses them. A point whose process dies is
    tried once more; one that fails does not stop the others. The result is a table (points.parquet) and,
    once it is printed, a figure for each metric and a page. The exit status is 0 if all points ran and all
    checks hold.
    """
    from netfold.sim.results.summary import GOOD, kind
    from netfold.sim.scenario.load import running_code
    from netfold.sim.studies.sweep import Settings, cores, run_sweep, sweep_of
    from netfold.sim.studies.sweep_output import load_sweep
    from netfold.sim.studies.sweep_workers import cluster_of

    cluster = cluster_of(scheduler, scheduler_file)
    settings = Settings(jobs or cores(), cluster, fresh, keep_runs, trust_kept)
    try:
        with running_code(not no_code):
            scenario = sweep_of(file, [*map(_as_set, over or ()), *(sets or ())], seed)
            with _progress() as progress:
                path = run_sweep(scenario, settings, out, progress)
    except BaseException as error:
        for note in getattr(error, "__notes__", ()):
            print_error(note)
        raise
    found = load_sweep(path)
    if as_json:
        print_json({**found.content, "folder": str(path)})
    else:
        _print(found)
    report_printed(path, not no_report, as_json)
    if kind(found.content["verdict"]) not in GOOD:
        raise typer.Exit(_EXIT_CHECK_FAILED)


def _as_set(text: str) -> str:
    """A `--over PATH=VALUES` as the `--set` that says the same."""
    path, equals, values = text.partition("=")
    if not equals or not path or not values:
        raise NetfoldError(
            f"--over: cannot read {text!r}", "use PATH=VALUES, for example topology.rate=10Gbps,100Gbps"
        )
    if path == "seeds" and values.isdecimal():
        return f"sweep.{path}={values}"
    listed = values if values.startswith("[") and values.endswith("]") else f"[{values}]"
    return f"sweep.{path}={listed}"


def _print(found: Sweep) -> None:
    from netfold.sim.studies.sweep_output import counts, sweep_table

    table = sweep_table(found)
    if table.row_count:
        print_table(table)
    for point in found.content["points"]:
        if point["status"] != "done":
            place = f"point {point['point']}: {point['text']}"
            print_line(f"{place}: {point['status']}: {point['error'].strip()}")
    print_line(f"{found.content['scenario']}: {counts(found.content)}: {found.content['verdict']}")
    print_line(f"Table: {found.path}/points.parquet")


@contextmanager
def _progress() -> Iterator[OnPoint]:
    """Show progress on stderr: a bar with the time left on a terminal, otherwise a line for every point."""
    if not sys.stderr.isatty():
        yield _log
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("points"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("points", total=None, left="")

        def show(ended: Ended) -> None:
            left = "" if ended.left_s is None else f"about {_duration(ended.left_s)} left"
            bar.update(task, completed=ended.done, total=ended.total, left=left)

        yield show


def _log(ended: Ended) -> None:
    print_error(f"point {ended.done} of {ended.total}: {ended.text}: {ended.result}, {ended.wall_s:.1f} s")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
