"""What a sweep shows: figures, one for each metric, a page, and a table.

The second key makes the columns of a figure, the third its rows; further keys are part of a line's name. A
line is the mean over the seeds, and the band around it their range.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from rich.table import Table
from rich.text import Text

from netfold.errors import DataError, NetfoldError
from netfold.sim import files
from netfold.sim.files import UnreadableError, read_bytes, require_threads
from netfold.sim.report import style, words
from netfold.sim.report.answer import TIME_TO_TARGET, Group, answer, listed
from netfold.sim.report.hover_text import mark_points
from netfold.sim.report.html_page import inlined, template_of
from netfold.sim.report.html_report import write_figure, write_pages
from netfold.sim.report.result_display import VerbResult
from netfold.sim.results.folder import (
    SWEEP,
    TABLE_BYTES_MAX,
    TEXT_BYTES_MAX,
    is_sweep,
    resolve_latest,
    to_json,
)
from netfold.sim.results.metrics import BY_NAME, SWEEP_FIRST, TO_TARGET, TYPES, Unit, is_tested
from netfold.sim.results.summary import GOOD, kind
from netfold.sim.studies.sweep_points import Point
from netfold.sim.studies.sweep_workers import TaskOutcome
from netfold.units import RATE, SIZE, TIME, Quantity, parse_fraction

# The table of a sweep as a grid, and its keys and metrics in words.


_QUANTITIES: dict[str, Quantity] = {"_bps": RATE, "_ps": TIME, "_bytes": SIZE}


@dataclass(frozen=True)
class Grid:
    """The table of a sweep, and its swept keys: path and column."""

    frame: pl.DataFrame
    keys: tuple[tuple[str, str], ...]

    @cached_property
    def done(self) -> pl.DataFrame:
        return self.frame.filter(pl.col("status") == "done")

    @cached_property
    def good(self) -> pl.DataFrame:
        return self.done.filter(pl.col("verdict").str.split(":").list.first().is_in(GOOD))

    @cached_property
    def ordered(self) -> list[tuple[str, str]]:
        """The keys, that of the horizontal axis first: the first that has numbers."""
        first = next((key for key in self.keys if self.is_number(key[1])), None)
        return sorted(self.keys, key=lambda key: key is not first)

    def is_number(self, column: str) -> bool:
        # One number alone is not worth an axis.
        return self.frame[column].dtype.is_numeric() and self.frame[column].n_unique() > 1

    def values(self, column: str) -> list[Any]:
        return self.frame[column].unique(maintain_order=True).to_list()  # keeps the order of the sweep


def metrics_of(grid: Grid) -> list[str]:
    """The metrics that are numbers and differ between points or variants, headlines first."""
    swept = {column for _, column in grid.keys}
    names = [name for name, kind in TYPES.items() if kind in (int, float) and name not in swept]
    names.sort(key=lambda name: SWEEP_FIRST.index(name) if name in SWEEP_FIRST else len(SWEEP_FIRST))
    return [
        name for name in names if name in grid.done.columns and grid.done[name].drop_nulls().n_unique() > 1
    ]


def value_text(column: str, value: Any) -> str:
    """A value of a key as a person writes it: "10Gbps"."""
    if value is None:
        return words.NOTHING
    quantity = next((unit for end, unit in _QUANTITIES.items() if column.endswith(end)), None)
    if quantity is not None and isinstance(value, int):
        return quantity.format(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def metric_text(name: str) -> Callable[[float], str]:
    """What writes a value of a metric on an axis."""
    match BY_NAME[name].unit:
        case Unit.TIME:
            return words.time
        case Unit.BYTES:
            return lambda value: words.scaled(value, "B")
        case Unit.RATE:
            return lambda value: words.scaled(value, "/s")
    return lambda value: words.scaled(value, "") if abs(value) >= 1 or value == 0 else f"{value:.3g}"


_LOOKS = tuple(zip((*style.VARIANT_COLOURS, style.MIDDLE_GREY), style.MARKERS, strict=True))
_COLUMNS_MAX = 3
"""The most columns of a figure whose facets have one key."""
_ROW_INCHES, _REST_INCHES = 2.5, 0.75
_DECADE = 10.0
"""An axis is logarithmic from this ratio of its largest and smallest value on."""
_TICKS_MAX = 8
_BAD = "failed or stalled"


def sweep_figures(grid: Grid) -> dict[str, bytes]:
    """SVG of each metric, by file name, headlines first."""
    with style.house_style():
        return {f"{name}.svg": style.to_svg(draw(grid, name)) for name in metrics_of(grid)}


def draw(grid: Grid, metric: str) -> Figure:
    x, *others = grid.ordered or [("seed", "seed")]
    columns, rows = (others[key_index] if len(others) > key_index else None for key_index in (0, 1))
    facets = _facets(grid, columns, rows)
    height, width = len(facets), len(facets[0])
    count = sum(facet is not None for row in facets for facet in row)
    figure = style.new_figure(_REST_INCHES + _ROW_INCHES * height)
    figure.suptitle(BY_NAME[metric].title.capitalize(), x=0.01, ha="left", fontweight="bold")
    axes = figure.subplots(height, width, sharex=True, sharey=True, squeeze=False)
    lines = _lines(grid, others[2:])
    legend: dict[str, Any] = {}
    ticks = _Ticks(grid, x)
    for panel_index, facet in enumerate(itertools.chain(*facets)):
        panel = axes[panel_index // width][panel_index % width]
        if facet is None:
            panel.remove()
            continue
        panel.set_title(facet.title, fontsize=9, fontweight="normal")
        panel.grid(color=style.LIGHT_GREY, linewidth=0.6)
        part = grid.done.filter(facet.condition)
        if metric in TO_TARGET:
            same_point = ["variant", *(column for _, column in grid.keys)]
            part = part.filter(pl.col(metric).is_not_null().all().over(same_point))
        for line, looks in zip(lines, itertools.cycle(_LOOKS)):
            legend |= _plot(panel, ticks, part.filter(line.condition), metric, (line.title, *looks))
        if panel_index + width >= count:  # nothing is below it
            panel.set_xlabel(x[0])
            panel.tick_params(labelbottom=True)
    _scale(axes[0][0], ticks, metric, grid.done[metric])
    for line, (colour, mark) in zip(lines, itertools.cycle(_LOOKS)):
        if metric in TO_TARGET and (note := _missed(grid.good.filter(line.condition), metric)):
            handle = legend.pop(line.title, Line2D([], [], color=colour, marker=mark, markersize=4))
            legend[f"{line.title} {note}"] = handle
    if _BAD in legend:
        legend[_BAD] = legend.pop(_BAD)  # last
    style.legend_below(figure, list(legend.values()), list(legend))
    return figure


def _missed(rows: pl.DataFrame, metric: str) -> str:
    """What the legend says of a variant that misses its target."""
    aiming = rows.filter(pl.col("target").is_not_null())
    missing = aiming[metric].null_count()
    if not missing:
        return ""
    return "(misses the target)" if missing == aiming.height else "(misses the target at some points)"


@dataclass(frozen=True)
class _Part:
    """Rows of the table, and what they are."""

    title: str
    condition: pl.Expr


def _parts(grid: Grid, key: tuple[str, str] | None) -> list[_Part]:
    if key is None:
        return [_Part("", pl.lit(True))]
    path, column = key
    return [
        _Part(f"{path} = {value_text(column, value)}", pl.col(column).eq_missing(pl.lit(value)))
        for value in grid.values(column)
    ]


def _both(first: _Part, other: _Part) -> _Part:
    title = ", ".join(part.title for part in (first, other) if part.title)
    return _Part(title, first.condition & other.condition)


def _facets(
    grid: Grid, columns: tuple[str, str] | None, rows: tuple[str, str] | None
) -> list[list[_Part | None]]:
    """The facets of a figure by row; those of one key go on in further rows."""
    across = _parts(grid, columns)
    if rows is not None:
        return [[_both(column, down) for column in across] for down in _parts(grid, rows)]
    width = len(across) if len(across) <= _COLUMNS_MAX else math.ceil(len(across) / _row_count(len(across)))
    filled: list[_Part | None] = [*across, *[None] * (-len(across) % width)]
    return [filled[start : start + width] for start in range(0, len(filled), width)]


def _row_count(facets_count: int) -> int:
    return math.ceil(facets_count / _COLUMNS_MAX)


def _lines(grid: Grid, keys: Sequence[tuple[str, str]]) -> list[_Part]:
    """A line for every variant and value of the keys that are left."""
    lines = [_Part(str(name), pl.col("variant") == name) for name in grid.values("variant")]
    for key in keys:
        lines = [_both(line, part) for line in lines for part in _parts(grid, key)]
    return lines


class _Ticks:
    """The horizontal axis: its values, and where they are."""

    def __init__(self, grid: Grid, key: tuple[str, str]) -> None:
        _, self.column = key
        grid_values = grid.values(self.column)
        self._is_number = grid.is_number(self.column) and self.column != "seed"  # seeds have no scale
        self.values = sorted(grid_values) if self._is_number else grid_values
        numbers = [value for value in self.values if self._is_number]
        self.is_logarithmic = bool(numbers) and min(numbers) > 0 and max(numbers) >= _DECADE * min(numbers)

    def place(self, value: Any) -> float:
        return float(value) if self._is_number else float(self.values.index(value))

    def put_on(self, axes: Axes) -> None:
        """Set the scale, and mark the values or, of many, some."""
        if self.is_logarithmic:
            axes.set_xscale("log")
        step = math.ceil(len(self.values) / _TICKS_MAX)
        values_shown = self.values[::step]
        axes.set_xticks(
            [self.place(value) for value in values_shown],
            [value_text(self.column, value) for value in values_shown],
        )
        axes.xaxis.set_minor_locator(NullLocator())


def _plot(
    axes: Axes, ticks: _Ticks, rows: pl.DataFrame, metric: str, looks: tuple[str, str, str]
) -> dict[str, Any]:
    """Draw a line with the range of its seeds; returns what the legend shows."""
    name, colour, mark = looks
    measured_rows = rows.filter(pl.col(metric).is_not_null())
    points = (
        measured_rows.group_by(ticks.column, maintain_order=True)
        .agg(
            pl.col(metric).cast(pl.Float64).mean().alias("mean"),
            pl.col(metric).cast(pl.Float64).min().alias("least"),
            pl.col(metric).cast(pl.Float64).max().alias("most"),
            (~pl.col("verdict").str.split(":").list.first().is_in(GOOD)).any().alias("bad"),
        )
        .rows()
    )
    if not points:
        return {}
    placed = sorted((ticks.place(value), *others) for value, *others in points)
    x, mean, least, most, bad = (list(column) for column in zip(*placed, strict=True))
    if least != most:
        axes.fill_between(x, least, most, color=colour, alpha=0.18, linewidth=0)
    marks = [
        {"variant": name, ticks.column: value_text(ticks.column, value), metric: height}
        for value, height in sorted(
            ((value, height) for value, height, *_ in points), key=lambda point: ticks.place(point[0])
        )
    ]
    mark_points(axes, list(zip(x, mean, strict=True)), marks)
    (line,) = axes.plot(x, mean, color=colour, marker=mark, markersize=4, linewidth=1.4)
    legend: dict[str, Any] = {name: line}
    wrong = [(position, value) for position, value, is_bad in zip(x, mean, bad, strict=True) if is_bad]
    if wrong:
        axes.plot(*zip(*wrong, strict=True), "x", color=style.BLACK, markersize=8)
        legend[_BAD] = Line2D([], [], marker="x", color=style.BLACK, linestyle="none")
    return legend


def _scale(axes: Axes, ticks: _Ticks, metric: str, values: pl.Series) -> None:
    """Set both scales, which all facets share."""
    ticks.put_on(axes)
    text = metric_text(metric)
    numbers = values.drop_nulls().cast(pl.Float64)
    least, most = float(numbers.min()), float(numbers.max())  # type: ignore[arg-type]  # there are some
    if least > 0 and most >= _DECADE * least:
        axes.set_yscale("log")
        digits = (1.0,) if most >= 1000 * least else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(subs=digits, numticks=_TICKS_MAX))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_ylim(bottom=0 if least >= 0 else None)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


# The folder of a sweep: written whole, read back, and its report, which is made from the folder alone.


FORMAT = 4
TABLE = "points.parquet"
ROWS_MAX = 100
"""The most rows of a table of the report."""
HEADINGS = ("fastest", "time", "which time", "bottleneck", "baseline", "× baseline")
_DAMAGED = "the folder is damaged or was changed: run the sweep again, its finished points are kept"


@dataclass(frozen=True)
class SweepResult(VerbResult):
    """A finished sweep, read from its folder; `print` shows the fastest variant of every point."""

    path: Path
    """Its folder."""
    summary: dict[str, Any]
    """The content of `sweep.json`."""
    version: str
    """The version of netfold that made it."""
    points: pl.DataFrame
    """A row for every point and variant (or job): the swept keys, seed, variant, status, verdict, error, and
    a column for every metric."""

    @property
    def grid(self) -> Grid:
        return Grid(self.points, tuple((key["path"], key["column"]) for key in self.summary["keys"]))

    @property
    def verdict(self) -> str:
        """The worst verdict of all points.

        It is pass, approximate: N entries, pass: N % of sums checked, pass: sums not checked, stalled or
        fail.
        """
        return str(self.summary["verdict"])

    @property
    def passes(self) -> bool:
        return kind(self.verdict) in GOOD

    def as_dict(self) -> dict[str, Any]:
        # The object that `netfold sweep --json` prints.
        return {**self.summary, "folder": str(self.path)}

    def report(self) -> Path:
        """Write `report.html` and its figures into the sweep's folder, or write them again; returns its path.

        Raises
        ------
        DataError
            Something else has the place of a file that is to be written.
        UnwrittenError
            The folder cannot be written.
        """
        svgs = sweep_figures(self.grid)
        return write_pages(self.path, svgs, _render(self, svgs))

    def write_figure(self, metric: str, width_inches: float | None = None, out: Path | None = None) -> Path:
        """Write the figure of a metric; see `write_figure`."""
        draw_metric = {name: partial(draw, self.grid, name) for name in metrics_of(self.grid)}
        return write_figure(self.path, draw_metric, metric, width_inches, out)

    def table(self) -> Table:
        """The fastest variant of every point, or of the first points of many."""
        rows = list(itertools.islice(fastest(self.grid), ROWS_MAX))
        group, cost = ([name] * any(row[name] for row in rows) for name in ("group", "cost"))
        cells = [*group, "variant", "time", "by", "bottleneck", "baseline", "times", *cost]
        table = Table(*(path for path, _ in self.grid.keys), *group, *HEADINGS, *cost)
        for row in rows:  # Text: brackets are no markup
            table.add_row(*map(Text, (*row["key"], *(row[name] for name in cells))))
        return table

    def tables(self) -> list[Table]:
        table = self.table()
        return [table] if table.row_count else []

    def lines(self) -> list[str]:
        return [
            *(
                f"point {point['point']}: {point['text']}: {point['status']}: {point['error'].strip()}"
                for point in self.summary["points"]
                if point["status"] != DONE
            ),
            *misses(self.grid)[:ROWS_MAX],
            f"{self.summary['scenario']}: {counts(self.summary)}: {self.verdict}",
            f"Table: {self.path}/{TABLE}",
        ]

    def __repr__(self) -> str:
        return f"<netfold sweep of {self.summary['scenario']}: {counts(self.summary)}, in {self.path}>"


def load_sweep(path: Path) -> SweepResult:
    """Read a sweep from its folder.

    Raises
    ------
    DataError
        It is no sweep's folder, or a file is missing, damaged or of another format.
    """
    require_threads()
    if not is_sweep(path):
        raise DataError(
            f"{path}: not a sweep's folder, it has no {SWEEP}", "give what `netfold sweep` printed"
        )
    path = path if (path / SWEEP).exists() else resolve_latest(path)
    try:
        content = json.loads(read_bytes(path / SWEEP, TEXT_BYTES_MAX))
        version = json.loads(read_bytes(path / "run.json", TEXT_BYTES_MAX))["version"]
        table = read_bytes(path / TABLE, TABLE_BYTES_MAX)
        file_format = content["format"]
        if file_format != FORMAT:
            hint = "run the sweep again, or use the version in run.json"
            raise DataError(f"{path}: has format {file_format}, this netfold reads {FORMAT}", hint)
        if hashlib.sha256(table).hexdigest() != content["tables"][TABLE]:
            raise DataError(f"{path / TABLE}: damaged: not the bytes that {SWEEP} names", _DAMAGED)
    except UnreadableError as error:
        raise DataError(f"{path}: a file cannot be read: {error.message}", _DAMAGED) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged: {type(error).__name__}: {error}", _DAMAGED) from None
    return SweepResult(path, content, str(version), pl.read_parquet(io.BytesIO(table)))


def write_sweep(folder: Path, contents: Mapping[str, bytes], content: Mapping[str, Any]) -> None:
    """Fill a sweep's folder: the files, and `sweep.json` with the digest of its table."""
    files.write_files(folder, contents)
    tables = {TABLE: hashlib.sha256(contents[TABLE]).hexdigest()}
    files.write_file(folder / SWEEP, to_json({"format": FORMAT, **content, "tables": tables}))


