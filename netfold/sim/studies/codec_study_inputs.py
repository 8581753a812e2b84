"""What a study is made of: codecs, gradients and models, as users name them."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.errors import DataError, NetfoldError, ScenarioError
from netfold.homomorphic.codec import Codec, codec_kinds
from netfold.homomorphic.message import Gradient, Tensor
from netfold.kernels.processor import pin
from netfold.sim.capture.recording_files import NAME as TRACE
from netfold.sim.capture.recording_files import read_trace
from netfold.sim.keys import CodecOptions, Section
from netfold.sim.plan.memory_footprint import BASE_BYTES, UPPER_BYTES, Footprint, available_bytes, size_text
from netfold.sim.scenario.validation_errors import unknown_key, validated
from netfold.sim.scenario.yaml_tree import Node, parse
from netfold.sim.studies import MADE_UP, WORKERS
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
from netfold.sim.workload.layers import FLOAT_BYTES, Shape, elements_of, given_tensors, layers_of
from netfold.sim.workload.model import Density, Model, TaskSettings
from netfold.sim.workload.models.registry import facts_of, known_densities, model_kinds
from netfold.sim.workload.recording import trace_spec
from netfold.sim.workload.synthetic import Synthetic, SyntheticSpec
from netfold.sim.workload.workload_keys import Training

# Codecs from command-line arguments: `packed`, or with options, `lossless:load=0.7`.


_EXAMPLE = "use KIND:OPTION=VALUE,OPTION=VALUE, for example lossless:load=0.7,block_elements=1024"
_COMMAS = re.compile(r",(?![^\[{]*[\]}])")  # except inside a list or a mapping


class NamedCodec(NamedTuple):
    """A codec and its name in results, which is the argument's text."""

    name: str
    codec: Codec


class _Holder(Section):
    """The section that a scenario file would have for a codec."""

    codec: CodecOptions


def read_codecs(texts: Sequence[str]) -> tuple[NamedCodec, ...]:
    for number, text in enumerate(texts):
        if text in texts[:number]:
            raise ScenarioError(text, 0, "", "appears twice", "name each codec once")
    return tuple(map(read_codec, texts))


def _options_of(kind: str) -> list[str] | None:
    """The options of a codec; None if there is no such codec."""
    known: Any = codec_kinds().get(kind)
    return [field.name for field in fields(known)] if known else None


def _require_option(kind: str, key: str, value: Node, options: list[str] | None) -> None:
    """Refuse a key that is not an option of a known kind."""
    if options == []:
        raise value.error(f"unknown key {key!r}", f"{kind} has no options")
    if options is not None and key not in options:
        raise unknown_key(value, key, options)


def read_kind(text: str, options_of: Callable[[str], list[str] | None], example: str) -> Node:
    # `text` is "KIND" or "KIND:OPTION=VALUE,…", and its own place in errors. A kind that is not known, for
    # which `options_of` gives None, is not refused here.
    kind, colon, options = text.partition(":")
    written = {"kind": Node(kind, text, 0, "")}
    for part in _COMMAS.split(options) if colon else ():
        key, equals, value = part.partition("=")
        if not (key and equals and value):
            raise ScenarioError(text, 0, "", f"cannot read {part!r}", example)
        if key in written:
            raise ScenarioError(text, 0, "", f"the key {key!r} appears twice", "name each option once")
        written[key] = read_value(value, text, key)
        _require_option(kind, key, written[key], options_of(kind))
    return Node(written, text, 0, "")


def read_value(text: str, source: str, path: str) -> Node:
    # As YAML; `place` and `path` are its location in errors.
    try:
        return parse(source, text, first_line=0, path=path)
    except ScenarioError as error:
        hint = "check its brackets and quotes" if error.message.startswith("broken YAML") else error.hint
        raise ScenarioError(source, 0, path, error.message, hint) from None


def read_codec(text: str) -> NamedCodec:
    # Values are YAML and mean what they do in a scenario file. So do errors, with the text as their place.
    tree = Node({"codec": read_kind(text, _options_of, _EXAMPLE)}, text, 0, "")
    return NamedCodec(text, validated(_Holder, tree).codec)


# Refuse a study that does not fit the available memory, before gradients are drawn.


_EACH_BYTES = 2 * FLOAT_BYTES  # per element and worker: its gradient and its decoded sum
_SUMS_BYTES = 64  # per element: exact sums, errors and bounds
_HINTED = 0.99  # share of the largest fitting size that a hint names: available memory varies
_NEAR = 0.9  # share of the available memory from which on a codec is measured


