"""The table of a sweep as a grid, and its keys and metrics in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from netfold.sim.report import words
from netfold.sim.results.format import metric_types
from netfold.units import RATE, SIZE, TIME, Quantity

HEADLINES = (
    *("aggregation_time_us", "iteration_time_us", "aggregation_elements_per_s", "compression_ratio"),
    *("wire_bytes_up_per_worker", "test_score"),
)
_QUANTITIES: dict[str, Quantity] = {"_bps": RATE, "_ps": TIME, "_bytes": SIZE}


@dataclass(frozen=True)
class Grid:
    """The table of a sweep, and its swept keys: path and column."""

    frame: pl.DataFrame
    keys: tuple[tuple[str, str], ...]

    @cached_property
    def done(self) -> pl.DataFrame:
        """The rows with results."""
        return self.frame.filter(pl.col("status") == "done")

    @cached_property
    def ordered(self) -> list[tuple[str, str]]:
        """The keys, that of the horizontal axis first: the first that has numbers."""
        first = next((key for key in self.keys if self.is_number(key[1])), None)
        return sorted(self.keys, key=lambda key: key is not first)

    def is_number(self, column: str) -> bool:
        """Whether a key has numbers, more than one."""
        return self.frame[column].dtype.is_numeric() and self.frame[column].n_unique() > 1

    def values(self, column: str) -> list[Any]:
        """The values of a key, in the order of the sweep."""
        return self.frame[column].unique(maintain_order=True).to_list()


def metrics_of(grid: Grid) -> list[str]:
    """The metrics that are numbers and differ between points or variants, headlines first."""
    swept = {column for _, column in grid.keys}
    names = [name for name, kind in metric_types().items() if kind in (int, float) and name not in swept]
    names.sort(key=lambda name: HEADLINES.index(name) if name in HEADLINES else len(HEADLINES))
    return [
        name for name in names if name in grid.done.columns and grid.done[name].drop_nulls().n_unique() > 1
    ]


def value_text(column: str, value: Any) -> str:
    """A value of a key as a person writes it: "10Gbps"."""
    if value is None:
        return words.NOTHING
    quantity = next((one for end, one in _QUANTITIES.items() if column.endswith(end)), None)
    if quantity is not None and isinstance(value, int):
        return quantity.format(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def metric_text(name: str) -> Callable[[float], str]:
    """What writes a value of a metric."""
    if name.endswith("_us"):
        return words.time
    if "bytes" in name:
        return lambda value: words.scaled(value, "B")
    if name.endswith("_per_s"):
        return lambda value: words.scaled(value, "/s")
    return lambda value: words.scaled(value, "") if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def metric_title(name: str) -> str:
    """A metric in words: "aggregation time"."""
    return name.removesuffix("_us").replace("_per_s", " per s").replace("_", " ")
