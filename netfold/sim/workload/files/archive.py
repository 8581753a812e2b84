"""NumPy's archives (`.npz`): only the requested parts are unpacked and held in memory."""

from __future__ import annotations

import lzma
import math
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from netfold.errors import DataError
from netfold.sim.files.foreign import UnreadableError, open_regular
from netfold.sim.workload.files.stored import (
    StoredArray,
    damaged,
    header,
    require_size,
    same_name,
)

_BLOCK_BYTES = 1 << 20
_WRITTEN_BY = "numpy.save or savez"


def read_npz(path: Path, file: BinaryIO) -> Mapping[str, StoredArray]:
    """The arrays of an archive, by name; only their headers are read."""
    archive = _Archive(path)
    tensors = {}
    with _as_data_error(path), zipfile.ZipFile(file) as opened:
        for info in opened.infolist():
            with opened.open(info) as content:
                shape, is_fortran, dtype = header(path, content)
                require_size(path, shape, dtype, info.file_size - content.tell())
                member = _Member(archive, info.filename, content.tell(), dtype, shape)
            held_bytes = member.size_bytes if is_fortran else 0
            read = member.read_turned if is_fortran else member.read
            name = info.filename.removesuffix(".npy")
            if name in tensors:  # "w" and "w.npy", or a member twice
                raise same_name(path, name)
            tensors[name] = StoredArray(shape, dtype.name, read, held_bytes)
    if not tensors:
        raise DataError(f"{path}: holds no arrays", "save the workers' gradients in it")
    return tensors


class _Archive:
    """An archive that is opened at the first read, once for all its members."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: zipfile.ZipFile | None = None

    def open(self, name: str) -> IO[bytes]:
        """The content of a member from its beginning on."""
        if self._opened is None:
            file = open_regular(self.path)
            weakref.finalize(self, file.close)
            self._opened = zipfile.ZipFile(file)
        return self._opened.open(name)


class _Member:
    """An array in an archive. Unpacking only goes forward: parts read in order take one pass.

    The checksum covers the whole member and is checked when its end is read.
    """

    def __init__(
        self, archive: _Archive, name: str, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        self._archive, self._name, self._start, self._dtype, self._shape = archive, name, start, dtype, shape
        self._stream: IO[bytes] | None = None
        self._at = 0  # bytes into the member, where the stream is
        self._whole: NDArray[Any] | None = None  # of an array in column order

    @property
    def size_bytes(self) -> int:
        """Size of all values."""
        return math.prod(self._shape) * self._dtype.itemsize

    def read(self, index: tuple[int, ...]) -> NDArray[Any]:
        """The part at some leading indices of an array in row order."""
        inner = self._shape[len(index) :]
        number = 0
        for place, size in zip(index, self._shape, strict=False):
            number = number * size + place
        size_bytes = math.prod(inner) * self._dtype.itemsize
        found = np.empty(inner, self._dtype)
        self._fill(self._start + number * size_bytes, found.reshape(-1).view(np.uint8))
        return found

    def read_turned(self, index: tuple[int, ...]) -> NDArray[Any]:
        """The part at some leading indices of an array in column order, which is spread over the member."""
        if self._whole is None:
            flat = np.empty(math.prod(self._shape), self._dtype)
            self._fill(self._start, flat.view(np.uint8))
            self._whole = flat.reshape(self._shape, order="F")
        found: NDArray[Any] = self._whole[index]
        return found

    def _fill(self, begin: int, target: NDArray[np.uint8]) -> None:
        """Read bytes from an offset on."""
        with _as_data_error(self._archive.path):
            if self._stream is None or begin < self._at:
                self._stream, self._at = self._archive.open(self._name), 0
            for _ in self._blocks(begin - self._at):
                pass
            filled = 0
            for block in self._blocks(target.size):
                target[filled : filled + len(block)] = np.frombuffer(block, np.uint8)
                filled += len(block)

    def _blocks(self, count: int) -> Iterator[bytes]:
        """The next bytes, piece by piece."""
        assert self._stream is not None
        while count > 0:
            block = self._stream.read(min(_BLOCK_BYTES, count))
            if not block:
                raise damaged(self._archive.path, _WRITTEN_BY, f"{self._name} ends early")
            count -= len(block)
            self._at += len(block)
            yield block


@contextmanager
def _as_data_error(path: Path) -> Iterator[None]:
    """Turn what `zipfile` raises on a damaged archive into a `DataError`."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, KeyError):
        raise damaged(path, _WRITTEN_BY) from None
    except UnreadableError as error:
        raise DataError(f"{path}: cannot be read: {error.message}", "give the path of a file") from None
