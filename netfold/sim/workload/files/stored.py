"""An array of a file that is not read yet, and NumPy's headers with their checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.errors import DataError

_AXES_MAX = 64  # of NumPy 2
SAVE_HINT = "of a PyTorch tensor: numpy.save('gradient.npy', tensor.float().cpu().numpy())"


@dataclass(frozen=True)
class StoredArray:
    """An array of a file, not read yet."""

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[tuple[int, ...]], NDArray[Any]]  # returns the part at some leading indices
    held_bytes: int = 0  # that stay in memory after the first read


def damaged(path: Path, by: str, why: str = "") -> DataError:
    """Error for a file whose contents do not match its suffix."""
    return DataError(
        f"{path}: damaged, of Python objects, or not written by {by}{why and f': {why}'}", SAVE_HINT
    )


def same_name(path: Path, name: str) -> DataError:
    """Error for a file in which two arrays have the same name."""
    return DataError(f"{path}: holds two arrays of the name {name!r}", "give each array a name of its own")


def header(path: Path, file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array in NumPy's format."""
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise damaged(path, "numpy.save or savez", f"version {version[0]}.{version[1]} of the format")
        shape, is_fortran, dtype = read(file)
    except (ValueError, EOFError, TypeError, SyntaxError, OverflowError, MemoryError):
        raise damaged(path, "numpy.save or savez") from None
    if dtype.hasobject or dtype.subdtype or dtype.itemsize == 0 or not _is_possible(shape, dtype):
        reason = "" if dtype.hasobject else f"no array of {dtype} has the shape {shape}"
        raise damaged(path, "numpy.save or savez", reason)
    return shape, is_fortran, dtype


def _is_possible(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether NumPy can have such an array; its limits hold where there are no elements, too."""
    is_whole = all(type(size) is int for size in shape)  # True is another one's 1
    size_bytes = math.prod(abs(size) or 1 for size in shape) * dtype.itemsize
    return is_whole and len(shape) <= _AXES_MAX and size_bytes <= np.iinfo(np.intp).max


def require_size(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], there_are: int) -> None:
    """Refuse a header that promises more than the file holds."""
    needed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or needed > there_are:
        raise DataError(
            f"{path}: damaged: its header says {dtype} values of shape {shape}, {needed} bytes; "
            f"{there_are} bytes follow",
            "copy or write the file again",
        )
