"""A worker's passes over its model in a step, on its device, also those that its encoder asks for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import simpy

from netfold.sim.network.fabric import HostTimes
from netfold.sim.run.step.activities import Activities
from netfold.sim.run.step.unit import LAST, SerialUnit
from netfold.sim.workload import Bucket
from netfold.sim.workload.device_model import Passes, scaled_ps

MORE_PASSES = "more passes"
UPDATE = "update"
_USUAL = Fraction(1)


class Stretch(NamedTuple):
    """A part of the passes that the device does without a stop."""

    phase: str  # "forward" or "backward"
    work_ps: int  # of the passes up to its end, on a host without faults
    buckets: tuple[int, ...] = ()  # whose gradients are ready at its end


class Span(NamedTuple):
    """Time of one phase."""

    phase: str
    start_ps: int
    end_ps: int


def stretches(
    passes: Passes, buckets: Sequence[Bucket], factor: Fraction = _USUAL, times: int = 1
) -> list[Stretch]:
    """The passes of one step: forward, then backward up to each bucket, as it is ready on the device.

    With local steps, `times` whole passes: what is exchanged is ready by its share of the last one. All times
    are multiplied by `factor`.
    """
    both_ps = passes.forward_ps + passes.backward_ps
    found: list[Stretch] = []
    for end_ps in range(both_ps, times * both_ps, both_ps) if both_ps else ():
        found.append(Stretch("forward", scaled_ps(end_ps - passes.backward_ps, factor)))
        found.append(Stretch("backward", scaled_ps(end_ps, factor)))
    end_ps = times * both_ps
    start_ps = end_ps - passes.backward_ps
    known = passes if times == 1 else replace(passes, ready_ps={})
    ready = [(known.bucket_ps(bucket.tensors, bucket.ready_share), bucket.index) for bucket in buckets]
    found.append(Stretch("forward", scaled_ps(start_ps, factor)))
    found += [
        Stretch("backward", scaled_ps(start_ps + ready_ps, factor), (index,))
        for ready_ps, index in sorted(ready)
    ]
    if found[-1].work_ps < scaled_ps(end_ps, factor):
        found.append(Stretch("backward", scaled_ps(end_ps, factor)))
    return found


class Computing:
    """One worker's passes of one step, which begin now.

    Encodings and decodings on the same device go first where they wait, and the passes go on after them. With
    `begin`, an encoder looks at all gradients when backward has ended, and buckets are ready after that.
    `begin` returns the time of the passes at other weights that the encoder asked for.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        hosts: HostTimes,
        device: SerialUnit,
        activities: Activities,
        stretches: Sequence[Stretch],
        begin: Callable[[], int] | None = None,
    ) -> None:
        self.spans: list[Span] = []  # so far; up to the crash of a worker that crashes
        self.ready_ps: dict[int, int] = {}  # of the buckets that are ready
        self._environment, self._hosts, self._device = environment, hosts, device
        self._activities, self._stretches, self._begin = activities, stretches, begin
        self._ready = {bucket: environment.event() for one in stretches for bucket in one.buckets}

    def ready(self, bucket: int) -> simpy.Event:
        """Event at which a bucket's gradient is ready."""
        return self._ready[bucket]

    def end_ps(self, phase: str) -> int:
        """End of the last span of a phase."""
        return max(span.end_ps for span in self.spans if span.phase == phase)

    def run(self, step: int, worker: int) -> Generator[simpy.Event, Any, None]:
        """The SimPy process. Work that follows without a gap is rounded up to picoseconds once.

        Raises
        ------
        CodecError
            The encoder cannot begin the step.
        """
        began_ps = reached_ps = int(self._environment.now)
        began_work_ps = done_ps = 0
        for number, stretch in enumerate(self._stretches):
            yield self._device.take(LAST)
            now_ps = int(self._environment.now)
            if now_ps > reached_ps:  # the device did something else
                began_ps, began_work_ps, reached_ps = now_ps, done_ps, now_ps
            start_ps = reached_ps if number else self._hosts.end_ps(worker, began_ps, 0)
            reached_ps = self._hosts.end_ps(worker, began_ps, stretch.work_ps - began_work_ps)
            done_ps = stretch.work_ps
            self._record(stretch.phase, start_ps, min(reached_ps, self._hosts.crash_ps(worker)))
            self._activities.compute(worker, self._activity(step, number), now_ps, reached_ps)
            yield self._hosts.until(worker, reached_ps)
            self._device.release()
            if self._begin is None:
                self._set_ready(stretch.buckets)
        if self._begin is not None:
            yield from self._pass_again(step, worker, self._begin())
            self._set_ready(list(self._ready))

    def _pass_again(self, step: int, worker: int, work_ps: int) -> Generator[simpy.Event, Any, None]:
        """The passes at other weights."""
        if not work_ps:
            return
        yield self._device.take(LAST)
        start_ps = int(self._environment.now)
        end_ps = self._hosts.end_ps(worker, start_ps, work_ps)
        self._record(MORE_PASSES, start_ps, min(end_ps, self._hosts.crash_ps(worker)))
        self._activities.compute(worker, f"computes step {step} at the weights it kept", start_ps, end_ps)
        yield self._hosts.until(worker, end_ps)
        self._device.release()

    def update(self, step: int, worker: int, work_ps: int) -> Generator[simpy.Event, Any, None]:
        """The optimizer's update, after all else of the step."""
        yield self._device.take(LAST)
        start_ps = int(self._environment.now)
        end_ps = self._hosts.end_ps(worker, start_ps, work_ps)
        self._record(UPDATE, start_ps, min(end_ps, self._hosts.crash_ps(worker)))
        self._activities.compute(worker, f"updates the weights of step {step}", start_ps, end_ps)
        yield self._hosts.until(worker, end_ps)
        self._device.release()

    def _set_ready(self, buckets: Sequence[int]) -> None:
        for bucket in buckets:
            self.ready_ps[bucket] = int(self._environment.now)
            self._ready[bucket].succeed()

    def _activity(self, step: int, number: int) -> str:
        following = (bucket for one in self._stretches[number:] for bucket in one.buckets)
        bucket = next(following, None)
        return f"computes step {step}" if bucket is None else f"computes bucket {bucket} of step {step}"

    def _record(self, phase: str, start_ps: int, end_ps: int) -> None:
        """Record a span, or a longer last one."""
        start_ps = min(start_ps, end_ps)
        if self.spans and (self.spans[-1].phase, self.spans[-1].end_ps) == (phase, start_ps):
            start_ps = self.spans.pop().start_ps
        self.spans.append(Span(phase, start_ps, end_ps))
