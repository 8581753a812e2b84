"""The parts of a job, which the parts of its steps share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from netfold.homomorphic.codec import Codec
from netfold.sim.collectives.collective import Collective
from netfold.sim.network.fabric import HostTimes
from netfold.sim.plan.plan import Overlap
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.workload import Workload
from netfold.sim.workload.device_model import STEADY, Device, Passes, Variation


@dataclass(frozen=True)
class JobParts:
    """The parts of a job."""

    label: str  # in its records: the variant's name, and the job's where there are several
    seed: int
    workload: Workload
    codec: Codec
    collective: Collective
    device: Device
    hosts: HostTimes
    host_links: list[tuple[int, int]]  # of each worker: link rows out of and into its host
    reporter: ProgressReporter
    set_activity: Callable[[int, str, int], None] = lambda worker, what, until_ps: None  # of a worker
    overlap: Overlap = field(default_factory=Overlap)
    variation: Variation = STEADY
    after_step: Callable[[], None] = lambda: None  # called between two steps

    @cached_property
    def passes(self) -> Passes:
        """Times of a worker's passes, if nothing varies."""
        return self.device.passes(self.workload.cost)

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self.workload.workers
