"""Read a run's folder back; anything else is refused with a reason."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import isdir, isfile  # those of Path raise errors on a path that is too long or not permitted
from pathlib import Path
from typing import Any

import polars as pl

from netfold.errors import DataError
from netfold.sim.files.durable import PARTIAL_PREFIX
from netfold.sim.files.foreign import UnreadableError, read_bytes
from netfold.sim.files.process import require_threads
from netfold.sim.results import format
from netfold.sim.results.records import PHASES
from netfold.sim.results.tables import TABLES, nullable, schema

TEXT_BYTES_MAX = 2**26  # of a JSON file or the scenario
TABLE_BYTES_MAX = 2**31
ROWS_MAX = 50_000_000  # of a table
_DAMAGED = "the folder is damaged or was changed: run the scenario again"
_RENAMED = {"exact": "bit_exact and merges_verified"}
_LEAST = {"bucket": -1}  # of columns of whole numbers; 0 for the others


class Metrics(dict[str, Any]):
    """The metrics of a variant; those that were renamed name their successors."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"{name}: since format 2, see {_RENAMED[name]}" if name in _RENAMED else name)


@dataclass(frozen=True)
class Run:
    """A finished run, read from its folder."""

    path: Path
    scenario_text: bytes
    summary: dict[str, Any]
    checks: list[dict[str, str]]
    circumstances: dict[str, Any]  # run.json
    steps: pl.DataFrame
    rounds: pl.DataFrame
    notes: pl.DataFrame
    phases: pl.DataFrame
    links: pl.DataFrame
    faults: pl.DataFrame
    nodes: pl.DataFrame
    label: str = ""  # its name in a comparison, if that of its folder is another's, too


def load(path: Path) -> Run:
    """Read the run of a folder, of a file in it, or of `latest` (`latest.txt` on systems without links).

    Raises
    ------
    DataError
        The path does not exist or is not a run folder, the run did not finish, or a file is missing, is not a
        regular file, is too large or damaged, has another format, or contradicts another.
    """
    require_threads()
    folder = _resolve(path)
    if not isdir(folder):
        raise DataError(
            f"{path}: no such run folder", "give a folder that `netfold run` printed, or runs/latest"
        )
    if folder.name.startswith(PARTIAL_PREFIX):
        raise DataError(
            f"{path}: this run did not finish", "run its scenario again; this folder can be removed"
        )
    if not isfile(folder / "summary.json"):
        raise DataError(f"{path}: not a run folder, it has no summary.json", _nearest_run(folder))
    return _read(folder)


def _read(folder: Path) -> Run:
    summary = _json(folder / "summary.json")  # first: it holds the version of the folder's format
    for variant in summary["variants"]:
        variant["metrics"] = Metrics(variant["metrics"])
    tables: dict[str, Any] = {
        name: _table(folder / f"{name}.parquet", record, summary["tables"].get(f"{name}.parquet", ""))
        for name, record in TABLES.items()
    }
    run = Run(
        path=folder,
        scenario_text=_bytes(folder / "scenario.yaml", TEXT_BYTES_MAX),
        summary=summary,
        checks=_json(folder / "checks.json"),
        circumstances=_json(folder / "run.json"),
        **tables,
    )
    _require_known_phases(folder / "phases.parquet", run.phases)
    _require_known_nodes(folder / "nodes.parquet", run.nodes)
    _require_agreement(run)
    return run


def _resolve(path: Path) -> Path:
    try:
        place = path.resolve()  # gives "." a name
    except (OSError, RuntimeError, ValueError):  # a link to itself, for example
        return path
    pointer = place.parent / "latest.txt"  # the root has no name, and no sibling
    if place.name in ("latest", "latest.txt") and not isdir(place) and isfile(pointer):
        return pointer.parent / _bytes(pointer, TEXT_BYTES_MAX).decode("utf-8", "replace").strip()
    if not isfile(place):
        return place
    return next((folder for folder in place.parents if isfile(folder / "summary.json")), place.parent)


def _nearest_run(folder: Path) -> str:
    runs = [found.parent for found in sorted(folder.glob("[!.]*/summary.json"))]
    return f"did you mean {runs[-1]}?" if runs else "give a folder that `netfold run` printed, or runs/latest"


def _bytes(path: Path, limit_bytes: int) -> bytes:
    try:
        return read_bytes(path, limit_bytes)
    except UnreadableError as error:
        if error.is_missing:
            raise DataError(
                f"{path.parent}: {path.name} is missing from this run folder",
                "a finished run has it; run the scenario again",
            ) from None
        raise DataError(f"{path}: cannot be read: {error.message}", _DAMAGED) from None


