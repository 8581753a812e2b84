"""Files: reading those of other programs, and writing ours so that they are complete or absent."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import itertools
import os
import platform
import re
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from netfold.errors import DataError, NetfoldError, RunError, UnwrittenError, shown

# Writes that survive a power cut, and hidden folders of processes that may have died.


PARTIAL_PREFIX = ".partial-"
WRITABLE_HINT = "free space, or give another folder with --out"


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


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, data in contents.items():
        write_file(folder / name, data)


@contextlib.contextmanager
def writing(path: Path, hint: str) -> Iterator[None]:
    """What cannot be written meanwhile is an UnwrittenError that names the path."""
    try:
        yield
    except OSError as error:
        raise UnwrittenError(f"cannot write {path}: {error.strerror or error}", hint) from error


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
            descriptor = _lock(path)
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


def _lock(folder: Path) -> int:
    # The lock is held until the descriptor is closed. A BlockingIOError if the folder is locked.
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
            descriptor = _lock(path)
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


# Reading files of other programs with limits: regular files only, up to a size.
#
# A device such as /dev/zero never ends, and a pipe may never begin: both are refused before anything is read.
# Readers of formats (YAML, JSON, NumPy, run folders) get their bytes here and report other errors themselves.


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_REASONS = {
    errno.ENOENT: "there is no such file",
    errno.ENOTDIR: "a part of its path is not a directory",
    errno.EACCES: "permission denied",
    errno.ELOOP: "it is a link that leads back to itself",
    errno.ENXIO: "it is a socket, or a device that does not answer",
    errno.ENAMETOOLONG: "its name is too long",
}
_CHUNK_BYTES = 2**20


class UnreadableError(NetfoldError):
    """A file that cannot be read. The message is the reason ("it is a directory"), without a file name."""

    def __init__(self, message: str, hint: str = "", is_missing: bool = False, line: int = 0) -> None:
        super().__init__(message, hint)
        self.args = (message, hint, is_missing, line)  # the arguments that pickle passes to __init__
        self.is_missing = is_missing  # the path does not exist
        self.line = line  # the line with the first byte that is not text; otherwise 0


def open_regular(path: str | Path) -> BinaryIO:
    """A regular file, open for reading; links are followed.

    Raises
    ------
    UnreadableError
        It does not exist, is not a regular file, or permission is denied.
    """
    try:
        # O_NONBLOCK: do not wait for the other end of a pipe; no effect on regular files.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(Path(path), error) from None
    except ValueError:
        raise UnreadableError("its name holds a null character") from None
    file_type = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if file_type != stat.S_IFREG:
        os.close(descriptor)
        raise UnreadableError(f"it is {_KINDS.get(file_type, 'not a regular file')}")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: str | Path, limit_bytes: int) -> bytes:
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > limit_bytes:
            raise _too_large(limit_bytes, f"it has {size_bytes} bytes")
        return _read(file, limit_bytes)


def read_text(path: str | Path, limit_bytes: int) -> str:
    return text_of(read_bytes(path, limit_bytes))


def read_standard_input(limit_bytes: int) -> bytes:
    if sys.stdin is None or sys.stdin.closed:
        raise UnreadableError("standard input is closed")
    try:
        return _read(sys.stdin.buffer, limit_bytes)
    except OSError as error:
        raise _unreadable(Path("-"), error) from None


def text_of(content: bytes) -> str:
    # A byte order mark is dropped.
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"it is not UTF-8 text (line {line})"
        raise UnreadableError(message, "save the file as UTF-8", line=line) from None


def _read(file: BinaryIO, limit_bytes: int) -> bytes:
    """The rest of a file. It may be endless, so the size that it claims is not trusted."""
    chunks, size_bytes = [], 0
    try:
        while chunk := file.read(min(_CHUNK_BYTES, limit_bytes + 1 - size_bytes)):
            chunks.append(chunk)
            size_bytes += len(chunk)
            if size_bytes > limit_bytes:
                raise _too_large(limit_bytes, "it goes on")
    except OSError as error:
        raise UnreadableError(_reason(error)) from None
    return b"".join(chunks)


def _too_large(limit_bytes: int, size_text: str) -> UnreadableError:
    return UnreadableError(f"it is too large: {size_text}, up to {limit_bytes} are read")


def _unreadable(path: Path, error: OSError) -> UnreadableError:
    if error.errno == errno.ENOENT and path.is_symlink():
        return UnreadableError(f"it is a link to {os.readlink(path)!r}, which is not there")
    return UnreadableError(_reason(error), is_missing=error.errno == errno.ENOENT)


def _reason(error: OSError) -> str:
    kind = _KINDS[stat.S_IFDIR] if error.errno == errno.EISDIR else ""
    if kind:
        return f"it is {kind}"
    return _REASONS.get(error.errno or 0) or (error.strerror or str(error)).lower()


# A check that the folder for runs can be written, made before the run.


_BELOW_BYTES = 200
"""Bytes of the longest path below a scenario's folder."""


def require_writable(out_dir: Path, scenario_name: str) -> None:
    # Check that `write_run` can create `<out_dir>/<scenario_name>/…`; leaves no files.
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
    # A dead link exists.
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


# Versions of installed packages.


@cache  # reading them takes longer than a small run's simulation
def package_version(name: str) -> str:
    """Version of an installed distribution, "unknown" if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


# What a process may do: one run at a time, and none after a fork that has left threads behind.
#
# A fork has the memory of its parent, and one thread. The threads of polars, once started, are missing in
# it, and polars would wait for them for ever. (Processes that `netfold.sweep` starts are spawned: they
# begin anew.)


_THREADS = Path("/proc/self/task")
"""Linux's list of this process's threads, with their names."""
_POLARS = re.compile(r"polars-\d")


class _State:
    """Of this process."""

    def __init__(self) -> None:
        self.run_lock = threading.RLock()
        self.had_threads = False  # polars' threads ran at the last fork
        self.lacks_threads = False  # it is a fork of a process with such threads

    def look(self) -> None:
        # Before a fork, in the process that forks.
        self.had_threads = _has_threads()

    def begin(self) -> None:
        """After a fork, in the new process."""
        self.run_lock = threading.RLock()  # another thread may have had it, which is not here
        self.lacks_threads = self.lacks_threads or self.had_threads


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_state.look, after_in_child=_state.begin)


def _has_threads() -> bool:
    """Whether polars has started its threads; where that cannot be seen, whether it is imported."""
    names = []
    for thread in _THREADS.glob("*/comm"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            names.append(thread.read_text("utf-8", "replace"))
    return any(map(_POLARS.match, names)) if names else "polars" in sys.modules


def require_threads() -> None:
    if _state.lacks_threads:
        raise RunError(
            "this process was forked from one that had used netfold or polars: their threads are missing",
            "start it with multiprocessing.get_context('spawn') or 'forkserver', or use netfold.sweep",
        )


def one_run() -> contextlib.AbstractContextManager[object]:
    # Runs share PyTorch's generator and settings, which decide results.
    require_threads()
    return _state.run_lock
