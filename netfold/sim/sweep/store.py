"""Finished points, each in a file of its own, so that a sweep goes on where it was stopped.

A file is named by the digest of its point and is written whole or not at all. Points of other grids of the
same scenario are used too, and all can be removed at any time.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from netfold.errors import UnwrittenError
from netfold.sim.files import durable as files
from netfold.sim.sweep.task import Outcome, unzip

FOLDER = "points"
_FORMAT = 1


class Store:
    """The finished points of a scenario.

    Parameters
    ----------
    folder
        Where they are; made when the first is put in.
    keeps_runs
        A point counts as finished only if its run folder is there, too.
    """

    def __init__(self, folder: Path, keeps_runs: bool = False) -> None:
        self._folder, self._keeps_runs = folder, keeps_runs

    def run_folder(self, digest: str) -> Path:
        """Where the run folder of a point is, if it is kept."""
        return self._folder / digest

    def get(self, digest: str) -> Outcome | None:
        """A finished point; None if it is not there, or its file is damaged."""
        try:
            found = json.loads((self._folder / f"{digest}.json").read_bytes())
            if found["format"] != _FORMAT or found["digest"] != digest:
                return None
            rows = tuple({str(name): value for name, value in row.items()} for row in found["rows"])
            outcome = Outcome(rows, wall_s=float(found["wall_s"]), host=str(found["host"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        if not outcome.rows or (self._keeps_runs and not self.run_folder(digest).is_dir()):
            return None
        return outcome

    def kept_at(self, digest: str) -> datetime:
        """When a finished point was kept, in local time."""
        return datetime.fromtimestamp((self._folder / f"{digest}.json").stat().st_mtime).astimezone()

    def put(self, digest: str, outcome: Outcome) -> None:
        """Keep a finished point.

        Raises
        ------
        UnwrittenError
            It cannot be written, because the disk is full, for example.
        """
        content = asdict(replace(outcome, archive=b""))
        del content["archive"], content["error"]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if outcome.archive:
                kept = self.run_folder(digest)
                shutil.rmtree(kept, ignore_errors=True)
                files.write_folder(kept, lambda partial: unzip(outcome.archive, partial))
            text = json.dumps({"format": _FORMAT, "digest": digest, **content}, allow_nan=False)
            files.write_file(self._folder / f"{digest}.json", text.encode())
        except OSError as error:
            if self.get(digest) is not None:  # another sweep was writing the same point
                return
            raise UnwrittenError(
                f"cannot write {self._folder}: {error.strerror or error}",
                "free space, or give another folder with --out",
            ) from error
