"""What every worker does now, for the diagnosis of a stall."""

from __future__ import annotations

from collections.abc import Callable

from netfold.sim.network.fabric import HostTimes
from netfold.sim.network.stall import HAS_CRASHED


class Activities:
    """The activities of a job's workers: of each bucket in flight or, if there is none, of the device."""

    def __init__(self, hosts: HostTimes, workers: int, show: Callable[[int, str, int], None]) -> None:
        self._hosts, self._show = hosts, show  # `show` takes worker, text, and when that ends
        self._buckets: list[dict[int, str]] = [{} for _ in range(workers)]
        self._computing = [("", 0)] * workers  # the latest text, and when that ends
        self._step, self._left = 0, [0] * workers  # buckets that have not landed in this step

    def begin(self, step: int, buckets_count: int) -> None:
        """A step begins, with so many buckets for each worker."""
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
        self._tell(worker, "; ".join(texts[one] for one in sorted(texts)), until_ps)

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
            what, end_ps = "; ".join(texts[one] for one in sorted(texts)), now_ps
        self._tell(worker, what, max(now_ps, end_ps))

    def _tell(self, worker: int, what: str, until_ps: int) -> None:
        crash_ps = self._hosts.crash_ps(worker)
        if until_ps >= crash_ps:
            what, until_ps = HAS_CRASHED, crash_ps
        self._show(worker, what, until_ps)
