"""The commands `netfold codecs …` and `netfold sweep`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netfold.commands.terminal import (
    NoCode,
    NoReport,
    folder,
    print_error,
    print_json,
    print_line,
    print_table,
    progress_bar,
    report_printed,
)
from netfold.errors import NetfoldError
from netfold.sim.studies import MADE_UP, ROUNDS, WORKERS

if TYPE_CHECKING:
    from netfold.sim.studies.codec_measures import Study
    from netfold.sim.studies.codec_study_gradients import Source
    from netfold.sim.studies.sweep import Ended, OnPoint
    from netfold.sim.studies.sweep_output import FinishedSweep


EXIT_CHECK_FAILED = 1


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
    workers: Annotated[int, typer.Option(min=1, max=4096, help="Workers.")] = 4,
    switch: Annotated[
        str,
        typer.Option(
            metavar="PROFILE",
            help="Profile of the switch; by default the one that can do least of those that can.",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all random draws.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
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
    from netfold.sim.studies.matrix import Wanted, make_matrix, matrix_page, matrix_table

    wanted = Wanted(tuple(kinds or ()), tuple(collectives or ()), loss, workers, switch, seed)
    with progress_bar() if sys.stderr.isatty() else nullcontext(lambda *_: None) as progress:
        found = make_matrix(wanted, progress)
    if as_json:
        print_json(found.as_dict())
    elif as_page:
        print_line(matrix_page(found).removesuffix("\n"))
    else:
        print_table(matrix_table(found))
    if found.failed:
        raise typer.Exit(EXIT_CHECK_FAILED)


# The commands `netfold codecs …`: list the codecs, and measure some on gradients without a network.


EXIT_FAULT = 1
_LISTING_COLUMNS = 100
codecs = typer.Typer(
    help="List the codecs for scenarios and their options, measure some on gradients, or run them on all "
    "collectives.",
    rich_markup_mode=None,
)
codecs.command("matrix")(codecs_matrix)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def _synthetic(metavar: str, name: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=f"{text}; {MADE_UP[name]} by default.")


@codecs.callback(invoke_without_command=True)
def codecs_list(context: typer.Context, as_json: Json = False) -> None:
    """List the codecs for scenarios, measure some on gradients, or run them on all collectives."""
    if context.invoked_subcommand is not None:
        return
    import json
    import textwrap
    from dataclasses import asdict

    from netfold.commands.listings import listing

    if as_json:
        print_json({"codecs": [asdict(codec) for codec in listing()]})
        return
    for codec in listing():
        source = f"; {codec.source}" if codec.source else ""
        entries = [("", f"{codec.kind} ({codec.status}{source}): {codec.meaning}")]
        for option in codec.options:
            default = "" if option.is_required else f"={json.dumps(option.default)}"
            entries.append(("  ", f"{option.name}{default}: {option.meaning}"))
        for indent, text in entries:
            print_line(
                textwrap.fill(
                    text, _LISTING_COLUMNS, initial_indent=indent, subsequent_indent=indent + "    "
                )
            )


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
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of all random draws.")] = 1,
    out: Annotated[Path, typer.Option(metavar="DIR", parser=folder, help="Folder of all runs.")] = Path(
        "runs"
    ),
    as_json: Json = False,
) -> None:
    """Measure codecs on gradients, without a network: bytes, speed on this machine, errors.

    \b
    netfold codecs study packed lossless:load=0.7 --density 0.1%,1%,10% --pattern iid,rows

    The exit status is 1 if a codec breaks its bound or workers decode different sums. Results are written to
    DIR/study/TIME-seedN.
    """
    from netfold.sim.studies.codec_study import make_study
    from netfold.sim.studies.codec_study_gradients import read_codecs

    generated = {
        "elements": elements,
        "density": density,
        "pattern": pattern,
        "row_elements": row_elements,
        "overlap": overlap,
        "distribution": distribution,
    }
    given = {key: text for key, text in generated.items() if text is not None}
    wanted, source = read_codecs(kinds), _source(input_file, given, workers, seed, shape)
    with progress_bar() if sys.stderr.isatty() else nullcontext(lambda *_: None) as progress:
        found, place = make_study(wanted, source, rounds, seed, progress, out)
    _print(found, place, as_json)
    if found.faults:
        raise typer.Exit(EXIT_FAULT)


def _source(
    input_file: Path | None, given: Mapping[str, str], workers: int | None, seed: int, shape: str | None
) -> Source:
    """Gradients from a file or, without one, generated from the options."""
    from netfold.sim.studies.codec_study_gradients import file_source, read_shapes, synthetic_source
    from netfold.sim.workload.layers import elements_of

    if shape is not None:
        tensors = read_shapes(shape, "--shape")
        if input_file is None:
            given = {"elements": str(elements_of(tensors)), **given}
        return _source(input_file, given, workers, seed, None).with_tensors(tensors, "--shape")
    if input_file is None:
        return synthetic_source(given, workers, seed)
    if given:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in given)
        raise NetfoldError(f"{options}: gradients come from {input_file}", f"leave out {options}, or --input")
    return file_source(input_file, workers)


def _print(found: Study, place: Path | None, as_json: bool) -> None:
    from netfold.sim.studies.codec_study import (
        as_dict,
        charges_table,
        messages_table,
        speeds_dict,
        study_table,
    )

    if as_json:
        print_json({**as_dict(found), "speeds": speeds_dict(found), "study_dir": str(place)})
        return
    print_table(study_table(found))
    print_table(messages_table(found))
    print_table(charges_table(found))
    for fault in found.faults:
        print_line(fault)
    print_line(f"Study: {place}")


# `netfold sweep`.


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
    found = load_sweep(path)
    if as_json:
        print_json({**found.content, "folder": str(path)})
    else:
        _print_sweep(found)
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


def _print_sweep(found: FinishedSweep) -> None:
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
