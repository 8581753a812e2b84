"""Codecs on gradients without a network: bytes, speed, errors, side by side.

    codec_study_gradients.py   read_codecs(["packed", "lossless:load=0.7"])   the codecs
                               synthetic_source(…) or file_source(…)          the gradients
    codec_measures.py          run_study(codecs, source, …) → Study           measures them

Here are the tables, figures and files of a study.

All results except speeds depend on the codecs, the gradients and the seed alone.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from rich.table import Table
from rich.text import Text

from netfold.errors import NetfoldError
from netfold.homomorphic.codec import refusal_of
from netfold.sim import files
from netfold.sim.files import require_writable
from netfold.sim.plan.idle_network import NO_WORK
from netfold.sim.report import style, words
from netfold.sim.report.compare import FittingTable
from netfold.sim.results.folder import circumstances, folder_name, to_json
from netfold.sim.results.format import to_parquet
from netfold.sim.results.records import MISSED_FORECASTS, REDONE
from netfold.sim.studies.codec_measures import (
    CodecRecord,
    MessageRecord,
    Progress,
    SpeedRecord,
    Study,
    name_of,
    run_study,
    share,
)
from netfold.sim.studies.codec_study_gradients import NamedCodec, Source, refuse_more_than_fits
from netfold.sim.workload.workload import refusal_of_needs

# The figures of a study over density, with a line per codec: compression and recovery, and speeds.


_COLOURS = (
    *(style.BLUE, style.VERMILION, style.GREEN, style.ORANGE),
    *(style.PURPLE, style.SKY, style.BLACK, style.MIDDLE_GREY),
)
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))  # one per pattern
_MARKS = "os^D"
_HEIGHT_INCHES = 3.6
_FEW_DECADES = 1000.0
_TICKS_MAX = 12

STUDY_FIGURE, SPEED_FIGURE = "study.svg", "speed.svg"


class _Panel(NamedTuple):
    """One of a figure's two panels: a value for every row of the study."""

    title: str
    unit: str
    values: Sequence[float | None]
    level: float | None = None  # a horizontal line to compare with, on a logarithmic axis


def study_figures(study: Study) -> dict[str, bytes]:
    """SVGs by file name: results that depend on codecs and gradients alone, and speeds of this machine."""
    wire = [record.wire_ratio for record in study.records]
    recovery = [100 * record.recovery for record in study.records]
    encode = [speed.encode_gb_per_s for speed in study.speeds]
    decode = [speed.decode_gb_per_s for speed in study.speeds]
    copy = study.copy_gb_per_s
    with style.house_style():
        bytes_and_sums = _figure(
            study,
            "dense float32",
            _Panel("Compression of what a worker sends", "dense / sent bytes", wire, 1.0),
            _Panel("Sums that are not estimates", "% of the union", recovery),
        )
        speeds = _figure(
            study,
            "copying memory",
            _Panel("Encoding on this machine", "dense GB/s of CPU time", encode, copy),
            _Panel("Decoding on this machine", "dense GB/s of CPU time", decode, copy),
        )
        return {STUDY_FIGURE: style.to_svg(bytes_and_sums), SPEED_FIGURE: style.to_svg(speeds)}


def _figure(study: Study, level_name: str, left: _Panel, right: _Panel) -> Figure:
    figure = style.new_figure(_HEIGHT_INCHES)
    legend: dict[str, Any] = {}
    for place, panel in enumerate((left, right), 1):
        axes = figure.add_subplot(1, 2, place, title=panel.title, xlabel="density, %", ylabel=panel.unit)
        legend |= _lines(axes, study, panel.values)
        axes.grid(color=style.LIGHT_GREY, linewidth=0.6)
        if all(record.density > 0 for record in study.records):
            _logarithmic(axes, "x")
        if panel.level is None:
            axes.set_ylim(max(0.0, min(value or 0.0 for value in panel.values) - 5), 101)
        else:
            legend[level_name] = axes.axhline(panel.level, color=style.DARK_GREY, linestyle="--", linewidth=1)
            _logarithmic(axes, "y")
    style.legend_below(figure, list(legend.values()), list(legend))
    return figure


