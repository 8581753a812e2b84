"""Workloads from a user's files: NumPy arrays and archives, safetensors, PyTorch."""

from __future__ import annotations

import json
import lzma
import math
import pickle
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from netfold.errors import DataError
from netfold.homomorphic.message import Gradient, StepFact, Tensor
from netfold.sim.files import UnreadableError, open_regular
from netfold.sim.workload.fusion import ONE_BUCKET, Fusion
from netfold.sim.workload.layers import Layer, elements_of, layers_of, place_tensors, tensor_of
from netfold.sim.workload.workload import FACTS_WITHOUT_TRAINING, Untrained, Workload, WorkloadOption

# An array of a file that is not read yet, and NumPy's headers with their checks.


_AXES_MAX = 64
"""Most axes that NumPy 2 allows."""
SAVE_HINT = "of a PyTorch tensor: numpy.save('gradient.npy', tensor.float().cpu().numpy())"


@dataclass(frozen=True)
class StoredArray:
    """An array of a file, not read yet."""

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[tuple[int, ...]], NDArray[Any]]
    """Returns the part at some leading indices."""
    held_bytes: int = 0
    """Bytes that stay in memory after the first read."""


def damage_error(path: Path, by: str, why: str = "") -> DataError:
    """Error for a file whose contents do not match its suffix."""
    return DataError(
        f"{path}: damaged, of Python objects, or not written by {by}{why and f': {why}'}", SAVE_HINT
    )


def same_name(path: Path, name: str) -> DataError:
    return DataError(f"{path}: holds two arrays of the name {name!r}", "give each array a name of its own")


