"""The files of a recording: trace.json, the parts that ranks write, values; limits and checks of a reader."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from netfold.errors import DataError, RunError, shown
from netfold.sim.files import UnreadableError, open_regular, read_bytes, sync_folder, write_file

if TYPE_CHECKING:
    from numpy.typing import NDArray


FORMAT = "netfold trace 1"
NAME = "trace.json"
TRACE_BYTES_MAX = 64 << 20
"""The largest size of trace.json."""
RANKS_MAX = 4096
STEPS_MAX = 100_000
TENSORS_MAX = 10_000
ELEMENTS_MAX = 2**53
"""The most elements of a gradient."""
TIME_NS_MAX = 10**15  # 11 days, of a step
DTYPES = ("float32", "float16", "bfloat16")
HINT = "netfold capture writes such a folder; docs/explanation/recordings.md describes it"

Nanoseconds = Annotated[int, Field(ge=0, le=TIME_NS_MAX)]
Dimension = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    """A part of trace.json: keys that are not known are not read."""

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)


class TensorRow(_Part):
    name: Annotated[str, Field(min_length=1, max_length=1000)]
    shape: Annotated[list[Dimension], Field(min_length=1, max_length=16)]
    dtype: Literal["float32", "float16", "bfloat16"]
    layout: Literal["dense", "rows"]  # rows: of a table of which few rows have gradients

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class RankStep(_Part):
    """One step of one rank; times are nanoseconds since its forward pass began, without recording."""

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*\.safetensors$", max_length=200)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    before_ns: Nanoseconds
    """The time from the end of the step before to the forward pass."""
    forward_end_ns: Nanoseconds
    backward_start_ns: Nanoseconds
    backward_end_ns: Nanoseconds  # the last gradient is ready
    synced_ns: Nanoseconds  # all gradients are summed
    ready_ns: list[Nanoseconds | None]
    """When each tensor's gradient is ready; null: it has none in this step."""
    bucket_ready_ns: list[Nanoseconds]
    """When the last tensor of each bucket is ready."""
    recording_ns: Annotated[int, Field(ge=0)] = 0
    """The time that recording took, which no other time contains."""
    micro_batches: Annotated[int, Field(ge=1)] = 1


class RecordedStep(_Part):
    step: Annotated[int, Field(ge=0)]
    ranks: list[RankStep]


class TraceFile(_Part):
    format: str
    model: str
    world_size: Annotated[int, Field(ge=1, le=RANKS_MAX)]
    tensors: Annotated[list[TensorRow], Field(min_length=1, max_length=TENSORS_MAX)]
    buckets: Annotated[list[Annotated[list[int], Field(min_length=1)]], Field(min_length=1)]
    steps: Annotated[list[RecordedStep], Field(min_length=1, max_length=STEPS_MAX)]
    made_by: dict[str, Any] = {}
    notes: list[str] = []

    @property
    def elements(self) -> int:
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
        location = ".".join(map(str, first["loc"])) or "it"
        shown_input = "" if first["type"] == "missing" else f", found {shown(first['input'])}"
        raise DataError(
            f"{path}: {location}: {first['msg'][0].lower()}{first['msg'][1:]}{shown_input}", HINT
        ) from None
    _check_tensors(path, trace)
    for step in trace.steps:
        _check_step(path, trace, step)
    _check_files(folder, trace)
    return trace


def _require_format(path: Path, content: bytes) -> None:
    """Refuse other files before their fields are complained about."""
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is not JSON", HINT) from None
    version = parsed.get("format") if isinstance(parsed, dict) else None
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


