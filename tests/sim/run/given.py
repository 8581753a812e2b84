"""A job whose backward, encoding, network and decoding times are given, to the picosecond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import simpy

from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.error_bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.merge import Merge, Merged, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.sim.checks.checks import Journal
from netfold.sim.collectives.collective import MergeOrders, OperationId, Wait
from netfold.sim.engine.engine_data import Condition, Overflow
from netfold.sim.network.fabric import HostTimes
from netfold.sim.plan.plan import Overlap
from netfold.sim.run.job import RunningJob
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.workload.device_rooflines import STEADY, Device, StepCost, Variation
from netfold.sim.workload.devices import FixedDevice
from netfold.sim.workload.fusion import Bucket

ELEMENTS = 4  # of every bucket
BYTE_PER_PS = 8 * 10**12  # bits per second


@dataclass(frozen=True)
class Times:
    """Times of one operation of a bucket, in picoseconds."""

    encode: int
    network: int
    decode: int
    launches: int = 1


@dataclass(frozen=True)
class Given:
    """One worker's step: forward, backward up to each bucket, and the operations of each bucket."""

    forward: int
    backward: Sequence[int]
    operations: Sequence[Sequence[Times]]

    @property
    def device(self) -> FixedDevice:
        return FixedDevice(forward_ps=self.forward, backward_ps=sum(self.backward), memory_bps=BYTE_PER_PS)


@dataclass(frozen=True)
class Steady:
    """A workload of small integers, whose buckets are ready after given times."""

    given: Given
    workers: int
    loss: ClassVar[None] = None
    cost: ClassVar[StepCost] = StepCost()
    learning_rate: ClassVar[None] = None
    update_norm: ClassVar[None] = None
    applied: list[list[Gradient]] = field(default_factory=list)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        done = np.cumsum(self.given.backward).tolist()
        return tuple(
            Bucket(index, f"b{index}", ELEMENTS, _share(reached, done[-1]), ELEMENTS * index)
            for index, reached in enumerate(done)
        )

    def keep_weights(self, worker: int) -> None:
        raise AssertionError("its codecs keep none")

    def recorded(self, step: int, worker: int) -> None:
        return None

    def gradients(self, step: int) -> list[list[Gradient]]:
        return [
            [np.full(ELEMENTS, 100 * step + 10 * bucket + worker, np.float32) for bucket in range(len(done))]
            for worker in range(self.workers)
            for done in [self.given.backward]
        ]

    def apply(self, step: int, sums: Sequence[Gradient], are_updates: Sequence[bool] = ()) -> None:
        self.applied.append([one.copy() for one in sums])

    def score(self, step: int, is_last: bool) -> None:
        return None


def _share(reached: int, total: int) -> float:
    """A share of the total that rounds down to what was reached."""
    share = reached / total if total else 1.0
    return share if int(share * total) == reached else float(np.nextafter(share, 2))


@dataclass(frozen=True)
class Charged(Codec):
    """Integers, whose encoding and decoding move a byte per picosecond that is given."""

    given: Sequence[Given]  # of each worker
    kind: ClassVar[str] = "charged"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return ChargedEncoder(self.given[rank])

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return FloatAddBound(len(contributions))


@dataclass
class ChargedEncoder(Encoder):
    given: Given

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        total = gradient
        for number, times in enumerate(self.given.operations[round.bucket]):
            words = (gradient + number).astype(np.int32)
            message = Message(
                words,
                Merge.ADD,
                f"part {number}",
                Work(read_bytes=times.encode, launches=times.launches),
                decode_work=Work(written_bytes=times.decode, launches=times.launches),
            )
            (merged,) = yield (message,)
            total = (merged.words - number * round.workers).astype(np.float32)
        return Decoded(total, gradient)