def refuse_more_than_fits(codecs: Sequence[NamedCodec], gradients: Source) -> None:
    """Refuse a study that takes more than the memory available now.

    Raises
    ------
    NetfoldError
        It does, with the estimate, the available memory and the largest size that fits.
    """
    there_is = available_bytes()
    if _bytes(gradients.elements, gradients.workers, Footprint(UPPER_BYTES, UPPER_BYTES)) <= _NEAR * there_is:
        return
    needed = max(
        _bytes(gradients.elements, gradients.workers, footprint)
        for footprint in [Footprint(0.0, 0.0), *_footprints(codecs, gradients)]
    )
    if needed > there_is:
        most = int(_HINTED * gradients.elements * (there_is - BASE_BYTES) / (needed - BASE_BYTES))
        raise NetfoldError(
            f"{gradients.elements:,} elements of {gradients.workers} workers take about {size_text(needed)}, "
            f"{size_text(there_is)} of this machine's memory are available",
            f"use {max(0, most):,} elements at most, or fewer workers",
        )


def _footprints(codecs: Sequence[NamedCodec], gradients: Source) -> list[Footprint]:
    from netfold.sim.plan.memory_footprint import codec_footprint, sample_of

    samples = [sample_of(cell.sample) for cell in gradients.cells]
    return [codec_footprint(named.codec, sample) for named in codecs for sample in samples]


def refuse_unread(path: str, shape: Sequence[int], workers: int) -> None:
    """Refuse a file that is too large for a study with any codec, before its values are read.

    Raises
    ------
    NetfoldError
        It is, with the least memory that it takes and the available memory.
    """
    there_is = available_bytes()
    rows = shape[0] if len(shape) > 1 else workers
    needed = _bytes(shape[-1], rows, Footprint(0.0, 0.0))
    if needed > there_is:
        raise NetfoldError(
            f"{path}: {math.prod(shape):,} numbers for {rows} workers take at least {size_text(needed)}, "
            f"{size_text(there_is)} of this machine's memory are available",
            "use a file of fewer workers or elements",
        )


def _bytes(elements: int, workers: int, codec: Footprint) -> float:
    """Peak memory of one codec on one kind of gradients."""
    study_bytes = elements * (_EACH_BYTES * workers + _SUMS_BYTES)
    return BASE_BYTES + study_bytes + codec.bytes(elements, workers)


# The gradients of a study: drawn for every pattern and density, or read from a file.


ARRAY = "the array"  # the name of gradients that come from no file
INPUT_PATTERN = "input"  # the pattern's name for gradients from a file
_DIMENSIONS_MAX = 2
Shapes = Mapping[str, Shape] | Sequence[Shape | str | int] | str
"""The shapes of the tensors of a gradient."""
Gradients = str | os.PathLike[str] | NDArray[np.float32]
"""A file, or an array."""
_WANTED = "it needs a float32 array: (elements,), the gradient of every worker, or (workers, elements)"


@dataclass(frozen=True)
class GradientsCell:
    """One kind of gradients; `rounds(n)` yields all workers' n times, each valid until the next."""

    pattern: str
    density: float  # share of a worker's elements, or units of a pattern, that are non-zero
    rounds: Callable[[int], Iterator[list[Gradient]]]
    sample: SyntheticSpec  # synthetic gradients of the same kind


