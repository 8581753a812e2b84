"""A run's results: computed from records, written as one folder that is complete or absent, and read back.

summary = summarize(facts, records)           # records → metrics and a verdict
folder = write_run(out_dir, RunData(records=records, summary=summary, ...))
run = load(folder)                            # the input of reports and comparisons
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from os.path import isdir, isfile
from pathlib import Path
from typing import Any

import polars as pl

from netfold.errors import DataError, escaped
from netfold.kernels.processor import instructions
from netfold.sim import files
from netfold.sim.files import (
    PARTIAL_PREFIX,
    UnreadableError,
    package_version,
    read_bytes,
    require_threads,
)
from netfold.sim.results import file_formats, kept_arrays
from netfold.sim.results.file_formats import FORMAT, TABLES, nullable, schema, to_parquet
from netfold.sim.results.records import PHASES, Records
from netfold.sim.results.repeats import MARK

# Read a run's folder back; anything else is refused with a reason.


TEXT_BYTES_MAX = 2**26
"""The most bytes of a JSON file or the scenario."""
TABLE_BYTES_MAX = 2**31
ROWS_MAX = 50_000_000
"""The most rows of a table."""
_DAMAGED = "the folder is damaged or was changed: run the scenario again"
_RENAMED = {"exact": "bit_exact and merges_verified", "redo_messages": "fallback_messages"}
_LEAST = {"bucket": -1}
"""Least values of columns of whole numbers; 0 for the others."""


class Metrics(dict[str, Any]):
    """The metrics of a variant; those that were renamed name their successors."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"{name}: since format {FORMAT}, see {_RENAMED[name]}" if name in _RENAMED else name)


@dataclass(frozen=True)
class RunFolder:
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
    series: pl.DataFrame
    label: str = ""  # its name in a comparison, if that of its folder is another's, too


def first_seed(run: RunFolder) -> RunFolder:
    """A run whose tables have no repeats with further seeds: what a report draws."""
    if not run.summary.get("repeats"):
        return run
    is_repeat = pl.col("variant").str.contains(MARK, literal=True)
    tables: dict[str, Any] = {name: getattr(run, name).filter(~is_repeat) for name in TABLES}
    return replace(run, **tables)


SWEEP = "sweep.json"  # in the folder of a sweep, not in that of a run


def is_sweep(path: Path) -> bool:
    return isfile(resolve_latest(path) / SWEEP)


def load(path: Path) -> RunFolder:
    """Read the run of a folder, of a file in it, or of `latest` (`latest.txt` on systems without links).

    Raises
    ------
    DataError
        The path does not exist or is not a run folder, the run did not finish, or a file is missing, is not a
        regular file, is too large or damaged, has another format, or contradicts another.
    """
    require_threads()
    folder = resolve_latest(path)
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


