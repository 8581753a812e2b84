"""The folder that runs are written to, tried before the work is done."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from netfold.sim.errors import DataError


def require_writable(out_dir: Path, scenario_name: str) -> None:
    """Check that `write_run` can make `<out_dir>/<scenario_name>/…`; leaves nothing behind.

    Raises
    ------
    DataError
        Which folder cannot be written, or is none.
    """
    for wanted in (out_dir, out_dir / scenario_name):
        folder = _nearest(wanted.absolute())
        reason = _refusal(folder)
        if reason:
            raise DataError(f"no run folder can be made in {out_dir}: {folder} {reason}", "use --out DIR")


def _nearest(wanted: Path) -> Path:
    """What is there of a path: itself, or what it would have to be made in; a dead link is there too."""
    return next(path for path in (wanted, *wanted.parents) if os.path.lexists(path))


def _refusal(folder: Path) -> str:
    """Why nothing can be written to a folder; empty if it can."""
    if not os.path.isdir(folder):
        return "is no folder"
    try:  # permissions do not tell: root may write to /proc, and cannot
        with TemporaryDirectory(prefix=".netfold-", dir=folder):
            return ""
    except OSError:
        return "cannot be written"
