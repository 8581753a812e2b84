"""Files that survive a power cut, and folders that belong to a process that may have died."""

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
    """Write `data` to `path`, so that at any moment the file is the old one or all of the new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # what is told is why writing failed
            temporary.unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable, where the system can (Windows cannot open a folder)."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def partial_path(parent: Path) -> Path:
    """Free hidden name in `parent` that says which process of which machine it belongs to."""
    prefix = f"{PARTIAL_PREFIX}{platform.node()}-{os.getpid()}"
    return next(
        path for number in itertools.count() if not os.path.lexists(path := parent / f"{prefix}-{number}")
    )


def remove_stale_partials(parent: Path) -> None:
    """Remove what killed processes of this machine left in `parent`; another's are not ours to judge."""
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
    if os.name == "nt":  # signal 0 is not a question there; keeping a stale folder does no harm
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
