"""Recordings as workloads: of netfold's own capture with values, and Chakra execution traces without."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from netfold.errors import DataError
from netfold.homomorphic.message import Gradient, Tensor
from netfold.sim.capture.recording_files import RankStep, TraceFile, read_trace, read_values, require_digest
from netfold.sim.workload.device_rooflines import Passes
from netfold.sim.workload.fusion import AnyFusion, Fusion, Partition
from netfold.sim.workload.gradient_files import FileSpec, first_not_finite
from netfold.sim.workload.layers import Layer, layers_of, place_tensors, tensor_of
from netfold.sim.workload.workload import Untrained, WorkloadOption

# What a recording says beside its gradients: its buckets, and the times of its passes.


@dataclass(frozen=True)
class AsRecorded(Fusion):
    """The buckets of a recording, whose layers are its tensors."""

    title: ClassVar[str] = "as recorded"
    buckets: Partition

    def partition(self, layers: Sequence[Layer]) -> Partition:
        return self.buckets


class PassTimes(NamedTuple):
    """The times of one worker's passes of one step, picoseconds."""

    forward_ps: int
    backward_ps: int
    ready_ps: tuple[int, ...]
    """When each tensor is ready, since backward began."""


@dataclass(frozen=True)
class RecordedTimes:
    """The times of all passes of a recording; its steps repeat, and so do its ranks."""

    names: tuple[str, ...]
    steps: tuple[tuple[PassTimes, ...], ...]
    """Times by step and rank."""

    def passes(self, step: int, worker: int) -> Passes:
        """The times of a worker's passes of a step."""
        ranks = self.steps[step % len(self.steps)]
        times = ranks[worker % len(ranks)]
        return Passes(times.forward_ps, times.backward_ps, dict(zip(self.names, times.ready_ps, strict=True)))

    @property
    def longest_ps(self) -> int:
        return max(times.forward_ps + times.backward_ps for ranks in self.steps for times in ranks)

    def ready_shares(self) -> tuple[float, ...]:
        """Mean share of backward after which each tensor is ready; none before the tensor before it."""
        all_ranks = [rank for ranks in self.steps for rank in ranks if rank.backward_ps]
        if not all_ranks:
            return ()
        sums = [0.0] * len(self.names)
        for times in all_ranks:
            for tensor_index, ready_ps in enumerate(times.ready_ps):
                sums[tensor_index] += ready_ps / times.backward_ps
        return tuple(accumulate((total / len(all_ranks) for total in sums), max))


# Gradients and times that `netfold capture` recorded from a real training.


_PS_PER_NS = 1000


