"""Columns of metrics: one statement for the terminal, for comparisons, and for the page.

Which metrics a table shows, and what a column is called, is in the table of metrics
(`results/metrics.py`). Here is how a value is written, and how a table fits its terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from netfold.errors import DataError, names_hint
from netfold.sim.report import words
from netfold.sim.report.answer import Group
from netfold.sim.results.metrics import ALL, BY_NAME, RUN_TABLE, SORTS, TYPES, Unit, Values
from netfold.sim.results.summary import GOOD, kind
from netfold.sim.workload.training_keys import metric_named

_ANY_WIDTH = 100_000

Writer = Callable[[Values], str]
"""Writes a metric of a variant, whose other metrics may tell what it means."""

_UNITS: dict[Unit, Callable[[Any], str]] = {
    Unit.COUNT: lambda value: words.NOTHING if value is None else str(value),
    Unit.TIME: words.time,
    Unit.BYTES: lambda value: words.scaled(value, "B"),
    Unit.RATE: lambda value: words.scaled(value, ""),
    Unit.BYTE_RATE: lambda value: words.scaled(value, "B/s"),
    Unit.MONEY: words.money,
    Unit.POWER: lambda value: words.scaled(value, "W"),
    Unit.RATIO: words.times,
    Unit.SHARE: words.percent,
    Unit.ERROR: lambda value: words.NOTHING if value is None else words.error(value),
}
_WRITERS: dict[str, Writer] = {
    "iteration_time_us": words.iteration,
    "bit_exact": words.bit_exact,
    "nmse": words.nmse,
    "merges_verified": words.verified,
    "max_abs_error": words.max_error,
    "cosine": words.cosine,
    "packets_lost": lambda values: str(values["packets_lost"] + values["packets_dropped"]),
    "passes": lambda values: words.scaled(values["passes"], ""),
    "workers_held_min": lambda values: words.optional(values["workers_held_min"]),
    "loss": words.training_loss,
    "test_score": words.held_out_score,
    "target": words.to_target,
    "links_used": words.links_used,
}
"""Metrics whose values are not written as others of their unit."""


_SORTED_BY = {"target": "time_to_target_us"}
"""Columns that a page does not sort by their own metric."""


def format_metric(name: str, values: Values) -> str:
    """A metric of a variant as tables show it."""
    writer = _WRITERS.get(name)
    return writer(values) if writer else _UNITS.get(BY_NAME[name].unit, words.optional)(values.get(name))


def require_metrics(columns: str) -> Sequence[str]:
    """The names of metrics, which have commas between them; all that a run prints for "all", none for "".

    Raises
    ------
    DataError
        There is no such metric.
    """
    if columns == ALL:
        return RUN_TABLE
    names = columns.split(",") if columns else []
    known = list(dict.fromkeys((*TYPES, *_WRITERS)))  # a table of values, too, if it can be written
    for name in names:
        if name not in known:
            raise DataError(
                f"--columns: there is no metric {name!r}", names_hint(name, [ALL, *known], "metrics")
            )
    return names


def order_key(sort: str) -> Callable[[str, Mapping[str, Any]], tuple[bool, bool, float]]:
    """A key of a variant's verdict and metrics, best first; bad verdicts and missing values come last.

    `sort` is the name of an order, or what a group is ranked by.
    """
    metric = SORTS.get(sort) or BY_NAME[sort]

    def key(verdict: str, metrics: Mapping[str, Any]) -> tuple[bool, bool, float]:
        value = metrics.get(metric.name)
        is_more_better = metric.better == "higher"
        if metric.name == "test_score" and value is not None:
            is_more_better = metric_named(metrics["test_metric"]).more_is_better
        signed = 0.0 if value is None else -value if is_more_better else value
        return kind(verdict) not in GOOD, value is None, signed

    return key


@dataclass(frozen=True)
class TableColumn:
    heading: str
    cells: Sequence[str | Text]
    name: str = ""  # of the metric, if it is one
    is_right: bool = False  # in a terminal
    is_number: bool = True
    is_ratio: bool = False  # stays beside the column to its left
    note: str = ""  # what is said of it below the table
    values: Sequence[Any] = ()
    """What the cells write: a table is sorted by those that are numbers."""


def metric_columns(
    names: Sequence[str],
    variants: Sequence[Values],
    left_out: Collection[str] = (),
    beside: Mapping[str, TableColumn] | None = None,
    writers: Mapping[str, Writer] | None = None,
) -> list[TableColumn]:
    """The columns of these metrics, those that no variant has left out.

    `beside` are further columns, by the metric that each stands after, and `writers` write some metrics
    otherwise.
    """
    columns = []
    for name in names:
        metric = BY_NAME[name]
        is_shown = metric.shown_if is None or any(map(metric.shown_if, variants))
        if name in left_out or not is_shown:
            continue
        writer, is_number = (writers or {}).get(name), metric.unit is not Unit.FLAG
        columns.append(
            TableColumn(
                heading=metric.label or name,
                cells=[writer(values) if writer else format_metric(name, values) for values in variants],
                name=name,
                is_right=metric.unit is Unit.SHARE or (is_number and metric.shown_if is None),
                is_number=is_number,
                note=f"{metric.label or name}: {metric.note or metric.what}",
                values=[values.get(_SORTED_BY.get(name, name)) for values in variants],
            )
        )
        if beside and name in beside:
            columns.append(beside[name])
    return columns


def total_width(columns: Sequence[TableColumn]) -> int:
    # 3: a cell has a space on both sides, and a line to its right.
    return sum(3 + max(len(column.heading), *(len(str(cell)) for cell in column.cells)) for column in columns)


def left_out_of(groups: Sequence[Group], variants: Sequence[Values]) -> tuple[set[str], str]:
    """Columns that would repeat another one, and the column beside which ratios stand."""
    left_out = set() if any(group.has_skew for group in groups) else {"since_last_rank_us"}
    if any(values.get("compute_time_us") for values in variants):
        return left_out, "iteration_time_us"
    return left_out | {"iteration_time_us"}, "aggregation_elements_per_s"


def priced(variants: Sequence[Values]) -> tuple[str, ...]:
    # The metric of what networks cost, if they differ in it.
    return ("cost_usd",) if len({values.get("cost_usd") for values in variants}) > 1 else ()


class FittingTable(Table):
    """A table with lines above it, its heading, and notes below it.

    If its columns do not fit side by side, the table is broken into several, one below the other. All of them
    begin with the first `keys_count` columns. The last column, the verdict, ends the first table if it fits.
    No cell is wrapped or cut, and no line ends in spaces.
    """

    def __init__(
        self,
        heading: str,
        notes: Sequence[str] = (),
        keys_count: int = 1,
        columns: Sequence[TableColumn] = (),
        above: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._heading = heading
        self._keys = tuple(range(keys_count))
        self._pairs = [number for number, column in enumerate(columns) if column.is_ratio]
        self._notes = notes
        self._above = above
        for column in columns:
            self.add_column(column.heading, justify="right" if column.is_right else "left")
        for cells in zip(*(column.cells for column in columns), strict=True):
            self.add_row(*cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in (line for text in self._above for line in text.splitlines()):
            yield _wrapped(line, options)
        if self._heading:
            yield Text(self._heading, style="italic")
        unlimited = options.update(max_width=_ANY_WIDTH)

        def width(columns: Sequence[int]) -> int:
            return console.measure(self._with(columns), options=unlimited).maximum

        for part in self._parts(lambda columns: width(columns) <= options.max_width):
            broad = options.update(max_width=max(width(part), options.max_width))
            yield from console.render(self._with(part), broad)
        for note in self._notes:
            yield _wrapped(note, options)

    def _parts(self, fits: Callable[[Sequence[int]], bool]) -> Iterator[tuple[int, ...]]:
        """The columns of each table: as many as fit, but at least one group beside the keys."""
        *groups, last = self._groups()
        if groups and not fits((*self._keys, *groups[0], *last)):
            groups, last = [*groups, last], ()
        held: tuple[int, ...] = ()
        for group in groups:
            if held and not fits((*self._keys, *held, *group, *last)):
                yield (*self._keys, *held, *last)
                held, last = (), ()
            held += group
        yield (*self._keys, *held, *last)

    def _groups(self) -> list[tuple[int, ...]]:
        """Columns other than keys; paired ones form one group."""
        groups: list[tuple[int, ...]] = []
        for number in range(len(self._keys), len(self.columns)):
            if number in self._pairs:
                groups[-1] += (number,)
            else:
                groups.append((number,))
        return groups

    def _with(self, numbers: Sequence[int]) -> Table:
        columns = [self.columns[number] for number in numbers]
        table = Table()
        for column in columns:
            table.add_column(column.header, justify=column.justify, no_wrap=True)
        for cells in zip(*(column.cells for column in columns), strict=True):
            table.add_row(*cells)
        return table


def _wrapped(text: str, options: ConsoleOptions) -> Text:
    lines = textwrap.wrap(text, options.max_width, break_long_words=False, break_on_hyphens=False)
    return Text("\n".join(lines), no_wrap=True, overflow="ignore")
