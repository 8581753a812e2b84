"""Variants side by side, of one run or of several: ranked, with ratios to a baseline and what bounds each.

comparison = compare([Path("runs/a/…"), Path("runs/latest")], sort="aggregation")
comparison.table(); comparison.as_dict(); comparison.draw()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table
from rich.text import Text

from netfold.sim.errors import DataError
from netfold.sim.report import words
from netfold.sim.report.answer.baseline import Baseline, baseline_of, name_of, notes_on, require_comparable
from netfold.sim.report.answer.bounds import parts_of, sentence, short
from netfold.sim.report.answer.ranking import AS_GIVEN, RANKED_BY, check_sort, order_key
from netfold.sim.report.fitting import FittingTable
from netfold.sim.report.jobs.lines import JOBS_LEGEND, lines
from netfold.sim.report.shown import Shown
from netfold.sim.report.table import verdict_text
from netfold.sim.results.reader import Run, load
from netfold.sim.results.tables import plain_frame
from netfold.sim.results.verdicts import GOOD, kind

_LEGEND = (
    "aggregation, iteration: mean per step; bound by: the largest part of the aggregation time, and how many "
    "further links were as busy (+); wire/worker: sent by one worker, mean per step; × base: the figure to "
    "its left over the baseline's, so that of elements/s is the speedup of the aggregation"
)
_KEYS_COUNT = 3  # of the table: rank, run and variant
_RATIO_COLUMNS = (6, 8, 10)  # each belongs to the column left of it
_COLUMNS = ("rank", "run", "variant", "verdict", "against", "bound")  # of the frame, before the metrics
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
    rank: int | None  # from 1, by the order's metric; None if a check failed, or without the metric
    bound: str  # the largest part of the aggregation time, in short
    parts: tuple[Mapping[str, Any], ...]  # all parts, the largest first; see `sim/bounds`


@dataclass(frozen=True)
class Comparison(Shown):
    """Rows in their order, and notes on everything that makes them less comparable.

    Attributes
    ----------
    baseline
        The run that the ratios divide by; of a single run, "<run> <variant>".
    sort
        The order of the rows, and the metric of their ranks: one of `ranking.SORTS`. "given": the rows are in
        the order of the runs, and ranked by their aggregation time.
    """

    baseline: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    runs: tuple[str, ...]  # names, by number
    sort: str = AS_GIVEN
    jobs: tuple[Mapping[str, Any], ...] = ()  # of each variant with jobs that come and go, and its run

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints; `jobs` only if there are any."""
        found = asdict(self)
        return found if self.jobs else {name: value for name, value in found.items() if name != "jobs"}

    @property
    def frame(self) -> pl.DataFrame:
        """A row each: rank, run, variant, verdict, against, bound, metrics, and "<metric>_ratio"."""
        return plain_frame(
            [
                {
                    **{name: getattr(row, name) for name in _COLUMNS},
                    **row.metrics,
                    **{f"{name}_ratio": ratio for name, ratio in row.ratios.items()},
                }
                for row in self.rows
            ]
        )

    def table(self) -> Table:
        """A table that fits the terminal: runs by number, their names and the notes below."""
        names = self.runs
        trained = any(words.has_trained(row.metrics) for row in self.rows)
        tested = any(words.is_tested(row.metrics) for row in self.rows)
        aimed = any(words.has_target(row.metrics) for row in self.rows)
        staying = any("completion_time_us" in row.metrics for row in self.rows)
        table = FittingTable("", self._legend(), _KEYS_COUNT, _RATIO_COLUMNS)
        table.add_column("#", justify="right")
        table.add_column("run", justify="right")
        table.add_column("variant")
        table.add_column("aggregation", justify="right")
        table.add_column("bound by")
        for heading in ("elements/s", "× base", "iteration", "× base", "wire/worker", "× base"):
            table.add_column(heading, justify="right")
        for heading in (
            *(["training loss"] if trained else []),
            *(["held-out data"] if tested else []),
            *(["target"] if aimed else []),
            *(["job", "slowdown"] if staying else []),
            "verdict",
        ):
            table.add_column(heading)
        for row in self.rows:
            metrics, ratios = row.metrics, row.ratios
            table.add_row(
                words.NOTHING if row.rank is None else str(row.rank),
                str(1 + names.index(row.run)),
                Text(row.variant),
                words.time(metrics["aggregation_time_us"]),
                Text(row.bound),
                words.scaled(metrics["aggregation_elements_per_s"], ""),
                words.times(ratios["aggregation_elements_per_s"]),
                words.iteration(metrics),
                words.times(ratios["iteration_time_us"]),
                words.scaled(metrics["wire_bytes_up_per_worker"], "B"),
                words.times(ratios["wire_bytes_up_per_worker"]),
                *([words.training_loss(metrics)] if trained else []),
                *([words.held_out_score(metrics)] if tested else []),
                *([words.to_target(metrics)] if aimed else []),
                *([words.time(metrics.get("completion_time_us"))] if staying else []),
                *([words.times(metrics.get("slowdown"))] if staying else []),
                verdict_text(row.verdict),
            )
        return table

    def draw(self) -> bytes | None:
        """SVG of the aggregation times, the best rank first, split by what bounds them.

        None if no variant took time.
        """
        from netfold.sim.report.answer import figure  # late: matplotlib is slow to import
        from netfold.sim.report.style import house_style, to_svg

        several = len(self.runs) > 1
        bars = [
            figure.Bar(
                name=f"{1 + self.runs.index(row.run)} {row.variant}" if several else row.variant,
                time_us=row.metrics["aggregation_time_us"] or 0.0,
                note=words.times(row.ratios["aggregation_time_us"]),
                parts=row.parts,
                is_sound=kind(row.verdict) in GOOD,
            )
            for row in sorted(self.rows, key=lambda row: (row.rank is None, row.rank or 0))
        ]
        with house_style():
            drawn = figure.ranked_bars(bars, f"Aggregation time and its bounds, × of {self.baseline}")
            return None if drawn is None else to_svg(drawn)

    def _legend(self) -> list[str]:
        several = len(self.runs) > 1
        runs = [f"{number}  {name}{self._marked(name)}" for number, name in enumerate(self.runs, start=1)]
        told = [
            f"{row.variant}{f' of run {1 + self.runs.index(row.run)}' if several else ''} is {text}"
            for row in self.rows
            if (text := sentence(row.parts))
        ]
        coming = [
            f"{line} (run {1 + self.runs.index(one['run'])})" if several else line
            for one, line in zip(self.jobs, lines(self.jobs), strict=True)
        ]
        if coming:
            coming.insert(0, JOBS_LEGEND)
        return [_LEGEND, *runs, *told, *coming, *(f"note: {note}" for note in self.notes)]

    def _marked(self, name: str) -> str:
        """The mark of the baseline: a run, or one variant of it."""
        if self.baseline == name:
            return "  (baseline)"
        variant = self.baseline.removeprefix(f"{name} ")
        return "" if variant == self.baseline else f"  (baseline: {variant})"


