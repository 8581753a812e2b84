"""Runs side by side: every variant of every run, against the same variant of a baseline run.

comparison = compare([Path("runs/a/…"), Path("runs/latest")])
comparison.table(); comparison.as_dict()
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table
from rich.text import Text

from netfold.sim.errors import DataError
from netfold.sim.report import words
from netfold.sim.report.fitting import FittingTable
from netfold.sim.report.shown import Shown
from netfold.sim.report.table import verdict_text
from netfold.sim.results.reader import Run, load
from netfold.sim.results.tables import plain_frame
from netfold.sim.results.verdicts import GOOD, kind

_LEGEND = (
    "iteration: mean per step; wire/worker: sent by one worker, mean per step; "
    "× base: the figure to its left over the baseline's"
)
_KEYS_COUNT = 2  # of the table: run and variant
_RATIO_COLUMNS = (3, 5, 7)  # each belongs to the column left of it
RATIO_METRICS = (
    "aggregation_elements_per_s",
    "aggregation_time_us",  # per step, as all that follows
    "iteration_time_us",
    "wire_bytes_up_per_worker",
    "wire_bytes_up",  # of all workers
    "wire_bytes_down",  # of all workers
    "compression_ratio",
)


@dataclass(frozen=True)
class Row:
    """One variant of one run."""

    run: str  # "<scenario>/<folder>"
    variant: str
    verdict: str
    against: str  # "<scenario>/<folder> <variant>": what the ratios divide by
    metrics: dict[str, Any]
    ratios: dict[str, float | None]  # this over the baseline's; None where either is missing or 0


@dataclass(frozen=True)
class Comparison(Shown):
    """Rows in the order the runs were given, and notes on everything that makes them less comparable."""

    baseline: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)

    @property
    def frame(self) -> pl.DataFrame:
        """A row as above each: run, variant, verdict, against, metrics, and ratios as "<metric>_ratio"."""
        return plain_frame(
            [
                {
                    **{name: getattr(row, name) for name in ("run", "variant", "verdict", "against")},
                    **row.metrics,
                    **{f"{name}_ratio": ratio for name, ratio in row.ratios.items()},
                }
                for row in self.rows
            ]
        )

    def table(self) -> Table:
        """A table that fits the terminal: runs by number, their names and the notes below."""
        names = list(dict.fromkeys(row.run for row in self.rows))
        trained = any(words.has_trained(row.metrics) for row in self.rows)
        tested = any(words.is_tested(row.metrics) for row in self.rows)
        table = FittingTable("", self._legend(names), _KEYS_COUNT, _RATIO_COLUMNS)
        table.add_column("run", justify="right")
        table.add_column("variant")
        for heading in ("elements/s", "× base", "iteration", "× base", "wire/worker", "× base"):
            table.add_column(heading, justify="right")
        for heading in (
            *(["training loss"] if trained else []),
            *(["held-out data"] if tested else []),
            "verdict",
        ):
            table.add_column(heading)
        for row in self.rows:
            metrics, ratios = row.metrics, row.ratios
            table.add_row(
                str(1 + names.index(row.run)),
                Text(row.variant),
                words.scaled(metrics["aggregation_elements_per_s"], ""),
                words.times(ratios["aggregation_elements_per_s"]),
                words.time(metrics["iteration_time_us"]),
                words.times(ratios["iteration_time_us"]),
                words.scaled(metrics["wire_bytes_up_per_worker"], "B"),
                words.times(ratios["wire_bytes_up_per_worker"]),
                *([words.training_loss(metrics)] if trained else []),
                *([words.held_out_score(metrics)] if tested else []),
                verdict_text(row.verdict),
            )
        return table

    def _legend(self, names: list[str]) -> list[str]:
        runs = [
            f"{number}  {name}{'  (baseline)' if name == self.baseline else ''}"
            for number, name in enumerate(names, start=1)
        ]
        return [_LEGEND, *runs, *(f"note: {note}" for note in self.notes)]


def compare(runs: Sequence[Path], baseline: Path | None = None) -> Comparison:
    """Compare runs with a baseline: a folder or one of the runs by its number from 1, by default the first.

    A run that is given twice counts once. A variant is compared with the baseline's variant of the same name,
    or with the baseline's first if there is none.

    Raises
    ------
    DataError
        There is no run to compare, one of the folders is not a finished run, or `baseline` is a number and no
        run has it.
    """
    if not runs:
        raise DataError("no run to compare", "give one or more run folders, such as runs/latest")
    loaded = list({run.path: run for run in map(load, runs)}.values())
    base = loaded[0] if baseline is None else _baseline(baseline, loaded)
    if base.path not in [run.path for run in loaded]:
        loaded.insert(0, base)
    rows = tuple(_row(run, variant, base) for run in loaded for variant in run.summary["variants"])
    return Comparison(_name(base), rows, tuple(note for run in loaded for note in _notes(run, base)))


def _baseline(baseline: Path, loaded: Sequence[Run]) -> Run:
    """The run with this number in the table, or in this folder; an existing folder of that name wins."""
    text = str(baseline)
    if not text.isdecimal() or baseline.exists():
        return load(baseline)
    if not 1 <= int(text) <= len(loaded):
        raise DataError(
            f"--baseline {text}: there is no run of this number",
            f"give 1{f' to {len(loaded)}' if len(loaded) > 1 else ''}, or a run folder",
        )
    return loaded[int(text) - 1]


def _row(run: Run, variant: dict[str, Any], base: Run) -> Row:
    against = _against(variant, base)
    return Row(
        run=_name(run),
        variant=variant["name"],
        verdict=variant["verdict"],
        against=f"{_name(base)} {against['name']}",
        metrics=variant["metrics"],
        ratios={
            metric: words.ratio(variant["metrics"][metric], against["metrics"][metric])
            for metric in RATIO_METRICS
        },
    )


def _notes(run: Run, base: Run) -> list[str]:
    """Differences from the baseline's circumstances, and reasons not to rely on the results."""
    mine, theirs = _circumstances(run), _circumstances(base)
    notes = [
        f"{_name(run)}: {what} {mine[what]}, the baseline has {theirs[what]}"
        for what in mine
        if mine[what] != theirs[what]
    ]
    if mine["scenario"] != theirs["scenario"]:
        first = base.summary["variants"][0]["name"]
        notes = [
            f"{_name(run)}: another scenario; "
            f"variants that the baseline lacks are compared with its '{first}'"
        ]
    else:
        notes += [*_other_inputs(run, base), *_unmatched(run, base)]
    notes += _other_workers(run, base)
    if left := ", ".join(f"'{name}'" for name in run.summary.get("unfinished", ())):
        notes.append(f"{_name(run)}: unfinished, {left} did not run to the end")
    kinds = {variant["name"]: kind(variant["verdict"]) for variant in run.summary["variants"]}
    if set(kinds.values()) - {*GOOD, "stuck"}:
        notes.append(f"{_name(run)}: a check failed, do not rely on its numbers")
    for found, meaning in (
        ("stuck", "got stuck, the numbers are those of the finished steps"),
        ("approximate", "approximate, some elements are estimates without an error bound"),
    ):
        names = ", ".join(f"'{name}'" for name, one in kinds.items() if one == found)
        notes += [f"{_name(run)}: {names} {meaning}"] if names else []
    return notes


