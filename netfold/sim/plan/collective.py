"""A resolved collective: what runs, checks and limits need to know of any collective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from netfold.sim.engine.interface import Frame, Job, Overflow


@dataclass(frozen=True)
class Passes:
    """Passes through a switch's pipelines: of a packet that it aggregates, and of a result that it sends."""

    packet: int = 1
    result: int = 0


@dataclass(frozen=True)
class CollectivePlan:
    """How the words of a job are aggregated; a collective may subclass it for more."""

    kind: str  # in the registry of collectives
    frame: Frame
    window: int  # packets that a worker may have outstanding
    timeout_ps: int  # 0: nothing is ever sent again
    timeout_max_ps: int  # the longest timeout of its traffic
    held_bytes: int  # of memory in a run, per element, for all workers together
    settled: Mapping[str, str | int]  # resolved values of keys with computed defaults, as in a scenario
    aggregations: tuple[Job, ...] = ()  # what it needs of switches, tree by tree; none without switches
    passes: Passes = Passes()
    tables_bytes: int = 0  # of memory in a run, whatever the elements
    has_exponents_ahead: bool = False  # it agrees on block exponents while it sends the words
    needs_lossless: bool = False  # it must run on a network that drops nothing
    is_timeout_released: bool = False  # the timeout is that of its protocol's own client
    waits_for_loss: bool = False  # nothing is sent again while nothing was lost

    @property
    def aggregation(self) -> Job | None:
        """The first of its trees; None without switches."""
        return self.aggregations[0] if self.aggregations else None

    @property
    def overflow(self) -> Overflow:
        """What happens to integer sums that leave int32; sums of hosts wrap."""
        return self.aggregation.overflow if self.aggregation else Overflow.WRAP
