"""The commands `netfold codecs …` and `netfold sweep`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netfold.commands.terminal import (
    RUNS,
    DrawsSeed,
    JsonOrTable,
    JsonOrText,
    NoCode,
    NoReport,
    Out,
    ScenarioFile,
    Seed,
    Sets,
    Workers,
    exit_with,
    print_error,
    print_json,
    print_line,
    print_wrapped,
    progress_bar,
    report_printed,
    show,
)
from netfold.errors import NetfoldError
from netfold.sim.studies import MADE_UP, ROUNDS, WORKERS

if TYPE_CHECKING:
    from netfold.sim.studies.sweep import Ended, OnPoint

POINTS_EVERY_S = 30.0
"""After so long without a point that ends, a log says how far a sweep is."""


def codecs_matrix(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CODEC]...", help="KIND or KIND:OPTION=VALUE,…; all by default."),
    ] = None,
    collectives: Annotated[
        list[str] | None,
        typer.Option(
            "--collective", metavar="KIND", help="Only this collective; can be repeated; all by default."
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(metavar="SHARE", help="Packets that every link loses in the second run of a cell.")
    ] = "1%",
    workers: Workers = 4,
    switch: Annotated[
        str,
        typer.Option(
            metavar="PROFILE",
            help="Profile of the switch; by default the one that can do least of those that can.",
        ),
    ] = "",
    seed: DrawsSeed = 1,
    as_json: JsonOrTable = False,
    as_page: Annotated[bool, typer.Option("--markdown", help="Print the page docs/matrix.md.")] = False,
) -> None:
    """Run every codec on every collective, without loss and with it, or say why it is refused.

    \b
    netfold codecs matrix topk majority --collective in_network --switch tofino1

    Each cell trains a small model for a few steps on a star. The exit status is 1 if a cell that ran did not
    pass all checks. Nothing is written.
    """
    if as_json and as_page:
        raise typer.BadParameter("--json and --markdown are both given; leave out one")
    from netfold.sim.studies.matrix import matrix

    with progress_bar(has_lines=False) as progress:
        result = matrix(
            kinds or (),
            collectives=collectives or (),
            loss=loss,
            workers=workers,
            switch=switch,
            seed=seed,
            progress=progress,
        )
    print_line(result.page().removesuffix("\n")) if as_page else show(result, as_json)
    exit_with(result.passes)


# The commands `netfold codecs …`: list the codecs, and measure some on gradients without a network.


_LISTING_COLUMNS = 100
codecs = typer.Typer(
    help="List the codecs for scenarios and their options, measure some on gradients, or run them on all "
    "collectives.",
    rich_markup_mode=None,
)
codecs.command("matrix")(codecs_matrix)


def _synthetic(metavar: str, name: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=f"{text}; {MADE_UP[name]} by default.")


@codecs.callback(invoke_without_command=True)
def codecs_list(context: typer.Context, as_json: JsonOrText = False) -> None:
    """List the codecs for scenarios, measure some on gradients, or run them on all collectives."""
    if context.invoked_subcommand is not None:
        return
    import json
    from dataclasses import asdict

    from netfold.commands.listings import listing

    if as_json:
        print_json({"codecs": [asdict(codec) for codec in listing()]})
        return
    for codec in listing():
        source = f"; {codec.source}" if codec.source else ""
        heading = f"{codec.kind} ({codec.status}{source}): {codec.meaning}"
        print_wrapped(heading, columns=_LISTING_COLUMNS)
        for option in codec.options:
            default = "" if option.is_required else f"={json.dumps(option.default)}"
            print_wrapped(f"{option.name}{default}: {option.meaning}", "  ", columns=_LISTING_COLUMNS)


@codecs.command("study")
def codecs_study(  # noqa: PLR0913  one argument an option
    kinds: Annotated[
        list[str],
        typer.Argument(metavar="CODEC", help="KIND or KIND:OPTION=VALUE,…; see `netfold codecs`."),
    ],
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Read gradients from a .npy, .npz, .safetensors or .pt file: one array, or named tensors of "
            "which each has the worker as its first axis. Or from a folder that `netfold capture` wrote: a "
            "round for each of its steps.",
        ),
    ] = None,
    elements: Annotated[str | None, _synthetic("N", "elements", "Elements of a gradient")] = None,
    density: Annotated[
        str | None, _synthetic("D,…", "density", "Shares of non-zero elements per worker")
    ] = None,
    pattern: Annotated[
        str | None,
        _synthetic("P,…", "pattern", "Elements that are zero together: iid, rows, columns, blocks"),
    ] = None,
    row_elements: Annotated[str | None, _synthetic("N", "row_elements", "Elements of a row")] = None,
    overlap: Annotated[
        str | None,
        _synthetic("SHARE", "overlap", "Share of non-zero positions that all workers have in common"),
    ] = None,
    distribution: Annotated[
        str | None, _synthetic("NAME", "distribution", "normal, lognormal, loguniform or integer")
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE,…",
            help="Tensors of a gradient, for codecs that work by tensor: 128x64,128 or fc1.weight=128x64,…; "
            "unknown by default.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=4096, help=f"Workers; {WORKERS} by default.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=10**6, help="Rounds, each with new gradients.")] = ROUNDS,
    seed: DrawsSeed = 1,
    out: Out = RUNS,
    as_json: JsonOrText = False,
) -> None:
    """Measure codecs on gradients, without a network: bytes, speed on this machine, errors.

    \b
    netfold codecs study packed lossless:load=0.7 --density 0.1%,1%,10% --pattern iid,rows

    The exit status is 1 if a codec breaks its bound or workers decode different sums. Results are written to
    DIR/study/TIME-seedN.
    """
    from netfold.sim.studies.codec_study import study
    from netfold.sim.studies.codec_study_inputs import read_codecs, source_of

    keys = (elements, density, pattern, row_elements, overlap, distribution)
    settings = {key: text for key, text in zip(MADE_UP, keys, strict=True) if text is not None}
    codecs = {named.name: named.codec for named in read_codecs(kinds)}
    if input_file is not None and settings:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in settings)
        raise NetfoldError(f"{options}: gradients come from {input_file}", f"leave out {options}, or --input")
    source = source_of(input_file, settings, workers, seed, shapes=shape, shapes_name="--shape")
    with progress_bar(has_lines=False) as progress:
        result = study(codecs, source, rounds=rounds, seed=seed, out=out, progress=progress)
    show(result, as_json)
    exit_with(result.passes)


def sweep(  # noqa: PLR0913  one argument an option
    file: ScenarioFile,
    over: Annotated[
        list[str] | None,
        typer.Option("--over", metavar="PATH=VALUES", help="Sweep a key: topology.rate=10Gbps,100Gbps."),
    ] = None,
    sets: Sets = None,
    seed: Seed = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Points at a time; by default the cores.")] = None,
    out: Out = RUNS,
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
    as_json: JsonOrTable = False,
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
    from netfold.sim.scenario.load import running_code
    from netfold.sim.studies.sweep import SweepSettings, cores, run_sweep, sweep_of
    from netfold.sim.studies.sweep_output import load_sweep
    from netfold.sim.studies.sweep_workers import cluster_of

    cluster = cluster_of(scheduler, scheduler_file)
    settings = SweepSettings(jobs or cores(), cluster, fresh, keep_runs, trust_kept)
    try:
        with running_code(not no_code):
            scenario = sweep_of(file, [*map(_as_set, over or ()), *(sets or ())], seed)
            with _progress() as progress:
                path = run_sweep(scenario, settings, out, progress)
    except BaseException as error:
        for note in getattr(error, "__notes__", ()):
            print_error(note)
        raise
    result = load_sweep(path)
    show(result, as_json)
    report_printed(path, not no_report, as_json)
    exit_with(result.passes)


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


@contextmanager
def _progress() -> Iterator[OnPoint]:
    """Show progress on stderr: a bar with the time left on a terminal, otherwise lines."""
    if not sys.stderr.isatty():
        events: SimpleQueue[Ended | None] = SimpleQueue()
        writer = Thread(target=_log, args=(events,), daemon=True)
        writer.start()
        try:
            yield events.put
        finally:
            events.put(None)
            writer.join()
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
            bar.update(
                task, completed=ended.done, total=ended.total, left=_left(ended.left_s).removeprefix(", ")
            )

        yield show


def _log(events: SimpleQueue[Ended | None]) -> None:
    """Write a line for every point that ends, up to a None; if none does for long, how far the sweep is."""
    begun_s, done, ends_s = time.monotonic(), "no point", 0.0
    while True:
        try:
            ended = events.get(timeout=POINTS_EVERY_S)
        except Empty:
            now_s = time.monotonic()
            print_error(f"{done} done after {_duration(now_s - begun_s)}{_left(ends_s - now_s)}")
            continue
        if ended is None:
            return
        done, ends_s = f"{ended.done} of {ended.total} points", time.monotonic() + (ended.left_s or 0.0)
        text = f"point {ended.done} of {ended.total}: {ended.text}: {ended.result}, {ended.wall_s:.1f} s"
        print_error(text + _left(ended.left_s))


def _left(seconds: float | None) -> str:
    return f", about {_duration(seconds)} left" if seconds is not None and seconds > 0 else ""


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