class Line:
    """A collective that takes given times: an operation ends that long after its last worker sends it.

    It insists on what a serial collective is promised: one operation of a worker at a time, in the same order
    at all workers.
    """

    takes_floats = False
    overflow = Overflow.WRAP

    def __init__(
        self, environment: simpy.Environment, given: Sequence[Given], is_serial: bool = True
    ) -> None:
        self.is_serial = is_serial
        self.opened: list[list[OperationId]] = [[] for _ in given]
        self.spans: list[list[tuple[int, int]]] = [[] for _ in given]
        self._environment, self._given = environment, given
        self._open = [0] * len(given)
        self._sent: dict[OperationId, list[Message]] = {}
        self._complete: dict[OperationId, simpy.Event] = {}

    def pipelines(self, message: Message) -> bool:
        return False

    def merge_orders(self, step: int, bucket: int) -> MergeOrders:
        return {}

    def exchange(self, worker: int, messages: tuple[Message, ...], operation_id: OperationId) -> Wait:
        start_ps = int(self._environment.now)
        self._open[worker] += 1
        self.opened[worker].append(operation_id)
        if self.is_serial:
            assert self._open[worker] == 1, f"worker {worker} has two operations in the network"
            assert self._is_same(operation_id, len(self.opened[worker]) - 1), (
                f"worker {worker} sends {operation_id}"
            )
        sent = self._sent.setdefault(operation_id, [])
        sent.append(messages[0])
        complete = self._complete.setdefault(operation_id, self._environment.event())
        if len(sent) == len(self._given):
            self._environment.process(self._finish(operation_id, complete))
        yield complete
        self._open[worker] -= 1
        self.spans[worker].append((start_ps, int(self._environment.now)))
        words = np.sum([one.words for one in sent], axis=0, dtype=np.int32)
        return (Merged(words, len(sent)),)

    def _is_same(self, operation_id: OperationId, number: int) -> bool:
        """Whether every worker that has sent so many operations sent this one there."""
        return all(one[number] == operation_id for one in self.opened if len(one) > number)

    def _finish(self, operation_id: OperationId, complete: simpy.Event):  # type: ignore[no-untyped-def]
        yield self._environment.timeout(
            self._given[0].operations[operation_id.bucket][operation_id.operation].network
        )
        complete.succeed()

    def locate(self, worker: int, operation_id: OperationId, part: int, word: int) -> str:
        return f"{operation_id}"

    def share(self) -> float:
        return 0.0


@dataclass
class Played:
    """A job that has run as far as it could."""

    workload: Steady
    line: Line
    job: RunningJob
    activities: dict[int, str]

    @property
    def journal(self) -> Journal:
        return self.job.journal

    @property
    def is_done(self) -> bool:
        return not self.job.process.is_alive

    @property
    def end_ps(self) -> int:
        return self.journal.steps[-1].end_ps

    def spans(self, worker: int, *phases: str) -> list[tuple[int, int]]:
        """Times of some phases of a worker, sorted."""
        return sorted(
            (one.start_ps, one.end_ps)
            for one in self.journal.phases
            if one.worker == worker and one.phase in phases
        )


def play(
    given: Given | Sequence[Given],
    overlap: Overlap,
    *,
    workers: int = 2,
    steps: int = 1,
    conditions: Sequence[Condition] | None = None,
    is_serial: bool = True,
    device: Device | None = None,
    workload: Steady | None = None,
    variation: Variation = STEADY,
) -> Played:
    """Run a job; workers may differ in their encoding and decoding times, and in their hosts."""
    each = [given] * workers if isinstance(given, Given) else list(given)
    environment = simpy.Environment()
    workload, line = workload or Steady(each[0], len(each)), Line(environment, each, is_serial)
    activities: dict[int, str] = {}
    job = RunningJob(
        plan=SimpleNamespace(  # type: ignore[arg-type]
            label="given",
            codec=Charged(tuple(each)),
            overlap=overlap,
            variation=variation,
            keep=(),
            workload=None,
        ),
        index=variation.job,
        seed=1,
        environment=environment,
        workload=workload,  # type: ignore[arg-type]
        collective=line,  # type: ignore[arg-type]
        device=device or each[0].device,
        hosts=HostTimes(environment, conditions or [Condition()] * len(each)),
        host_links=[(0, 0)] * len(each),
        sent_bytes=lambda link: 0,
        reporter=ProgressReporter(),
        set_activity=lambda worker, what, until_ps: activities.update({worker: what}),
    )
    job.start(steps)
    environment.run()
    return Played(workload, line, job, activities)