def _check_step(path: Path, trace: TraceFile, step: RecordedStep) -> None:
    """A step has all ranks, a time for every tensor and bucket, and its times are in order."""
    if len(step.ranks) != trace.world_size:
        raise DataError(
            f"{path}: step {step.step} has {len(step.ranks)} ranks, world_size says {trace.world_size}", HINT
        )
    for rank, timing in enumerate(step.ranks):
        where = f"{path}: step {step.step}, rank {rank}"
        if len(timing.ready_ns) != len(trace.tensors) or len(timing.bucket_ready_ns) != len(trace.buckets):
            raise DataError(f"{where}: must have a time for each tensor and each bucket", HINT)
        times = (0, timing.forward_end_ns, timing.backward_start_ns, timing.backward_end_ns, timing.synced_ns)
        if list(times) != sorted(times):
            raise DataError(f"{where}: forward, backward and synced times are not in order", HINT)
        ready = [timing.backward_start_ns if time is None else time for time in timing.ready_ns]
        if not all(timing.backward_start_ns <= time <= timing.backward_end_ns for time in ready):
            raise DataError(f"{where}: a gradient is ready outside of the backward pass", HINT)
        if timing.bucket_ready_ns != [max(ready[index] for index in bucket) for bucket in trace.buckets]:
            raise DataError(f"{where}: a bucket must be ready with the last of its tensors", HINT)


def _check_files(folder: Path, trace: TraceFile) -> None:
    seen: set[str] = set()
    for rank in chain.from_iterable(step.ranks for step in trace.steps):
        if rank.file in seen:
            raise DataError(f"{folder / NAME}: the file {rank.file} appears twice", HINT)
        seen.add(rank.file)
        try:
            size_bytes = (folder / rank.file).stat().st_size
        except OSError:
            raise DataError(
                f"{folder / rank.file}: there is no such file, trace.json names it", HINT
            ) from None
        if size_bytes != rank.bytes:
            raise DataError(
                f"{folder / rank.file}: has {size_bytes} bytes, trace.json says {rank.bytes}: it is damaged",
                HINT,
            )


# What each rank writes, and how it becomes one folder.
#
# While a training runs, all is in a hidden folder beside the wanted one: `begun-0003.json` when a rank
# begins, a file of gradients for each of its steps, and `rank-0003.json` when it has all of them, or
# `failed-0003.txt`. The rank that completes the set joins it: it writes trace.json and renames the folder.


_BEGUN = re.compile(r"begun-(\d+)\.json")


