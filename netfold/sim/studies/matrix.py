"""Every codec on every collective: which pairs work, and what they take.

A cell is one codec on one collective, run without loss and with it, or refused. All of them are printed, and
make the page `docs/matrix.md`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import polars as pl
from rich.table import Table
from rich.text import Text

from netfold.errors import MissingKeyError, MistakesError, NetfoldError, RunError, ScenarioError, names_hint
from netfold.homomorphic.codec import Codec, codec_kinds
from netfold.sim.checks.checks import Journal
from netfold.sim.collectives.collective import collectives
from netfold.sim.files import require_threads
from netfold.sim.report import words
from netfold.sim.report.columns import FittingTable
from netfold.sim.report.result_display import VerbResult
from netfold.sim.results.file_formats import frame
from netfold.sim.results.summary import GOOD, kind, summarize
from netfold.sim.run.compiling import compiling
from netfold.sim.run.progress import Progress, silent
from netfold.sim.run.variant import run_variant
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.run_limits import Plan
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.sim.studies.codec_study_inputs import read_codec, read_codecs
from netfold.sim.workload.workload_keys import Workloads
from netfold.switch.profiles import PROFILES
from netfold.units import UnitError, format_fraction, parse_fraction

# One codec on one collective: a small training run on a star, or the reason why there is none.


STEPS = 3
REFUSED = "refused"


class Row(NamedTuple):
    """A codec with options."""

    name: str  # KIND or KIND:OPTION=VALUE,…
    codec: Codec | None
    why: tuple[str, str] = ("", "")  # the reason why there is no such codec, and what to do

    @property
    def section(self) -> dict[str, Any]:
        """What a scenario says of it: its kind, and options that differ from their defaults."""
        assert self.codec is not None
        known: tuple[Field[Any], ...] = fields(self.codec) if is_dataclass(self.codec) else ()
        options = {
            option.name: getattr(self.codec, option.name)
            for option in known
            if option.default is MISSING or getattr(self.codec, option.name) != option.default
        }
        return {"kind": self.codec.kind, **options}


class Column(NamedTuple):
    """A collective with the keys that decide which codecs it carries."""

    collective: str
    choice: str  # the name of these keys; empty: there is no choice
    keys: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.collective} {self.choice}".strip()


@dataclass(frozen=True)
class Cell:
    """What a codec on a collective came to: a row of the results.

    Times and bytes are means per step, bytes those of one worker.
    """

    codec: str
    promise: str  # exact, bounded or unbiased; a verdict that passes says that it was kept
    collective: str
    choice: str
    loss: str  # share of packets lost on each link, as written; empty: none
    switch: str  # profile
    verdict: str
    """The verdict of a run; or "refused"."""
    reason: str = ""
    """Why the codec was refused, or its run did not pass."""
    hint: str = ""  # what would work
    aggregation_time_us: float | None = None
    payload_bytes_up: float | None = None
    payload_bytes_down: float | None = None
    wire_bytes_up: float | None = None
    wire_bytes_down: float | None = None
    packets_lost: int | None = None
    packets_retransmitted: int | None = None
    checked_words: int | None = None  # merged words, over all workers, that were compared with those sent
    checked_elements: int | None = None
    """Elements of totals that were compared with the contributions; estimates are not."""

    @property
    def column(self) -> str:
        return f"{self.collective} {self.choice}".strip()


@dataclass
class Bench:
    """The network, gradients and faults of all cells.

    `switches` are profiles, those that can do least first: a cell has the first that carries it.
    """

    workers: int
    switches: Sequence[str]
    loss: str
    """The loss on each link in the second run of every cell; empty: there is no second run."""
    seed: int
    workloads: Workloads = field(init=False)

    def __post_init__(self) -> None:
        self.workloads = Workloads()  # every cell restarts the same one

    def cells(self, row: Row, column: Column) -> list[Cell]:
        """The cells of a codec on a collective: without loss, and with it."""
        losses = ["", self.loss] if self.loss else [""]
        if row.codec is None:
            return [_refusal(row, column, loss, "", *row.why) for loss in losses]
        plan, switch, refusal = self._plan(row, column, "", self.switches)
        if plan is None:
            return [_refusal(row, column, loss, switch, *refusal) for loss in losses]
        return [self._cell(row, column, switch, loss) for loss in losses]

    def _cell(self, row: Row, column: Column, switch: str, loss: str) -> Cell:
        plan, _, refusal = self._plan(row, column, loss, [switch])
        if plan is None:
            return _refusal(row, column, loss, switch, *refusal)
        variant = plan.variants[0]
        if loss and variant.jobs[0].collective.needs_lossless:
            reason = f"{column.name} does not recover from lost packets"
            return _refusal(row, column, loss, switch, reason, "use a network without loss")
        try:
            result = run_variant(plan, variant, workloads=self.workloads)
        except RunError as error:
            return _cell(row, column, loss, switch, verdict="fail", reason=error.message, hint=error.hint)
        entry = summarize(result.facts, result.records)["variants"][0]
        return _cell(row, column, loss, switch, **_outcome(entry), **_count_checked(result.jobs[0].journal))

    def _plan(
        self, row: Row, column: Column, loss: str, switches: Sequence[str]
    ) -> tuple[Plan | None, str, tuple[str, str]]:
        """The plan on the first switch that carries it; else None, the last switch, and why not there."""
        why = ("", "")
        for switch in switches:
            text = json.dumps(self._scenario(row, column, loss, switch), indent=1)
            try:
                return resolve(load(ScenarioText(f"{text}\n", "<matrix>"), (), self.seed)), switch, why
            except ScenarioError as error:
                first = error.mistakes[0] if isinstance(error, MistakesError) else error
                why = first.message, first.hint
        return None, switches[-1], why

    def _scenario(self, row: Row, column: Column, loss: str, switch: str) -> dict[str, Any]:
        """Steps of the small classifier, which knows all facts of a step; half of the hosts are free."""
        return {
            "name": "matrix",
            "topology": {
                "kind": "star",
                "hosts": 2 * self.workers,
                "rate": "100Gbps",
                "delay": "1us",
                "switch": switch,
            },
            "workers": self.workers,
            "workload": {"kind": "training", "model": "mlp", "batch": 16, "steps": STEPS},
            "codec": row.section,
            "collective": {"kind": column.collective, **column.keys},
            "faults": [{"kind": "loss", "rate": loss}] if loss else [],
        }


def _refusal(row: Row, column: Column, loss: str, switch: str, reason: str, hint: str) -> Cell:
    return _cell(row, column, loss, switch, verdict=REFUSED, reason=reason, hint=hint)


def _cell(row: Row, column: Column, loss: str, switch: str, **fields: Any) -> Cell:
    promise = row.codec.promise.value if row.codec else ""
    return Cell(row.name, promise, column.collective, column.choice, loss, switch, **fields)


def _outcome(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's figures from a variant's entry in a summary."""
    metrics = entry["metrics"]
    failed = [check for check in entry["checks"] if check["verdict"] != "pass"]
    workers = metrics["workers"]
    return {
        "verdict": entry["verdict"],
        "reason": f"{failed[0]['name']}: {failed[0]['detail'].splitlines()[0]}" if failed else "",
        "wire_bytes_up": metrics["wire_bytes_up_per_worker"],
        "wire_bytes_down": None
        if metrics["wire_bytes_down"] is None
        else metrics["wire_bytes_down"] / workers,
        **{
            name: metrics[name]
            for name in (
                "aggregation_time_us",
                "payload_bytes_up",
                "payload_bytes_down",
                "packets_lost",
                "packets_retransmitted",
            )
        },
    }


