"""The plan of a job's rings."""

from __future__ import annotations

from dataclasses import dataclass

from netfold.sim.collectives.between_hosts import HostPlan


@dataclass(frozen=True, kw_only=True)
class RingPlan(HostPlan):
    """Workers in one ring or several."""

    channels: int = 1
    chunk_words: int = 0  # that are passed on as one; 0: a segment
