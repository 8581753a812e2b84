"""Codecs on gradients without a network: bytes, speed, errors, side by side.

    codec_study_inputs.py   read_codecs(["packed", "lossless:load=0.7"])   the codecs
                            source_of(…)                                   the gradients
    codec_measures.py       Case                                           measures one of them

Here is a study from beginning to end: its tables, figures and files, and one sum without a study.

All results except speeds depend on the codecs, the gradients and the seed alone.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import ArrayLike, NDArray
from rich.table import Table
from rich.text import Text

from netfold.errors import DataError, NetfoldError, RunError
from netfold.homomorphic.codec import (
    Codec,
    CodecRefusedError,
    ContractError,
    DecodeError,
    EncodeError,
    LockStepError,
    make_encoders,
    refusal_of,
)
from netfold.homomorphic.error_bounds import exact_sums
from netfold.homomorphic.fold import AllReduceResult
from netfold.homomorphic.fold import fold as fold_encoders
from netfold.homomorphic.message import Round
from netfold.sim import files
from netfold.sim.files import require_threads, require_writable
from netfold.sim.plan.idle_network import NO_WORK
from netfold.sim.report import style, words
from netfold.sim.report.columns import FittingTable
from netfold.sim.report.result_display import VerbResult
from netfold.sim.results.file_formats import frame, to_parquet
from netfold.sim.results.folder import circumstances, folder_name, to_json
from netfold.sim.results.records import FALLEN_BACK, MISSED_FORECASTS
from netfold.sim.run.progress import Progress, silent
from netfold.sim.studies import ROUNDS
from netfold.sim.studies.codec_measures import (
    Case,
    CodecRecord,
    MessageRecord,
    SpeedRecord,
    copy_rate_gb_per_s,
    name_of,
    share,
)
from netfold.sim.studies.codec_study_inputs import (
    Gradients,
    NamedCodec,
    Shapes,
    Source,
    read_codec,
    read_codecs,
    read_shapes,
    refuse_more_than_fits,
    source_of,
)
from netfold.sim.workload.workload import refusal_of_needs

# What a study came to: tables of records, and the same for people.


FOLDER = "study"  # holds all studies, beside the folders of scenarios
_NAME_CHARACTERS = 20
_US_PER_S = 1e6
_KEYS_COUNT = 3
"""The key columns of every table: codec, pattern and density."""


@dataclass(frozen=True)
class CodecStudy(VerbResult):
    """The results of a study; `print` shows its first table."""

    source: Source
    rounds: int
    seed: int
    records: tuple[CodecRecord, ...]
    sent: tuple[MessageRecord, ...]
    timed: tuple[SpeedRecord, ...]
    copy_gb_per_s: float
    """The rate of a copy on this machine, with one thread."""
    path: Path | None = None
    """The study's folder, if it has one."""

    @cached_property
    def codecs(self) -> pl.DataFrame:
        """A row for every codec, pattern and density: bytes, errors, estimates and fallbacks."""
        return frame(CodecRecord, self.records)

    @cached_property
    def messages(self) -> pl.DataFrame:
        """Bytes that one worker sends up, per message."""
        return frame(MessageRecord, self.sent)

    @cached_property
    def speeds(self) -> pl.DataFrame:
        """Times of encoding and decoding on this machine."""
        return frame(SpeedRecord, self.timed)

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults of codecs: errors beyond the codec's bound, workers that decode different bits."""
        return tuple(
            f"{name_of(record)}: {fault}"
            for record in self.records
            for is_present, fault in (
                (record.max_error_over_bound is None, "an error where the codec's bound allows none"),
                ((record.max_error_over_bound or 0) > 1, "an error beyond the codec's bound"),
                (not record.replicas_agree, "workers decoded different bits"),
            )
            if is_present
        )

    @property
    def passes(self) -> bool:
        return not self.faults

    def as_dict(self) -> dict[str, Any]:
        # The object that `netfold codecs study --json` prints.
        return {**self.content(), "speeds": self.speeds_dict(), "study_dir": str(self.path)}

    def content(self) -> dict[str, Any]:
        """A study as plain data for JSON, without this machine's speeds."""
        source = self.source
        return {
            "elements": source.elements,
            "workers": source.workers,
            "rounds": self.rounds,
            "seed": self.seed,
            "gradients": dict(source.description),
            "notes": list(source.notes),
            "declare_no_work": self._free_codecs(),
            "faults": list(self.faults),
            "codecs": [
                {**asdict(record), "bytes_by_message": self.bytes_of(record)} for record in self.records
            ],
        }

    def speeds_dict(self) -> dict[str, Any]:
        return {"copy_gb_per_s": self.copy_gb_per_s, "codecs": [asdict(speed) for speed in self.timed]}

    def bytes_of(self, record: CodecRecord) -> dict[str, float]:
        """Mean bytes of a round by message label, of one codec on one kind of gradients."""
        case_key = record.codec, record.pattern, record.density
        return {
            message.label: message.bytes
            for message in self.sent
            if (message.codec, message.pattern, message.density) == case_key
        }

    def _free_codecs(self) -> list[str]:
        """Codecs that count no work for anything: a device would encode and decode them in no time."""
        counted = {speed.codec for speed in self.timed if speed.encode_bytes or speed.decode_bytes}
        return [name for name in dict.fromkeys(speed.codec for speed in self.timed) if name not in counted]

    def tables(self) -> list[Table]:
        return [self.table(), self._messages_table(), self._charges_table()]

    def lines(self) -> list[str]:
        return [*self.faults, f"Study: {self.path}"]

    def table(self) -> Table:
        """Cost, speed and accuracy of each codec, with notes below."""
        source = self.source
        title = (
            f"elements {source.elements}, workers {source.workers}, rounds {self.rounds}, seed {self.seed}"
        )
        columns = ("wire", "ops", "enc GB/s", "dec GB/s", "recovery", "error")
        rows = [
            (
                words.optional(record.wire_ratio),
                f"{record.operations:.3g}",
                words.optional(speed.encode_gb_per_s),
                words.optional(speed.decode_gb_per_s),
                _recovery(record.recovery),
                "not finite" if (error := record.max_error_over_bound) is None else words.digits(error),
                "yes" if record.exact_sums else "no",
            )
            for record, speed in zip(self.records, self.timed, strict=True)
        ]
        return self._table(title, self._notes(), columns, rows, last=("exact",))

    def _messages_table(self) -> Table:
        """Bytes of one worker by message, a column per label."""
        labels = list(dict.fromkeys(message.label for message in self.sent))
        rows = [
            [words.scaled(size, "B") for size in (*map(self.bytes_of(record).get, labels), record.up_bytes)]
            for record in self.records
        ]
        return self._table("Bytes that one worker sends up in a round", (), (*labels, "all"), rows)

    def _charges_table(self) -> Table:
        """Times of a worker, and those that a simulation charges with this machine's memory as the device."""
        notes = [
            "charged: what the codec counts as read and written, at the rate of a copy on this machine",
            "×: charged over measured; a device file (netfold calibrate) has the rate that codecs reach",
        ]
        rows = [
            [
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
            for speed in self.timed
        ]
        columns = ("encode", "charged", "×", "decode", "charged", "×")
        return self._table("Measured and charged times of a worker", notes, columns, rows)

    def _table(
        self,
        title: str,
        notes: Sequence[str],
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        last: Sequence[str] = (),
    ) -> Table:
        """A row of numbers for every codec, pattern and density; those of the last columns are words."""
        table = FittingTable(title, notes, _KEYS_COUNT)
        for heading in ("codec", "pattern"):
            table.add_column(heading)
        for heading in ("density", *columns):
            table.add_column(Text(heading), justify="right")
        for heading in last:
            table.add_column(heading)
        for record, cells in zip(self.records, rows, strict=True):
            keys = _in_lines(record.codec), record.pattern, share(record.density)
            table.add_row(*map(Text, (*keys, *cells)))  # Text: brackets in a codec's options are no markup
        return table

    def _notes(self) -> list[str]:
        """Explanations of the columns, and events of each codec."""
        return [
            "wire: dense float32 bytes over those that one worker sends; ops: network operations in a round",
            "enc, dec: dense float32 bytes over a worker's CPU time, the fastest round's, on this machine,",
            f"  which copies memory at {words.digits(self.copy_gb_per_s)} GB/s",
            "error: the largest, 1 is the codec's bound; exact: all sums are the exact ones, rounded once",
            *self.source.notes,
            *(f"codec {name} {NO_WORK}" for name in self._free_codecs()),
            *(f"{name_of(record)}: {event}" for record in self.records for event in _events(record)),
        ]

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(record.codec for record in self.records))
        return f"<netfold study of {names}: {len(self.faults)} faults>"