def header(path: Path, file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array in NumPy's format."""
    try:
        version = np.lib.format.read_magic(file)
        reader = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if reader is None:
            raise damage_error(
                path, "numpy.save or savez", f"version {version[0]}.{version[1]} of the format"
            )
        shape, is_fortran, dtype = reader(file)
    except (ValueError, EOFError, TypeError, SyntaxError, OverflowError, MemoryError):
        raise damage_error(path, "numpy.save or savez") from None
    if dtype.hasobject or dtype.subdtype or dtype.itemsize == 0 or not _is_possible(shape, dtype):
        reason = "" if dtype.hasobject else f"no array of {dtype} has the shape {shape}"
        raise damage_error(path, "numpy.save or savez", reason)
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


# NumPy's archives (`.npz`): only the requested parts are unpacked and held in memory.


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
        self._whole: NDArray[Any] | None = None  # all values, if they are in column order

    @property
    def size_bytes(self) -> int:
        return math.prod(self._shape) * self._dtype.itemsize

    def read(self, index: tuple[int, ...]) -> NDArray[Any]:
        """The part at some leading indices of an array in row order."""
        inner = self._shape[len(index) :]
        number = 0
        for coordinate, size in zip(index, self._shape, strict=False):
            number = number * size + coordinate
        size_bytes = math.prod(inner) * self._dtype.itemsize
        part = np.empty(inner, self._dtype)
        self._fill(self._start + number * size_bytes, part.reshape(-1).view(np.uint8))
        return part

    def read_turned(self, index: tuple[int, ...]) -> NDArray[Any]:
        """The part at some leading indices of an array in column order, which is spread over the member."""
        if self._whole is None:
            flat = np.empty(math.prod(self._shape), self._dtype)
            self._fill(self._start, flat.view(np.uint8))
            self._whole = flat.reshape(self._shape, order="F")
        part: NDArray[Any] = self._whole[index]
        return part

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
                raise damage_error(self._archive.path, _WRITTEN_BY, f"{self._name} ends early")
            count -= len(block)
            self._at += len(block)
            yield block


@contextmanager
def _as_data_error(path: Path) -> Iterator[None]:
    """Turn what `zipfile` raises on a damaged archive into a `DataError`."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, KeyError):
        raise damage_error(path, _WRITTEN_BY) from None
    except UnreadableError as error:
        raise DataError(f"{path}: cannot be read: {error.message}", "give the path of a file") from None


# Gradients from files of other programs: NumPy arrays, safetensors and PyTorch files.
#
# Every reader returns `StoredArray`s whose parts are read on request, so that a large file is never in memory
# as a whole (except an array's `held_bytes`). Headers are checked against the file's size before anything is
# allocated.


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
        raise damage_error(path, "safetensors", str(error)) from None
    if not names:
        raise DataError(f"{path}: holds no tensors", "save the workers' gradients in it")
    # The header is read here because the library makes a list of all tensors whenever it is asked for one.
    mapped = np.memmap(path, np.uint8, "r")
    return {name: _of_safetensors(mapped, start, described[name]) for name in names}


def _distinct(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; of a key that it has twice the last value would count."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise same_name(path, twice)
    return mapping


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
        floats: NDArray[Any] = values.view(inner).float().numpy()
        return floats

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
        raise damage_error(path, "torch.save of a tensor, or of tensors by name") from None
    tensors = {"": content} if isinstance(content, torch.Tensor) else content
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in tensors.items()
    ):
        raise DataError(
            f"{path}: holds {type(content).__name__}, not a tensor or tensors by name",
            "torch.save(gradients, 'gradients.pt') with a tensor (workers, elements), or a dict of tensors",
        )
    if not tensors:
        raise DataError(f"{path}: holds no tensors", "save the workers' gradients in it")
    return {name: _of_torch(path, name, tensor) for name, tensor in tensors.items()}


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
        floats: NDArray[Any] = tensor[index].detach().float().numpy()
        return floats

    return StoredArray(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), read)


# Gradients from a user's file: one for each worker, or one for each step and worker.


WORKERS_MAX = 4096
NOT_FINITE = "a gradient must be finite; look for an error in the training step that computed it"
_AT_ONCE = 1 << 20  # numbers checked at a time
_WANTED = "a gradient file holds float32: (workers, elements), or (steps, workers, elements)"


@dataclass(frozen=True)
class FileSpec:
    """The contents of a gradient file, without the values."""

    path: str
    given: str
    """The path as the scenario writes it."""
    per_step: bool
    """Whether the first axis of named tensors is the step."""
    steps: int | None
    """Steps in the file; None: it holds one gradient, used in every step."""
    rows: int
    """Workers in the file."""
    tensors: tuple[Tensor, ...]
    """Tensors in the file's order, one after another."""
    fusion: Fusion = ONE_BUCKET
    held_bytes: int = 0
    """Bytes that a read leaves in memory, besides the gradients."""

    @property
    def elements(self) -> int:
        return elements_of(self.tensors)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return layers_of(self.tensors)

    @property
    def facts(self) -> frozenset[StepFact]:
        return FACTS_WITHOUT_TRAINING

    @property
    def longest_ps(self) -> int:
        # A device says how long passes take.
        return 0

    def workload(self, workers: int, seed: int = 0) -> Workload:
        return FileWorkload(self, workers)


@dataclass(frozen=True, kw_only=True)
class GradientFile(WorkloadOption):
    """Your own gradients, from a file; nothing is trained."""

    kind: ClassVar[str] = "file"
    path: str
    """A .npy, .npz, .safetensors or .pt file, relative to the scenario file: a gradient for each worker."""
    per_step: bool = False
    """For named tensors: true: the first axis is the step, the second the worker; false: the first axis is
    the worker."""

    def resolved(self, folder: Path, workers: int, seed: int) -> FileSpec:
        return file_spec(folder / self.path, self.path, workers, self.per_step, self.fusion)


def file_spec(
    path: Path, given: str, workers: int, per_step: bool = False, fusion: Fusion = ONE_BUCKET
) -> FileSpec:
    # Only headers are read.
    return _spec_of(read_arrays(path), FileSpec(str(path), given, per_step, None, workers, (), fusion))


def _spec_of(arrays: Mapping[str, StoredArray], wanted: FileSpec) -> FileSpec:
    """The spec of a file with these arrays; `wanted.rows` are the workers that need a gradient."""
    path_text, per_step, workers = wanted.given, wanted.per_step, wanted.rows
    leading = {_leading(path_text, name, array, per_step, workers) for name, array in arrays.items()}
    if len(leading) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:3])
        raise DataError(
            f"{path_text}: its tensors differ in their number of workers or steps: {shapes}",
            "stack the workers of each tensor",
        )
    ((steps, rows),) = leading
    if workers > rows:
        raise DataError(
            f"{path_text}: holds the gradients of {rows} workers, {workers} are needed",
            f"use {rows} workers at most",
        )
    axes = 1 + (steps is not None)
    tensors = place_tensors(
        tensor_of(name or "gradient", array.shape[axes:]) for name, array in arrays.items()
    )
    held_bytes = sum(array.held_bytes for array in arrays.values())
    return replace(wanted, steps=steps, rows=rows, tensors=tensors, held_bytes=held_bytes)