def _count_checked(journal: Journal) -> dict[str, int]:
    """How much the checks have examined."""
    words = sum(
        finding.integer_words + finding.float_words + finding.at_hosts.words for finding in journal.findings
    )
    return {
        "checked_words": words + journal.signs.words,
        "checked_elements": sum(record.elements - record.estimated_elements for record in journal.rounds),
    }


# Makes the matrix: all codecs and collectives that are registered, or those that are named.


PAGE_COMMAND = "netfold codecs matrix --markdown > docs/matrix.md"
_KEYS = ("codec", "promise")  # columns left of the collectives

Reasons = Mapping[tuple[str, str], int]  # reason and hint, to their number


@dataclass(frozen=True)
class MatrixResult(VerbResult):
    """What every codec on every collective came to; `print` shows the matrix."""

    bench: Bench
    columns: tuple[str, ...]
    """The collectives, with their choices."""
    records: tuple[Cell, ...]
    """All cells, codec by codec."""

    @property
    def cells(self) -> pl.DataFrame:
        """A row for every codec, collective, choice (such as a switch program) and loss.

        It has the verdict ("refused" with reason and hint where it does not work), time, bytes, and how much
        the checks have examined.
        """
        return frame(Cell, self.records)

    @property
    def failed(self) -> list[Cell]:
        return [cell for cell in self.records if cell.verdict != REFUSED and not _is_good(cell)]

    @property
    def passes(self) -> bool:
        return not self.failed

    def as_dict(self) -> dict[str, Any]:
        """The object that `netfold codecs matrix --json` prints."""
        return {
            "workers": self.bench.workers,
            "steps": STEPS,
            "seed": self.bench.seed,
            "cells": [asdict(cell) for cell in self.records],
        }

    def table(self) -> Table:
        """Times, bytes and switch of every cell, and below them what was refused and why."""
        reasons = self._reasons()
        notes = [*self._legend(), *(f"[{number}] {_sentence(*why)}" for why, number in reasons.items())]
        table = FittingTable(self._title(), notes, keys_count=len(_KEYS))
        for name in (*_KEYS, *self.columns):
            table.add_column(name)
        for codec, promise, cells in self._rows():
            lines = ["\n".join(_lines(cell, reasons)) for cell in cells]
            table.add_row(*map(Text, (codec, promise, *lines)))  # Text: brackets are no markup
        return table

    def page(self) -> str:
        """The page `docs/matrix.md`."""
        reasons = self._reasons()
        rows = [
            (f"`{codec}`", promise, *("<br>".join(_lines(cell, reasons)) for cell in cells))
            for codec, promise, cells in self._rows()
        ]
        heading = (*_KEYS, *self.columns)
        return "\n".join(
            [
                "# Codecs and collectives: the matrix",
                "",
                f"Written by `{PAGE_COMMAND}`. Every codec that is registered, with the settings that it",
                "declares, on every collective; `in_network` has a column for each switch program.",
                "",
                *(f"* {line}" for line in [self._title(), *self._legend()]),
                "",
                f"| {' | '.join(heading)} |",
                "|" + "---|" * len(heading),
                *(f"| {' | '.join(row)} |" for row in rows),
                "",
                "## Why some are refused, and what works",
                "",
                *(f"* [{number}] {_sentence(*why)}" for why, number in reasons.items()),
                "",
            ]
        )

    def _title(self) -> str:
        return (
            f"{words.format_count(self.bench.workers, 'worker')} on a star, 100 Gbps, 1 µs links; "
            f"{STEPS} steps of the small classifier of digits, 16 samples per worker; seed {self.bench.seed}"
        )

    def _legend(self) -> list[str]:
        loss = self.bench.loss
        with_loss = f", and with {loss} of the packets lost on every link" if loss else ""
        return [
            f"first line: time of a step's aggregation{with_loss}; second line: bytes on a worker's link, up "
            "and down, per step, without loss; third line: the switch profile, the least capable one that "
            "can run the cell; without it, the switch only forwards",
            "a time means that all checks hold: every merged word is right, and every total keeps the "
            "codec's promise; ≈: some elements are estimates, which have no bound; [n]: refused or "
            "failed, see below",
        ]

    def _rows(self) -> Iterator[tuple[str, str, list[list[Cell]]]]:
        """Codec, promise, and for every column the cells without and with loss."""
        for codec, group in groupby(self.records, lambda cell: cell.codec):
            cells = list(group)
            by_column = [[cell for cell in cells if cell.column == name] for name in self.columns]
            yield codec, cells[0].promise, by_column

    def _reasons(self) -> Reasons:
        """Every reason and hint once, numbered from 1."""
        reasons = dict.fromkeys(_why(cell) for cell in self.records if not _is_good(cell))
        return {why: number for number, why in enumerate(reasons, start=1)}

    def __repr__(self) -> str:
        ran = sum(cell.verdict != REFUSED for cell in self.records)
        return f"<netfold matrix: {ran} of {len(self.records)} cells ran, {len(self.failed)} failed>"


