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

from rich.table import Table
from rich.text import Text

from sim.errors import DataError
from sim.report import words
from sim.report.table import verdict_text
from sim.results.reader import Run, load

RATIO_METRICS = (
    "aggregation_elements_per_s",
    "aggregation_time_us",
    "iteration_time_us",
    "wire_bytes_up",
    "wire_bytes_down",
    "compression_ratio",
)


@dataclass(frozen=True)
class Row:
    """One variant of one run."""

    run: str  # "<scenario>/<folder>"
    variant: str
    verdict: str
    against: str  # "<scenario>/<folder> <variant>" that the ratios are to
    metrics: dict[str, Any]
    ratios: dict[str, float | None]  # this over the baseline's; None where either is missing or 0


@dataclass(frozen=True)
class Comparison:
    """Rows in the order the runs were given, and in words all that makes them less comparable."""

    baseline: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)

    def table(self) -> Table:
        """A table no wider than a hundred columns: runs by number, their names and the notes below."""
        names = list(dict.fromkeys(row.run for row in self.rows))
        table = Table(caption=Text("\n".join(self._legend(names))), caption_justify="left", caption_style="")
        table.add_column("run", justify="right")
        table.add_column("variant", overflow="fold")
        for heading in ("elements/s", "× base", "iteration", "× base", "wire/worker", "× base"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        for row in self.rows:
            metrics, ratios = row.metrics, row.ratios
            table.add_row(
                str(1 + names.index(row.run)),
                Text(row.variant),
                words.scaled(metrics["aggregation_elements_per_s"], ""),
                words.times(ratios["aggregation_elements_per_s"]),
                words.time(metrics["iteration_time_us"]),
                words.times(ratios["iteration_time_us"]),
                words.scaled(metrics["wire_bytes_up"] / metrics["workers"], "B"),
                words.times(ratios["wire_bytes_up"]),
                verdict_text(row.verdict),
            )
        return table

    def _legend(self, names: list[str]) -> list[str]:
        runs = [
            f"{number}  {name}{'  (baseline)' if name == self.baseline else ''}"
            for number, name in enumerate(names, start=1)
        ]
        return [*runs, *(f"note: {note}" for note in self.notes)]


def compare(runs: Sequence[Path], baseline: Path | None = None) -> Comparison:
    """Compare runs with a baseline, by default the first of them.

    A variant is compared with the baseline's variant of the same name or, where it has none, with its first.

    Raises
    ------
    DataError
        There is no run to compare, or one of the folders is not a finished run.
    """
    if not runs:
        raise DataError("no run to compare", "give one or more run folders, such as runs/latest")
    loaded = [load(path) for path in runs]
    base = loaded[0] if baseline is None else load(baseline)
    if base.path not in [run.path for run in loaded]:
        loaded.insert(0, base)
    rows = tuple(_row(run, variant, base) for run in loaded for variant in run.summary["variants"])
    return Comparison(_name(base), rows, tuple(note for run in loaded for note in _notes(run, base)))


def _row(run: Run, variant: dict[str, Any], base: Run) -> Row:
    candidates = base.summary["variants"]
    against = next((entry for entry in candidates if entry["name"] == variant["name"]), candidates[0])
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
    """What differs from the baseline besides the results, and what keeps the results from counting."""
    mine, theirs = _circumstances(run), _circumstances(base)
    notes = [
        f"{_name(run)}: {what} {mine[what]}, the baseline has {theirs[what]}"
        for what in mine
        if mine[what] != theirs[what]
    ]
    names = [variant["name"] for variant in base.summary["variants"]]
    notes += [
        f"{_name(run)}: the baseline has no variant '{variant['name']}', compared with '{names[0]}'"
        for variant in run.summary["variants"]
        if variant["name"] not in names
    ]
    if run.summary["verdict"] != "pass":
        notes.append(f"{_name(run)}: a check failed, do not rely on its numbers")
    return notes


def _circumstances(run: Run) -> dict[str, str]:
    """What should be equal between runs for their ratios to mean something, by its name in a note."""
    return {
        "scenario": run.summary["scenario"],
        "seed": str(run.summary["seed"]),
        "scenario file with sha256": hashlib.sha256(run.scenario_text).hexdigest()[:12],
        "--set": ", ".join(run.summary["sets"]) or "nothing",
        "netfold version": run.circumstances["version"],
    }


def _name(run: Run) -> str:
    return f"{run.summary['scenario']}/{run.path.name}"