def _read(folder: Path) -> RunFolder:
    summary = _json(folder / "summary.json")  # first: it holds the version of the folder's format
    for variant in summary["variants"]:
        variant["metrics"] = Metrics(variant["metrics"])
    tables: dict[str, Any] = {
        name: _table(folder / f"{name}.parquet", record, summary["tables"].get(f"{name}.parquet", ""))
        if name != "series" or "series.parquet" in summary["tables"]  # which folders once had not
        else file_formats.frame(record, ())
        for name, record in TABLES.items()
    }
    run = RunFolder(
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


def resolve_latest(path: Path) -> Path:
    try:
        full_path = path.resolve()  # gives "." a name
    except (OSError, RuntimeError, ValueError):  # a link to itself, for example
        return path
    pointer = full_path.parent / "latest.txt"  # the root has no name, and no sibling
    if full_path.name in ("latest", "latest.txt") and not isdir(full_path) and isfile(pointer):
        return pointer.parent / _bytes(pointer, TEXT_BYTES_MAX).decode("utf-8", "replace").strip()
    if not isfile(full_path):
        return full_path
    return next((folder for folder in full_path.parents if isfile(folder / "summary.json")), full_path.parent)


def _nearest_run(folder: Path) -> str:
    runs = [summary_path.parent for summary_path in sorted(folder.glob("[!.]*/summary.json"))]
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
    return file_formats.parse(str(path), path.name, _bytes(path, TEXT_BYTES_MAX))


def _table(path: Path, record: type, sha256: str) -> pl.DataFrame:
    """A table with the columns of a record type, without negative counts and nulls in required columns.

    The digest of its bytes is checked first: Parquet readers do not detect every kind of damage.
    """
    content, expected = _bytes(path, TABLE_BYTES_MAX), schema(record)
    if (digest := hashlib.sha256(content).hexdigest()) != sha256:
        raise DataError(
            f"{path}: damaged: {len(content)} bytes whose SHA-256 is {digest[:12]}…, "
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
        problem = f"row {row} is {column[row]}, must be {least} or more"
        raise DataError(f"{path}: {column.name}: {problem}", _DAMAGED)


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


def _require_agreement(run: RunFolder) -> None:
    """Check that tables have only the summary's variants, and as many steps as it says."""
    entries = run.summary.get("repeats") or run.summary["variants"]
    names = [entry["name"] for entry in entries]
    networks = [name.partition("/")[0] for name in names]
    if len(set(names)) < len(names):
        raise DataError(f"{run.path / 'summary.json'}: two variants have the same name", _DAMAGED)
    for table in TABLES:
        frame = getattr(run, table)
        allowed = {*names, *networks} if table in ("links", "faults", "nodes", "series") else set(names)
        unknown = sorted(set(frame["variant"].unique()) - allowed)
        if unknown:
            raise DataError(
                f"{run.path / table}.parquet: variant: {unknown[0][:60]!r} is not in summary.json",
                _DAMAGED,
            )
    for entry in entries:
        steps = run.steps.filter(pl.col("variant") == entry["name"]).height
        if steps != entry["metrics"]["steps"]:
            raise DataError(
                f"{run.path / 'steps.parquet'}: has {steps} steps of {entry['name']!r}, "
                f"summary.json says {entry['metrics']['steps']}",
                _DAMAGED,
            )


# Write a run's folder: all files into a hidden sibling, on disk, then one rename.
#
# A process that is killed leaves either no folder or a complete one, and `latest` points to a complete one.
# The next run removes its hidden leftovers. All files except `run.json` depend on the scenario and the seed
# alone.


_OWN_NAMES = (
    *("scenario.yaml", "run.json", "summary.json", "checks.json"),
    *(f"{name}.parquet" for name in TABLES),
    *("report.html", "figures", kept_arrays.FOLDER),
)


@dataclass(frozen=True)
class RunData:
    """Everything that a run folder is written from."""

    scenario_name: str
    scenario_text: bytes
    """The scenario's file as it was given."""
    seed: int
    started_at: datetime
    """When the run began, with a time zone."""
    wall_s: float
    approximations: tuple[str, ...]
    """Approximations of the run's model."""
    records: Records
    summary: Mapping[str, Any]
    """What `sim.results.summary.summarize` returns."""
    engine: Mapping[str, Any]  # packet_hops, wall_s, packet_hops_per_s
    sets: tuple[str, ...] = ()  # `--set` arguments that changed the scenario
    kept: Mapping[str, Mapping[str, Sequence[kept_arrays.Array]]] = field(default_factory=dict)
    """What is kept of the steps of each job, by its label and the name in its file."""
    extra_files: Mapping[str, bytes] = field(default_factory=dict)
    """Files that scenario.yaml names, which are kept beside it."""


def write_run(out_dir: Path, run: RunData, suffix: str = "") -> Path:
    # Writes `<out_dir>/<scenario>/<UTC time>-seed<N><suffix>`; `<out_dir>/latest` points at it if it has no
    # suffix, as that of a finished run. If the disk is full, for example, it raises an UnwrittenError and
    # leaves no run folder.
    _require_folder_name(run.scenario_name)
    for name in run.extra_files:
        _require_free_name(name)
    folder = out_dir / run.scenario_name / f"{folder_name(run.started_at, run.seed)}{suffix}"
    with files.writing(out_dir, files.WRITABLE_HINT):
        indent = None if suffix else 2  # files that are soon replaced take a tenth of the time
        finished = files.write_folder(folder, lambda partial: _write_files(partial, run, indent))
        if not suffix:
            files.remove_stale_partials(out_dir)
            point_latest(out_dir, finished)
        return finished


def folder_name(started_at: datetime, seed: int) -> str:
    # For example "2026-07-01T12-00-00-seed1".
    return f"{started_at.astimezone(UTC):%Y-%m-%dT%H-%M-%S}-seed{seed}"


def _require_folder_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or name in ("latest", "latest.txt"):
        raise DataError(
            f"cannot name a results folder after the scenario '{name}'",
            "use letters, digits, '.', '_' and '-', begin with a letter or digit, and not 'latest'",
        )


def is_free_name(name: str) -> bool:
    # A path that stays inside a run's folder and is not that of one of its files. In lower case: on some file
    # systems Report.html is report.html.
    parts = name.split("/")
    is_plain = all(re.fullmatch(r"[^./\\\0][^/\\\0]*", part) for part in parts)
    return is_plain and parts[0].lower() not in _OWN_NAMES


def _require_free_name(name: str) -> None:
    if not is_free_name(name):
        raise DataError(
            f"cannot keep the file '{name}' in a run folder",
            f"use a relative path without parts that begin with '.', and not {', '.join(_OWN_NAMES)}",
        )


def _write_files(folder: Path, run: RunData, indent: int | None) -> None:
    digests = {}
    for name, content in {
        "scenario.yaml": repeatable(run.scenario_text, "run", run.seed, run.sets),
        **run.extra_files,
    }.items():
        _write_below(folder / name, content)
    for label, steps in run.kept.items():
        if steps:
            content = kept_arrays.to_safetensors(steps)
            _write_below(folder / kept_arrays.file_name(label), content)
            digests[label] = hashlib.sha256(content).hexdigest()
    tables = {
        f"{name}.parquet": to_parquet(record_type, getattr(run.records, name))
        for name, record_type in TABLES.items()
    }
    summary = {
        "format": FORMAT,
        "scenario": run.scenario_name,
        "seed": run.seed,
        "sets": list(run.sets),
        **run.summary,
        "approximations": list(run.approximations),
        "tables": {name: hashlib.sha256(content).hexdigest() for name, content in tables.items()},
        **({"arrays": digests} if digests else {}),
    }
    records = {
        "run.json": _circumstances(run),
        "summary.json": summary,
        "checks.json": [asdict(check) for check in run.records.checks],
    }
    files.write_files(folder, {name: to_json(record, indent) for name, record in records.items()} | tables)


def repeatable(scenario_text: bytes, verb: str, seed: int, sets: Sequence[str]) -> bytes:
    """The scenario as given; if values were set, with the command that sets them as its last line."""
    if not sets:
        return scenario_text
    words = ["netfold", verb, "scenario.yaml", "--seed", str(seed)]
    command = shlex.join([*words, *(word for text in sets for word in ("--set", text))])
    return scenario_text.removesuffix(b"\n") + f"\n# {escaped(command)}\n".encode()


def _write_below(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_file(path, content)


def _circumstances(run: RunData) -> dict[str, Any]:
    """Facts that may differ when a run is repeated, and those needed to repeat it."""
    return {
        **circumstances(run.started_at, run.wall_s),
        **instructions()._asdict(),
        "seed": run.seed,
        "scenario_sha256": hashlib.sha256(run.scenario_text).hexdigest(),
        "engine": dict(run.engine),
    }


_PACKAGES = (
    "numpy",
    "numba",
    "torch",
    "networkx",
    "simpy",
    "polars",
    "matplotlib",
    "topohub",  # its networks are in scenarios by name
)  # they may move a number or a byte


def package_versions() -> dict[str, str]:
    return {name: package_version(name) for name in _PACKAGES}


def circumstances(started_at: datetime, wall_s: float) -> dict[str, Any]:
    """When and where something was made, with which versions of what."""
    return {
        "version": package_version("netfold"),
        "started_at": started_at.astimezone(UTC).isoformat(timespec="seconds"),
        "wall_s": wall_s,
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": package_versions(),
    }


def to_json(content: Any, indent: int | None = 2) -> bytes:
    # JSON has no NaN and no infinity: they raise a ValueError.
    return (json.dumps(content, sort_keys=True, indent=indent, allow_nan=False) + "\n").encode()


def point_latest(out_dir: Path, finished: Path) -> None:
    # `latest` is a link to a run or sweep; without links, or if `latest` is no link, `latest.txt` names it.
    relative, latest = finished.relative_to(out_dir), out_dir / "latest"
    try:
        if os.path.lexists(latest) and not latest.is_symlink():
            raise FileExistsError
        _replace_link(latest, relative)
    except OSError:
        files.write_file(out_dir / "latest.txt", f"{relative.as_posix()}\n".encode())
    files.sync_folder(out_dir)


def _replace_link(link: Path, target: Path) -> None:
    """Make a link in one step, whatever link it was."""
    while True:
        temporary = files.claim(link.parent, lambda path: os.symlink(target, path, target_is_directory=True))
        try:
            return os.replace(temporary, link)
        except FileNotFoundError:  # a run in another container took it for a leftover
            continue
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


# The folder that holds a run's finished variants while others still run.
#
# After each variant, all finished ones are written to a new run folder, named
# `<UTC time>-seed<N>-unfinished-<done>-of-<all>`. Then the previous one is removed. So the finished variants
# survive any end of the run, and no such folder looks like a finished run.


class Unfinished:
    def __init__(self, out_dir: Path) -> None:
        self._out_dir = out_dir
        self.path: Path | None = None  # folder of the finished variants
        self.variants_count = 0  # how many are in it

    def take_over(self, scenario: str, name: str) -> None:
        # A run that was stopped has left this folder; the next one that is written takes its place.
        self.path = self._out_dir / scenario / name

    def write(self, run: RunData, done: int, of: int) -> None:
        # If the disk is full, the previous folder is still there.
        earlier = self.path
        self.path = write_run(self._out_dir, run, f"-unfinished-{done}-of-{of}")
        self.variants_count = done
        if earlier is not None:
            shutil.rmtree(earlier, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder, once the run is finished and has its own."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path, self.variants_count = None, 0
