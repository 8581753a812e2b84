"""Gradients from files of other programs: NumPy arrays, safetensors and PyTorch files.

Every reader returns `StoredArray`s whose parts are read on request, so that a large file is never in memory
as a whole (except an array's `held_bytes`). Headers are checked against the file's size before anything is
allocated.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from netfold.errors import DataError
from netfold.sim.files.foreign import UnreadableError, open_regular
from netfold.sim.workload.files.archive import read_npz
from netfold.sim.workload.files.stored import (
    SAVE_HINT,
    StoredArray,
    damaged,
    header,
    require_size,
    same_name,
)

SUFFIXES = (".npy", ".npz", ".safetensors", ".pt", ".pth")
FLOATS = ("float32", "float16", "bfloat16")
_OLD_TORCH = pickle.dumps(0x1950A86A20F9469CFC6C, 2)  # first bytes of `torch.save` before version 1.6


def read_arrays(path: Path) -> Mapping[str, StoredArray]:
    """The arrays of a file by name; a single array without a name gets an empty one.

    Raises
    ------
    DataError
        The file does not exist, is not a regular file, has an unknown suffix, is damaged, or is shorter than
        its header says.
    """
    readers = {
        ".npy": _npy,
        ".npz": read_npz,
        ".safetensors": _safetensors,
        ".pt": _torch,
        ".pth": _torch,
    }
    reader = readers.get(path.suffix)
    if reader is None:
        kinds = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise DataError(f"{path}: must be a {kinds} file, found {path.suffix or 'no suffix'}", SAVE_HINT)
    try:
        with open_regular(path) as file:
            return reader(path, file)
    except UnreadableError as error:
        raise DataError(f"{path}: cannot be read: {error.message}", "give the path of a file") from None


def conversion(path: str | Path, dtype: str) -> str:
    """How to convert a file's numbers to float32, as the end of a hint; empty if they are not numbers."""
    if not dtype.startswith(("float", "bfloat", "int", "uint")):
        return ""
    is_torch = str(path).endswith((".safetensors", ".pt", ".pth"))
    return f"; convert it with {'tensor.float()' if is_torch else 'array.astype(numpy.float32)'}"


def _npy(path: Path, file: BinaryIO) -> Mapping[str, StoredArray]:
    size_bytes = file.seek(0, 2)
    file.seek(0)
    shape, is_fortran, dtype = header(path, file)
    start = file.tell()
    require_size(path, shape, dtype, size_bytes - start)
    order: Literal["F", "C"] = "F" if is_fortran else "C"
    if math.prod(shape) == 0:
        return {"": _of_array(np.empty(shape, dtype))}
    # Private pages: nothing writes them, but compiled code takes only writable arrays.
    mapped = np.memmap(path, dtype, "c", start, shape, order)
    return {"": _of_array(mapped.view(np.ndarray))}


def _of_array(array: NDArray[Any]) -> StoredArray:
    return StoredArray(array.shape, array.dtype.name, lambda index: array[index])


def _safetensors(path: Path, file: BinaryIO) -> Mapping[str, StoredArray]:
    from safetensors import SafetensorError, safe_open

    try:
        opener: Any = safe_open
        names = opener(path, framework="pt").keys()  # it checks the header against the file
        start = 8 + int.from_bytes(file.read(8), "little")
        described = json.loads(file.read(start - 8), object_pairs_hook=partial(_distinct, path))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise damaged(path, "safetensors", str(error)) from None
    if not names:
        raise DataError(f"{path}: holds no tensors", "save the workers' gradients in it")
    # The header is read here because the library makes a list of all tensors whenever it is asked for one.
    mapped = np.memmap(path, np.uint8, "r")
    return {name: _of_safetensors(mapped, start, described[name]) for name in names}


def _distinct(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; of a key that it has twice the last value would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise same_name(path, twice)
    return found


def _of_safetensors(mapped: NDArray[np.uint8], start: int, described: Mapping[str, Any]) -> StoredArray:
    dtype, shape = str(described["dtype"]), tuple(described["shape"])
    dtype = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(dtype, dtype.lower())
    begin, end = (start + offset for offset in described["data_offsets"])

    def read(index: tuple[int, ...]) -> NDArray[Any]:
        import torch

        inner = shape[len(index) :]
        size_bytes = (end - begin) // math.prod(shape[: len(index)])
        first = begin + size_bytes * int(np.ravel_multi_index(index, shape[: len(index)]) if index else 0)
        values = torch.from_numpy(np.array(mapped[first : first + size_bytes])).view(getattr(torch, dtype))
        found: NDArray[Any] = values.view(inner).float().numpy()
        return found

    return StoredArray(shape, dtype, read)


def _torch(path: Path, file: BinaryIO) -> Mapping[str, StoredArray]:
    if file.read(len(_OLD_TORCH)) == _OLD_TORCH:
        raise DataError(
            f"{path}: has PyTorch's old format, which cannot be read in parts",
            "save it again: torch.save(torch.load('old.pt', weights_only=True), 'new.pt')",
        )
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, OSError, KeyError, TypeError):
        raise damaged(path, "torch.save of a tensor, or of tensors by name") from None
    named = {"": content} if isinstance(content, torch.Tensor) else content
    if not isinstance(named, dict) or not all(
        isinstance(name, str) and isinstance(one, torch.Tensor) for name, one in named.items()
    ):
        raise DataError(
            f"{path}: holds {type(content).__name__}, not a tensor or tensors by name",
            "torch.save(gradients, 'gradients.pt') with a tensor (workers, elements), or a dict of tensors",
        )
    if not named:
        raise DataError(f"{path}: holds no tensors", "save the workers' gradients in it")
    return {name: _of_torch(path, name, tensor) for name, tensor in named.items()}


def _of_torch(path: Path, name: str, tensor: Any) -> StoredArray:
    called = f"{path}: {name}" if name else str(path)
    if tensor.is_meta:
        raise DataError(
            f"{called}: holds a shape without values (a tensor of the device meta)",
            "save the gradients themselves: torch.save(gradients.cpu(), 'gradients.pt')",
        )
    if tensor.is_nested or str(tensor.layout) != "torch.strided":
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise DataError(
            f"{called}: holds a tensor of the layout {kind}, must be a dense one",
            "torch.save(gradients.to_dense(), 'gradients.pt')",
        )

    def read(index: tuple[int, ...]) -> NDArray[Any]:
        found: NDArray[Any] = tensor[index].detach().float().numpy()
        return found

    return StoredArray(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), read)
