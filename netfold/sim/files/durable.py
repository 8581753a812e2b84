"""Writes that survive a power cut, and hidden folders of processes that may have died."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import platform
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

PARTIAL_PREFIX = ".partial-"


def write_file(path: Path, data: bytes) -> None:
    """Write `data` to `path`; at any moment the file is the old one or the complete new one."""
    # Named after the thread, which writes one file at a time; not after the file, whose name may be long.
    temporary = path.with_name(f".{os.getpid()}-{threading.get_ident()}.tmp")
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
    with _partial_folder(wanted.parent) as partial:
        try:
            fill(partial)
            sync_folder(partial)
            return _publish(partial, wanted)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


@contextlib.contextmanager
def _partial_folder(parent: Path) -> Iterator[Path]:
    """A new hidden folder. It is locked meanwhile, so that others see that its process lives.

    A process id says that only within a PID namespace, of which containers have one each.
    """
    descriptor = None
    while True:
        path = claim(parent, os.mkdir)
        try:
            descriptor = _locked(path)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                break
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError:  # a file system without locks, where leftovers stay
            break
        # Another process took it for a leftover before it was locked, and removes it.
        if descriptor is not None:
            os.close(descriptor)
            descriptor = None
    try:
        yield path
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _locked(folder: Path) -> int:
    """A descriptor that locks a folder until it is closed.

    Raises
    ------
    BlockingIOError
        It is locked.
    OSError
        It cannot be opened or locked.
    """
    descriptor = os.open(folder, os.O_RDONLY)  # Windows opens no folder
    try:
        import fcntl  # late: Windows has none

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


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


def claim(parent: Path, make: Callable[[Path], None]) -> Path:
    """Make a file or folder at a free hidden path in `parent`, named after this machine and process.

    `make` raises FileExistsError where the path is taken, as by another thread.
    """
    prefix = f"{PARTIAL_PREFIX}{platform.node()}-{os.getpid()}"
    for number in itertools.count():
        path = parent / f"{prefix}-{number}"
        with contextlib.suppress(FileExistsError):
            make(path)
            return path
    raise AssertionError("counting does not end")


def remove_stale_partials(parent: Path) -> None:
    """Remove from `parent` the hidden folders of dead processes of this machine; not one that is locked."""
    name = re.compile(rf"{re.escape(PARTIAL_PREFIX + platform.node())}-(\d+)-\d+")
    for path in parent.iterdir():
        match = name.fullmatch(path.name)
        if match is None or _is_alive(int(match[1])):
            continue
        with contextlib.suppress(OSError):  # locked, or removed by another run
            if not path.is_dir() or path.is_symlink():
                path.unlink()
                continue
            descriptor = _locked(path)
            try:
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


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