def _json(path: Path) -> Any:
    return format.parse(str(path), path.name, _bytes(path, TEXT_BYTES_MAX))


def _table(path: Path, record: type, sha256: str) -> pl.DataFrame:
    """A table with the columns of a record type, without negative counts and nulls in required columns.

    The digest of its bytes is checked first: Parquet readers do not detect every kind of damage.
    """
    content, expected = _bytes(path, TABLE_BYTES_MAX), schema(record)
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise DataError(
            f"{path}: damaged: {len(content)} bytes whose SHA-256 is {found[:12]}…, "
            f"summary.json has {f'{sha256[:12]}…' if sha256 else 'none'}",
            _DAMAGED,
        )
    with _polars_errors(path):
        columns = pl.read_parquet_schema(io.BytesIO(content))
    if columns != expected:
        differing = sorted({name for name, _ in set(columns.items()) ^ set(expected.items())})
        raise DataError(
            f"{path}: columns {', '.join(differing)} differ from those that this version of netfold writes"
            if differing
            else f"{path}: columns are in another order than this version of netfold writes",
            "run the scenario again, or read the file with the version in run.json",
        )
    with _polars_errors(path):
        rows_count = pl.scan_parquet(io.BytesIO(content)).select(pl.len()).collect().item()
        if rows_count > ROWS_MAX:
            raise DataError(f"{path}: has {rows_count} rows, the most is {ROWS_MAX}", _DAMAGED)
        frame = pl.read_parquet(io.BytesIO(content))
    for name in expected.names():
        _require_sound(path, frame[name], name in nullable(record))
    return frame


def _require_known_phases(path: Path, phases: pl.DataFrame) -> None:
    unknown = sorted(set(phases["phase"].unique()) - set(PHASES))
    if unknown:
        raise DataError(
            f"{path}: phase: must be one of {', '.join(PHASES)}, found {unknown[0][:60]!r}", _DAMAGED
        )


def _require_known_nodes(path: Path, nodes: pl.DataFrame) -> None:
    for column, pattern, allowed in (
        ("kind", "^(host|switch)$", "host or switch"),
        ("coordinates", r"^\d{1,9}(,\d{1,9})*$", "whole numbers such as 0,3"),
    ):
        wrong = nodes.filter(~pl.col(column).str.contains(pattern))
        if wrong.height:
            raise DataError(f"{path}: {column}: must be {allowed}, found {wrong[column][0][:60]!r}", _DAMAGED)


def _require_sound(path: Path, column: pl.Series, may_be_null: bool) -> None:
    """Refuse missing values in a required column, and numbers below the least."""
    if not may_be_null and column.null_count():
        row = column.is_null().to_list().index(True)
        raise DataError(f"{path}: {column.name}: row {row} is empty, it must have a value", _DAMAGED)
    least = _LEAST.get(column.name, 0)
    if column.dtype == pl.Int64 and (column < least).any():
        row = (column < least).to_list().index(True)
        found = f"row {row} is {column[row]}, must be {least} or more"
        raise DataError(f"{path}: {column.name}: {found}", _DAMAGED)


@contextlib.contextmanager
def _polars_errors(path: Path) -> Iterator[None]:
    """Turn what polars raises on a damaged file into a `DataError` of one line.

    Some of it are panics, which are no `Exception`.
    """
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise DataError(f"{path}: damaged: {lines[0]}", _DAMAGED) from None


def _require_agreement(run: Run) -> None:
    """Check that tables have only the summary's variants, and as many steps as it says."""
    names = [entry["name"] for entry in run.summary["variants"]]
    networks = [name.partition("/")[0] for name in names]
    if len(set(names)) < len(names):
        raise DataError(f"{run.path / 'summary.json'}: two variants have the same name", _DAMAGED)
    for table in TABLES:
        frame = getattr(run, table)
        known = {*names, *networks} if table in ("links", "faults", "nodes") else set(names)
        unknown = sorted(set(frame["variant"].unique()) - known)
        if unknown:
            raise DataError(
                f"{run.path / table}.parquet: variant: {unknown[0][:60]!r} is not in summary.json",
                _DAMAGED,
            )
    for entry in run.summary["variants"]:
        steps = run.steps.filter(pl.col("variant") == entry["name"]).height
        if steps != entry["metrics"]["steps"]:
            raise DataError(
                f"{run.path / 'steps.parquet'}: has {steps} steps of {entry['name']!r}, "
                f"summary.json says {entry['metrics']['steps']}",
                _DAMAGED,
            )
