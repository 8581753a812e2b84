"""Writes that survive a power cut, and hidden folders of processes that may have died."""

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