def _leading(
    given: str, name: str, array: StoredArray, per_step: bool, workers: int
) -> tuple[int | None, int]:
    shape, called = array.shape, f"{given}: {name}" if name else given
    if array.dtype not in FLOATS:
        raise DataError(f"{called}: holds {array.dtype} values", f"{_WANTED}{conversion(given, array.dtype)}")
    axes = (2 if per_step else 1) if name else len(shape) - 1
    if not 1 <= axes <= 2 or len(shape) <= axes or math.prod(shape) == 0:
        raise DataError(f"{called}: holds an array of shape {shape}", _WANTED)
    steps, rows = (shape[0], shape[1]) if axes == 2 else (None, shape[0])
    elements = math.prod(shape[axes:])
    is_turned = not name and elements < rows and workers <= elements and rows > workers
    if is_turned and (rows > WORKERS_MAX or elements == workers):
        raise DataError(
            f"{called}: shape {shape} is that of {rows} workers with {elements} elements each",
            "did you mean the transpose? numpy.save('gradients.npy', array.swapaxes(-1, -2))",
        )
    return steps, rows


class FileWorkload(Untrained):
    """A `Workload` without training: every step's gradients come from the file.

    Raises
    ------
    DataError
        The file has changed since its spec was read. `gradients` raises it for numbers that are not finite.
    """

    def __init__(self, spec: FileSpec, workers: int) -> None:
        self._spec = spec
        path = Path(spec.path)
        arrays = read_arrays(path)
        if _spec_of(arrays, replace(spec, rows=workers)) != spec:
            raise DataError(
                f"{path}: changed since the run began",
                "run again, and do not change the file until the run ends",
            )
        self._arrays = arrays
        super().__init__(spec.tensors, spec.fusion, workers)
        self._read: int | None = None  # the step of the file that `_gradients` holds
        self._gradients: list[list[Gradient]] = []

    def gradients(self, step: int) -> list[list[Gradient]]:
        """The file's gradients for a step, as `[worker][bucket]`; its steps repeat."""
        steps = self._spec.steps
        number = 0 if steps is None else step % steps
        if self._read != number:
            self._read, self._gradients = None, []  # freed before the next ones are read
            self._gradients = [self._cutter.cut(self._row(number, worker)) for worker in range(self._workers)]
            self._read = number
        return self._gradients

    def _row(self, step: int, worker: int) -> Gradient:
        """A worker's flat gradient: a view of the file's pages if its layout there fits."""
        index = (worker,) if self._spec.steps is None else (step, worker)
        parts = [self._part(name, array, index) for name, array in self._arrays.items()]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _part(self, name: str, array: StoredArray, index: tuple[int, ...]) -> Gradient:
        part = np.ascontiguousarray(array.read(index), np.float32).reshape(-1)
        if (odd := first_not_finite(part)) is not None:
            inner = np.unravel_index(odd, array.shape[len(index) :])
            where = ", ".join(map(str, (*index, *map(int, inner))))
            called = f"{self._spec.path}: {name}" if name else self._spec.path
            raise DataError(
                f"{called}: holds numbers that are not finite: {part[odd]} at [{where}], worker {index[-1]}",
                NOT_FINITE,
            )
        return part


def first_not_finite(values: Gradient) -> int | None:
    """Index of the first number that is not finite in a flat array; None if all are finite."""
    for start in range(0, values.size, _AT_ONCE):
        is_finite = np.isfinite(values[start : start + _AT_ONCE])
        if not is_finite.all():
            return start + int(np.argmin(is_finite))
    return None
