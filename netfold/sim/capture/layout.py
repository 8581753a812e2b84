"""The file trace.json of a recording: its fields, its limits, and the checks of a reader."""

from __future__ import annotations

import json
import math
import re
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from netfold.errors import DataError, shown
from netfold.sim.files.foreign import UnreadableError, read_bytes

FORMAT = "netfold trace 1"
NAME = "trace.json"
TRACE_BYTES_MAX = 64 << 20  # of trace.json
RANKS_MAX = 4096
STEPS_MAX = 100_000
TENSORS_MAX = 10_000
ELEMENTS_MAX = 2**53  # of a gradient
TIME_NS_MAX = 10**15  # 11 days, of a step
DTYPES = ("float32", "float16", "bfloat16")
HINT = "netfold capture writes such a folder; README.md in sim/capture describes it"

Nanoseconds = Annotated[int, Field(ge=0, le=TIME_NS_MAX)]
Dimension = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    """A part of trace.json: keys that are not known are not read."""

    model_config = ConfigDict(strict=True, frozen=True)


class TensorRow(_Part):
    """A tensor of the gradient."""

    name: Annotated[str, Field(min_length=1, max_length=1000)]
    shape: Annotated[list[Dimension], Field(min_length=1, max_length=16)]
    dtype: Literal["float32", "float16", "bfloat16"]
    layout: Literal["dense", "rows"]  # rows: of a table of which few rows have gradients

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class RankStep(_Part):
    """One step of one rank; times are nanoseconds since its forward pass began, without recording."""

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*\.safetensors$", max_length=200)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    before_ns: Nanoseconds  # from the end of the step before to the forward pass
    forward_end_ns: Nanoseconds
    backward_start_ns: Nanoseconds
    backward_end_ns: Nanoseconds  # the last gradient is ready
    synced_ns: Nanoseconds  # all gradients are summed
    ready_ns: list[Nanoseconds | None]  # of each tensor; null: it has no gradient in this step
    bucket_ready_ns: list[Nanoseconds]  # of each bucket: the last of its tensors
    recording_ns: Annotated[int, Field(ge=0)] = 0  # that recording took, and that no other time contains
    micro_batches: Annotated[int, Field(ge=1)] = 1


class Step(_Part):
    """One step of all ranks."""

    step: Annotated[int, Field(ge=0)]
    ranks: list[RankStep]


class TraceFile(_Part):
    """All of trace.json."""

    format: str
    model: str
    world_size: Annotated[int, Field(ge=1, le=RANKS_MAX)]
    tensors: Annotated[list[TensorRow], Field(min_length=1, max_length=TENSORS_MAX)]
    buckets: Annotated[list[Annotated[list[int], Field(min_length=1)]], Field(min_length=1)]
    steps: Annotated[list[Step], Field(min_length=1, max_length=STEPS_MAX)]
    made_by: dict[str, Any] = {}
    notes: list[str] = []

    @property
    def elements(self) -> int:
        """Elements of a gradient."""
        return sum(tensor.elements for tensor in self.tensors)


def read_trace(folder: Path) -> TraceFile:
    """Read and check the description of a recording; of its gradients, only the files' sizes are looked at.

    Raises
    ------
    DataError
        It is no such folder, it is damaged or beyond the limits, or a file is missing or has another size.
    """
    path = folder / NAME
    try:
        content = read_bytes(path, TRACE_BYTES_MAX)
    except UnreadableError as error:
        raise DataError(f"{folder}: {NAME} cannot be read: {error.message}", HINT) from None
    _require_format(path, content)
    try:
        trace = TraceFile.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "it"
        found = "" if first["type"] == "missing" else f", found {shown(first['input'])}"
        raise DataError(
            f"{path}: {place}: {first['msg'][0].lower()}{first['msg'][1:]}{found}", HINT
        ) from None
    _check_tensors(path, trace)
    for step in trace.steps:
        _check_step(path, trace, step)
    _check_files(folder, trace)
    return trace


def _require_format(path: Path, content: bytes) -> None:
    """Refuse other files before their fields are complained about."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is not JSON", HINT) from None
    version = found.get("format") if isinstance(found, dict) else None
    if version == FORMAT:
        return
    if isinstance(version, str) and re.fullmatch(r"netfold trace \d+", version):
        raise DataError(f"{path}: has the format {shown(version)}, this version reads {FORMAT!r}", HINT)
    raise DataError(f"{path}: is no trace of netfold: its 'format' must be {FORMAT!r}", HINT)


def _check_tensors(path: Path, trace: TraceFile) -> None:
    names: set[str] = set()
    for tensor in trace.tensors:
        if tensor.name in names:
            raise DataError(f"{path}: the tensor {shown(tensor.name)} appears twice", HINT)
        names.add(tensor.name)
    if trace.elements > ELEMENTS_MAX:
        raise DataError(
            f"{path}: its tensors have {trace.elements:,} elements, at most {ELEMENTS_MAX:,} are read", HINT
        )
    places = sorted(chain.from_iterable(trace.buckets))
    if places != list(range(len(trace.tensors))):
        raise DataError(
            f"{path}: buckets must have each of the {len(trace.tensors)} tensors once, by its place",
            HINT,
        )


def _check_step(path: Path, trace: TraceFile, step: Step) -> None:
    """A step has all ranks, a time for every tensor and bucket, and its times are in order."""
    if len(step.ranks) != trace.world_size:
        raise DataError(
            f"{path}: step {step.step} has {len(step.ranks)} ranks, world_size says {trace.world_size}", HINT
        )
    for rank, one in enumerate(step.ranks):
        where = f"{path}: step {step.step}, rank {rank}"
        if len(one.ready_ns) != len(trace.tensors) or len(one.bucket_ready_ns) != len(trace.buckets):
            raise DataError(f"{where}: must have a time for each tensor and each bucket", HINT)
        times = (0, one.forward_end_ns, one.backward_start_ns, one.backward_end_ns, one.synced_ns)
        if list(times) != sorted(times):
            raise DataError(f"{where}: forward, backward and synced times are not in order", HINT)
        ready = [one.backward_start_ns if time is None else time for time in one.ready_ns]
        if not all(one.backward_start_ns <= time <= one.backward_end_ns for time in ready):
            raise DataError(f"{where}: a gradient is ready outside of the backward pass", HINT)
        if one.bucket_ready_ns != [max(ready[place] for place in own) for own in trace.buckets]:
            raise DataError(f"{where}: a bucket must be ready with the last of its tensors", HINT)


def _check_files(folder: Path, trace: TraceFile) -> None:
    seen: set[str] = set()
    for one in chain.from_iterable(step.ranks for step in trace.steps):
        if one.file in seen:
            raise DataError(f"{folder / NAME}: the file {one.file} appears twice", HINT)
        seen.add(one.file)
        try:
            size_bytes = (folder / one.file).stat().st_size
        except OSError:
            raise DataError(
                f"{folder / one.file}: there is no such file, trace.json names it", HINT
            ) from None
        if size_bytes != one.bytes:
            raise DataError(
                f"{folder / one.file}: has {size_bytes} bytes, trace.json says {one.bytes}: it is damaged",
                HINT,
            )
