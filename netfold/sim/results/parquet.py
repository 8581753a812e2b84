"""Records as Parquet: one table per record type, with the fields of the dataclass as columns."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import polars as pl

from netfold.sim.results.records import (
    FaultRecord,
    LinkRecord,
    NodeRecord,
    NoteRecord,
    PhaseRecord,
    RoundRecord,
    StepRecord,
)

TABLES: dict[str, type] = {
    "steps": StepRecord,
    "rounds": RoundRecord,
    "notes": NoteRecord,
    "phases": PhaseRecord,
    "links": LinkRecord,
    "faults": FaultRecord,
    "nodes": NodeRecord,
}

_COLUMN_TYPES: dict[Any, type[pl.DataType]] = {
    str: pl.String,
    str | None: pl.String,
    int: pl.Int64,
    int | None: pl.Int64,
    bool: pl.Boolean,
    bool | None: pl.Boolean,
    float: pl.Float64,
    float | None: pl.Float64,
}


def schema(record_type: type) -> pl.Schema:
    """Column names and types of the table of one record type."""
    hints = get_type_hints(record_type)
    return pl.Schema({field.name: _COLUMN_TYPES[hints[field.name]]() for field in fields(record_type)})


def nullable(record_type: type) -> set[str]:
    """Columns of a table that may hold nulls."""
    return {name for name, hint in get_type_hints(record_type).items() if type(None) in get_args(hint)}


def frame(record_type: type, records: Sequence[Any]) -> pl.DataFrame:
    """The table of some records, possibly none."""
    return pl.DataFrame(
        {
            name: pl.Series(name, [getattr(record, name) for record in records], dtype)
            for name, dtype in schema(record_type).items()
        }
    )


def plain_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """A table of what is one value in every row; what holds several, such as a breakdown, is left out."""
    several = {name for row in rows for name, value in row.items() if isinstance(value, dict | list | tuple)}
    plain = [{name: value for name, value in row.items() if name not in several} for row in rows]
    return pl.DataFrame(plain, infer_schema_length=None)


def to_parquet(record_type: type, records: Sequence[Any]) -> bytes:
    """Parquet bytes of some records, possibly none; the same records give the same bytes."""
    return parquet_bytes(frame(record_type, records))


def parquet_bytes(table: pl.DataFrame) -> bytes:
    """Parquet bytes of a table; the same table gives the same bytes."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd", compression_level=3, statistics=False)
    return buffer.getvalue()