class RecordingParts:
    """The hidden folder of a recording.

    Parameters
    ----------
    wanted
        The folder that it becomes.
    run
        Tells it from those of other runs.
    is_watched
        Whether a launcher reports what became of each rank, and removes the hidden folder. Else the last rank
        that ends removes it.
    """

    def __init__(self, wanted: Path, run: str, is_watched: bool = True) -> None:
        self.wanted, self._is_watched = wanted, is_watched
        self.path = wanted.parent / f".{wanted.name}.parts-{run}"

    def begin(self, rank: int, facts: Mapping[str, Any]) -> None:
        """Say that a rank begins; `facts` has the `world_size`."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_file(self.path / f"begun-{rank:04d}.json", json.dumps(facts).encode())

    def fail(self, rank: int, why: str) -> None:
        """Say why a rank has nothing to give."""
        with contextlib.suppress(OSError):  # the disk may be the reason
            write_file(self.path / f"failed-{rank:04d}.txt", why.encode())
            self._remove_failed(rank)

    def finish(self, rank: int, part: Mapping[str, Any]) -> None:
        write_file(self.path / f"rank-{rank:04d}.json", json.dumps(part).encode())
        self._join(int(part["world_size"]))  # does nothing until all parts are there
        with contextlib.suppress(OSError):  # joined
            self._remove_failed(rank)

    def _remove_failed(self, rank: int) -> None:
        """Remove the hidden folder if all ranks have ended and some have failed, and no launcher will."""
        if self._is_watched:
            return
        ranks = range(json.loads((self.path / f"begun-{rank:04d}.json").read_bytes())["world_size"])
        names = {path.name for path in self.path.iterdir()}
        failed = [f"failed-{peer:04d}.txt" in names for peer in ranks]
        if any(failed) and all(
            f"rank-{peer:04d}.json" in names or is_failed
            for peer, is_failed in zip(ranks, failed, strict=True)
        ):
            shutil.rmtree(self.path, ignore_errors=True)

    def _join(self, ranks: int) -> None:
        names = [f"rank-{rank:04d}.json" for rank in range(ranks)]
        if not all((self.path / name).exists() for name in names):
            return
        joining = self.path.with_name(f"{self.path.name}-joining")
        try:
            os.rename(self.path, joining)
        except OSError:  # another rank was faster
            return
        try:
            parts = [json.loads((joining / name).read_bytes()) for name in names]
            trace = join_parts(parts)
            file_names = {rank_step["file"] for step in trace["steps"] for rank_step in step["ranks"]}
            for path in joining.iterdir():
                if path.name not in file_names:
                    path.unlink()
            content = json.dumps(trace, separators=(",", ":")).encode()
            if len(content) > TRACE_BYTES_MAX:
                raise RunError(
                    f"{NAME} would have {len(content)} bytes, at most {TRACE_BYTES_MAX} are read",
                    "record fewer steps",
                )
            write_file(joining / NAME, content)
            read_trace(joining)
            sync_folder(joining)
            os.rename(joining, self.wanted)
            sync_folder(self.wanted.parent)
        except BaseException:
            shutil.rmtree(joining, ignore_errors=True)
            raise

    def report(self) -> tuple[str, ...]:
        """What became of each rank, where there is no trace; removes the hidden folder."""
        lines = []
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        begun = sorted(int(match[1]) for match in map(_BEGUN.fullmatch, names) if match)
        facts = json.loads((self.path / f"begun-{begun[0]:04d}.json").read_bytes()) if begun else {}
        for rank in range(facts.get("world_size", 0)):
            count = sum(name.endswith(f"-rank-{rank:04d}.safetensors") for name in names)
            if rank not in begun:
                what = "never wrapped a model in DistributedDataParallel"
            elif f"failed-{rank:04d}.txt" in names:
                what = (self.path / f"failed-{rank:04d}.txt").read_text()
            elif f"rank-{rank:04d}.json" in names:
                what = f"recorded {count} steps"
            else:
                what = f"ended after {count} of {facts['steps']} recorded steps, without a word"
            lines.append(f"rank {rank}: {what}")
        shutil.rmtree(self.path, ignore_errors=True)
        return tuple(lines)


def join_parts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The trace of all ranks' parts: the steps that all of them recorded with finite numbers.

    Raises
    ------
    RunError
        Ranks differ in their model, or have no step in common.
    """
    first = parts[0]
    for rank, part in enumerate(parts):
        if part["tensors"] != first["tensors"]:
            raise RunError(
                f"rank {rank} has other tensors than rank 0", "all ranks must train the same model"
            )
        if part["buckets"] != first["buckets"]:
            raise RunError(f"rank {rank} has other buckets than rank 0", "record again, and skip more steps")
    by_rank = [{rank_step["step"]: rank_step["times"] for rank_step in part["steps"]} for part in parts]
    common = sorted(set.intersection(*map(set, by_rank)))
    good = [step for step in common if all(times[step] is not None for times in by_rank)]
    notes = list(first["notes"])
    if dropped := len(common) - len(good):
        notes.append(f"{dropped} steps whose gradients were not finite are left out, as a loss scaler does")
    if len(common) < first["wanted_steps"]:
        notes.append(f"{first['wanted_steps']} steps were wanted, all ranks recorded {len(common)}")
    if not good:
        counts = ", ".join(f"rank {rank}: {len(times)}" for rank, times in enumerate(by_rank))
        raise RunError(
            f"there is no step that all ranks recorded with finite gradients ({counts} steps)",
            "train longer: the first steps are skipped, since DDP makes new buckets after its first",
        )
    return {
        "format": FORMAT,
        "model": first["model"],
        "world_size": len(parts),
        "tensors": first["tensors"],
        "buckets": first["buckets"],
        "steps": [{"step": step, "ranks": [times[step] for times in by_rank]} for step in good],
        "made_by": first["made_by"],
        "notes": notes,
    }


def require_space(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        raise DataError(
            f"{folder}: the recording takes up to {needed_bytes:,} bytes, {free_bytes:,} are free",
            "record fewer steps, or name a folder on another disk",
        )


# The gradients of one rank and step, in a safetensors file: dense tensors, and tables by their rows.
#
# A tensor is there by its name, in its own number type. Of a table (`layout` rows) the tensor has only the
# rows with gradients, and `<name>@rows` says which, int64, rising. A tensor without a gradient is not
# there.


ROWS = "@rows"
_BLOCK_BYTES = 1 << 22
_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}


def file_name(step: int, rank: int) -> str:
    return f"step-{step:06d}-rank-{rank:04d}.safetensors"


