"""Write a study's folder, complete or not at all.

The same seed gives the same bytes in all files except `run.json` and `speed.svg`.
"""

from __future__ import annotations

import platform
import shutil
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from netfold.sim.errors import DataError
from netfold.sim.files import durable as files
from netfold.sim.results.tables import to_parquet
from netfold.sim.results.writer import PACKAGES, package_version, publish, to_json
from netfold.sim.study.figures import study_figures
from netfold.sim.study.measure import Study
from netfold.sim.study.record import CodecRecord, MessageRecord

FOLDER = "study"  # holds all studies, beside the folders of scenarios


def as_dict(study: Study) -> dict[str, Any]:
    """A study as plain data for JSON, without this machine's speeds."""
    source = study.source
    return {
        "elements": source.elements,
        "workers": source.workers,
        "rounds": study.rounds,
        "seed": study.seed,
        "gradients": dict(source.description),
        "notes": list(source.notes),
        "faults": list(study.faults),
        "codecs": [
            {**asdict(record), "bytes_by_message": study.bytes_of(record)} for record in study.records
        ],
    }


def speeds_dict(study: Study) -> dict[str, Any]:
    """This machine's speeds as plain data for JSON."""
    return {"copy_gb_per_s": study.copy_gb_per_s, "codecs": [asdict(speed) for speed in study.speeds]}


def write_study(out_dir: Path, study: Study, started_at: datetime, wall_s: float) -> Path:
    """Write `<out_dir>/study/<UTC time>-seed<N>` and return its path.

    Raises
    ------
    DataError
        The folder cannot be written; no folder is left then.
    """
    name = f"{started_at.astimezone(UTC):%Y-%m-%dT%H-%M-%S}-seed{study.seed}"
    circumstances = {
        "version": package_version("netfold"),
        "started_at": started_at.astimezone(UTC).isoformat(timespec="seconds"),
        "wall_s": wall_s,
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {package: package_version(package) for package in PACKAGES},
        "speeds": speeds_dict(study),
    }
    contents = {
        "study.json": to_json(as_dict(study)),
        "study.parquet": to_parquet(CodecRecord, study.records),
        "messages.parquet": to_parquet(MessageRecord, study.messages),
        "run.json": to_json(circumstances),
        **study_figures(study),
    }
    try:
        return _write(out_dir / FOLDER, name, contents)
    except OSError as error:
        raise DataError(
            f"cannot write {out_dir}: {error.strerror or error}",
            "free space, or give another folder with --out",
        ) from error


def _write(parent: Path, name: str, contents: dict[str, bytes]) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    files.remove_stale_partials(parent)
    partial = files.partial_path(parent)
    partial.mkdir()
    try:
        for file, content in contents.items():
            files.write_file(partial / file, content)
        files.sync_folder(partial)
        return publish(partial, parent / name)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
