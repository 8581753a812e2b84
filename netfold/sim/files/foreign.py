"""Reading files of other programs with limits: regular files only, up to a size.

A device such as /dev/zero never ends, and a pipe may never begin: both are refused before anything is read.
Readers of formats (YAML, JSON, NumPy, run folders) get their bytes here and report other errors themselves.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from netfold.errors import NetfoldError

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
        self.line = line  # with the first byte that is not text; otherwise 0


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
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise UnreadableError(f"it is {_KINDS.get(kind, 'not a regular file')}")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: str | Path, limit_bytes: int) -> bytes:
    """The content of a regular file.

    Raises
    ------
    UnreadableError
        As `open_regular`; or it has more than `limit_bytes`.
    """
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > limit_bytes:
            raise _too_large(limit_bytes, f"it has {size_bytes} bytes")
        return _read(file, limit_bytes)


def read_text(path: str | Path, limit_bytes: int) -> str:
    """The content of a regular file as text, without a byte order mark.

    Raises
    ------
    UnreadableError
        As `read_bytes`; or it is not UTF-8.
    """
    return text_of(read_bytes(path, limit_bytes))


def read_standard_input(limit_bytes: int) -> bytes:
    """Everything on standard input.

    Raises
    ------
    UnreadableError
        It is closed or a directory, or has more than `limit_bytes`.
    """
    if sys.stdin is None or sys.stdin.closed:
        raise UnreadableError("standard input is closed")
    try:
        return _read(sys.stdin.buffer, limit_bytes)
    except OSError as error:
        raise _unreadable(Path("-"), error) from None


def text_of(content: bytes) -> str:
    """Bytes as text, without a byte order mark.

    Raises
    ------
    UnreadableError
        They are not UTF-8.
    """
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


def _too_large(limit_bytes: int, found: str) -> UnreadableError:
    return UnreadableError(f"it is too large: {found}, up to {limit_bytes} are read")


def _unreadable(path: Path, error: OSError) -> UnreadableError:
    if error.errno == errno.ENOENT and path.is_symlink():
        return UnreadableError(f"it is a link to {os.readlink(path)!r}, which is not there")
    return UnreadableError(_reason(error), is_missing=error.errno == errno.ENOENT)


def _reason(error: OSError) -> str:
    found = _KINDS[stat.S_IFDIR] if error.errno == errno.EISDIR else ""
    if found:
        return f"it is {found}"
    return _REASONS.get(error.errno or 0) or (error.strerror or str(error)).lower()
