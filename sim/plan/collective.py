"""A collective, resolved: what a run, its checks and its limits ask of it, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def passes_count(passes: Passes, points: Sequence[Mapping[str, int]]) -> int:
    """Trips through pipelines of all that a program did, by the counters of its switches.

    A packet that is discarded, or a duplicate of one in an unfinished slot, is dropped in its first pass; one
    that is answered takes the way of one that completes a slot. With n workers and nothing lost that makes
    n + 1 per result for SwitchML's 64 words and 4 · n + 7 for its 256 (`next_step_selector.py` of
    p4lang/p4app-switchML).
    """
    total = 0
    for point in points:
        dropped = point["discarded"] + point["duplicates_dropped"]
        total += dropped + (point["packets"] - dropped) * passes.packet
        total += (point["results"] + point.get("partials", 0) + point["answers"]) * passes.result
    return total


def results_count(root: Mapping[str, int]) -> int:
    """Sums that went down to workers, complete or not: of ATP the server's, else the root's."""
    if root["acknowledged"]:
        return root["acknowledged"] - root["requests"]
    return root["results"] + root["timed_out"]
