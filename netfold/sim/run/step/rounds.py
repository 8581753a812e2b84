"""The workers' sides of rounds: drive the encoders, charge their work, wait for the network."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from netfold.homomorphic.codec import Decoded, Encoder, advance
from netfold.homomorphic.message import Gradient, Merged, Message
from netfold.homomorphic.numbers.formats import stage
from netfold.homomorphic.round import Round
from netfold.sim.checks.checks import Journal, RoundLog
from netfold.sim.checks.finding import Operation
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.results.records import PhaseRecord
from netfold.sim.run.codec_errors import blaming, make_encoder
from netfold.sim.run.step.activities import Activities
from netfold.sim.run.step.facts import StepView
from netfold.sim.run.step.lock_step import MessageAgreement
from netfold.sim.run.step.parts import JobParts
from netfold.sim.run.step.turns import Turns
from netfold.sim.run.step.unit import LAST, SerialUnit
from netfold.sim.run.step.wire import WireBytes
from netfold.sim.workload.device_model import charge_ps, scaled_ps

COPY_BACK = "copy of the sum"  # to the device, where the codec runs on the host


class WorkerUnits(NamedTuple):
    """What does a worker's computing; the two may be one."""

    passes: SerialUnit
    codec: SerialUnit


class Rounds:
    """Runs every worker's side of the rounds of a job, several at a time.

    An operation is identified by step, bucket and its number in the round. A worker encodes and decodes one
    message after the other. If its collective carries one operation at a time, or its overlap says so, its
    operations take turns.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        parts: JobParts,
        sent_bytes: Callable[[int], int],
        activities: Activities,
        journal: Journal,
    ) -> None:
        self._environment, self._parts, self._phases = environment, parts, journal.phases
        self._activities = activities
        self._wire = WireBytes(sent_bytes, parts.host_links)
        self.units = [_units(environment, parts.overlap.encodes_on_device) for _ in range(parts.workers)]
        self._encoders: list[Encoder] = []
        self._turns = Turns(environment, parts.workers, at_once=1)
        self._agreement = MessageAgreement(parts.workers, journal.findings)
        self._operations_count = 0

    def make_encoders(self) -> None:
        """Make every worker's encoder.

        Raises
        ------
        CodecError
            The codec fails.
        """
        parts = self._parts
        self._encoders = [
            make_encoder(parts.codec, rank, parts.workers, parts.seed) for rank in range(parts.workers)
        ]

    def late_wire_bytes(self) -> NDArray[np.int64]:
        """(2,) bytes up and down that workers' hosts carried after their last round, once."""
        return self._wire.take_rest()

    def hand_over(self, worker: int) -> None:
        """Another job gets a worker's host: what it carries from now on is not this job's."""
        self._wire.hand_over(worker)

    def begin(self, step: int, worker: int, gradients: Sequence[Gradient]) -> int:
        """Let an encoder look at a step; returns the time of the passes at kept weights that it asked for.

        Raises
        ------
        CodecError
            The codec cannot go on.
        """
        parts = self._parts
        view = StepView(parts.workload, step, worker)
        self._encoders[worker].begin(view.facts(gradients))
        passes = parts.workload.cost.passes * (parts.passes.forward_ps + parts.passes.backward_ps)
        return scaled_ps(view.more_passes * passes, parts.variation.factor(parts.seed, worker, step))

    def run(self, step: int, bucket: int, worker: int, log: RoundLog) -> Generator[simpy.Event, Any, None]:
        """Run one worker's side of one round, from its gradient to the decoded total in the log.

        Raises
        ------
        CodecError
            The codec cannot go on.
        """
        parts = self._parts
        notes = log.notes[worker] = []
        key = Round(
            step,
            bucket,
            parts.workers,
            parts.seed,
            parts.collective.takes_floats,
            notes.append,
            parts.workload.buckets[bucket].tensors,
        )
        exchange = stage(
            self._encoders[worker].exchange(log.gradients[worker], key), parts.collective.pipelines
        )
        place = OperationPlace(step, bucket, 0)
        messages = advance(exchange, None)
        while True:
            self._agreement.require(place, worker, messages, log.operations)
            if isinstance(messages, Decoded):
                yield from self._copy_back(place, worker, log)
                log.store(worker, messages)
                self._wire.end_round(worker, log)
                self._activities.land(worker, bucket, self._now_ps)
                return
            if len(log.operations) == place.operation:
                log.operations.append(Operation(number=self._operations_count))
                self._operations_count += 1
            operation = log.operations[place.operation]
            operation.sent[worker] = messages
            side = _Side(place, worker, " + ".join(message.label for message in messages), [])
            with blaming(parts.codec, f"worker {worker}, {place}"):  # of merges that a codec brings along
                operation.received[worker] = yield from self._sent(side, messages, log)
            following = advance(exchange, operation.received[worker])
            yield from self._decode(side, messages, is_last=isinstance(following, Decoded))
            messages = following
            place = place._replace(operation=place.operation + 1)

    def _sent(
        self, side: _Side, messages: tuple[Message, ...], log: RoundLog
    ) -> Generator[simpy.Event, Any, tuple[Merged, ...]]:
        """Encode and exchange one operation, in simulated time."""
        device = self._parts.device
        copy_ps = 0 if side.place.operation else device.copy_ps(log.gradients[side.worker].nbytes)
        encode_ps = copy_ps + sum(charge_ps(device, message.work) for message in messages)
        yield from self._compute(side, "encode", encode_ps, self._parts.overlap.rank(side.place.bucket))
        merged = yield from self._exchange(side, messages, log)
        return merged

    def _decode(
        self, side: _Side, messages: tuple[Message, ...], is_last: bool
    ) -> Generator[simpy.Event, Any, None]:
        """Decode one operation, in simulated time; only the last one of a bucket can wait for other work."""
        overlap, bucket = self._parts.overlap, side.place.bucket
        decode_ps = sum(charge_ps(self._parts.device, message.decode_work) for message in messages)
        rank = overlap.decode_rank(bucket, LAST) if is_last else overlap.rank(bucket)
        yield from self._compute(side, "decode", decode_ps, rank)
        self._phases += side.phases

    def _copy_back(
        self, place: OperationPlace, worker: int, log: RoundLog
    ) -> Generator[simpy.Event, Any, None]:
        """Copy the decoded sum to where the weights are."""
        copy_ps = self._parts.device.copy_ps(log.gradients[worker].nbytes)
        if copy_ps:
            side = _Side(place, worker, COPY_BACK, [])
            rank = self._parts.overlap.decode_rank(place.bucket, LAST)
            yield from self._compute(side, "decode", copy_ps, rank)
            self._phases += side.phases

    def _compute(
        self, side: _Side, phase: str, usual_ps: int, rank: int
    ) -> Generator[simpy.Event, Any, None]:
        """Encode or decode messages, when it is their turn; it takes `usual_ps` if nothing varies.

        What takes no time does not need the device, and does not wait for it.
        """
        parts, unit = self._parts, self.units[side.worker].codec
        work_ps = scaled_ps(usual_ps, parts.variation.factor(parts.seed, side.worker, side.place.step))
        if work_ps:
            yield from self._wait_for(unit, side, phase, rank)
        start_ps = self._now_ps
        end_ps = parts.hosts.end_ps(side.worker, start_ps, work_ps)
        self._show(side, f"{phase}s", end_ps)
        yield parts.hosts.until(side.worker, end_ps)
        if work_ps:
            unit.release()
        self._record(side, (phase, side.label, 0), start_ps)

    def _wait_for(
        self, unit: SerialUnit, side: _Side, phase: str, rank: int
    ) -> Generator[simpy.Event, Any, None]:
        """Take the device, when it is this work's turn."""
        asked_ps = self._now_ps
        self._show(side, f"waits to {phase}", asked_ps)
        yield unit.take(rank)
        self._wait(side, "device", asked_ps)

    def _exchange(
        self, side: _Side, messages: tuple[Message, ...], log: RoundLog
    ) -> Generator[simpy.Event, Any, tuple[Merged, ...]]:
        """Send messages and receive them merged, when the collective is free for them."""
        parts, asked_ps = self._parts, self._now_ps
        collective = parts.collective
        is_serial = collective.is_serial or parts.overlap.sends_in_turn
        if is_serial:
            self._show(side, "waits to send", asked_ps)
            yield self._turns.take(side.worker, side.place, parts.overlap.rank(side.place.bucket))
            self._wait(side, "network", asked_ps)
        start_ps, size_bytes = self._now_ps, sum(message.size_bytes for message in messages)
        self._wire.begin(side.worker, log, size_bytes)
        self._show(side, "waits for", start_ps)
        merged = yield from collective.exchange(side.worker, messages, side.place)
        self._wire.end(side.worker, log)
        if is_serial:
            self._turns.release(side.worker)
        self._record(side, ("network", side.label, size_bytes), start_ps)
        return merged

    @property
    def _now_ps(self) -> int:
        return int(self._environment.now)

    def _show(self, side: _Side, what: str, until_ps: int) -> None:
        place = side.place
        text = f"{what} '{side.label}' of bucket {place.bucket} of step {place.step}"
        self._activities.set(side.worker, place.bucket, text, until_ps)

    def _wait(self, side: _Side, what: str, start_ps: int) -> None:
        if self._now_ps > start_ps:
            self._record(side, ("wait", what, 0), start_ps)

    def _record(self, side: _Side, what: tuple[str, str, int], start_ps: int) -> None:
        """Record a phase that ends now: its kind, label and payload."""
        phase, label, size_bytes = what
        if self._now_ps > start_ps or phase == "network":
            step, bucket, _ = side.place
            when = start_ps, self._now_ps
            side.phases.append(
                PhaseRecord(self._parts.label, step, bucket, side.worker, phase, label, *when, size_bytes)
            )


class _Side(NamedTuple):
    """One worker's side of one operation."""

    place: OperationPlace
    worker: int
    label: str  # of its messages
    phases: list[PhaseRecord]  # so far


def _units(environment: simpy.Environment, is_one: bool) -> WorkerUnits:
    passes = SerialUnit(environment)
    return WorkerUnits(passes, passes if is_one else SerialUnit(environment))