def _render(sweep: SweepResult, svgs: Mapping[str, bytes]) -> str:
    template = template_of(Path(__file__).with_name("sweep.html"))
    grid = sweep.grid
    shown = {
        name: inlined(name, svg, BY_NAME[name].title)
        for name, svg in ((file.removesuffix(".svg"), svg) for file, svg in svgs.items())
    }
    verdict = kind(sweep.summary["verdict"])
    return template.render(
        sweep=sweep.summary,
        version=sweep.version,
        kind=verdict,
        counts=counts(sweep.summary),
        swept=[
            {"path": path, "values": [value_text(column, value) for value in grid.values(column)]}
            for path, column in grid.keys
        ],
        without=[point for point in sweep.summary["points"] if point["status"] != "done"],
        fastest=list(fastest(grid)),
        headings=HEADINGS,
        misses=misses(grid)[:ROWS_MAX],
        headlines=[figure for name, figure in shown.items() if name in SWEEP_FIRST],
        others=[figure for name, figure in shown.items() if name not in SWEEP_FIRST],
        rows_max=ROWS_MAX,
    )


def counts(content: Mapping[str, Any]) -> str:
    """How many points ended how: "33 points done, 2 failed"."""
    tally = Counter(point["status"] for point in content["points"])
    parts = [f"{words.format_count(tally['done'], 'point')} done"]
    parts += [f"{tally[status]} {status}" for status in ("failed", "skipped") if tally[status]]
    return ", ".join(parts)


