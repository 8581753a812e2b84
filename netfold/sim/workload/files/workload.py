"""Gradients from a user's file: one for each worker, or one for each step and worker."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from netfold.errors import DataError
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import StepFact, Tensor
from netfold.sim.workload.files.gradient_file import FLOATS, conversion, read_arrays
from netfold.sim.workload.files.stored import StoredArray
from netfold.sim.workload.fusion import ONE_BUCKET, Fusion
from netfold.sim.workload.layers import Layer, elements_of, layers_of, placed, tensor_of
from netfold.sim.workload.workload import FACTS_WITHOUT_TRAINING, Untrained, Workload

WORKERS_MAX = 4096
NOT_FINITE = "a gradient must be finite; look for an error in the training step that computed it"
_AT_ONCE = 1 << 20  # numbers checked at a time
_WANTED = "a gradient file holds float32: (workers, elements), or (steps, workers, elements)"


@dataclass(frozen=True)
class FileSpec:
    """The contents of a gradient file, without the values."""

    path: str
    given: str  # the path as the scenario writes it
    per_step: bool  # of named tensors: the first axis is the step
    steps: int | None  # in the file; None: it holds one gradient, used in every step
    rows: int  # workers in the file
    tensors: tuple[Tensor, ...]  # in the file's order, one after another
    fusion: Fusion = ONE_BUCKET
    held_bytes: int = 0  # that a read leaves in memory, besides the gradients

    @property
    def elements(self) -> int:
        """Number of elements of a gradient."""
        return elements_of(self.tensors)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, in gradient-ready order."""
        return layers_of(self.tensors)

    @property
    def facts(self) -> frozenset[StepFact]:
        """What its workload knows of a step."""
        return FACTS_WITHOUT_TRAINING

    @property
    def longest_ps(self) -> int:
        """0: a device says how long passes take."""
        return 0

    def workload(self, workers: int) -> Workload:
        """The file as a workload."""
        return FileWorkload(self, workers)


def file_spec(
    path: Path, given: str, workers: int, per_step: bool = False, fusion: Fusion = ONE_BUCKET
) -> FileSpec:
    """The contents of a file, read from its headers.

    Raises
    ------
    DataError
        It cannot be read, has the wrong type or shape, or has too few gradients for this number of workers.
    """
    return _spec_of(read_arrays(path), FileSpec(str(path), given, per_step, None, workers, (), fusion))


def _spec_of(arrays: Mapping[str, StoredArray], wanted: FileSpec) -> FileSpec:
    """The spec of a file with these arrays; `wanted.rows` are the workers that need a gradient."""
    given, per_step, workers = wanted.given, wanted.per_step, wanted.rows
    leading = {_leading(given, name, array, per_step, workers) for name, array in arrays.items()}
    if len(leading) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:3])
        raise DataError(
            f"{given}: its tensors differ in their number of workers or steps: {shapes}",
            "stack the workers of each tensor",
        )
    ((steps, rows),) = leading
    if workers > rows:
        raise DataError(
            f"{given}: holds the gradients of {rows} workers, {workers} are needed",
            f"use {rows} workers at most",
        )
    axes = 1 + (steps is not None)
    tensors = placed(tensor_of(name or "gradient", array.shape[axes:]) for name, array in arrays.items())
    held_bytes = sum(array.held_bytes for array in arrays.values())
    return replace(wanted, steps=steps, rows=rows, tensors=tensors, held_bytes=held_bytes)


def _leading(
    given: str, name: str, array: StoredArray, per_step: bool, workers: int
) -> tuple[int | None, int]:
    """Steps and workers that an array holds."""
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
        wanted = 0 if steps is None else step % steps
        if self._read != wanted:
            self._read, self._gradients = None, []  # freed before the next ones are read
            self._gradients = [self._cutter.cut(self._row(wanted, worker)) for worker in range(self._workers)]
            self._read = wanted
        return self._gradients

    def _row(self, step: int, worker: int) -> Gradient:
        """A worker's flat gradient: a view of the file's pages if its layout there fits."""
        index = (worker,) if self._spec.steps is None else (step, worker)
        parts = [self._part(name, array, index) for name, array in self._arrays.items()]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _part(self, name: str, array: StoredArray, index: tuple[int, ...]) -> Gradient:
        found = np.ascontiguousarray(array.read(index), np.float32).reshape(-1)
        if (odd := first_not_finite(found)) is not None:
            inner = np.unravel_index(odd, array.shape[len(index) :])
            place = ", ".join(map(str, (*index, *map(int, inner))))
            called = f"{self._spec.path}: {name}" if name else self._spec.path
            raise DataError(
                f"{called}: holds numbers that are not finite: {found[odd]} at [{place}], worker {index[-1]}",
                NOT_FINITE,
            )
        return found


def first_not_finite(values: Gradient) -> int | None:
    """Index of the first number that is not finite in a flat array; None if all are finite."""
    for start in range(0, values.size, _AT_ONCE):
        is_finite = np.isfinite(values[start : start + _AT_ONCE])
        if not is_finite.all():
            return start + int(np.argmin(is_finite))
    return None