def matrix(
    codecs: Sequence[str] = (),
    *,
    collectives: Sequence[str] = (),
    loss: str = "1%",
    workers: int = 4,
    switch: str = "",
    seed: int = 1,
    progress: Progress | None = None,
) -> MatrixResult:
    """Run codecs on collectives, each without loss and with it: a few training steps on a star.

    Parameters
    ----------
    codecs
        Texts such as "packed" or "lossless:load=0.7"; left out, all that are registered.
    collectives
        Kinds of collectives; left out, all. in_network is run with every switch program.
    loss
        Share of the packets that every link loses in the second run of a cell; "0%": no second run.
    switch
        Profile of the switch; left out, for every cell the one that can do least of those that carry it.
    progress
        Called with the current codec, the codecs done and all codecs; `print` works.

    Raises
    ------
    ScenarioError, NetfoldError
        A codec, an option, a collective, a switch or a loss that cannot be used.
    DataError
        The training data is not available.
    """
    require_threads()
    rows = rows_of([codecs] if isinstance(codecs, str) else codecs)
    columns = columns_of([collectives] if isinstance(collectives, str) else collectives)
    bench = Bench(workers, _switches(switch), _loss(loss), seed)
    report = progress or silent
    cells: list[Cell] = []
    with compiling(report):
        for done, row in enumerate(rows):
            report(row.name, done, len(rows))
            cells += _with_others([cell for column in columns for cell in bench.cells(row, column)])
    return MatrixResult(bench, tuple(column.name for column in columns), tuple(cells))