def _recovery(recovery: float) -> str:
    # "100 %" only if nothing is missing.
    return "100 %" if recovery == 1 else f"{min(100 * recovery, 99.99):.4g} %"


def _in_lines(codec: str) -> str:
    # If the name is long, each option has a line.
    return codec if len(codec) <= _NAME_CHARACTERS else re.sub("([:,])", "\\1\n", codec)


def _events(record: CodecRecord) -> list[str]:
    """Notes of a codec, counted."""
    events = [record.choices] if record.choices else []
    if record.fallback_parts:
        events.append(f"{record.fallback_parts} of {record.fallback_of} {FALLEN_BACK}")
    if record.forecast_misses:
        events.append(f"{record.forecast_misses} {MISSED_FORECASTS}")
    if record.holds_back:
        loss = f"nmse {words.optional(record.nmse)}, cosine {words.optional(record.cosine)}"
        events.append(f"workers do not contribute their whole gradients; against the sum of those: {loss}")
    if record.infinite_elements:
        events.append(f"{record.infinite_elements} sums are beyond float32 and became infinite")
    return events


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


def study_figures(study: CodecStudy) -> dict[str, bytes]:
    """SVGs by file name: results that depend on codecs and gradients alone, and speeds of this machine."""
    wire = [record.wire_ratio for record in study.records]
    recovery = [100 * record.recovery for record in study.records]
    encode = [speed.encode_gb_per_s for speed in study.timed]
    decode = [speed.decode_gb_per_s for speed in study.timed]
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


