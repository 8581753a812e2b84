"""Variants side by side, of one run or of several: ranked, divided by a baseline, with their bottlenecks.

comparison = compare([Path("runs/a/…"), Path("runs/latest")], sort="aggregation")
comparison.table(); comparison.as_dict(); comparison.draw()
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table
from rich.text import Text

from netfold.errors import DataError, names_hint
from netfold.kernels.processor import note_of, recorded
from netfold.sim.report import words
from netfold.sim.report.answer import (
    AS_GIVEN,
    Entry,
    Group,
    answered_in,
    groups_in,
    groups_of,
    legend,
    listed,
    rank,
    spreads,
    times_baseline,
)
from netfold.sim.report.bottleneck_text import sentence, short
from netfold.sim.report.columns import (
    FittingTable,
    TableColumn,
    left_out_of,
    metric_columns,
    order_key,
    priced,
    require_metrics,
    total_width,
)
from netfold.sim.report.network_answer import details_of
from netfold.sim.report.predictions import answers_and_outlook
from netfold.sim.report.result_display import Svg, VerbResult
from netfold.sim.report.several_runs import SideBySide, joined
from netfold.sim.report.words import JOBS_LEGEND, lines, warnings
from netfold.sim.results.file_formats import plain_frame
from netfold.sim.results.folder import RunFolder, load
from netfold.sim.results.metrics import (
    ALL,
    ANSWERING,
    COMPARISON,
    RATIOS,
    SORTS,
    TYPES,
    Values,
    has_trained,
    is_lossy,
)
from netfold.sim.results.summary import GOOD, NO_COMPUTE, kind

# The terminal's table of a run: one line per variant, and notes below.


SHARE_MIN = 0.005
"""Only the report shows parts below this share of the aggregation time."""
TABLE_COLUMNS = 100
"""The width that the table of a run keeps to."""
BOUND_LABEL = "wire bound"  # how the label of a computed bound begins


def results_table(
    summary: Mapping[str, Any],
    more_notes: Sequence[str] = (),
    columns: str = "",
    is_verbose: bool = False,
) -> Table:
    """Table of a run's `summary.json`; ratios are within variants of equal workload.

    `more_notes` are of `run.json`. `columns` are names of metrics, with commas between them, or "all"; by
    default those that answer the question, as many as fit into `TABLE_COLUMNS`.

    Raises
    ------
    DataError
        There is no such metric.
    """
    variants = summary["variants"]
    groups, answered = groups_in(summary), answered_in(summary)
    times = times_baseline(groups)
    ratios = TableColumn(
        "× baseline",
        [times[variant["name"]] for variant in variants],
        is_right=True,
        is_ratio=True,
        note=legend(groups),
    )
    verdicts = [verdict_text(variant["verdict"]) for variant in variants]
    last = [TableColumn("verdict", verdicts, note="verdict: whether all checks hold")]
    if any(variant["bounds"] for variant in variants):
        bottlenecks = [Text(short(variant["bounds"])) for variant in variants]
        last.insert(0, TableColumn("bottleneck", bottlenecks, note=f"bottleneck: {_BOTTLENECK}"))
    names = [Text(variant["name"]) for variant in variants]  # brackets in Text are no markup
    others = [TableColumn("variant", names), ratios, *last]
    width = TABLE_COLUMNS - 1 - total_width(others)
    measured, beside, hidden_count = _measured(variants, groups, columns, width)
    at = 1 + next((index for index, column in enumerate(measured) if column.name == beside), len(measured))
    table_columns = [others[0], *measured[:at], ratios, *measured[at:], *last]
    explained = (
        table_columns if is_verbose else [*(part for part in measured if part.name == "target"), ratios]
    )
    notes = [
        *_without_compute(variants),
        "; ".join([column.note for column in explained if column.note] + _hidden(hidden_count)),
        *details_of(answered, is_brief=not is_verbose),
        *spreads(groups),
        *(_time_shares(variants) if is_verbose else ()),
        *_codec_events(variants),
        *lines(summary.get("jobs", [])),
        *_published_lines(variants),
        *_fusion_lines(variants),
        *_workers_held(variants),
        *_poor_sums(variants),
        *_injection_lines(summary["injected"]),
        *(f"note: {text}" for text in (*warnings(summary), *more_notes)),
    ]
    seeds = summary.get("seeds") or [summary["seed"]]
    heading = f"{summary['scenario']}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    return FittingTable(heading, notes, columns=table_columns, above=answers_and_outlook(answered))


def _measured(
    variants: Sequence[Mapping[str, Any]], groups: Sequence[Group], columns: str, width: int
) -> tuple[list[TableColumn], str, int]:
    """The columns of metrics, the metric of the one beside which ratios stand, and how many are not shown.

    Where no `columns` are named, those that matter most are shown, as many as fit into `width`.
    """
    metrics = [variant["metrics"] for variant in variants]
    left_out, beside = left_out_of(groups, metrics)
    names = require_metrics(columns)
    if columns and columns != ALL:
        left_out = set()
    if not columns:
        swap = {"iteration_time_us": "aggregation_time_us"} if "iteration_time_us" in left_out else {}
        wanted = (name for group in groups for name in ANSWERING[group.question.name])
        names = list(dict.fromkeys(swap.get(name, name) for name in wanted))
        if is_error_wanted := "nmse" in names and any(map(_has_poor_sums, metrics)):
            first, *others = (name for name in names if name not in left_out)
            names = [first, "nmse", *(name for name in others if name != "nmse")]
    if beside not in names:
        beside = next((name for name in names if name not in left_out), "")
    step_alone = {"iteration_time_us": lambda values: words.time(values["iteration_time_us"])}
    measured = metric_columns(names, metrics, left_out, writers=step_alone)
    if columns:
        return measured, beside, 0
    columns_count = len(measured)
    while len(measured) > 1 + is_error_wanted and total_width(measured) > width:
        measured.pop()
    in_order = sorted(measured, key=lambda column: list(TYPES).index(column.name))
    return in_order, beside, columns_count - len(measured)


def _hidden(count: int) -> list[str]:
    return [f"{words.format_count(count, 'more column')}: --columns all"] if count else []


_POOR_NMSE = 0.1
"""Error of sums, relative to the square of the true ones, from which a speed alone says little."""


def _has_poor_sums(metrics: Values) -> bool:
    return is_lossy(metrics) and (metrics["nmse"] or 0.0) >= _POOR_NMSE


def _poor_sums(variants: list[dict[str, Any]]) -> list[str]:
    """A line that names the variants whose sums are far from the true ones, and that train nothing."""
    names = [
        variant["name"]
        for variant in variants
        if _has_poor_sums(variant["metrics"]) and not has_trained(variant["metrics"])
    ]
    if not names:
        return []
    return [
        f"note: the error of the sums of {listed(names)} is large (NMSE of {_POOR_NMSE:g} or more); only a "
        "workload that trains can say whether a model learns from them"
    ]


def _without_compute(variants: list[dict[str, Any]]) -> list[str]:
    """Lines that name the variants whose steps are their aggregation alone."""
    named: dict[str, list[str]] = {}
    for variant in variants:
        if compute := variant.get("compute"):
            named.setdefault(compute, []).append(variant["name"])
    hints = {NO_COMPUTE: "; with a device, such as device: a100, a model's compute takes time"}
    return [
        f"{text}{'' if len(names) == len(variants) else ' in ' + ', '.join(names)}: a step takes as long as "
        f"its aggregation{hints.get(text, '')}"
        for text, names in named.items()
    ]


def _published_lines(variants: list[dict[str, Any]]) -> list[str]:
    """A line for every published figure; only the report shows bounds."""
    return [
        f"{entry['label']} for {variant['name']}: {words.scaled(entry['elements_per_s'], '')} elements/s, "
        f"{entry['source']}"
        for variant in variants
        for entry in variant["references"]
        if not entry["label"].startswith(BOUND_LABEL)
    ]


def _fusion_lines(variants: list[dict[str, Any]]) -> list[str]:
    """A line for every variant whose step was predicted from the buckets that its layers are in."""
    return [
        f"fusion of {variant['name']} ({variant['fusion']['rule']}): "
        f"{words.format_count(variant['fusion']['layers'], 'layer')} in "
        f"{words.format_count(len(variant['fusion']['buckets']), 'bucket')}; a step was predicted to take "
        f"{words.time(metrics['predicted_iteration_time_us'])}, and takes "
        f"{words.time(metrics['iteration_time_us'])}"
        for variant in variants
        if "fusion" in variant
        for metrics in [variant["metrics"]]
    ]


def _workers_held(variants: list[dict[str, Any]]) -> list[str]:
    """A line for every variant in which some result does not hold all workers."""
    return [
        f"{variant['name']}: workers held, {metrics['workers_held_min']} at least, "
        f"{words.digits(metrics['workers_held_mean'])} of {metrics['workers']} on average"
        for variant in variants
        if words.lacks_workers(metrics := variant["metrics"])
    ]


def _codec_events(variants: list[dict[str, Any]]) -> list[str]:
    """A line for every variant whose codec reported notes."""
    return [
        f"{variant['name']}: {events}"
        for variant in variants
        if (events := words.codec_events(variant["metrics"]))
    ]


def _time_shares(variants: list[dict[str, Any]]) -> list[str]:
    """A line for every variant whose aggregation time has more than one part."""
    lines = []
    for variant in variants:
        shares: dict[str, float] = {}
        for row in words.parts(variant["metrics"]):
            name = row["label"] if row["phase"] == "network" else row["phase"]
            shares[name] = shares.get(name, 0.0) + (row["share"] or 0.0)
        names = [name for name, share in shares.items() if share >= SHARE_MIN]
        if len(names) > 1:
            text = ", ".join(f"{name} {100 * shares[name]:.0f} %" for name in names)
            lines.append(f"time of {variant['name']}: {text}")
    return lines


def _injection_lines(entries: list[dict[str, Any]]) -> list[str]:
    """A line for every fault."""
    return [
        f"injected into {entry['variant']}: {entry['kind']} on {entry['where']}, {words.injected(entry)}"
        for entry in entries
    ]


def verdict_text(verdict: str) -> Text:
    styles = {"pass": "green", "approximate": "bold cyan", "stalled": "bold yellow"}
    return Text(verdict, style=styles.get(kind(verdict), "bold red"))


_BOTTLENECK = "the largest part of the aggregation time, and how many further links were as busy (+)"
_LEGEND = (
    f"aggregation, iteration: mean per step; bottleneck: {_BOTTLENECK}; bytes/worker: sent by a worker, mean "
    "per step; × baseline: the figure to its left over the baseline's, so that of elements/s is the speedup "
    "of the aggregation"
)
_KEYS_COUNT = 3
"""The key columns of the table: rank, run and variant."""
_COLUMNS = ("rank", "run", "variant", "group", "verdict", "against", "bottleneck")
"""The columns of the frame before the metrics."""


@dataclass(frozen=True)
class VariantRow:
    run: str  # "<scenario>/<folder>"
    variant: str
    verdict: str
    group: str  # what it has in common with the variants that it is compared with; empty if that is all
    against: str  # "<scenario>/<folder> <variant>": what the ratios divide by; empty: nothing
    metrics: dict[str, Any]
    ratios: dict[str, float | None]  # this over the baseline's; None where either failed, is missing or 0
    rank: int | None
    """The rank in its group, from 1, equal ones alike; None if a check failed, or without the metric."""
    bottleneck: str  # the largest part of the aggregation time, in short
    parts: tuple[Mapping[str, Any], ...]  # all parts, the largest first; see `sim/checks/bottleneck.py`


@dataclass(frozen=True, repr=False)
class Comparison(VerbResult):
    """Rows in their order, and notes on everything that makes them less comparable.

    Attributes
    ----------
    baseline
        The run that the ratios divide by; of a single run, `<run> <variant>`.
    sort
        The order of the rows, and the metric of their ranks: one of `metrics.SORTS`. "given": the rows are in
        the order of the runs, and ranked by what their group is: the time to the target, of whole steps where
        buckets differ, or of the aggregation.
    """

    baseline: str
    rows: tuple[VariantRow, ...]
    notes: tuple[str, ...]
    runs: tuple[str, ...]  # names, by number
    sort: str = AS_GIVEN
    groups: tuple[Group, ...] = ()
    """Groups of variants that are compared with each other."""
    jobs: tuple[Mapping[str, Any], ...] = ()
    """What the summary says of jobs that come and go, for each variant with such jobs, and its run."""
    answers: tuple[str, ...] = ()
    """Who comes first in each group, by what the group is asked."""
    folders: tuple[RunFolder, ...] = field(default=(), repr=False, compare=False)
    """The runs, by number."""

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints; `jobs` only if there are any."""
        comparison = asdict(replace(self, groups=(), folders=()))
        left_out = {"groups", "folders"} if self.jobs else {"groups", "folders", "jobs"}
        return {name: value for name, value in comparison.items() if name not in left_out}

    @property
    def frame(self) -> pl.DataFrame:
        """A row each: rank, run, variant, group, verdict, against, bottleneck, metrics, `<metric>_ratio`."""
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
        columns = self.columns()
        keys_count = _KEYS_COUNT + any(column.heading == "group" for column in columns)
        return FittingTable("", self._legend(), keys_count, columns, self.answers)

    def columns(self) -> list[TableColumn]:
        """The columns of the table."""
        rows = self.rows
        is_grouped = len({row.group for row in rows}) > 1
        left_out = () if any(group.has_skew for group in self.groups) else ("since_last_rank_us",)
        beside = {
            name: TableColumn(
                "× baseline",
                [words.times(row.ratios[name]) for row in rows],
                is_right=True,
                is_ratio=True,
                values=[row.ratios[name] for row in rows],
            )
            for name in ("aggregation_elements_per_s", "iteration_time_us", "wire_bytes_up_per_worker")
        }
        beside["aggregation_time_us"] = TableColumn(
            "bottleneck", [Text(row.bottleneck) for row in rows], is_number=False
        )
        ranked_by = [SORTS[self.sort].name] if self.sort in SORTS else []
        metrics = [row.metrics for row in rows]
        names = list(dict.fromkeys((*COMPARISON, *priced(metrics), *ranked_by)))
        return [
            TableColumn("#", [self._ranked(row) for row in rows], is_right=True),
            TableColumn("run", [str(1 + self.runs.index(row.run)) for row in rows], is_right=True),
            TableColumn("variant", [Text(row.variant) for row in rows], is_number=False),
            *(
                [TableColumn("group", [Text(row.group) for row in rows], is_number=False)]
                if is_grouped
                else []
            ),
            *metric_columns(names, metrics, left_out, beside),
            TableColumn("verdict", [verdict_text(row.verdict) for row in rows], is_number=False),
        ]

    def report(
        self,
        folder: str | os.PathLike[str],
        figure: str = "",
        width_inches: float | None = None,
        out: Path | None = None,
    ) -> Path:
        """Write a page about all variants of all runs, and its figures, into a folder; returns its path.

        With the name of a `figure`, write only that one, as PDF of this width, or into the file `out`.

        Raises
        ------
        DataError
            There is one run, which has a report of its own; or the folder is that of a run or a sweep, or
            something else has the place of a file.
        UnwrittenError
            The folder cannot be written.
        """
        from netfold.sim.report.html_report import write_comparison  # late: matplotlib is slow to import

        if len(self.folders) == 1:
            raise DataError(
                f"{self.runs[0]}: no other run to compare with",
                "give different runs, or report this one alone",
            )
        page = SideBySide(self.folders, self.notes, self.baseline, self.columns())
        return write_comparison(page, Path(folder), figure, width_inches, out)

    def draw(self) -> Svg | None:
        """SVG of the aggregation times, the best rank first, split by what bounds them.

        None if no variant took time.
        """
        from netfold.sim.report import ranked_bars as figure  # late: matplotlib is slow to import
        from netfold.sim.report.style import house_style, to_svg

        several = len(self.runs) > 1
        bars = [
            figure.VariantBar(
                name=f"{1 + self.runs.index(row.run)} {row.variant}" if several else row.variant,
                time_us=row.metrics["aggregation_time_us"] or 0.0,
                note=words.times(row.ratios["aggregation_elements_per_s"]),
                parts=row.parts,
                is_sound=kind(row.verdict) in GOOD,
            )
            for row in sorted(self.rows, key=lambda row: (row.group, row.rank is None, row.rank or 0))
        ]
        with house_style():
            chart = figure.ranked_bars(bars, "Aggregation time and its parts, and × baseline of the rate")
            return None if chart is None else to_svg(chart)

    def _ranked(self, row: VariantRow) -> str:
        """The rank of a row in its group, and whether others share it."""
        if row.rank is None:
            return words.NOTHING
        alike = sum((other.group, other.rank) == (row.group, row.rank) for other in self.rows)
        return f"{row.rank}, tie" if alike > 1 else str(row.rank)

    def _legend(self) -> list[str]:
        several = len(self.runs) > 1
        runs = [f"{number}  {name}{self._mark(name)}" for number, name in enumerate(self.runs, start=1)]
        explanations = [
            f"{row.variant}{f' of run {1 + self.runs.index(row.run)}' if several else ''}: {text}"
            for row in self.rows
            if (text := sentence(row.parts))
        ]
        coming = [
            f"{line} (run {1 + self.runs.index(overview['run'])})" if several else line
            for overview, line in zip(self.jobs, lines(self.jobs), strict=True)
        ]
        if coming:
            coming.insert(0, JOBS_LEGEND)
        by = [f"ranked by {what}" for what in dict.fromkeys(group.question.by for group in self.groups)]
        return [
            _LEGEND,
            *(by if self.sort == AS_GIVEN else ()),
            *runs,
            *explanations,
            *coming,
            *(f"note: {note}" for note in self.notes),
        ]

    def _mark(self, name: str) -> str:
        """The mark of the baseline: a run, or one variant of it."""
        if self.baseline == name:
            variants = dict.fromkeys(row.against.removeprefix(f"{name} ") for row in self.rows if row.against)
            return (
                "  (baseline)"
                if len(self.runs) > 1 or not variants
                else f"  (baseline: {', '.join(variants)})"
            )
        variant = self.baseline.removeprefix(f"{name} ")
        return "" if variant == self.baseline else f"  (baseline: {variant})"


