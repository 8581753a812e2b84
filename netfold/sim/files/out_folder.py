"""A check that the folder for runs can be written, made before the run."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from netfold.errors import DataError, shown

_BELOW_BYTES = 200  # of the longest path below a scenario's folder


def require_writable(out_dir: Path, scenario_name: str) -> None:
    """Check that `write_run` can create `<out_dir>/<scenario_name>/…`; leaves no files.

    Raises
    ------
    DataError
        A folder cannot be written, is not a folder, or its name is too long.
    """
    _require_short(out_dir / scenario_name)
    for wanted in (out_dir, out_dir / scenario_name):
        folder = _nearest(wanted.absolute())
        reason = _refusal(folder)
        if reason:
            raise DataError(f"no run folder can be made in {out_dir}: {folder} {reason}", "use --out DIR")


def _require_short(wanted: Path) -> None:
    """Refuse a path whose whole or parts have more bytes than the file system takes."""
    existing = _nearest(wanted.absolute())
    parts = wanted.absolute().relative_to(existing).parts
    for path in (wanted / ("x" * _BELOW_BYTES), *(existing / part for part in parts)):
        reason = ""
        try:
            os.lstat(path)
        except ValueError:
            reason = "it holds a null character"
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                reason = f"its name is too long ({len(os.fsencode(wanted))} bytes)"
        if reason:
            where = shown(str(wanted))
            raise DataError(f"no run folder can be made at {where}: {reason}", "use --out DIR")


def _nearest(wanted: Path) -> Path:
    """The path itself or its nearest ancestor that exists; a dead link exists."""
    return next(path for path in (wanted, *wanted.parents) if os.path.lexists(path))


def _refusal(folder: Path) -> str:
    """Why nothing can be written to a folder; empty if something can."""
    if not os.path.isdir(folder):
        return "is not a folder"
    try:  # permissions are not enough: root may write to /proc, but cannot
        with TemporaryDirectory(prefix=".netfold-", dir=folder):
            return ""
    except OSError:
        return "cannot be written"
