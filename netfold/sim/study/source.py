"""The gradients of a study: drawn for every pattern and density, or read from a file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from netfold.errors import DataError
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Tensor
from netfold.sim.capture.layout import NAME as TRACE
from netfold.sim.capture.layout import read_trace
from netfold.sim.scenario.explain import explain
from netfold.sim.scenario.node import Node
from netfold.sim.study.defaults import MADE_UP, WORKERS
from netfold.sim.study.memory import refuse_unread
from netfold.sim.study.options import read_value
from netfold.sim.workload import SyntheticSpec, synthetic_workload
from netfold.sim.workload.fusion import ONE_BUCKET
from netfold.sim.workload.gradient_files import (
    NOT_FINITE,
    SUFFIXES,
    WORKERS_MAX,
    FileWorkload,
    StoredArray,
    conversion,
    file_spec,
    first_not_finite,
    read_arrays,
)
from netfold.sim.workload.layers import Shape, elements_of, given_tensors
from netfold.sim.workload.recording import trace_spec
from netfold.sim.workload.workload_keys import Synthetic

ARRAY = "the array"  # the name of gradients that come from no file
INPUT_PATTERN = "input"  # the pattern's name for gradients from a file
_DIMENSIONS_MAX = 2
Shapes = Mapping[str, Shape] | Sequence[Shape | str | int] | str  # of the tensors of a gradient
_WANTED = "it needs a float32 array: (elements,), the gradient of every worker, or (workers, elements)"


@dataclass(frozen=True)
class Cell:
    """One kind of gradients; `rounds(n)` yields all workers' n times, each valid until the next."""

    pattern: str
    density: float  # share of a worker's elements, or units of a pattern, that are non-zero
    rounds: Callable[[int], Iterator[list[Gradient]]]
    sample: SyntheticSpec  # synthetic gradients of the same kind


@dataclass(frozen=True)
class Source:
    """All gradients of a study."""

    cells: tuple[Cell, ...]
    workers: int
    elements: int
    description: Mapping[str, Any]  # of the gradients, for the results
    notes: tuple[str, ...] = ()
    tensors: tuple[Tensor, ...] = ()  # of each gradient, one after another; empty: unknown

    def with_tensors(self, tensors: tuple[Tensor, ...], name: str = "shapes") -> Source:
        """The same gradients with known tensors; `name` is what errors call them.

        Raises
        ------
        DataError
            They have another number of elements, or the file has said what the tensors are.
        """
        if self.tensors:
            raise DataError(f"{name}: the file has the tensors' shapes", f"leave out {name}")
        _require_elements(tensors, self.elements, name)
        written = [f"{tensor.name}={'x'.join(map(str, tensor.shape))}" for tensor in tensors]
        return replace(self, tensors=tensors, description={**self.description, "tensors": written})


def read_shapes(shapes: Shapes, name: str = "shapes", elements: int | None = None) -> tuple[Tensor, ...]:
    """Tensors of a gradient from their shapes; `name` is what errors call them.

    Raises
    ------
    DataError
        They are no shapes, a name appears twice, or they do not have these elements together.
    """
    try:
        tensors = given_tensors(shapes)
    except ValueError as error:
        message, _, hint = str(error).partition("\n")
        raise DataError(f"{name}: {message}", hint) from None
    if elements is not None:
        _require_elements(tensors, elements, name)
    return tensors


def _require_elements(tensors: tuple[Tensor, ...], elements: int, name: str) -> None:
    if (found := elements_of(tensors)) != elements:
        raise DataError(
            f"{name}: the tensors have {found:,} elements, each gradient has {elements:,}",
            "give the shape of every tensor",
        )


def synthetic_source(options: Mapping[str, str], workers: int | None, seed: int) -> Source:
    """Synthetic gradients of all patterns and densities.

    `options` are keys of a scenario's synthetic workload and their texts; `pattern` and `density` may be
    lists with commas. `defaults.py` has the values of options that are left out.

    Raises
    ------
    ScenarioError
        The workload refuses a value. The message is that of a scenario file, with the option as its place.
    """
    options, workers = {**MADE_UP, **options}, workers or WORKERS
    sections = [
        _section({**options, "pattern": pattern, "density": density})
        for pattern in options["pattern"].split(",")
        for density in options["density"].split(",")
    ]
    specs = list(dict.fromkeys(map(_spec, sections)))  # 1% and 0.01 are the same
    description = {
        "row_elements": specs[0].row_elements,
        "overlap": specs[0].overlap,
        "distribution": specs[0].distribution,
    }
    cells = tuple(_drawn(spec, workers, seed) for spec in specs)
    return Source(cells, workers, specs[0].elements, description)


def _section(options: Mapping[str, str]) -> Synthetic:
    nodes = {key: read_value(text, "", f"--{key.replace('_', '-')}") for key, text in options.items()}
    tree = Node({"kind": Node("synthetic", "", 0, ""), **nodes}, "", 0, "")
    try:
        return Synthetic.model_validate(tree.plain)
    except ValidationError as error:
        raise explain(error, tree, Synthetic) from None


def _spec(section: Synthetic) -> SyntheticSpec:
    return SyntheticSpec(
        section.elements or 0,  # `options` always has elements
        section.density,
        section.pattern,
        section.row_elements,
        section.overlap,
        section.distribution,
    )


def _drawn(spec: SyntheticSpec, workers: int, seed: int) -> Cell:
    def rounds(count: int) -> Iterator[list[Gradient]]:
        workload = synthetic_workload(spec, workers, seed)
        for step in range(count):
            yield [buckets[0] for buckets in workload.gradients(step)]

    return Cell(spec.pattern, spec.density, rounds, spec)


