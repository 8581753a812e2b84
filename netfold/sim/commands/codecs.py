"""The commands `netfold codecs …`: list the codecs, and measure some on gradients without a network."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netfold.errors import NetfoldError
from netfold.sim.commands.matrix import codecs_matrix
from netfold.sim.commands.terminal import folder, print_json, print_line, print_table, progress_bar
from netfold.sim.studies import MADE_UP, ROUNDS, WORKERS

if TYPE_CHECKING:
    from netfold.sim.studies.codec_measures import Study
    from netfold.sim.studies.codec_study_gradients import Source

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

    from netfold.sim.commands.codec_listing import listing

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
