"""Gradients and times that `netfold capture` recorded from a real training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from netfold.errors import DataError
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Tensor
from netfold.sim.capture.layout import RankStep, Trace, read_trace
from netfold.sim.capture.values import read_values, require_digest
from netfold.sim.workload.devices.device import Passes
from netfold.sim.workload.files.workload import FileSpec, first_not_finite
from netfold.sim.workload.fusion import Fusion
from netfold.sim.workload.layers import Layer, layers_of, placed, tensor_of
from netfold.sim.workload.trace.recorded import AsRecorded, PassTimes, RecordedTimes
from netfold.sim.workload.workload import Untrained

_PS_PER_NS = 1000


@dataclass(frozen=True)
class TraceSpec(FileSpec):
    """The contents of a recording, without the values; `rows` are its ranks."""

    times: RecordedTimes | None = None  # None: a device says how long passes take
    ready_shares: tuple[float, ...] = ()  # of backward, after which each tensor is ready

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, in gradient-ready order."""
        return layers_of(self.tensors, ready_shares=self.ready_shares)

    @property
    def longest_ps(self) -> int:
        """The longest passes of a step."""
        return self.times.longest_ps if self.times else 0

    def workload(self, workers: int) -> TraceWorkload:
        """The recording as a workload."""
        return TraceWorkload(self)


def trace_spec(
    folder: Path, given: str, workers: int, fusion: Fusion | None = None, with_times: bool = True
) -> TraceSpec:
    """The contents of a recording, read from its trace.json.

    Without a rule of fusion its buckets are the recorded ones, and each tensor is a layer.

    Raises
    ------
    DataError
        It cannot be read, is damaged, or has another number of ranks than there are workers.
    """
    trace = read_trace(folder)
    if trace.world_size != workers:
        raise DataError(
            f"{given}: holds the gradients of {trace.world_size} ranks, there are {workers} workers",
            f"use workers: {trace.world_size}; a sum of other workers is none that the training had",
        )
    return _spec_of(trace, folder, given, fusion, with_times)


def _spec_of(trace: Trace, folder: Path, given: str, fusion: Fusion | None, with_times: bool) -> TraceSpec:
    rows = trace.tensors
    if fusion is None:
        order = [place for own in trace.buckets for place in own]
        if order != list(range(len(rows))):  # the tensors of a bucket are neighbours in the gradient
            rows = [rows[place] for place in order]
        found = placed(Tensor(one.name, tuple(one.shape), one.name) for one in rows)
        sizes = [len(own) for own in trace.buckets]
        stops = [sum(sizes[: index + 1]) for index in range(len(sizes))]
        buckets = tuple(tuple(range(stop - size, stop)) for stop, size in zip(stops, sizes, strict=True))
        fusion = AsRecorded(buckets)
    else:
        order = list(range(len(rows)))
        found = placed(tensor_of(one.name, tuple(one.shape)) for one in rows)
    steps = tuple(tuple(_times(one, order) for one in step.ranks) for step in trace.steps)
    times = RecordedTimes(tuple(tensor.name for tensor in found), steps)
    return TraceSpec(
        str(folder),
        given,
        True,
        len(trace.steps),
        trace.world_size,
        found,
        fusion,
        times=times if with_times else None,
        ready_shares=times.ready_shares(),
    )


def _times(one: RankStep, order: list[int]) -> PassTimes:
    """The times of a rank; a step begins where the one before ended, so the optimizer counts to forward."""
    start_ns = one.backward_start_ns
    ready = [start_ns if time_ns is None else time_ns for time_ns in (one.ready_ns[place] for place in order)]
    return PassTimes(
        (one.before_ns + start_ns) * _PS_PER_NS,
        (one.backward_end_ns - start_ns) * _PS_PER_NS,
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
        places = {row.name: place for place, row in enumerate(trace.tensors)}
        self._order = [places[tensor.name] for tensor in spec.tensors]
        self._trace, self._rows = trace, [trace.tensors[place] for place in self._order]
        super().__init__(spec.tensors, spec.fusion, spec.rows, spec.ready_shares)
        self._checked: set[str] = set()  # files whose digests were right
        self._read: int | None = None  # the step of the recording that `_gradients` holds
        self._gradients: list[list[Gradient]] = []

    def recorded(self, step: int, worker: int) -> Passes | None:
        """The recorded times; the steps repeat."""
        return self._spec.times.passes(step, worker) if self._spec.times else None

    def gradients(self, step: int) -> list[list[Gradient]]:
        """The recorded gradients of a step, as `[worker][bucket]`; its steps repeat."""
        wanted = step % len(self._trace.steps)
        if self._read != wanted:
            self._read, self._gradients = None, []  # freed before the next ones are read
            ranks = self._trace.steps[wanted].ranks
            self._gradients = [self._cutter.cut(self._flat(wanted, rank)) for rank in range(len(ranks))]
            self._read = wanted
        return self._gradients

    def _flat(self, step: int, rank: int) -> Gradient:
        """A rank's flat gradient."""
        one = self._trace.steps[step].ranks[rank]
        path = self._folder / one.file
        if one.file not in self._checked:
            require_digest(path, one.sha256)
            self._checked.add(one.file)
        ready = [one.ready_ns[place] for place in self._order]
        found = read_values(path, self._rows, one.model_copy(update={"ready_ns": ready}))
        if (odd := first_not_finite(found)) is not None:
            tensor = next(own for own in self._spec.tensors if odd < own.start + own.elements)
            raise DataError(
                f"{path}: {tensor.name} holds a number that is not finite: {found[odd]} (rank {rank})",
                "netfold capture leaves out such steps: record again",
            )
        return found