def fastest(grid: Grid) -> Iterator[dict[str, Any]]:
    """For every point and group of equal workload, over the seeds: the best variants, and × baseline."""
    columns = [column for _, column in grid.keys]
    if len(grid.values("variant")) < 2 or not columns:
        return
    is_priced = "cost_usd" in grid.good.columns and grid.good["cost_usd"].n_unique() > 1
    for group in grid.good.partition_by([*columns, "group"], maintain_order=True):
        first = group.row(0, named=True)
        means = (
            group.group_by("variant").agg(_mean_of_all(first["by"])).drop_nulls().sort(first["by"], "variant")
        )
        if means.is_empty():
            continue
        times = dict(means.rows())
        best, *others = [words.time(time) for time in times.values()]
        tied = list(times)[: 1 + others.count(best)]
        rows = {row["variant"]: row for row in reversed(group.to_dicts())}  # those of the first seed
        costs = [words.money(rows[name]["cost_usd"]) for name in tied] if is_priced else []
        yield {
            "key": [value_text(column, first[column]) for column in columns],
            "group": first["group"],
            "variant": " and ".join(tied) + (", a tie" if len(tied) > 1 else ""),
            "time": best,
            "time_us": times[tied[0]],
            "by": BY_NAME[first["by"]].title,
            "bottleneck": rows[tied[0]]["bottleneck"],
            "cost": " and ".join(costs),
            "baseline": first["baseline"] or words.NOTHING,
            "times": words.times(words.ratio(times.get(first["baseline"]), times[tied[0]])),
        }