@dataclass(frozen=True)
class TraceSpec(FileSpec):
    """The contents of a recording, without the values; `rows` are its ranks."""

    times: RecordedTimes | None = None
    """Recorded times; None: a device says how long passes take."""
    ready_shares: tuple[float, ...] = ()
    """Share of backward after which each tensor is ready."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        return layers_of(self.tensors, ready_shares=self.ready_shares)

    @property
    def longest_ps(self) -> int:
        return self.times.longest_ps if self.times else 0

    def workload(self, workers: int, seed: int = 0) -> TraceWorkload:
        return TraceWorkload(self)


def trace_spec(
    folder: Path, given: str, workers: int, fusion: Fusion | None = None, with_times: bool = True
) -> TraceSpec:
    # Without a rule of fusion its buckets are the recorded ones, and each tensor is a layer.
    trace = read_trace(folder)
    if trace.world_size != workers:
        raise DataError(
            f"{given}: holds the gradients of {trace.world_size} ranks, there are {workers} workers",
            f"use workers: {trace.world_size}; a sum of other workers is none that the training had",
        )
    return _spec_of(trace, folder, given, fusion, with_times)


def _spec_of(
    trace: TraceFile, folder: Path, given: str, fusion: Fusion | None, with_times: bool
) -> TraceSpec:
    rows = trace.tensors
    if fusion is None:
        order = [tensor_index for bucket in trace.buckets for tensor_index in bucket]
        if order != list(range(len(rows))):  # the tensors of a bucket are neighbours in the gradient
            rows = [rows[tensor_index] for tensor_index in order]
        tensors = place_tensors(Tensor(row.name, tuple(row.shape), row.name) for row in rows)
        sizes = [len(bucket) for bucket in trace.buckets]
        stops = [sum(sizes[: index + 1]) for index in range(len(sizes))]
        buckets = tuple(tuple(range(stop - size, stop)) for stop, size in zip(stops, sizes, strict=True))
        fusion = AsRecorded(buckets)
    else:
        order = list(range(len(rows)))
        tensors = place_tensors(tensor_of(row.name, tuple(row.shape)) for row in rows)
    steps = tuple(tuple(_times(rank, order) for rank in step.ranks) for step in trace.steps)
    times = RecordedTimes(tuple(tensor.name for tensor in tensors), steps)
    return TraceSpec(
        str(folder),
        given,
        True,
        len(trace.steps),
        trace.world_size,
        tensors,
        fusion,
        times=times if with_times else None,
        ready_shares=times.ready_shares(),
    )


def _times(rank_step: RankStep, order: list[int]) -> PassTimes:
    """The times of a rank; a step begins where the one before ended, so the optimizer counts to forward."""
    start_ns = rank_step.backward_start_ns
    ready = [
        start_ns if time_ns is None else time_ns for time_ns in (rank_step.ready_ns[index] for index in order)
    ]
    return PassTimes(
        (rank_step.before_ns + start_ns) * _PS_PER_NS,
        (rank_step.backward_end_ns - start_ns) * _PS_PER_NS,
        tuple((time_ns - start_ns) * _PS_PER_NS for time_ns in ready),
    )


class TraceWorkload(Untrained):
    """A `Workload` without training: every step's gradients and times come from a recording.

    Raises
    ------
    DataError
        The recording has changed since its spec was read. `gradients` raises it for damaged files and numbers
        that are not finite.
    """

    def __init__(self, spec: TraceSpec) -> None:
        self._folder, self._spec = Path(spec.path), spec
        trace = read_trace(self._folder)
        fusion = None if isinstance(spec.fusion, AsRecorded) else spec.fusion
        if _spec_of(trace, self._folder, spec.given, fusion, spec.times is not None) != spec:
            raise DataError(
                f"{self._folder}: changed since the run began",
                "run again, and do not change the folder until the run ends",
            )
        places = {row.name: tensor_index for tensor_index, row in enumerate(trace.tensors)}
        self._order = [places[tensor.name] for tensor in spec.tensors]
        self._trace, self._rows = trace, [trace.tensors[tensor_index] for tensor_index in self._order]
        super().__init__(spec.tensors, spec.fusion, spec.rows, spec.ready_shares)
        self._checked: set[str] = set()  # files whose digests were right
        self._read: int | None = None  # the step of the recording that `_gradients` holds
        self._gradients: list[list[Gradient]] = []

    def recorded(self, step: int, worker: int) -> Passes | None:
        return self._spec.times.passes(step, worker) if self._spec.times else None

    def gradients(self, step: int) -> list[list[Gradient]]:
        """The recorded gradients of a step, as `[worker][bucket]`; its steps repeat."""
        trace_step = step % len(self._trace.steps)
        if self._read != trace_step:
            self._read, self._gradients = None, []  # freed before the next ones are read
            ranks = self._trace.steps[trace_step].ranks
            self._gradients = [self._cutter.cut(self._flat(trace_step, rank)) for rank in range(len(ranks))]
            self._read = trace_step
        return self._gradients

    def _flat(self, step: int, rank: int) -> Gradient:
        rank_step = self._trace.steps[step].ranks[rank]
        path = self._folder / rank_step.file
        if rank_step.file not in self._checked:
            require_digest(path, rank_step.sha256)
            self._checked.add(rank_step.file)
        ready = [rank_step.ready_ns[tensor_index] for tensor_index in self._order]
        gradient = read_values(path, self._rows, rank_step.model_copy(update={"ready_ns": ready}))
        if (odd := first_not_finite(gradient)) is not None:
            tensor = next(part for part in self._spec.tensors if odd < part.start + part.elements)
            raise DataError(
                f"{path}: {tensor.name} holds a number that is not finite: {gradient[odd]} (rank {rank})",
                "netfold capture leaves out such steps: record again",
            )
        return gradient


@dataclass(frozen=True, kw_only=True)
class Recording(WorkloadOption, ABC):
    """What scenarios say of recordings."""

    path: str
    """The recorded folder, relative to the scenario file. There must be as many workers as ranks."""
    times: Literal["recorded", "device"] = "recorded"
    """recorded: forward and backward take the recorded times, of each rank and step, whatever the device;
    what a rank did between two steps, such as the optimizer, counts to forward. device: the device's times;
    gradients are ready after the recorded shares of backward."""
    fusion: AnyFusion | None = None  # type: ignore[assignment]
    """Which layers are sent together, as one bucket; by default the recorded buckets."""


@dataclass(frozen=True, kw_only=True)
class Trace(Recording):
    """Gradients and times recorded from a real training by `netfold capture`; nothing is trained."""

    kind: ClassVar[str] = "trace"

    def resolved(self, folder: Path, workers: int, seed: int) -> TraceSpec:
        return trace_spec(folder / self.path, self.path, workers, self.fusion, self.times == "recorded")