def _other_inputs(run: Run, base: Run) -> list[str]:
    """One note for every named file whose content differs in the baseline."""
    mine, theirs = (
        {one["path"]: one["sha256"] for one in both.summary.get("inputs", ())} for both in (run, base)
    )
    return [
        f"{_name(run)}: {path} with sha256 {mine[path][:12]}, the baseline has {theirs[path][:12]}"
        for path in mine
        if mine[path] != theirs.get(path, mine[path])
    ]


def _unmatched(run: Run, base: Run) -> list[str]:
    """One note on all variants that the baseline lacks."""
    names = [variant["name"] for variant in base.summary["variants"]]
    missing = [f"'{entry['name']}'" for entry in run.summary["variants"] if entry["name"] not in names]
    if not missing:
        return []
    plural = "s" if len(missing) > 1 else ""
    return [
        f"{_name(run)}: the baseline has no variant{plural} {', '.join(missing)}, compared with '{names[0]}'"
    ]


def _other_workers(run: Run, base: Run) -> list[str]:
    """One note on all variants whose number of workers differs from the baseline's."""
    differing = [
        f"'{entry['name']}' has {mine}, '{against['name']}' of the baseline {theirs}"
        for entry in run.summary["variants"]
        if (mine := entry["metrics"]["workers"])
        != (theirs := (against := _against(entry, base))["metrics"]["workers"])
    ]
    return [f"{_name(run)}: other numbers of workers: {'; '.join(differing)}"] if differing else []


def _against(variant: dict[str, Any], base: Run) -> dict[str, Any]:
    """The baseline's variant of the same name, or its first if there is none."""
    candidates: list[dict[str, Any]] = base.summary["variants"]
    return next((entry for entry in candidates if entry["name"] == variant["name"]), candidates[0])


def _circumstances(run: Run) -> dict[str, str]:
    """Properties that two runs must share for their ratios to mean something, by their names in a note."""
    return {
        "scenario": run.summary["scenario"],
        "seed": str(run.summary["seed"]),
        "scenario file with sha256": hashlib.sha256(run.scenario_text).hexdigest()[:12],
        "--set": ", ".join(run.summary["sets"]) or "nothing",
        "netfold version": run.circumstances["version"],
    }


def _name(run: Run) -> str:
    return f"{run.summary['scenario']}/{run.path.name}"