def _figure(study: CodecStudy, level_name: str, left: _Panel, right: _Panel) -> Figure:
    figure = style.new_figure(_HEIGHT_INCHES)
    legend: dict[str, Any] = {}
    for column, panel in enumerate((left, right), 1):
        axes = figure.add_subplot(1, 2, column, title=panel.title, xlabel="density, %", ylabel=panel.unit)
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


def _lines(axes: Axes, study: CodecStudy, values: Sequence[float | None]) -> dict[str, Any]:
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
        curve = points.setdefault((record.codec, record.pattern), [])
        if value is not None:
            curve.append((100 * record.density, value))
    lines = {}
    for number, ((codec, pattern), curve) in enumerate(points.items()):
        dashes, mark = patterns[pattern]
        x, y = zip(*sorted(curve), strict=True) if curve else ((), ())
        width = 1.5 + 2.5 * (len(points) - 1 - number) / len(points)  # equal lines stay visible
        name = f"{codec}, {pattern}" if len(patterns) > 1 else codec
        (lines[name],) = axes.plot(
            x, y, color=codecs[codec], linestyle=dashes, linewidth=width, marker=mark, markersize=3 + width
        )
    return lines


def _logarithmic(axes: Axes, which: str) -> None:
    """Set a logarithmic axis with plain numbers: 0.1, 1, 10; or 1, 2, 5, 10 if there is space."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_data_interval()
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    digits = (1.0, 2.0, 5.0) if high < _FEW_DECADES * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=digits, numticks=_TICKS_MAX))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


# A study from beginning to end: refused or run, and written down if there is a folder for it.


Several = str | float | Sequence[str | float]


class SyntheticKeys(TypedDict, total=False):
    """Keys of a scenario's synthetic workload; `density` and `pattern` may have several values."""

    elements: str | float
    density: Several
    pattern: str | Sequence[str]
    row_elements: int
    overlap: str | float
    distribution: str