def _aiming(grid: Grid) -> Iterator[tuple[str, Group]]:
    """Every point, over the seeds, and its variants that are ranked by the time to a target.

    As in a run, a variant whose checks hold misses the target if it does so with any seed.
    """
    aiming = grid.good.filter(pl.col("by") == TIME_TO_TARGET.metric)
    for part in aiming.partition_by([*(column for _, column in grid.keys), "group"], maintain_order=True):
        means = part.group_by("variant", maintain_order=True).agg(
            pl.first("verdict", "target", "test_metric"),
            pl.mean("test_score"),
            _mean_of_all(TIME_TO_TARGET.metric),
        )
        variants = (
            {"name": row["variant"], "verdict": row["verdict"], "metrics": row} for row in means.to_dicts()
        )
        point = ", ".join(f"{path}={value_text(column, part[column][0])}" for path, column in grid.keys)
        yield point, Group(part["group"][0], tuple(variants), asked=TIME_TO_TARGET.name)


def _mean_of_all(metric: str) -> pl.Expr:
    # Null if a seed has none.
    return pl.when(pl.col(metric).null_count() == 0).then(pl.col(metric).mean()).alias(metric)


def misses(grid: Grid) -> list[str]:
    """Which variants miss the target, at which points, and their scores at the end."""
    texts: list[str] = []
    totals: Counter[str] = Counter()  # points by group
    missed: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = defaultdict(dict)  # metrics by point
    for point, group in _aiming(grid):
        totals[group.label] += 1
        missing = {
            group.name(variant): variant["metrics"]
            for variant in group.members
            if group.value(variant) is None
        }
        if len(missing) == len(group.members):
            ends = ", ".join(f"{name} {_last_scores([metrics])}" for name, metrics in missing.items())
            texts.append(f"{f'{point}: ' if point else ''}{answer(group)}; at the end: {ends}")
        else:
            for name, metrics in missing.items():
                missed[group.label, name][point] = metrics
    alike: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for (label, name), by_point in missed.items():
        alike[(label, *by_point)][name] = _last_scores(by_point.values())
    for (label, *points), scores in alike.items():
        at = "every point" if len(points) == totals[label] else listed(points)
        verb = "misses" if len(scores) == 1 else "miss"
        text = f"{listed([*scores])} {verb} the target at {at} ({listed([*scores.values()])} at the end)"
        texts.append(f"{label}: {text}" if label else text)
    return texts


