"""Writes that survive a power cut, and hidden folders of processes that may have died."""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
import shutil
from pathlib import Path

PARTIAL_PREFIX = ".partial-"


def write_file(path: Path, data: bytes) -> None:
    """Write `data` to `path`; at any moment the file is the old one or the complete new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable, if the system supports it (Windows cannot open a folder)."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def partial_path(parent: Path) -> Path:
    """A free hidden path in `parent`, named after this machine and process."""
    prefix = f"{PARTIAL_PREFIX}{platform.node()}-{os.getpid()}"
    return next(
        path for number in itertools.count() if not os.path.lexists(path := parent / f"{prefix}-{number}")
    )


def remove_stale_partials(parent: Path) -> None:
    """Remove from `parent` the hidden folders of dead processes of this machine."""
    name = re.compile(rf"{re.escape(PARTIAL_PREFIX + platform.node())}-(\d+)-\d+")
    for path in parent.iterdir():
        match = name.fullmatch(path.name)
        if match is None or _is_alive(int(match[1])):
            continue
        if path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # there, os.kill(pid, 0) would end the process; a stale folder does no harm
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