def study(
    codecs: Sequence[str] | Mapping[str, Codec],
    gradients: Gradients | Source | None = None,
    *,
    workers: int | None = None,
    rounds: int = ROUNDS,
    seed: int = 1,
    out: str | os.PathLike[str] | None = None,
    shapes: Shapes | None = None,
    progress: Progress | None = None,
    **synthetic: Unpack[SyntheticKeys],
) -> CodecStudy:
    """Study codecs on gradients, without a network: bytes, speed on this machine, errors.

    Parameters
    ----------
    codecs
        Texts such as "packed" or "lossless:load=0.7", or a mapping of names in the tables to codecs.
    gradients
        A file of one array, or the array: float32, (elements,) or (workers, elements); or a file of several
        named arrays, each (workers, …), which are the tensors of a gradient. Left out, the gradients are
        synthetic, with the keys of a scenario's synthetic workload.
    out
        Parent of the study's folder, DIR/study/TIME-seedN; left out, nothing is written.
    shapes
        Shapes of the gradient's tensors, for codecs that work by tensor: (rows, columns) or "128x64", in a
        list, or by name in a mapping. Names such as "fc1.weight" say the layer; without names a matrix begins
        a layer, and the vectors after it belong to it. Left out, the tensors are those of the file, or
        unknown.
    progress
        Called with the current gradients, the rounds done and all rounds; `print` works.

    Raises
    ------
    ScenarioError, DataError
        A codec, an option or gradients that cannot be used, or a folder that cannot be written.
    NetfoldError
        It takes more memory than there is, or a codec needs facts of a training step or has no room for the
        workers.
    RunError
        A codec cannot carry the gradients or cannot decode.
    """
    require_threads()
    if isinstance(codecs, Mapping):
        chosen = tuple(NamedCodec(name, codec) for name, codec in codecs.items())
    else:
        chosen = read_codecs([codecs] if isinstance(codecs, str) else codecs)
    if not chosen:
        raise NetfoldError("no codec to study", "name one or more, such as 'packed'")
    if synthetic and gradients is not None:
        keys = ", ".join(synthetic)
        raise NetfoldError(f"{keys}: gradients are given", f"leave out {keys}, or the gradients")
    source = (
        gradients
        if isinstance(gradients, Source)
        else source_of(gradients, synthetic, workers, seed, shapes=shapes)
    )
    if out is not None:
        require_writable(Path(out), FOLDER)
    for name, codec in chosen:
        if refusal := refusal_of_needs(codec, frozenset(), "a study"):
            raise NetfoldError(f"{name}: {refusal.message}", refusal.hint)
        if refused := refusal_of(codec, source.workers):
            raise NetfoldError(f"{name}: {refused.reason}", f"use {refused.remedy}")
    refuse_more_than_fits(chosen, source)
    started_at, started_s = datetime.now(UTC), time.perf_counter()
    result = run_study(chosen, source, rounds, seed, progress or silent)
    if out is None:
        return result
    return replace(result, path=_write(Path(out), result, started_at, time.perf_counter() - started_s))