def _last_scores(variants: Iterable[Mapping[str, Any]]) -> str:
    """The score at the end, or the least and the greatest of several points."""
    scores = sorted(
        (metrics["test_score"], metrics["test_metric"]) for metrics in variants if is_tested(metrics)
    )
    ends = dict.fromkeys(words.score(metric, score) for score, metric in scores[:1] + scores[-1:])
    return " to ".join(ends) or words.NOTHING


# The table of a sweep: a row for every point and variant, a column for every swept key and metric.


DONE, FAILED, SKIPPED = "done", "failed", "skipped"
_TYPES: dict[type, pl.DataType] = {
    int: pl.Int64(),
    float: pl.Float64(),
    bool: pl.Boolean(),
    str: pl.String(),
}
_UNITS: tuple[tuple[str, Callable[[object], int | float], type], ...] = (
    ("_bps", RATE.parse, int),
    ("_ps", TIME.parse, int),
    ("_bytes", SIZE.parse, int),
    ("", parse_fraction, float),
)


@dataclass(frozen=True)
class SweptKey:
    path: str
    column: str  # the path, and the unit of its numbers
    type: type
    cells: tuple[Any, ...]
    """The values of the key, by point."""


@dataclass(frozen=True)
class PointResult:
    point: Point
    status: str  # DONE, FAILED, SKIPPED
    error: str = ""
    outcome: TaskOutcome = field(default_factory=TaskOutcome)


