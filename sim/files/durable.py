"""Files that survive a power cut, and folders that belong to a process that may have died."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import platform
import re
import shutil
from collections.abc import Callable
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


def write_folder(wanted: Path, fill: Callable[[Path], None]) -> Path:
    """Make a folder whole or not at all; returns its path, to which a number is added if it is taken."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_partials(wanted.parent)
    partial = partial_path(wanted.parent)
    partial.mkdir()
    try:
        fill(partial)
        sync_folder(partial)
        return _publish(partial, wanted)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _publish(partial: Path, wanted: Path) -> Path:
    """Rename a finished folder; when the wanted name is taken, to the same with a number: `-2`, `-3` …"""
    for number in itertools.count(1):
        target = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        if os.path.lexists(target):
            continue
        try:
            os.rename(partial, target)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):  # another process was faster
                continue
            raise
        break
    sync_folder(target.parent)
    return target


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
