"""Write a study's folder, complete or not at all.

The same seed gives the same bytes in all files except `run.json` and `speed.svg`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from netfold.errors import DataError
from netfold.sim.files import durable as files
from netfold.sim.results.folder import circumstances, folder_name, to_json
from netfold.sim.results.records import to_parquet
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
        "declare_no_work": study.free_codecs,
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
    contents = {
        "study.json": to_json(as_dict(study)),
        "study.parquet": to_parquet(CodecRecord, study.records),
        "messages.parquet": to_parquet(MessageRecord, study.messages),
        "run.json": to_json({**circumstances(started_at, wall_s), "speeds": speeds_dict(study)}),
        **study_figures(study),
    }
    try:
        return files.write_folder(
            out_dir / FOLDER / folder_name(started_at, study.seed), lambda partial: _write(partial, contents)
        )
    except OSError as error:
        raise DataError(
            f"cannot write {out_dir}: {error.strerror or error}",
            "free space, or give another folder with --out",
        ) from error


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    for file, content in contents.items():
        files.write_file(folder / file, content)