def _check_sort(sort: str) -> None:
    known = [*SORTS, AS_GIVEN]
    if sort not in known:
        raise DataError(f"--sort {sort}: there is no such order", names_hint(sort, known, "orders"))


def compare(runs: Sequence[Path], baseline: Path | None = None, sort: str = AS_GIVEN) -> Comparison:
    _check_sort(sort)
    if not runs:
        raise DataError("no run to compare", "give one or more run folders, such as runs/latest")
    loaded = list({run.path: run for run in map(load, runs)}.values())  # given twice: counts once
    base = baseline_of(baseline, loaded)
    if all(run.path != base.run.path for run in loaded):
        loaded.insert(0, base.run)
    loaded = _told_apart(loaded)
    base = replace(base, run=next(run for run in loaded if run.path == base.run.path))
    require_comparable(loaded, base.run)
    groups = tuple(groups_of([variant for run in loaded for variant in run.summary["variants"]]))
    rows = [_row(run, variant, base, groups) for run in loaded for variant in run.summary["variants"]]
    notes = tuple(note for run in loaded for note in (*notes_on(run, base), *_undivided(rows, name_of(run))))
    names = tuple(dict.fromkeys(row.run for row in rows))
    jobs = tuple(
        {"run": name_of(run), **overview} for run in loaded for overview in run.summary.get("jobs", [])
    )
    against = {row.against for row in rows if row.against}
    name = base.name if len(loaded) > 1 or len(against) != 1 else against.pop()
    ranked = tuple(_ranked(rows, sort, groups))
    asked = loaded[0] if len(loaded) == 1 else joined(loaded)
    told = tuple(answers_and_outlook(answered_in(asked.summary)))
    return Comparison(name, ranked, notes, names, sort, groups, jobs, told, tuple(loaded))