def file_source(path: Path, workers: int | None) -> Source:
    """Gradients from a file, the same in every round; or from a recording, whose steps are the rounds.

    Of one array: a gradient for all workers, or a row for each. Of several named arrays, each with the worker
    as its first axis: these are the tensors of a gradient.

    Raises
    ------
    DataError
        The file cannot be read, has no float32 arrays of finite numbers of these shapes, or does not have one
        gradient per worker.
    NetfoldError
        It does not fit the available memory.
    """
    if path.is_dir() and path.suffix not in SUFFIXES:
        return _recorded(path, workers)
    arrays = read_arrays(path)
    if len(arrays) > 1:
        return _named(path, workers)
    return _given(str(path), next(iter(arrays.values())), workers)


def array_source(array: NDArray[Any], workers: int | None) -> Source:
    """Gradients from an array, as from a file that holds it."""
    return _given(ARRAY, StoredArray(array.shape, array.dtype.name, lambda place: array[place]), workers)


def _named(path: Path, workers: int | None) -> Source:
    """Gradients from a file of several named arrays."""
    spec = file_spec(path, str(path), 1)
    if spec.rows > WORKERS_MAX:
        raise DataError(
            f"{path}: its arrays are those of {spec.rows} workers, a study takes up to {WORKERS_MAX}",
            "stack the workers of each array along its first axis",
        )
    _require_workers(str(path), spec.rows, workers)
    refuse_unread(str(path), (spec.rows, spec.elements), spec.rows)
    gradients = FileWorkload(spec, spec.rows).gradients(0)
    return _of_rows(str(path), [own[0] for own in gradients]).with_tensors(spec.tensors)


def _recorded(folder: Path, workers: int | None) -> Source:
    """Gradients from a recording of `netfold capture`: a step in every round, and again from the first."""
    name, trace = str(folder), read_trace(folder)
    _require_workers(name, trace.world_size, workers)
    refuse_unread(name, (trace.world_size, trace.elements), trace.world_size)
    spec = trace_spec(folder, name, trace.world_size, ONE_BUCKET, with_times=False)

    def rounds(count: int) -> Iterator[list[Gradient]]:
        workload = spec.workload(spec.rows)
        for step in range(count):
            yield [own[0] for own in workload.gradients(step)]

    first = next(rounds(1))
    density = sum(map(np.count_nonzero, first)) / (len(first) * spec.elements)
    digest = hashlib.sha256((folder / TRACE).read_bytes()).hexdigest()  # it has the digests of the gradients
    cell = Cell(INPUT_PATTERN, density, rounds, SyntheticSpec(spec.elements, density))
    description = {"input": name, "sha256": digest, "steps": spec.steps}
    source = Source((cell,), spec.rows, spec.elements, description)
    return source.with_tensors(spec.tensors)


def _require_workers(name: str, rows: int, workers: int | None) -> None:
    if workers not in (None, rows):
        raise DataError(
            f"{name}: holds the gradients of {rows} workers, --workers says {workers}", "leave out --workers"
        )


def _of_rows(name: str, rows: list[Gradient], notes: tuple[str, ...] = ()) -> Source:
    """Gradients of each worker, the same in every round; with notes, of all workers the same."""
    kept = rows[:1] if notes else rows
    density = sum(map(np.count_nonzero, kept)) / (len(kept) * rows[0].size)
    digest = hashlib.sha256()
    for row in kept:
        digest.update(row.data)
    cell = Cell(
        INPUT_PATTERN,
        density,
        lambda count: (rows for _ in range(count)),
        SyntheticSpec(rows[0].size, density),
    )
    description = {"input": name, "sha256": digest.hexdigest()}
    return Source((cell,), len(rows), rows[0].size, description, notes)


def _given(name: str, array: StoredArray, workers: int | None) -> Source:
    gradients = _checked(name, array, workers or WORKERS)
    if gradients.ndim == 1:
        workers = WORKERS if workers is None else workers
        notes = (f"all {workers} workers have the same gradient, from {name}: it is also their union",)
        return _of_rows(name, [gradients] * workers, notes)
    _require_workers(name, len(gradients), workers)
    return _of_rows(name, list(gradients))


def _checked(name: str, stored: StoredArray, workers: int) -> NDArray[np.float32]:
    """The array in row order, checked; if it is a single gradient, `workers` workers get it."""
    if stored.dtype != "float32":
        hint = conversion(name, stored.dtype)
        raise DataError(f"{name}: holds {stored.dtype} values", _WANTED + hint)
    shape = stored.shape
    if not 1 <= len(shape) <= _DIMENSIONS_MAX or math.prod(shape) == 0:
        raise DataError(f"{name}: holds an array of shape {shape}", _WANTED)
    if len(shape) == _DIMENSIONS_MAX and shape[0] > WORKERS_MAX:
        turned = shape[1] <= WORKERS_MAX
        raise DataError(
            f"{name}: shape {shape} is that of {shape[0]} workers with {shape[1]} elements each, "
            f"a study takes up to {WORKERS_MAX} workers",
            "did you mean the transpose? numpy.save('gradients.npy', array.T)" if turned else _WANTED,
        )
    refuse_unread(name, shape, workers)
    array = np.ascontiguousarray(stored.read(()), np.float32)  # in this machine's byte order, and in rows
    if (odd := first_not_finite(array.reshape(-1))) is not None:
        place = tuple(map(int, np.unravel_index(odd, shape)))
        where = ", ".join(map(str, place))
        raise DataError(f"{name}: holds numbers that are not finite: {array[place]} at [{where}]", NOT_FINITE)
    return array