def _lines(axes: Axes, study: Study, values: Sequence[float | None]) -> dict[str, Any]:
    """Draw a line per codec (its colour) and pattern (its dashes and marks); returns lines by legend name."""
    codecs = dict(zip(dict.fromkeys(record.codec for record in study.records), itertools.cycle(_COLOURS)))
    patterns = dict(
        zip(
            dict.fromkeys(record.pattern for record in study.records),
            itertools.cycle(zip(_DASHES, _MARKS, strict=True)),
        )
    )
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for record, value in zip(study.records, values, strict=True):
        own = points.setdefault((record.codec, record.pattern), [])
        if value is not None:
            own.append((100 * record.density, value))
    drawn = {}
    for number, ((codec, pattern), own) in enumerate(points.items()):
        dashes, mark = patterns[pattern]
        x, y = zip(*sorted(own), strict=True) if own else ((), ())
        width = 1.5 + 2.5 * (len(points) - 1 - number) / len(points)  # equal lines stay visible
        name = f"{codec}, {pattern}" if len(patterns) > 1 else codec
        (drawn[name],) = axes.plot(
            x, y, color=codecs[codec], linestyle=dashes, linewidth=width, marker=mark, markersize=3 + width
        )
    return drawn


def _logarithmic(axes: Axes, which: str) -> None:
    """Set a logarithmic axis with plain numbers: 0.1, 1, 10; or 1, 2, 5, 10 if there is space."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_data_interval()
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    digits = (1.0, 2.0, 5.0) if high < _FEW_DECADES * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=digits, numticks=_TICKS_MAX))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


# Write a study's folder, complete or not at all.
#
# The same seed gives the same bytes in all files except `run.json` and `speed.svg`.


FOLDER = "study"  # holds all studies, beside the folders of scenarios


def as_dict(study: Study) -> dict[str, Any]:
    """A study as plain data for JSON, without this machine's speeds."""
    source = study.source
    return {
        "elements": source.elements,
        "workers": source.workers,
        "rounds": study.rounds,
        "seed": study.seed,
        "gradients": dict(source.description),
        "notes": list(source.notes),
        "declare_no_work": study.free_codecs,
        "faults": list(study.faults),
        "codecs": [
            {**asdict(record), "bytes_by_message": study.bytes_of(record)} for record in study.records
        ],
    }


def speeds_dict(study: Study) -> dict[str, Any]:
    return {"copy_gb_per_s": study.copy_gb_per_s, "codecs": [asdict(speed) for speed in study.speeds]}


def write_study(out_dir: Path, study: Study, started_at: datetime, wall_s: float) -> Path:
    """Write `<out_dir>/study/<UTC time>-seed<N>` and return its path.

    Raises
    ------
    DataError
        The folder cannot be written; no folder is left then.
    """
    contents = {
        "study.json": to_json(as_dict(study)),
        "study.parquet": to_parquet(CodecRecord, study.records),
        "messages.parquet": to_parquet(MessageRecord, study.messages),
        "run.json": to_json({**circumstances(started_at, wall_s), "speeds": speeds_dict(study)}),
        **study_figures(study),
    }
    with files.writing(out_dir, files.WRITABLE_HINT):
        folder = out_dir / FOLDER / folder_name(started_at, study.seed)
        return files.write_folder(folder, lambda partial: files.write_files(partial, contents))


# A study from beginning to end: refused or run, and written down if there is a folder for it.


def make_study(
    codecs: Sequence[NamedCodec],
    source: Source,
    rounds: int,
    seed: int,
    progress: Progress,
    out_dir: Path | None,
) -> tuple[Study, Path | None]:
    """A study, and its folder below `out_dir`.

    Raises
    ------
    DataError
        The folder cannot be written.
    NetfoldError
        It takes more memory than there is, or a codec needs facts of a training step or has no room for the
        workers.
    RunError
        A codec cannot carry the gradients or cannot decode.
    """
    if out_dir is not None:
        require_writable(out_dir, FOLDER)
    for named in codecs:
        if refusal := refusal_of_needs(named.codec, frozenset(), "a study"):
            raise NetfoldError(f"{named.name}: {refusal.message}", refusal.hint)
        if refused := refusal_of(named.codec, source.workers):
            raise NetfoldError(f"{named.name}: {refused.reason}", f"use {refused.remedy}")
    refuse_more_than_fits(codecs, source)
    started_at, started_s = datetime.now(UTC), time.perf_counter()
    found = run_study(codecs, source, rounds, seed, progress)
    if out_dir is None:
        return found, None
    return found, write_study(out_dir, found, started_at, time.perf_counter() - started_s)


# The terminal's tables of a study, a line per codec, pattern and density: results, and bytes by message.


_BYTES_HEADING = "Bytes that one worker sends up in a round"

_NAME_CHARACTERS = 20
_US_PER_S = 1e6
_KEYS_COUNT = 3
"""The key columns of the table: codec, pattern and density."""


