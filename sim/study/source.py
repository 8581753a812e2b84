"""The gradients of a study: drawn for every pattern and density, or read from a file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from netfold.homomorphic.message import Gradient
from netfold.sim.errors import DataError
from netfold.sim.scenario.explain import explain
from netfold.sim.scenario.models import Synthetic
from netfold.sim.scenario.node import Node
from netfold.sim.study.defaults import MADE_UP, WORKERS
from netfold.sim.study.memory import refuse_unread
from netfold.sim.study.options import read_value
from netfold.sim.workload import SyntheticSpec, synthetic_workload
from netfold.sim.workload.files.gradient_file import conversion, read_tensors
from netfold.sim.workload.files.tensor import Tensor
from netfold.sim.workload.files.workload import NOT_FINITE, WORKERS_MAX, first_not_finite

ARRAY = "the array"  # the name of gradients that come from no file
INPUT_PATTERN = "input"  # the pattern's name for gradients from a file
_DIMENSIONS_MAX = 2
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
        section.elements,
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
    """Gradients from a file of one array: one for all workers, or one each; the same in every round.

    Raises
    ------
    DataError
        The file cannot be read, is not a float32 array of finite numbers with one or two dimensions, or does
        not have one gradient per worker.
    NetfoldError
        It does not fit the available memory.
    """
    return _given(str(path), _tensor(path), workers)


def array_source(array: NDArray[Any], workers: int | None) -> Source:
    """Gradients from an array, as from a file that holds it."""
    return _given(ARRAY, Tensor(array.shape, array.dtype.name, lambda place: array[place]), workers)


def _given(name: str, tensor: Tensor, workers: int | None) -> Source:
    gradients = _checked(name, tensor, workers or WORKERS)
    notes: tuple[str, ...] = ()
    if gradients.ndim == 1:
        workers = WORKERS if workers is None else workers
        notes = (f"all {workers} workers have the same gradient, from {name}: it is also their union",)
        rows = [gradients] * workers
    else:
        rows = list(gradients)
        if workers not in (None, len(rows)):
            raise DataError(
                f"{name}: holds the gradients of {len(rows)} workers, --workers says {workers}",
                "leave out --workers",
            )
    cell = Cell(
        INPUT_PATTERN,
        np.count_nonzero(gradients) / gradients.size,
        lambda count: (rows for _ in range(count)),
        SyntheticSpec(rows[0].size, np.count_nonzero(gradients) / gradients.size),
    )
    description = {"input": name, "sha256": hashlib.sha256(gradients.data).hexdigest()}
    return Source((cell,), len(rows), rows[0].size, description, notes)


def _tensor(path: Path) -> Tensor:
    """The one array of a file, not read yet."""
    tensors = read_tensors(path)
    if len(tensors) != 1:
        raise DataError(
            f"{path}: holds {len(tensors)} arrays: {', '.join(tensors)}",
            "save one array alone in a file",
        )
    return next(iter(tensors.values()))


def _checked(name: str, tensor: Tensor, workers: int) -> NDArray[np.float32]:
    """The array in row order, checked; if it is a single gradient, `workers` workers get it."""
    if tensor.dtype != "float32":
        hint = conversion(name, tensor.dtype)
        raise DataError(f"{name}: holds {tensor.dtype} values", _WANTED + hint)
    shape = tensor.shape
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
    array = np.ascontiguousarray(tensor.read(()), np.float32)  # in this machine's byte order, and in rows
    if (odd := first_not_finite(array.reshape(-1))) is not None:
        place = tuple(map(int, np.unravel_index(odd, shape)))
        where = ", ".join(map(str, place))
        raise DataError(f"{name}: holds numbers that are not finite: {array[place]} at [{where}]", NOT_FINITE)
    return array