@dataclass(frozen=True)
class Source:
    cells: tuple[GradientsCell, ...]
    workers: int
    elements: int
    description: Mapping[str, Any]
    """What the results say of the gradients."""
    notes: tuple[str, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    """The tensors of each gradient, one after another; empty: unknown."""

    def with_tensors(self, tensors: tuple[Tensor, ...], name: str = "shapes") -> Source:
        # Errors call the tensors `name`.
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
    if (tensor_elements := elements_of(tensors)) != elements:
        raise DataError(
            f"{name}: the tensors have {tensor_elements:,} elements, each gradient has {elements:,}",
            "give the shape of every tensor",
        )


def source_of(
    gradients: Gradients | None,
    synthetic: Mapping[str, Any],
    workers: int | None,
    seed: int,
    *,
    shapes: Shapes | None,
    shapes_name: str = "shapes",
) -> Source:
    """Gradients that are given or, without them, synthetic ones; errors call the shapes `shapes_name`."""
    if shapes is not None:
        tensors = read_shapes(shapes, shapes_name)
        if gradients is None:
            synthetic = {"elements": elements_of(tensors), **synthetic}
        source = source_of(gradients, synthetic, workers, seed, shapes=None)
        return source.with_tensors(tensors, shapes_name)
    if gradients is None:
        return synthetic_source({key: _text(value) for key, value in synthetic.items()}, workers, seed)
    if isinstance(gradients, str | os.PathLike):
        return file_source(Path(gradients), workers)
    return array_source(np.asarray(gradients), workers)


def _text(value: Any) -> str:
    # The command line puts commas between several values.
    return str(value) if isinstance(value, str | int | float) else ",".join(map(str, value))


def synthetic_source(options: Mapping[str, str], workers: int | None, seed: int) -> Source:
    """Synthetic gradients of all patterns and densities.

    `options` are keys of a scenario's synthetic workload and their texts; `pattern` and `density` may be
    lists with commas. `MADE_UP` has the values of options that are left out.

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
    specs = list(
        dict.fromkeys(section.resolved(Path(), workers, seed) for section in sections)
    )  # 1% and 0.01 are the same
    description = {
        "row_elements": specs[0].row_elements,
        "overlap": specs[0].overlap,
        "distribution": specs[0].distribution,
    }
    cells = tuple(_draw(spec, workers, seed) for spec in specs)
    return Source(cells, workers, specs[0].elements, description)


def _section(options: Mapping[str, str]) -> Synthetic:
    nodes = {key: read_value(text, "", f"--{key.replace('_', '-')}") for key, text in options.items()}
    return validated(Synthetic, Node(nodes, "", 0, ""))


def _draw(spec: SyntheticSpec, workers: int, seed: int) -> GradientsCell:
    def rounds(count: int) -> Iterator[list[Gradient]]:
        workload = spec.workload(workers, seed)
        for step in range(count):
            yield [buckets[0] for buckets in workload.gradients(step)]

    return GradientsCell(spec.pattern, spec.density, rounds, spec)


def file_source(path: Path, workers: int | None) -> Source:
    if path.is_dir() and path.suffix not in SUFFIXES:
        return _read_recording(path, workers)  # its steps are the rounds
    arrays = read_arrays(path)
    if len(arrays) > 1:
        return _read_file(path, workers)  # the tensors of a gradient, each with a row for each worker
    # A gradient for all workers, or a row for each; the same in every round.
    return _stored_source(str(path), next(iter(arrays.values())), workers)


def array_source(array: NDArray[Any], workers: int | None) -> Source:
    return _stored_source(
        ARRAY, StoredArray(array.shape, array.dtype.name, lambda index: array[index]), workers
    )


def _read_file(path: Path, workers: int | None) -> Source:
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
    return _of_rows(str(path), [buckets[0] for buckets in gradients]).with_tensors(spec.tensors)


def _read_recording(folder: Path, workers: int | None) -> Source:
    """Gradients from a recording of `netfold capture`: a step in every round, and again from the first."""
    name, trace = str(folder), read_trace(folder)
    _require_workers(name, trace.world_size, workers)
    refuse_unread(name, (trace.world_size, trace.elements), trace.world_size)
    spec = trace_spec(folder, name, trace.world_size, ONE_BUCKET, with_times=False)

    def rounds(count: int) -> Iterator[list[Gradient]]:
        workload = spec.workload(spec.rows)
        for step in range(count):
            yield [buckets[0] for buckets in workload.gradients(step)]

    first = next(rounds(1))
    density = sum(map(np.count_nonzero, first)) / (len(first) * spec.elements)
    digest = hashlib.sha256((folder / TRACE).read_bytes()).hexdigest()  # it has the digests of the gradients
    cell = GradientsCell(INPUT_PATTERN, density, rounds, SyntheticSpec(spec.elements, density=density))
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
    rows_read = rows[:1] if notes else rows
    density = sum(map(np.count_nonzero, rows_read)) / (len(rows_read) * rows[0].size)
    digest = hashlib.sha256()
    for row in rows_read:
        digest.update(row.data)
    cell = GradientsCell(
        INPUT_PATTERN,
        density,
        lambda count: (rows for _ in range(count)),
        SyntheticSpec(rows[0].size, density=density),
    )
    description = {"input": name, "sha256": digest.hexdigest()}
    return Source((cell,), len(rows), rows[0].size, description, notes)


def _stored_source(name: str, array: StoredArray, workers: int | None) -> Source:
    gradients = _check(name, array, workers or WORKERS)
    if gradients.ndim == 1:
        workers = WORKERS if workers is None else workers
        notes = (f"all {workers} workers have the same gradient, from {name}: it is also their union",)
        return _of_rows(name, [gradients] * workers, notes)
    _require_workers(name, len(gradients), workers)
    return _of_rows(name, list(gradients))


def _check(name: str, stored: StoredArray, workers: int) -> NDArray[np.float32]:
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
    array = np.ascontiguousarray(stored.read(()), np.float32)  # has this machine's byte order, row by row
    if (odd := first_not_finite(array.reshape(-1))) is not None:
        index = tuple(map(int, np.unravel_index(odd, shape)))
        where = ", ".join(map(str, index))
        raise DataError(f"{name}: holds numbers that are not finite: {array[index]} at [{where}]", NOT_FINITE)
    return array


# Models as the command line names, describes and measures them.


_BATCH = 16
"""The batch of a model where none is known."""
_MODELS_EXAMPLE = "use MODEL:OPTION=VALUE,OPTION=VALUE, for example ncf:expand=[147,16]"


class DensityRow(NamedTuple):
    """Densities of a model that were measured, beside the known ones."""

    model: Model
    data: str
    batch: int
    workers: int
    own: float
    union: float
    common: float
    known: Density | None  # None: not known for this model, batch and number of workers


Wanted = tuple[Model, int, str]
"""What is to be measured: a model, its batch and its data set."""


def read_model(text: str) -> Model:
    """The model of "MODEL" or "MODEL:OPTION=VALUE,…"; values are YAML and mean what they do in a scenario."""
    if ".py:" in text or text.partition(":")[0] == "user":
        hint = "give it to a scenario, workload: {kind: training, model: ./mine.py:make}"
        raise ScenarioError(text, 0, "", "only models of netfold's own are known here", hint)
    tree = Node({"model": read_kind(text, _model_options, _MODELS_EXAMPLE)}, text, 0, "")
    return validated(Training, tree).model


def _model_options(kind: str) -> list[str] | None:
    return list(facts_of(kind).options) if kind in model_kinds() else None


def describe_model(model: Model) -> dict[str, Any]:
    """What is known of a model, as JSON values; layers in gradient-ready order."""
    facts = model.facts
    return {
        "kind": model.kind,
        "title": facts.title,
        "meaning": facts.meaning,
        "source": facts.source,
        "parameters": model.elements,
        "metric": facts.metric,
        "data": [{"name": data.name, "stands_in_for": data.stands_in_for or None} for data in facts.data],
        "options": {
            name: {"default": default, "meaning": meaning}
            for name, (default, meaning) in facts.options.items()
        },
        "layers": [
            {"name": layer.name, "parameters": layer.elements, "ready_share": layer.ready_share}
            for layer in layers_of(facts.tensors)
        ],
    }


def wanted_densities(texts: Sequence[str], batch: int | None, data: str | None) -> list[Wanted]:
    if not texts:
        # All whose densities are known.
        return [
            _densities_of(model, batch, data, known)
            for kind in model_kinds()
            for model, known in known_densities(kind)
        ]
    models = [read_model(text) for text in texts]
    return [
        _densities_of(
            model,
            batch,
            data,
            next((known for listed, known in known_densities(model.kind) if listed == model), None),
        )
        for model in models
    ]


def _densities_of(model: Model, batch: int | None, data: str | None, known: Density | None) -> Wanted:
    names = [known_data.name for known_data in model.facts.data]
    if data is not None and data not in names:
        raise DataError(f"model {model.kind} is not trained on {data}", f"use {' or '.join(names)}")
    # Unless given: those for which densities are known, or else the first data set and `_BATCH`.
    chosen = model.data_named(data or (known.data if known else None))
    return model, batch or (known.batch if known else _BATCH), chosen.name


def measure_densities(
    items: Sequence[Wanted], workers: int, seed: int, progress: Callable[[str], None]
) -> Iterator[DensityRow]:
    # At the first step of each model.
    from netfold.sim.workload.model_probe import measure  # late: it imports PyTorch

    pin()
    for model, batch, data in items:
        progress(f"{model.facts.title}, batch {batch}")
        densities = measure(model, TaskSettings(data, batch, workers, seed))
        yield DensityRow(model, data, batch, workers, *densities, _known_density(model, batch, data, workers))


def _known_density(model: Model, batch: int, data: str, workers: int) -> Density | None:
    for listed, known in known_densities(model.kind):
        if (listed, known.batch, model.data_named(known.data).name, WORKERS) == (model, batch, data, workers):
            return known
    return None