def rows_of(texts: Sequence[str] = ()) -> list[Row]:
    """The codecs that are named; without names all, with all settings that they declare."""
    if texts:
        return [Row(*named) for named in read_codecs(texts)]
    rows = []
    for name, codec in codec_kinds().items():
        for setting in getattr(codec, "settings", ("",)):
            text = f"{name}:{setting}" if setting else name
            try:
                rows.append(Row(*read_codec(text)))
            except ScenarioError as error:
                hint = error.hint
                if isinstance(error, MissingKeyError):
                    hint = f"name it with its options, {name}:OPTION=VALUE, or give its class `settings`"
                rows.append(Row(text, None, (f"{text}: {error.message}", hint)))
    return rows


def columns_of(kinds: Collection[str] = ()) -> list[Column]:
    """The collectives that are named, or all, each with all its choices."""
    for name in kinds:
        if name not in collectives():
            raise NetfoldError(f"there is no collective {name!r}", names_hint(name, collectives()))
    return [
        Column(spec.kind, choice, keys)
        for spec in collectives().values()
        if not kinds or spec.kind in kinds
        for choice, keys in spec.choices().items()
    ]


def _switches(name: str) -> list[str]:
    """The profile that is named; else all, those that can do least first."""
    if name and name not in PROFILES:
        raise NetfoldError(f"there is no switch profile {name!r}", names_hint(name, PROFILES))
    if name:
        return [name]
    ability = {
        profile.name: (len(profile.merges), profile.is_lossless, profile.has_timers)
        for profile in PROFILES.values()
    }
    return sorted(ability, key=ability.__getitem__)


def _loss(text: str) -> str:
    """The share as scenarios write it; empty if nothing is lost."""
    try:
        share = parse_fraction(text)
    except UnitError as error:
        raise NetfoldError(f"loss: {error.message}", error.hint) from None
    return format_fraction(share) if share else ""


def _with_others(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of a codec; where loss is refused, the hint names the columns that recover from it."""
    able = [cell.column for cell in cells if cell.loss and kind(cell.verdict) in GOOD]
    runs = {cell.column for cell in cells if not cell.loss and kind(cell.verdict) in GOOD}
    return [
        replace(cell, hint=f"{cell.hint}, or one of {', '.join(able)}")
        if cell.loss and cell.verdict == REFUSED and cell.column in runs and able
        else cell
        for cell in cells
    ]


def _why(cell: Cell) -> tuple[str, str]:
    """Reason and hint of a cell without the name of its codec, so that codecs share them."""
    kind_of_codec = cell.codec.partition(":")[0]
    return cell.reason.replace(f"codec {kind_of_codec!r}", "the codec"), cell.hint


def _sentence(reason: str, hint: str) -> str:
    return "; ".join(part.replace("\n", " ") for part in (reason, hint) if part)


def _is_good(cell: Cell) -> bool:
    return kind(cell.verdict) in GOOD


def _lines(cells: list[Cell], reasons: Reasons) -> list[str]:
    """The lines of a cell; two runs that end alike without a time are said once."""
    times = list(dict.fromkeys(_time(cell, reasons) for cell in cells))
    first = cells[0]
    if not _is_good(first):
        return [", ".join(times)]
    sizes = [words.scaled(size, "B") for size in (first.wire_bytes_up, first.wire_bytes_down)]
    lines = [", ".join(times), ", ".join(sizes)]
    return [*lines, first.switch] if PROFILES[first.switch].merges else lines


def _time(cell: Cell, reasons: Reasons) -> str:
    """The time of a cell; a verdict with the number of its reason, if it did not pass."""
    if _is_good(cell):
        return ("≈ " if kind(cell.verdict) != "pass" else "") + words.time(cell.aggregation_time_us)
    what = REFUSED if cell.verdict == REFUSED else kind(cell.verdict)
    return f"{what} [{reasons[_why(cell)]}]"
