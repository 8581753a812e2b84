"""What the parts of a job share: its progress, the facts of its fusion, devices, and what workers do now."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from typing import Any

import simpy

from netfold.sim.network.fabric import EndOfInstant, HostTimes, InstantPhase
from netfold.sim.network.stall import HAS_CRASHED
from netfold.sim.plan.plan import JobPlan
from netfold.sim.workload.fusion import pieces_of
from netfold.sim.workload.fusion_rules import Cost, Costs, predict
from netfold.sim.workload.layers import is_vector, layers_of
from netfold.units import PS_PER_US

Progress = Callable[[str, float, float], None]  # activity, steps done (with a fraction), total steps

_EVERY_S = 0.1  # shortest interval between two reports


def silent(*_: object) -> None:
    """A progress that nobody looks at."""


class ProgressReporter:
    """Reports the progress of one variant.

    Parameters
    ----------
    progress
        Receives the reports.
    variant
        Its name.
    done, total
        Steps of the whole run: done before this variant, and in all.
    """

    def __init__(
        self,
        progress: Progress = lambda what, done, total: None,
        variant: str = "",
        done: int = 0,
        total: int = 1,
    ) -> None:
        self._progress, self._variant = progress, variant
        self._begun, self._total = done, total
        self._share, self._reported_s = 0.0, -math.inf  # the first report is immediate

    def begin_step(self) -> None:
        """Begin the next step."""
        self._begun, self._share = self._begun + 1, 0.0
        self._send(self._variant)

    def report(self, what: str, share: float = 0.0) -> None:
        """Report the activity of the step, and the fraction that is done (it never decreases)."""
        self._share = max(self._share, min(share, 1.0))
        self._send(f"{self._variant}: {what}")

    def _send(self, what: str) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= _EVERY_S:
            self._reported_s = now_s
            self._progress(what, max(self._begun - 1, 0) + self._share, self._total)


# What a run records of the fusion of a job: the buckets, the costs, and the predicted time of a step.


def fusion_facts(job: JobPlan) -> dict[str, Any] | None:
    """The facts on a settled job as plain data; None if no rule asked for its costs."""
    costs, workload = job.costs, job.workload
    if costs is None:
        return None
    layers, partition = workload.layers, workload.fusion.partition(workload.layers)
    if is_vector(workload.tensors):
        layers = layers_of(pieces_of(workload.tensors, workload.fusion))
        partition = tuple((index,) for index in range(len(layers)))
    prediction = predict(layers, partition, costs)
    groups = sorted(partition, key=max)
    return {
        "rule": workload.fusion.title,
        "layers": len(layers),
        "predicted_iteration_time_us": prediction.step_ps / PS_PER_US,
        "costs": _costs(costs),
        "buckets": [
            {
                "layers": [layers[index].name for index in sorted(group)],
                "elements": sum(layers[index].elements for index in group),
                "encoded_us": encoded_ps / PS_PER_US,
                "arrived_us": arrived_ps / PS_PER_US,
            }
            for group, encoded_ps, arrived_ps in zip(
                groups, prediction.encoded_ps, prediction.arrived_ps, strict=True
            )
        ],
    }


def _costs(costs: Costs) -> dict[str, Any]:
    stages = costs.stages
    named = {"encode": stages.encode, "network": stages.network, "decode": stages.decode}
    return {
        "forward_us": costs.forward_ps / PS_PER_US,
        "backward_us": costs.backward_ps / PS_PER_US,
        "samples": len(costs.samples),
        "fit_error": costs.fit_error,
        "stages": {name: _cost(cost) for name, cost in named.items()},
    }


def _cost(cost: Cost) -> dict[str, float]:
    return {
        "start_us": cost.start_ps / PS_PER_US,
        "element_us": cost.element_ps / PS_PER_US,
        "sort_us": cost.sort_ps / PS_PER_US,
    }


# A unit that does one piece of work at a time, such as a worker's device.


LAST = 2**31  # rank after those of all buckets


class SerialUnit:
    """Does one piece of work at a time, without interruption.

    When it is free it takes, of the work that waits at the end of that instant, that with the lowest rank,
    and of equal ranks what asked first.
    """

    def __init__(self, environment: simpy.Environment) -> None:
        self._environment = environment
        self._waiting: list[tuple[int, int, simpy.Event]] = []  # rank, number of the request
        self._requests_count = 0
        self._is_busy = self._is_deciding = False

    def take(self, rank: int) -> simpy.Event:
        """Event at which the unit begins this work, which ends with `release`."""
        begins = self._environment.event()
        heapq.heappush(self._waiting, (rank, self._requests_count, begins))
        self._requests_count += 1
        self._decide_later()
        return begins

    def release(self) -> None:
        """End the present work."""
        self._is_busy = False
        self._decide_later()

    def _decide_later(self) -> None:
        if self._is_busy or self._is_deciding or not self._waiting:
            return
        self._is_deciding = True
        EndOfInstant(self._environment, InstantPhase.DEVICE).callbacks.append(self._decide)

    def _decide(self, _: simpy.Event) -> None:
        self._is_deciding, self._is_busy = False, True
        heapq.heappop(self._waiting)[-1].succeed()


# What every worker does now, for the diagnosis of a stall.


class Activities:
    """The activities of a job's workers: of each bucket in flight or, if there is none, of the device."""

    def __init__(self, hosts: HostTimes, workers: int, show: Callable[[int, str, int], None]) -> None:
        self._hosts, self._show = hosts, show  # `show` takes worker, text, and when that ends
        self._buckets: list[dict[int, str]] = [{} for _ in range(workers)]
        self._computing = [("", 0)] * workers  # the latest text, and when that ends
        self._step, self._left = 0, [0] * workers  # buckets that have not landed in this step

    def begin(self, step: int, buckets_count: int) -> None:
        # `buckets_count` is that of each worker.
        self._step, self._left = step, [buckets_count] * len(self._left)

    def compute(self, worker: int, what: str, now_ps: int, end_ps: int) -> None:
        """The device's passes are at a point, up to a time."""
        self._computing[worker] = what, end_ps
        if not self._buckets[worker]:
            self._report(worker, now_ps)

    def set(self, worker: int, bucket: int, what: str, until_ps: int) -> None:
        """A bucket in flight is at a point, up to a time as far as that is known."""
        self._buckets[worker][bucket] = what
        texts = self._buckets[worker]
        self._tell(worker, "; ".join(texts[bucket_index] for bucket_index in sorted(texts)), until_ps)

    def land(self, worker: int, bucket: int, now_ps: int) -> None:
        """A bucket is no longer in flight."""
        self._buckets[worker].pop(bucket, None)  # a round may have no operation
        self._left[worker] -= 1
        if not self._left[worker]:
            self._computing[worker] = f"is done with step {self._step}", now_ps
        self._report(worker, now_ps)

    def _report(self, worker: int, now_ps: int) -> None:
        texts = self._buckets[worker]
        what, end_ps = self._computing[worker]
        if texts:
            what, end_ps = "; ".join(texts[bucket_index] for bucket_index in sorted(texts)), now_ps
        self._tell(worker, what, max(now_ps, end_ps))

    def _tell(self, worker: int, what: str, until_ps: int) -> None:
        crash_ps = self._hosts.crash_ps(worker)
        if until_ps >= crash_ps:
            what, until_ps = HAS_CRASHED, crash_ps
        self._show(worker, what, until_ps)
