"""Every codec on every collective: which pairs work, and what they take.

A cell is one codec on one collective, run without loss and with it, or refused. All of them are printed, and
make the page `docs/matrix.md`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from netfold.errors import MissingKeyError, MistakesError, NetfoldError, RunError, ScenarioError, names_hint
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs import codec_kinds
from netfold.sim.checks.checks import Journal
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.report import words
from netfold.sim.report.compare import FittingTable
from netfold.sim.results.summary import GOOD, kind, summarize
from netfold.sim.run.compiling import compiling
from netfold.sim.run.variant import run_variant
from netfold.sim.scenario.limits import Plan
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.sim.studies.codec_study_gradients import read_codec, read_codecs
from netfold.sim.workload.workload_keys import Workloads
from netfold.switch.profiles import PROFILES, Profile
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
            one.name: getattr(self.codec, one.name)
            for one in known
            if one.default is MISSING or getattr(self.codec, one.name) != one.default
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
        self.workloads = Workloads((), self.seed)  # every cell restarts the same one

    def cells(self, row: Row, column: Column) -> list[Cell]:
        """The cells of a codec on a collective: without loss, and with it."""
        losses = ["", self.loss] if self.loss else [""]
        if row.codec is None:
            return [_refused(row, column, loss, "", *row.why) for loss in losses]
        plan, switch, refusal = self._plan(row, column, "", self.switches)
        if plan is None:
            return [_refused(row, column, loss, switch, *refusal) for loss in losses]
        return [self._cell(row, column, switch, loss) for loss in losses]

    def _cell(self, row: Row, column: Column, switch: str, loss: str) -> Cell:
        plan, _, refusal = self._plan(row, column, loss, [switch])
        if plan is None:
            return _refused(row, column, loss, switch, *refusal)
        variant = plan.variants[0]
        if loss and variant.jobs[0].collective.needs_lossless:
            reason = f"{column.name} does not recover from lost packets"
            return _refused(row, column, loss, switch, reason, "use a network without loss")
        try:
            result = run_variant(plan, variant, workloads=self.workloads)
        except RunError as error:
            return _cell(row, column, loss, switch, verdict="fail", reason=error.message, hint=error.hint)
        entry = summarize(result.facts, result.records)["variants"][0]
        return _cell(row, column, loss, switch, **_outcome(entry), **_checked(result.jobs[0].journal))

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


def _refused(row: Row, column: Column, loss: str, switch: str, reason: str, hint: str) -> Cell:
    return _cell(row, column, loss, switch, verdict=REFUSED, reason=reason, hint=hint)


def _cell(row: Row, column: Column, loss: str, switch: str, **found: Any) -> Cell:
    promise = row.codec.promise.value if row.codec else ""
    return Cell(row.name, promise, column.collective, column.choice, loss, switch, **found)


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


def _checked(journal: Journal) -> dict[str, int]:
    """How much the checks have examined."""
    words = sum(one.integer_words + one.float_words + one.at_hosts.words for one in journal.findings)
    return {
        "checked_words": words + journal.signs.words,
        "checked_elements": sum(one.elements - one.estimated_elements for one in journal.rounds),
    }


# Makes the matrix: all codecs and collectives that are registered, or those that are named.


Progress = Callable[[str, float, float], None]


@dataclass(frozen=True)
class Wanted:
    """What a matrix is made of."""

    codecs: Sequence[str] = ()  # KIND or KIND:OPTION=VALUE,…; none: all, with all their settings
    collectives: Sequence[str] = ()  # none: all
    loss: str = "1%"
    """The share of packets lost on each link, in the second run of every cell."""
    workers: int = 4
    switch: str = ""  # profile; empty: for every cell one that can
    seed: int = 1


@dataclass(frozen=True)
class Matrix:
    """All cells, codec by codec, and what they have in common."""

    wanted: Wanted
    rows: tuple[str, ...]  # codecs
    columns: tuple[str, ...]  # collectives, with their choices
    cells: tuple[Cell, ...]

    @property
    def failed(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.verdict != REFUSED and kind(cell.verdict) not in GOOD]

    def as_dict(self) -> dict[str, Any]:
        """The object that `netfold codecs matrix --json` prints."""
        return {
            "workers": self.wanted.workers,
            "steps": STEPS,
            "seed": self.wanted.seed,
            "cells": [asdict(cell) for cell in self.cells],
        }


def make_matrix(wanted: Wanted, progress: Progress) -> Matrix:
    """Run every cell without loss and with it.

    A codec, collective, switch or loss that cannot be used is an error, and training data that is not there.
    """
    rows, columns = rows_of(wanted.codecs), columns_of(wanted.collectives)
    bench = Bench(wanted.workers, _switches(wanted.switch), _loss(wanted.loss), wanted.seed)
    cells = []
    with compiling(progress):
        for done, row in enumerate(rows):
            progress(row.name, done, len(rows))
            cells += _with_others([cell for column in columns for cell in bench.cells(row, column)])
    names = tuple(row.name for row in rows), tuple(column.name for column in columns)
    return Matrix(replace(wanted, loss=bench.loss), *names, tuple(cells))


def rows_of(texts: Sequence[str] = ()) -> list[Row]:
    """The codecs that are named; without names all, with all settings that they declare."""
    if texts:
        return [Row(*named) for named in read_codecs(texts)]
    found = []
    for name, codec in codec_kinds().items():
        for setting in getattr(codec, "settings", ("",)):
            text = f"{name}:{setting}" if setting else name
            try:
                found.append(Row(*read_codec(text)))
            except ScenarioError as error:
                hint = error.hint
                if isinstance(error, MissingKeyError):
                    hint = f"name it with its options, {name}:OPTION=VALUE, or give its class `settings`"
                found.append(Row(text, None, (f"{text}: {error.message}", hint)))
    return found


def columns_of(kinds: Collection[str] = ()) -> list[Column]:
    """The collectives that are named, or all, each with all its choices."""
    for name in kinds:
        if name not in COLLECTIVES:
            raise NetfoldError(f"there is no collective {name!r}", names_hint(name, COLLECTIVES))
    return [
        Column(spec.kind, choice, keys)
        for spec in COLLECTIVES.values()
        if not kinds or spec.kind in kinds
        for choice, keys in spec.choices().items()
    ]


def _switches(name: str) -> list[str]:
    """The profile that is named; else all, those that can do least first."""
    if name and name not in PROFILES:
        raise NetfoldError(f"there is no switch profile {name!r}", names_hint(name, PROFILES))
    return [name] if name else [one.name for one in sorted(PROFILES.values(), key=_ability)]


def _ability(profile: Profile) -> tuple[int, bool, bool]:
    return len(profile.merges), profile.is_lossless, profile.has_timers


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


# The matrix as a terminal's table and as a page: a row for every codec, a column for every collective.


PAGE_COMMAND = "netfold codecs matrix --markdown > docs/matrix.md"
_KEYS = ("codec", "promise")  # columns left of the collectives

Reasons = Mapping[tuple[str, str], int]  # reason and hint, to their number


def matrix_table(matrix: Matrix) -> Table:
    """Times, bytes and switch of every cell, and below them what was refused and why."""
    reasons = _reasons(matrix)
    notes = [*_legend(matrix), *(f"[{number}] {_sentence(*why)}" for why, number in reasons.items())]
    table = FittingTable(_title(matrix), notes, keys_count=len(_KEYS))
    for name in (*_KEYS, *matrix.columns):
        table.add_column(name)
    for codec, promise, cells in _rows(matrix):
        lines = ["\n".join(_lines(own, reasons)) for own in cells]
        table.add_row(*map(Text, (codec, promise, *lines)))  # Text: brackets are no markup
    return table


def matrix_page(matrix: Matrix) -> str:
    """The page `docs/matrix.md`."""
    reasons = _reasons(matrix)
    heading = (*_KEYS, *matrix.columns)
    rows = [
        (f"`{codec}`", promise, *("<br>".join(_lines(own, reasons)) for own in cells))
        for codec, promise, cells in _rows(matrix)
    ]
    return "\n".join(
        [
            "# Codecs and collectives: the matrix",
            "",
            f"Written by `{PAGE_COMMAND}`. Every codec that is registered, with the settings that it",
            "declares, on every collective; `in_network` has a column for each switch program.",
            "",
            *(f"* {line}" for line in [_title(matrix), *_legend(matrix)]),
            "",
            _row(heading),
            "|" + "---|" * len(heading),
            *map(_row, rows),
            "",
            "## Why some are refused, and what works",
            "",
            *(f"* [{number}] {_sentence(*why)}" for why, number in reasons.items()),
            "",
        ]
    )


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _title(matrix: Matrix) -> str:
    wanted = matrix.wanted
    return (
        f"{words.counted(wanted.workers, 'worker')} on a star, 100 Gbps, 1 µs links; {STEPS} steps of the "
        f"small classifier of digits, 16 samples per worker; seed {wanted.seed}"
    )


def _legend(matrix: Matrix) -> list[str]:
    """What the lines of a cell are."""
    with_loss = (
        f", and with {matrix.wanted.loss} of the packets lost on every link" if matrix.wanted.loss else ""
    )
    return [
        f"first line: time of a step's aggregation{with_loss}; second line: bytes on a worker's link, up and "
        "down, per step, without loss; third line: the switch profile, the least capable one that can run "
        "the cell; without it, the switch only forwards",
        "a time means that all checks hold: every merged word is right, and every total keeps the codec's "
        "promise; ≈: some elements are estimates, which have no bound; [n]: refused or failed, see below",
    ]


def _rows(matrix: Matrix) -> list[tuple[str, str, list[list[Cell]]]]:
    """Codec, promise, and for every column the cells without and with loss."""
    found = []
    for codec, group in groupby(matrix.cells, lambda cell: cell.codec):
        own = list(group)
        by_column = [[cell for cell in own if cell.column == name] for name in matrix.columns]
        found.append((codec, own[0].promise, by_column))
    return found


def _reasons(matrix: Matrix) -> dict[tuple[str, str], int]:
    """Every reason and hint once, numbered from 1."""
    found = dict.fromkeys(map(_why, (cell for cell in matrix.cells if not _is_good(cell))))
    return {why: number for number, why in enumerate(found, start=1)}


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
