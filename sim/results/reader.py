"""Read a run's folder back, refusing with a reason whatever is not one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sim.errors import DataError
from sim.results.files import PARTIAL_PREFIX
from sim.results.tables import TABLES, schema


@dataclass(frozen=True)
class Run:
    """A finished run, as its folder tells it."""

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


def load(path: Path) -> Run:
    """Read the run of a folder, of a file in it, or of `latest` (`latest.txt` where there are no links).

    Raises
    ------
    DataError
        There is nothing there, it is no run folder, the run did not finish, or a file is missing or damaged.
    """
    folder = _resolve(path)
    if not folder.is_dir():
        raise DataError(
            f"{path}: no such run folder", "give a folder that `netfold run` printed, or runs/latest"
        )
    if folder.name.startswith(PARTIAL_PREFIX):
        raise DataError(
            f"{path}: this run did not finish", "run its scenario again; this folder can be removed"
        )
    if not (folder / "summary.json").is_file():
        raise DataError(f"{path}: not a run folder, it has no summary.json", _nearest_run(folder))
    return read(folder)


def read(folder: Path) -> Run:
    """Read a folder without asking whether its run has finished (a report is made just before that)."""
    frames = {name: _table(folder / f"{name}.parquet", schema(record)) for name, record in TABLES.items()}
    return Run(
        path=folder,
        scenario_text=_bytes(folder / "scenario.yaml"),
        summary=_json(folder / "summary.json"),
        checks=_json(folder / "checks.json"),
        circumstances=_json(folder / "run.json"),
        **frames,
    )


def _resolve(path: Path) -> Path:
    place = path.resolve()  # "." has a name then
    pointer = place.with_name("latest.txt")
    if place.name in ("latest", "latest.txt") and not place.is_dir() and pointer.is_file():
        return pointer.parent / pointer.read_text().strip()
    if not place.is_file():
        return place
    return next((folder for folder in place.parents if (folder / "summary.json").is_file()), place.parent)


def _nearest_run(folder: Path) -> str:
    runs = [found.parent for found in sorted(folder.glob("[!.]*/summary.json"))]
    return f"did you mean {runs[-1]}?" if runs else "give a folder that `netfold run` printed, or runs/latest"


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(
            f"{path.parent}: {path.name} is missing from this run folder",
            "a finished run has it; run the scenario again",
        ) from None


def _json(path: Path) -> Any:
    try:
        return json.loads(_bytes(path))
    except ValueError as error:
        raise DataError(f"{path}: damaged: {error}", "run the scenario again") from error


def _table(path: Path, expected: pl.Schema) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(_bytes(path))
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: damaged: {error}", "run the scenario again") from error
    if frame.schema != expected:
        differing = sorted({name for name, _ in set(frame.schema.items()) ^ set(expected.items())})
        raise DataError(
            f"{path}: columns {', '.join(differing)} are not as this version of netfold writes them",
            "run the scenario again, or read the file with the version in run.json",
        )
    return frame