def compare(runs: Sequence[Path], baseline: Path | None = None, sort: str = AS_GIVEN) -> Comparison:
    """Compare runs, or the variants of one run, with a baseline.

    A run that is given twice counts once. Each variant is compared with the baseline's variant of the same
    name, or with the baseline's first if there is none. Of a single run, all are compared with its first.

    Parameters
    ----------
    baseline
        The folder of a run; or one of the runs, by its number from 1; or a variant of the first run that has
        one of this name, with which all are compared then. By default the first run.
    sort
        The order of the rows, best first: one of `ranking.SORTS`; or "given", by run.

    Raises
    ------
    DataError
        There is no run to compare, one of the folders is not a finished run, `baseline` is a number and no
        run has it, there is no such order, or other instructions computed one (`sim/processor.py`).
    """
    check_sort(sort)
    if not runs:
        raise DataError("no run to compare", "give one or more run folders, such as runs/latest")
    loaded = list({run.path: run for run in map(load, runs)}.values())
    base = baseline_of(baseline, loaded)
    if base.run.path not in [run.path for run in loaded]:
        loaded.insert(0, base.run)
    require_comparable(loaded, base.run)
    rows = [_row(run, variant, base) for run in loaded for variant in run.summary["variants"]]
    notes = tuple(note for run in loaded for note in notes_on(run, base))
    names = tuple(dict.fromkeys(row.run for row in rows))
    jobs = tuple({"run": name_of(run), **one} for run in loaded for one in run.summary.get("jobs", []))
    return Comparison(base.name, tuple(_ranked(rows, sort)), notes, names, sort, jobs)


def _row(run: Run, variant: dict[str, Any], base: Baseline) -> Row:
    against = base.against(variant)
    parts = tuple(parts_of(run, variant))
    return Row(
        run=name_of(run),
        variant=variant["name"],
        verdict=variant["verdict"],
        against=f"{name_of(base.run)} {against['name']}",
        metrics=variant["metrics"],
        ratios={
            metric: words.ratio(variant["metrics"][metric], against["metrics"][metric])
            for metric in RATIO_METRICS
        },
        rank=None,
        bound=short(parts),
        parts=parts,
    )


def _ranked(rows: list[Row], sort: str) -> list[Row]:
    """The rows in their order, with their ranks."""
    key = order_key(RANKED_BY if sort == AS_GIVEN else sort)
    order = sorted(range(len(rows)), key=lambda index: key(rows[index].verdict, rows[index].metrics))
    keys = {index: key(rows[index].verdict, rows[index].metrics) for index in order}
    ranked = {
        index: replace(rows[index], rank=1 + place if keys[index][:2] == (False, False) else None)
        for place, index in enumerate(order)
    }
    return [ranked[index] for index in (range(len(rows)) if sort == AS_GIVEN else order)]