def keys_of(paths: Sequence[str], points: Sequence[Point]) -> list[SweptKey]:
    return [_key(path, [point.values[key_index] for point in points]) for key_index, path in enumerate(paths)]


def _key(path: str, values: Sequence[object]) -> SweptKey:
    # A column has one type: numbers in base units, or else text.
    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {int, float}:
        kind = float if float in kinds else int
        return SweptKey(path, path, kind, tuple(_cell(value, kind) for value in values))
    for suffix, parse, parsed in _UNITS if str in kinds and kinds <= {str, int, float} else ():
        try:
            cells = tuple(None if value is None else parse(value) for value in values)
        except NetfoldError:
            continue
        return SweptKey(path, path + suffix, parsed, cells)
    if kinds == {bool}:
        return SweptKey(path, path, bool, tuple(values))
    texts = (
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in values
    )
    return SweptKey(path, path, str, tuple(texts))


def points_frame(keys: Sequence[SweptKey], results: Sequence[PointResult]) -> pl.DataFrame:
    """A row for every point and variant (or job), in the order of the grid."""
    swept = {key.column: key for key in keys}
    metrics = {name: kind for name, kind in TYPES.items() if name not in swept}
    columns: dict[str, type] = {
        "point": int,
        **{name: key.type for name, key in swept.items()},
        **{"seed": int, "variant": str, "status": str, "verdict": str, "error": str},
        **{"group": str, "by": str, "baseline": str, "times_baseline": float, "bottleneck": str},
        **metrics,
    }
    rows = [
        {
            "point": result.point.number,
            **{name: key.cells[point_index] for name, key in swept.items()},
            "seed": result.point.seed,
            "status": result.status,
            "error": result.error or None,
            **row,
        }
        for point_index, result in enumerate(results)
        for row in _rows(result)
    ]
    return pl.DataFrame(
        {
            name: pl.Series(name, [_cell(row.get(name), kind) for row in rows], _TYPES[kind])
            for name, kind in columns.items()
        }
    )


def _rows(result: PointResult) -> Iterator[dict[str, Any]]:
    if result.outcome.rows:
        yield from result.outcome.rows
    else:
        yield from ({"variant": name} for name in result.point.names)


def _cell(value: Any, value_type: type) -> Any:
    # Ints may stand for floats.
    return float(value) if value_type is float and value is not None else value


def times_frame(results: Sequence[PointResult]) -> pl.DataFrame:
    """How long each point took, and where: what may differ when a sweep is repeated."""
    done = [result for result in results if result.status == DONE]
    return pl.DataFrame(
        {
            "point": pl.Series([result.point.number for result in done], dtype=pl.Int64),
            "wall_s": pl.Series([result.outcome.wall_s for result in done], dtype=pl.Float64),
            "host": pl.Series([result.outcome.host for result in done], dtype=pl.String),
        }
    )
