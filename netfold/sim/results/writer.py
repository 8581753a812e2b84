"""Write a run's folder: all files into a hidden sibling, on disk, then one rename.

A process that is killed leaves either no folder or a complete one, and `latest` points to a complete one. The
next run removes its hidden leftovers. All files except `run.json` depend on the scenario and the seed alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from netfold.errors import DataError, UnwrittenError
from netfold.sim.files import durable as files
from netfold.sim.files.packages import package_version, package_versions
from netfold.sim.processor import instructions
from netfold.sim.results.format import FORMAT
from netfold.sim.results.records import Records
from netfold.sim.results.tables import TABLES, to_parquet

_OWN_NAMES = (
    *("scenario.yaml", "run.json", "summary.json", "checks.json"),
    *(f"{name}.parquet" for name in TABLES),
    *("report.html", "figures"),
)


@dataclass(frozen=True)
class RunData:
    """Everything that a run folder is written from."""

    scenario_name: str
    scenario_text: bytes  # as given
    seed: int
    started_at: datetime  # with a time zone
    wall_s: float
    approximations: tuple[str, ...]  # of the run's model
    records: Records
    summary: Mapping[str, Any]  # of `sim.results.summarize`
    engine: Mapping[str, Any]  # packet_hops, wall_s, packet_hops_per_s
    sets: tuple[str, ...] = ()  # `--set` arguments that changed the scenario
    extra_files: Mapping[str, bytes] = field(
        default_factory=dict
    )  # kept beside scenario.yaml, which names them


def write_run(out_dir: Path, run: RunData) -> Path:
    """Write `<out_dir>/<scenario>/<UTC time>-seed<N>`, point `<out_dir>/latest` at it and return its path.

    Raises
    ------
    DataError
        The scenario's name cannot be a folder's, or an extra file's name is taken or not a plain one.
    UnwrittenError
        The folder cannot be written, because the disk is full, for example; no run folder is left then.
    """
    return _written(out_dir, run)


def write_unfinished(out_dir: Path, run: RunData, what: str) -> Path:
    """Write a run's finished variants to `<out_dir>/<scenario>/<UTC time>-seed<N>-<what>`; returns that path.

    It is a run folder like any other; `latest` does not change.

    Raises
    ------
    DataError, UnwrittenError
        As `write_run`.
    """
    return _written(out_dir, run, f"-{what}")


def _written(out_dir: Path, run: RunData, suffix: str = "") -> Path:
    """Write a run folder; without a suffix, that of a finished run."""
    _require_folder_name(run.scenario_name)
    for name in run.extra_files:
        _require_free_name(name)
    try:
        return _write_run(out_dir, run, suffix)
    except OSError as error:
        raise UnwrittenError(
            f"cannot write {out_dir}: {error.strerror or error}",
            "free space, or give another folder with --out",
        ) from error


def _write_run(out_dir: Path, run: RunData, suffix: str) -> Path:
    name = folder_name(run.started_at, run.seed) + suffix
    finished = files.write_folder(
        out_dir / run.scenario_name / name, lambda partial: _write_files(partial, run)
    )
    if not suffix:
        files.remove_stale_partials(out_dir)
        _point_latest(out_dir, finished)
    return finished


def folder_name(started_at: datetime, seed: int) -> str:
    """When it was made, and with which seed: "2026-07-01T12-00-00-seed1"."""
    return f"{started_at.astimezone(UTC):%Y-%m-%dT%H-%M-%S}-seed{seed}"


def _require_folder_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or name in ("latest", "latest.txt"):
        raise DataError(
            f"cannot name a results folder after the scenario '{name}'",
            "use letters, digits, '.', '_' and '-', begin with a letter or digit, and not 'latest'",
        )


def is_free_name(name: str) -> bool:
    """Whether a path stays inside a run's folder and is not the name of one of its files.

    Compared in lower case: on some file systems Report.html is report.html.
    """
    parts = name.split("/")
    is_plain = all(re.fullmatch(r"[^./\\\0][^/\\\0]*", part) for part in parts)
    return is_plain and parts[0].lower() not in _OWN_NAMES


def _require_free_name(name: str) -> None:
    if not is_free_name(name):
        raise DataError(
            f"cannot keep the file '{name}' in a run folder",
            f"use a relative path without parts that begin with '.', and not {', '.join(_OWN_NAMES)}",
        )


def _write_files(folder: Path, run: RunData) -> None:
    for name, content in {"scenario.yaml": run.scenario_text, **run.extra_files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        files.write_file(folder / name, content)
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
    }
    for name, record in {
        "run.json": _circumstances(run),
        "summary.json": summary,
        "checks.json": [asdict(check) for check in run.records.checks],
    }.items():
        files.write_file(folder / name, to_json(record))
    for name, content in tables.items():
        files.write_file(folder / name, content)


def _circumstances(run: RunData) -> dict[str, Any]:
    """Facts that may differ when a run is repeated, and those needed to repeat it."""
    return {
        **circumstances(run.started_at, run.wall_s),
        **instructions()._asdict(),
        "seed": run.seed,
        "scenario_sha256": hashlib.sha256(run.scenario_text).hexdigest(),
        "engine": dict(run.engine),
    }


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


def to_json(content: Any) -> bytes:
    """JSON with sorted keys; NaN and infinity, which JSON does not have, raise a ValueError."""
    return (json.dumps(content, sort_keys=True, indent=2, allow_nan=False) + "\n").encode()


def _point_latest(out_dir: Path, finished: Path) -> None:
    """Point the link `latest` at the run; `latest.txt` instead without links, or if `latest` is no link."""
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
