"""A collective, resolved: what a run, its checks and its limits ask of it, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from netfold.sim.engine.interface import Frame, Job, Overflow


@dataclass(frozen=True)
class Passes:
    """Trips through a switch's pipelines: of a packet that it adds up, and of a result on its way out."""

    packet: int = 1
    result: int = 0


@dataclass(frozen=True)
class CollectivePlan:
    """How the words of a job are brought together; a collective may add what it alone needs."""

    kind: str  # in the registry of collectives
    frame: Frame
    window: int  # packets that a worker may have outstanding
    timeout_ps: int  # 0: nothing is ever sent again
    timeout_max_ps: int  # longest that its traffic ever waits before it sends again
    is_timeout_default: bool
    held_bytes: int  # of memory in a run, per element, for all workers together
    settled: Mapping[str, str]  # what its keys' defaults came to, in a scenario's words
    aggregation: Job | None = None  # what it asks of switches; None if hosts do all
    passes: Passes = Passes()
    has_exponents_ahead: bool = False  # it agrees on block exponents by itself, on the way of the words
    needs_lossless: bool = False  # it must run on a network that drops nothing

    @property
    def overflow(self) -> Overflow:
        """What becomes of integer sums that leave int32; those of hosts wrap."""
        return self.aggregation.overflow if self.aggregation else Overflow.WRAP