def study_table(study: Study) -> Table:
    """Cost, speed and accuracy of each codec, with notes below."""
    source = study.source
    heading = (
        f"elements {source.elements}, workers {source.workers}, rounds {study.rounds}, seed {study.seed}"
    )
    table = FittingTable(heading, study_notes(study), _KEYS_COUNT)
    table.add_column("codec")
    table.add_column("pattern")
    for column in ("density", "wire", "ops", "enc GB/s", "dec GB/s", "recovery", "error"):
        table.add_column(column, justify="right")
    table.add_column("exact")
    for record, speed in zip(study.records, study.speeds, strict=True):
        table.add_row(*_cells(record, speed))
    return table


def _cells(record: CodecRecord, speed: SpeedRecord) -> list[Text]:
    error = record.max_error_over_bound
    cells = [
        _in_lines(record.codec),
        record.pattern,
        share(record.density),
        words.optional(record.wire_ratio),
        f"{record.operations:.3g}",
        words.optional(speed.encode_gb_per_s),
        words.optional(speed.decode_gb_per_s),
        _recovery(record.recovery),
        "not finite" if error is None else words.digits(error),
        "yes" if record.exact_sums else "no",
    ]
    return [Text(cell) for cell in cells]  # not str: brackets in a codec's options are no markup


def _recovery(recovery: float) -> str:
    # "100 %" only if nothing is missing.
    return "100 %" if recovery == 1 else f"{min(100 * recovery, 99.99):.4g} %"


def _in_lines(codec: str) -> str:
    # If the name is long, each option has a line.
    return codec if len(codec) <= _NAME_CHARACTERS else re.sub("([:,])", "\\1\n", codec)


def messages_table(study: Study) -> Table:
    """Bytes of one worker by message, a column per label."""
    labels = list(dict.fromkeys(message.label for message in study.messages))
    table = FittingTable(_BYTES_HEADING, keys_count=_KEYS_COUNT)
    table.add_column("codec")
    table.add_column("pattern")
    for heading in ("density", *labels, "all"):
        table.add_column(Text(heading), justify="right")
    for record in study.records:
        sizes = study.bytes_of(record)
        parts = [words.scaled(sizes.get(label), "B") for label in labels]
        total = words.scaled(record.up_bytes, "B")
        table.add_row(
            *map(Text, (_in_lines(record.codec), record.pattern, share(record.density), *parts, total))
        )
    return table


def charges_table(study: Study) -> Table:
    """Times of a worker beside those that a simulation charges, with this machine's memory as the device."""
    notes = [
        "charged: what the codec counts as read and written, at the rate of a copy on this machine",
        "×: charged over measured; a device file (netfold calibrate) has the rate that codecs reach",
    ]
    table = FittingTable("Measured and charged times of a worker", notes, keys_count=_KEYS_COUNT)
    table.add_column("codec")
    table.add_column("pattern")
    for heading in ("density", "encode", "charged", "×", "decode", "charged", "×"):
        table.add_column(heading, justify="right")
    for speed in study.speeds:
        shown = [
            text
            for time_s, charge in (
                (speed.encode_s, speed.encode_charge),
                (speed.decode_s, speed.decode_charge),
            )
            for text in (
                words.time(time_s * _US_PER_S),
                words.time(None if charge is None else charge * time_s * _US_PER_S),
                words.times(charge),
            )
        ]
        table.add_row(*map(Text, (_in_lines(speed.codec), speed.pattern, share(speed.density), *shown)))
    return table


def study_notes(study: Study) -> list[str]:
    """Explanations of the columns, and events of each codec."""
    return [
        "wire: dense float32 bytes over those that one worker sends; ops: network operations in a round",
        "enc, dec: dense float32 bytes over a worker's CPU time, the fastest round's, on this machine,",
        f"  which copies memory at {words.digits(study.copy_gb_per_s)} GB/s",
        "error: the largest, 1 is the codec's bound; exact: all sums are the exact ones, rounded once",
        *study.source.notes,
        *(f"codec {name} {NO_WORK}" for name in study.free_codecs),
        *(f"{name_of(record)}: {event}" for record in study.records for event in _events(record)),
    ]


def _events(record: CodecRecord) -> list[str]:
    """Notes of a codec, counted."""
    events = [record.choices] if record.choices else []
    if record.redone_parts:
        events.append(f"{record.redone_parts} of {record.redone_of} {REDONE}")
    if record.forecast_misses:
        events.append(f"{record.forecast_misses} {MISSED_FORECASTS}")
    if record.holds_back:
        loss = f"nmse {words.optional(record.nmse)}, cosine {words.optional(record.cosine)}"
        events.append(f"workers do not contribute their whole gradients; against the sum of those: {loss}")
    if record.infinite_elements:
        events.append(f"{record.infinite_elements} sums are beyond float32 and became infinite")
    return events
