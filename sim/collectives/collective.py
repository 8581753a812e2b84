"""What a collective is in a run."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

import simpy

from netfold.homomorphic.codec import Merged, Message
from netfold.sim.engine.interface import Overflow
from netfold.sim.network.fabric import Fabric
from netfold.sim.network.host_time import HostTimes
from netfold.sim.workload.device import Device

OPERATIONS_KEPT = 64
Wait = Generator[simpy.Event, Any, tuple[Merged, ...]]


@dataclass(frozen=True)
class Stage:
    """Where a job's collective runs."""

    environment: simpy.Environment
    fabric: Fabric
    hosts: HostTimes
    nodes: tuple[int, ...]  # of each worker
    device: Device
    seed: int
    job: int = 0  # its number in the variant


class Collective(Protocol):
    """Carries a job's network operations; all workers call it for the same ones, in the same order."""

    @property
    def takes_floats(self) -> bool:
        """Whether it adds a message's floats where the sums of its words overflow."""
        ...

    @property
    def overflow(self) -> Overflow:
        """What it does with integer sums that leave int32."""
        ...

    def pipelines(self, message: Message) -> bool:
        """Whether it agrees on a scaled message's exponents by itself, on the way of the words."""
        ...

    def exchange(self, worker: int, messages: tuple[Message, ...]) -> Wait:
        """Send one worker's messages now; a SimPy process waits in it, and gets them merged."""
        ...

    def switch_counters(self) -> list[dict[str, int]]:
        """Counters of the program it runs, switch by switch, root first; none if it runs none."""
        ...

    def leaks(self) -> list[str]:
        """Slots and entries of switches that hold something nobody will ask for, when all is done."""
        ...

    def locate(self, worker: int, operation: int, part: int, word: int) -> str:
        """Where a worker got a word of a message merged: slot and unit, or segment.

        `operation` counts a worker's calls of `exchange` from 0, `part` the messages of the call; no more
        than `OPERATIONS_KEPT` operations may have been begun since.
        """
        ...

    def share(self) -> float:
        """How much of what is under way has arrived, from 0 to 1."""
        ...

    def retransmitted_packets(self) -> int:
        """Packets sent again so far, by all workers."""
        ...