def _told_apart(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Runs with labels: their names, or their paths where several have the same name."""
    names = [name_of(run) for run in runs]
    return [
        replace(run, label=str(run.path) if names.count(name) > 1 else name)
        for run, name in zip(runs, names, strict=True)
    ]


def _row(run: RunFolder, variant: dict[str, Any], base: Baseline, groups: Sequence[Group]) -> VariantRow:
    group = next(group for group in groups if any(member is variant for member in group.members))
    against = base.against(variant, group)
    parts = tuple(variant["bounds"])
    is_sound = against is not None and {kind(variant["verdict"]), kind(against["verdict"])} <= {*GOOD}
    return VariantRow(
        run=name_of(run),
        variant=variant["name"],
        verdict=variant["verdict"],
        group=group.label,
        against="" if against is None else f"{name_of(base.run)} {against['name']}",
        metrics=variant["metrics"],
        ratios={
            metric: words.ratio(variant["metrics"][metric], against["metrics"][metric])
            if is_sound and against is not None
            else None
            for metric in RATIOS
        },
        rank=None,
        bottleneck=short(parts),
        parts=parts,
    )


def _undivided(rows: Sequence[VariantRow], run: str) -> list[str]:
    """One note on all variants of a run whose workload no variant of the baseline has."""
    names = ", ".join(f"'{row.variant}'" for row in rows if row.run == run and not row.against)
    return [f"{run}: the baseline has no variant with the workload of {names}: not divided"] if names else []


def _ranked(rows: list[VariantRow], sort: str, groups: Sequence[Group]) -> list[VariantRow]:
    """The rows in their order, with their ranks: by group, and there by the metric."""
    by = {group.label: group.question.metric for group in groups}
    keys = [order_key(sort if sort != AS_GIVEN else by[row.group])(row.verdict, row.metrics) for row in rows]
    order = sorted(range(len(rows)), key=lambda index: (rows[index].group, keys[index]))
    ranked = {}
    for index in order:
        alike = [keys[other][2] for other in order if rows[other].group == rows[index].group]
        is_ranked = keys[index][:2] == (False, False)
        ranked[index] = replace(rows[index], rank=rank(keys[index][2], alike) if is_ranked else None)
    return [ranked[index] for index in (range(len(rows)) if sort == AS_GIVEN else order)]


# The baseline of a comparison, and what makes runs less comparable with it.


@dataclass(frozen=True)
class Baseline:
    """A run; with `variant`, that variant of it for all of its group."""

    run: RunFolder
    variant: str = ""
    is_only: bool = False  # there is no other run

    @property
    def name(self) -> str:
        return f"{name_of(self.run)} {self.variant}".rstrip()

    def against(self, variant: Entry, group: Group) -> Entry | None:
        # The variant to divide by: the wanted one; if none is wanted, that of the same name; or else the
        # group's baseline in this run.
        mine = [
            member
            for member in self.run.summary["variants"]
            if any(member is other for other in group.members)
        ]
        wanted = self.variant or ("" if self.is_only else variant["name"])
        same = next((member for member in mine if member["name"] == wanted), None)
        named = self.run.summary.get("baseline")
        return same or (Group(group.label, tuple(mine), named).baseline if mine else None)


def baseline_of(given: Path | None, loaded: Sequence[RunFolder]) -> Baseline:
    """The baseline that is given: a folder, which wins; a run's number in the table; or a variant's name.

    Of a single run it is the baseline of each group, by default.

    Raises
    ------
    DataError
        There is no such folder, number or variant.
    """
    only = Baseline(loaded[0], is_only=len(loaded) == 1)
    if given is None:
        return only
    text = str(given)
    if not given.exists():
        for run in loaded:
            if text in _variants(run):
                return Baseline(run, text)
        if text.isdecimal():
            return replace(only, run=_numbered(text, loaded))
    if not given.exists() and given.name == text and text not in ("latest", "latest.txt"):
        names = list(dict.fromkeys(name for run in loaded for name in _variants(run)))
        raise DataError(
            f"--baseline {text}: there is no run folder and no variant of this name",
            names_hint(text, names, "variants"),
        )
    run = load(given)
    return only if run.path == loaded[0].path else Baseline(run)


def _variants(run: RunFolder) -> list[str]:
    return [variant["name"] for variant in run.summary["variants"]]


def _numbered(text: str, loaded: Sequence[RunFolder]) -> RunFolder:
    """The run with this number in the table."""
    if len(text) > 9 or not 1 <= int(text) <= len(loaded):
        raise DataError(
            f"--baseline {text}: there is no run of this number",
            f"give 1{f' to {len(loaded)}' if len(loaded) > 1 else ''}, or a run folder",
        )
    return loaded[int(text) - 1]


def name_of(run: RunFolder) -> str:
    return run.label or f"{run.summary['scenario']}/{run.path.name}"


def require_comparable(runs: Sequence[RunFolder], base: RunFolder) -> None:
    """Require that all runs computed with the same instructions, where that is known.

    Raises
    ------
    DataError
        One has not.
    """
    right = recorded(base.circumstances)
    for run in runs:
        instruction_set = recorded(run.circumstances)
        if instruction_set is not None and right is not None and instruction_set.isa != right.isa:
            raise DataError(
                f"cannot compare {name_of(run)}, computed with {instruction_set.isa}, "
                f"with {name_of(base)}, computed with {right.isa}",
                "their results differ by the processor: run both on one processor, and without --native",
            )


def notes_on(run: RunFolder, base: Baseline) -> list[str]:
    """Differences from the baseline's circumstances, and reasons not to rely on the results."""
    mine, theirs = _circumstances(run), _circumstances(base.run)
    notes = [
        f"{name_of(run)}: {what} {mine[what]}, the baseline has {theirs[what]}"
        for what in mine
        if mine[what] != theirs[what]
    ]
    if mine["scenario"] != theirs["scenario"]:
        notes = [
            f"{name_of(run)}: another scenario; variants that the baseline lacks are compared with its own "
            "baseline, if that has an equal workload"
        ]
    else:
        notes += [*_other_inputs(run, base.run), *([] if base.variant else _unmatched(run, base.run))]
    notes += _other_workers(run, base)
    notes += [f"{name_of(run)}: {note}" for note in note_of(run.circumstances)]
    if left := ", ".join(f"'{name}'" for name in run.summary.get("unfinished", ())):
        notes.append(f"{name_of(run)}: unfinished, {left} did not run to the end")
    kinds = {variant["name"]: kind(variant["verdict"]) for variant in run.summary["variants"]}
    if set(kinds.values()) - {*GOOD, "stalled"}:
        notes.append(f"{name_of(run)}: a check failed, do not rely on its numbers")
    for outcome, meaning in (
        ("stalled", "stalled, the numbers are those of the finished steps"),
        ("approximate", "approximate, some elements are estimates without an error bound"),
    ):
        names = ", ".join(f"'{name}'" for name, verdict in kinds.items() if verdict == outcome)
        notes += [f"{name_of(run)}: {names} {meaning}"] if names else []
    return notes


def _other_inputs(run: RunFolder, base: RunFolder) -> list[str]:
    """One note for every named file whose content differs in the baseline."""
    mine, theirs = (
        {file["path"]: file["sha256"] for file in both.summary.get("inputs", ())} for both in (run, base)
    )
    return [
        f"{name_of(run)}: {path} with sha256 {mine[path][:12]}, the baseline has {theirs[path][:12]}"
        for path in mine
        if mine[path] != theirs.get(path, mine[path])
    ]


def _unmatched(run: RunFolder, base: RunFolder) -> list[str]:
    """One note on all variants that the baseline lacks."""
    names = [variant["name"] for variant in base.summary["variants"]]
    missing = [f"'{entry['name']}'" for entry in run.summary["variants"] if entry["name"] not in names]
    if not missing:
        return []
    what = f"variant{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return [f"{name_of(run)}: the baseline has no {what}, compared with its own baseline"]


def _other_workers(run: RunFolder, base: Baseline) -> list[str]:
    """One note on all variants that have other workers than the baseline's of the same name."""
    theirs = {entry["name"]: entry["metrics"]["workers"] for entry in base.run.summary["variants"]}
    differing = [
        f"'{name}' has {mine}, '{name}' of the baseline {theirs[name]}"
        for entry in run.summary["variants"]
        if (mine := entry["metrics"]["workers"]) != theirs.get(name := entry["name"], mine)
    ]
    return [f"{name_of(run)}: other numbers of workers: {'; '.join(differing)}"] if differing else []


def _circumstances(run: RunFolder) -> dict[str, str]:
    """Properties that two runs must share for their ratios to mean something, by their names in a note."""
    return {
        "scenario": run.summary["scenario"],
        "seed": str(run.summary["seed"]),
        "scenario file with sha256": run.circumstances["scenario_sha256"][:12],
        "--set": ", ".join(run.summary["sets"]) or "nothing",
        "netfold version": run.circumstances["version"],
    }