def run_study(
    codecs: Sequence[NamedCodec], source: Source, rounds: int, seed: int, progress: Progress
) -> CodecStudy:
    """Run every codec on all gradients of the source; in a round, all codecs get the same gradients.

    Raises
    ------
    RunError
        A codec cannot encode the gradients or cannot decode, or there is not enough memory.
    """
    cases: list[Case] = []
    done, total = 0, len(source.cells) * rounds
    try:
        for cell in source.cells:
            alike = [Case(named, cell, source, rounds, seed) for named in codecs]
            cases += alike
            for step, gradients in enumerate(cell.rounds(rounds)):
                progress(f"{cell.pattern}, {share(cell.density)}", done, total)
                sums = exact_sums(gradients)
                for case in alike:
                    case.add(step, gradients, sums)
                done += 1
    except MemoryError as error:
        raise RunError(f"not enough memory: {error}", "use fewer elements or workers") from None
    copy_gb_per_s = copy_rate_gb_per_s()
    return CodecStudy(
        source,
        rounds,
        seed,
        tuple(case.record() for case in cases),
        tuple(message for case in cases for message in case.messages()),
        tuple(case.speed(copy_gb_per_s) for case in cases),
        copy_gb_per_s,
    )


def _write(out_dir: Path, result: CodecStudy, started_at: datetime, wall_s: float) -> Path:
    """Write `<out_dir>/study/<UTC time>-seed<N>`, whole or not at all; returns its path.

    The same seed gives the same bytes in all files except `run.json` and `speed.svg`.
    """
    contents = {
        "study.json": to_json(result.content()),
        "study.parquet": to_parquet(CodecRecord, result.records),
        "messages.parquet": to_parquet(MessageRecord, result.sent),
        "run.json": to_json({**circumstances(started_at, wall_s), "speeds": result.speeds_dict()}),
        **study_figures(result),
    }
    with files.writing(out_dir, files.WRITABLE_HINT):
        folder = out_dir / FOLDER / folder_name(started_at, result.seed)
        return files.write_folder(folder, lambda partial: files.write_files(partial, contents))


def fold(
    codec: Codec | str,
    gradients: Sequence[ArrayLike] | NDArray[Any],
    *,
    seed: int = 1,
    shapes: Shapes | None = None,
) -> AllReduceResult:
    """Aggregate one gradient per worker with a codec, in this process: `decoded` has every worker's sum.

    Parameters
    ----------
    codec
        A codec, or a text such as "lossless:load=0.7".
    gradients
        A row for each worker, all of one length; converted to float32.
    shapes
        Shapes of the gradient's tensors, as `study` takes them.

    Raises
    ------
    ScenarioError, DataError
        A codec, gradients or shapes that cannot be used: the codec has no room for the workers, or cannot
        carry a value.
    RunError
        Merged messages cannot be decoded, or the codec does not keep its contract.
    """
    if isinstance(codec, str):
        codec = read_codec(codec).codec
    if refusal := refusal_of_needs(codec, frozenset(), "fold"):
        raise DataError(refusal.message, refusal.hint)
    rows = _rows(gradients)
    lengths = {row.shape for row in rows}
    if len(lengths) != 1 or rows[0].ndim != 1:
        shapes_text = ", ".join(str(row.shape) for row in rows) or "none"
        raise DataError(
            f"the gradients have the shapes {shapes_text}", "give each worker a row, all of one length"
        )
    tensors = () if shapes is None else read_shapes(shapes, elements=rows[0].size)
    round = Round(0, 0, len(rows), seed, tensors=tensors)
    try:
        encoders = make_encoders(codec, len(rows), seed)
        return fold_encoders(encoders, rows, round, server=codec.server(len(rows), seed))
    except CodecRefusedError as error:
        raise DataError(error.refusal.reason, f"use {error.refusal.remedy}") from None
    except EncodeError as error:
        raise DataError(str(error), "use another codec, or other gradients") from None
    except (DecodeError, LockStepError, ContractError) as error:
        hint = "netfold.testing.check_codec says what a codec must do"
        raise RunError(f"codec {codec.kind!r}: {error}", hint) from error


def _rows(gradients: Sequence[ArrayLike] | NDArray[Any]) -> list[NDArray[np.float32]]:
    """A float32 array for each worker; what is beyond float32 is infinite, as it would be in a training."""
    try:
        with np.errstate(over="ignore"):
            return [np.ascontiguousarray(row, np.float32) for row in gradients]
    except (TypeError, ValueError) as error:
        raise DataError(f"the gradients are no numbers: {error}", "give each worker a row") from None