def most_bytes(tensors: Sequence[TensorRow]) -> int:
    """The most that the file of a rank and step takes, its header aside."""
    sizes = {"float32": 4, "float16": 2, "bfloat16": 2}
    return sum(
        row.elements * sizes[row.dtype] + (8 * row.shape[0] if row.layout == "rows" else 0) for row in tensors
    )


def write_values(path: Path, gradients: Mapping[str, Any]) -> tuple[int, str]:
    """Write gradients, PyTorch tensors on the CPU by name; returns the file's bytes and SHA-256.

    Sparse tensors must be coalesced, with one sparse dimension.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    for name, gradient in gradients.items():
        if gradient.is_sparse:
            tensors[name] = gradient.values().contiguous()
            tensors[name + ROWS] = gradient.indices()[0].contiguous()
        else:
            tensors[name] = gradient.contiguous()
    save_file(tensors, str(path))
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def require_digest(path: Path, sha256: str) -> None:
    """Require that a file is the one that was recorded.

    Raises
    ------
    DataError
        It cannot be read, or is another one.
    """
    try:
        with open_regular(path) as file:
            digest = hashlib.sha256()
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except (UnreadableError, OSError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'message', error)}", HINT) from None
    if digest.hexdigest() != sha256:
        raise DataError(f"{path}: is damaged: its SHA-256 is not that of trace.json", "copy the folder again")


def read_values(path: Path, tensors: Sequence[TensorRow], step: RankStep) -> NDArray[np.float32]:
    """A rank's gradient of a step, `(elements,)` float32: the tensors one after another, zeros where none is.

    Raises
    ------
    DataError
        The file is not of these tensors.
    """
    from safetensors import SafetensorError, safe_open

    flat = np.zeros(sum(row.elements for row in tensors), np.float32)
    start = 0
    opener: Any = safe_open
    try:
        with opener(str(path), framework="pt") as opened:
            names = set(opened.keys())
            for tensor, ready_ns in zip(tensors, step.ready_ns, strict=True):
                part = flat[start : start + tensor.elements].reshape(tensor.shape)
                start += tensor.elements
                if ready_ns is not None:
                    _fill(path, part, opened, tensor, names)
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: damaged, or not written by safetensors: {error}", HINT) from None
    if names:
        raise DataError(f"{path}: holds {shown(min(names))}, which is no tensor of trace.json", HINT)
    return flat


def _fill(path: Path, part: NDArray[np.float32], opened: Any, tensor: TensorRow, names: set[str]) -> None:
    """Copy a tensor of the file to its part of the gradient."""
    shape = list(tensor.shape)
    if tensor.layout == "dense":
        _require(path, opened, names, tensor.name, tensor.dtype, shape)
        part[...] = opened.get_tensor(tensor.name).float().numpy()
        return
    count = _require(path, opened, names, tensor.name + ROWS, "int64", [None])
    _require(path, opened, names, tensor.name, tensor.dtype, [count, *shape[1:]])
    rows = opened.get_tensor(tensor.name + ROWS).numpy()
    if rows.size and not (rows[0] >= 0 and rows[-1] < shape[0] and (np.diff(rows) > 0).all()):
        raise DataError(f"{path}: the rows of {tensor.name} must rise from 0 to {shape[0] - 1} at most", HINT)
    part[rows] = opened.get_tensor(tensor.name).float().numpy()


def _require(
    path: Path, opened: Any, names: set[str], name: str, dtype: str, shape: Sequence[int | None]
) -> int:
    """Require a tensor of this type and shape, and cross it off; returns its first dimension."""
    if name not in names:
        raise DataError(f"{path}: has no tensor {shown(name)}, trace.json has it", HINT)
    names.remove(name)
    part = opened.get_slice(name)
    actual_dtype, dimensions = _NAMES.get(part.get_dtype(), str(part.get_dtype())), list(part.get_shape())
    fits = len(dimensions) == len(shape) and all(
        want in (None, is_) for want, is_ in zip(shape, dimensions, strict=True)
    )
    if actual_dtype != dtype or not fits:
        wanted = tuple("any" if size is None else size for size in shape)
        raise DataError(
            f"{path}: {name} holds {actual_dtype} {tuple(dimensions)}, trace.json says {dtype} {wanted}", HINT
        )
    return int(dimensions[0])
