"""The table of a sweep: a row for every point and variant, a column for every swept key and metric."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from netfold.errors import NetfoldError
from netfold.sim.results.format import metric_types
from netfold.sim.sweep.points import Point
from netfold.sim.sweep.task import Outcome
from netfold.units import RATE, SIZE, TIME, parse_fraction

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
class Key:
    """A swept key as a column."""

    path: str
    column: str  # the path, and the unit of its numbers
    type: type
    cells: tuple[Any, ...]  # by point


@dataclass(frozen=True)
class PointResult:
    """A point, and what came of it."""

    point: Point
    status: str  # DONE, FAILED, SKIPPED
    error: str = ""
    outcome: Outcome = field(default_factory=Outcome)


def keys_of(paths: Sequence[str], points: Sequence[Point]) -> list[Key]:
    """The swept keys; a column has one type: numbers in base units, or else text."""
    return [_key(path, [point.values[place] for point in points]) for place, path in enumerate(paths)]


def _key(path: str, values: Sequence[object]) -> Key:
    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {int, float}:
        kind = float if float in kinds else int
        return Key(path, path, kind, tuple(_cell(value, kind) for value in values))
    for suffix, parse, parsed in _UNITS if str in kinds and kinds <= {str, int, float} else ():
        try:
            cells = tuple(None if value is None else parse(value) for value in values)
        except NetfoldError:
            continue
        return Key(path, path + suffix, parsed, cells)
    if kinds == {bool}:
        return Key(path, path, bool, tuple(values))
    texts = (
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in values
    )
    return Key(path, path, str, tuple(texts))


def points_frame(keys: Sequence[Key], results: Sequence[PointResult]) -> pl.DataFrame:
    """A row for every point and variant (or job), in the order of the grid."""
    swept = {key.column: key for key in keys}
    metrics = {name: kind for name, kind in metric_types().items() if name not in swept}
    columns: dict[str, type] = {
        "point": int,
        **{name: key.type for name, key in swept.items()},
        **{"seed": int, "variant": str, "status": str, "verdict": str, "error": str},
        **{"group": str, "by": str, "baseline": str, "times_baseline": float},
        **metrics,
    }
    rows = [
        {
            "point": result.point.number,
            **{name: key.cells[place] for name, key in swept.items()},
            "seed": result.point.seed,
            "status": result.status,
            "error": result.error or None,
            **row,
        }
        for place, result in enumerate(results)
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


def _cell(value: Any, kind: type) -> Any:
    """A value of a column; ints may stand for floats."""
    return float(value) if kind is float and value is not None else value


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
