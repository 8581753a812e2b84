"""What a recording says beside its gradients: its buckets, and the times of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, NamedTuple

from netfold.sim.workload.devices.device import Passes
from netfold.sim.workload.fusion import Fusion, Partition
from netfold.sim.workload.layers import Layer


@dataclass(frozen=True)
class AsRecorded(Fusion):
    """The buckets of a recording, whose layers are its tensors."""

    title: ClassVar[str] = "as recorded"
    buckets: Partition

    def partition(self, layers: Sequence[Layer]) -> Partition:
        """The recorded buckets."""
        return self.buckets


class PassTimes(NamedTuple):
    """The times of one worker's passes of one step, picoseconds."""

    forward_ps: int
    backward_ps: int
    ready_ps: tuple[int, ...]  # of each tensor, since backward began


@dataclass(frozen=True)
class RecordedTimes:
    """The times of all passes of a recording; its steps repeat, and so do its ranks."""

    names: tuple[str, ...]  # of the tensors
    steps: tuple[tuple[PassTimes, ...], ...]  # of each rank

    def passes(self, step: int, worker: int) -> Passes:
        """The times of a worker's passes of a step."""
        ranks = self.steps[step % len(self.steps)]
        own = ranks[worker % len(ranks)]
        return Passes(own.forward_ps, own.backward_ps, dict(zip(self.names, own.ready_ps, strict=True)))

    @property
    def longest_ps(self) -> int:
        """The longest passes of a step."""
        return max(own.forward_ps + own.backward_ps for ranks in self.steps for own in ranks)

    def ready_shares(self) -> tuple[float, ...]:
        """Mean share of backward after which each tensor is ready; none before the tensor before it."""
        all_ranks = [own for ranks in self.steps for own in ranks if own.backward_ps]
        if not all_ranks:
            return ()
        sums = [0.0] * len(self.names)
        for own in all_ranks:
            for place, ready_ps in enumerate(own.ready_ps):
                sums[place] += ready_ps / own.backward_ps
        return tuple(accumulate((one / len(all_ranks) for one in sums), max))
