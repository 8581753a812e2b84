"""The commands `netfold models …`, `netfold data …`, `netfold calibrate` and `netfold capture`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netfold.commands.terminal import (
    JsonOrText,
    Workers,
    folder,
    print_error,
    print_json,
    print_line,
    print_table,
    print_wrapped,
    progress_bar,
)
from netfold.sim.studies import WORKERS

if TYPE_CHECKING:
    from netfold.sim.studies.codec_study_inputs import DensityRow


models = typer.Typer(
    help="List the models to train, show one, or measure the densities of their gradients.",
    no_args_is_help=True,
)
_NAMED = "MODEL or MODEL:OPTION=VALUE,…, such as ncf:expand=[147,16]"


@models.command("list")
def models_list(as_json: JsonOrText = False) -> None:
    """List the models: their parameters, data sets and metrics."""
    from rich.table import Table
    from rich.text import Text

    from netfold.sim.studies.codec_study_inputs import describe_model
    from netfold.sim.workload.models.registry import model_kinds, model_named

    descriptions = [describe_model(model_named(kind)) for kind in model_kinds()]
    if as_json:
        print_json({"models": descriptions})
        return
    table = Table("model", "name", "parameters", "data, the default first", "tested by")
    table.columns[2].justify = "right"
    for model in descriptions:
        data = ", ".join(data["name"] for data in model["data"])
        table.add_row(
            *map(Text, (model["kind"], model["title"], f"{model['parameters']:,}", data, model["metric"]))
        )
    print_table(table)


@models.command("show")
def models_show(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"{_NAMED}.")], as_json: JsonOrText = False
) -> None:
    """Show all that is known of a model: source, options, data, and layers in gradient-ready order."""
    from netfold.sim.studies.codec_study_inputs import describe_model, read_model

    description = describe_model(read_model(model))
    if as_json:
        print_json(description)
        return
    print_wrapped(f"{description['title']} ({description['kind']}): {description['meaning']}", hanging=0)
    print_wrapped(f"source: {description['source']}", "  ")
    print_wrapped(f"parameters: {description['parameters']:,}", "  ")
    print_wrapped(f"tested by: {description['metric']}", "  ")
    for name, option in description["options"].items():
        print_wrapped(f"option {name}={option['default']}: {option['meaning']}", "  ")
    for dataset in description["data"]:
        instead = f", in place of {dataset['stands_in_for']}" if dataset["stands_in_for"] else ""
        print_wrapped(f"data {dataset['name']}{instead}", "  ")
    _print_layers(description["layers"])


def _print_layers(layers: list[Mapping[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("layer, as gradients become ready", "parameters", "of all that are ready")
    for layer in layers:
        table.add_row(
            *map(Text, (layer["name"], f"{layer['parameters']:,}", f"{100 * layer['ready_share']:.1f} %"))
        )
    for column in table.columns[1:]:
        column.justify = "right"
    print_table(table)


@models.command("measure")
def models_measure(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL…]", help=f"{_NAMED}; by default all whose densities are known."),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Samples per worker; by default those of the known density, or 16."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Data set; by default the known one, or the first."),
    ] = None,
    workers: Workers = WORKERS,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of weights and batches.")] = 1,
    as_json: JsonOrText = False,
) -> None:
    """Measure how many gradient elements are not zero: of a worker, and of the sum of all.

    At the first step, from random weights, beside values known from another implementation of the models.
    All models take minutes and several gigabytes of memory; most take seconds.
    """
    from netfold.sim.studies.codec_study_inputs import measure_densities, wanted_densities

    items = wanted_densities(names or (), batch, data)
    rows: list[DensityRow] = []
    with progress_bar() as progress:

        def report(text: str) -> None:
            progress(text, len(rows), len(items))

        rows.extend(measure_densities(items, workers, seed, report))
    if as_json:
        print_json({"workers": workers, "seed": seed, "densities": [_plain(row) for row in rows]})
    else:
        _print_densities(rows)


def _plain(row: DensityRow) -> dict[str, Any]:
    known = {"own": row.known.own, "union": row.known.union} if row.known else None
    return {
        **{"model": row.model.written, "data": row.data, "batch": row.batch},
        **{"parameters": row.model.elements, "own": row.own, "union": row.union, "common": row.common},
        "known": known,
    }


def _print_densities(rows: list[DensityRow]) -> None:
    """A row for each model; known values stand beside the measured ones."""
    from rich.table import Table
    from rich.text import Text

    headings = ("model", "data", "batch", "parameters", "own", "known", "union", "known", "all")
    table = Table(*headings)
    for row in rows:
        known = (row.known.own, row.known.union) if row.known else (None, None)
        shares = (row.own, known[0], row.union, known[1], row.common)
        written = row.model.written
        chosen = written if isinstance(written, dict) else {}
        options = ", ".join(f"{key} {value}" for key, value in chosen.items() if key != "kind")
        title = row.model.facts.title
        name = f"{title} ({options})" if options else title
        texts = ["–" if share is None else f"{100 * share:.1f} %" for share in shares]
        table.add_row(*map(Text, (name, row.data, f"{row.batch:,}", f"{row.model.elements:,}", *texts)))
    for column in table.columns[2:]:
        column.justify = "right"
    print_table(table)
    count = rows[0].workers if rows else WORKERS
    print_wrapped(
        f"share of non-zero elements at the first step: own: of one worker, mean; union: of any of {count} "
        "workers; all: of all of them; known: another implementation, one random start",
        hanging=0,
    )


def calibrate(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="Device file to write, ending in .json.")
    ] = Path("cpu.json"),
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads that PyTorch computes with.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the device file instead of text.")] = False,
) -> None:
    """Measure this machine's processor, and write a device file that scenarios can name.

    \b
    netfold calibrate cpu.json
    netfold run scenario.yaml --set device=cpu.json

    It takes about half a minute. What else the machine does makes the result worse: the last lines say how
    well the device predicts real steps.
    """
    from netfold.sim.studies.calibrate import AGREES, device_path, write_device
    from netfold.sim.studies.calibrate import calibrate as measured

    device_path(file)
    calibration = measured(threads, lambda what: print_error(f"measures {what}"))
    write_device(file, calibration)
    if as_json:
        import json

        print_json(json.loads(calibration.text))
        return
    for rate in calibration.codecs:
        print_line(
            f"{rate.codec}, {100 * rate.density:g} %: {rate.bytes_per_ns:.2f} counted bytes a nanosecond"
        )
    for step in calibration.checks:
        is_near = abs(step.ratio - 1) <= AGREES
        print_line(
            f"{step.model}: predicted {step.predicted_us:.0f} µs, measured {step.measured_us:.0f} µs"
            f"{'' if is_near else f' (more than {AGREES:.0%} apart: calibrate on an idle machine)'}"
        )
    print_line(f"Device file: {file}")


# The command `netfold capture`: record the gradients of a real training.


EXIT_NOT_WRITTEN = 1


def capture(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="The training, such as torchrun … train.py.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", parser=folder, help="Folder to write; it must not be there.")
    ] = Path("trace"),
    steps: Annotated[int, typer.Option(min=1, max=100_000, help="Optimizer steps to record.")] = 10,
    skip: Annotated[
        int,
        typer.Option(min=1, max=10**9, help="First steps to skip: DDP makes new buckets after its first."),
    ] = 1,
) -> None:
    """Record the gradients, buckets and times of a training with PyTorch's DistributedDataParallel.

    \b
    netfold capture --out trace --steps 10 -- torchrun --nproc-per-node 2 train.py

    The script is not changed: the first model that it wraps in DistributedDataParallel is recorded. Replay
    the folder with `workload: {kind: trace, path: trace}`, or study codecs on it with `netfold codecs study
    --input trace`. The exit status is that of the command; 1 if the command ends well but nothing could be
    recorded.
    """
    from netfold.sim.capture.capture import check_settings, launch, print_error, summary

    status, trace, lines = launch(command, check_settings(out, steps, skip))
    if trace is None:
        print_error(lines, str(out))
        raise typer.Exit(status or EXIT_NOT_WRITTEN)
    for line in (*summary(trace), str(out)):
        print_line(line)
    if status:
        raise typer.Exit(status)


data = typer.Typer(help="List and fetch the data sets for training.", no_args_is_help=True)


@data.command("list")
def data_list() -> None:
    """List the data sets, and the paths of those already fetched."""
    import textwrap

    from netfold.sim.workload.data_sets import listing

    for row in listing():
        print_line(f"{row.name}: {row.description}, from {' and '.join(row.packages)}")
        for path in row.paths or ("not fetched yet",):
            print_line(f"  file: {path}")
        print_line(textwrap.indent(row.licence.strip(), "  ") + "\n")


@data.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(metavar="NAME", help="See `netfold data list`.")]) -> None:
    """Fetch a data set before its first use."""
    from netfold.sim.workload.data_sets import fetch

    print_line(fetch(name))
