"""The protocol of collectives in a run."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

import simpy

from netfold.homomorphic.message import Merged, Message
from netfold.sim.engine.interface import Overflow
from netfold.sim.network.fabric import Fabric
from netfold.sim.network.host_time import HostTimes
from netfold.sim.workload.device import Device

OPERATIONS_KEPT = 64
Wait = Generator[simpy.Event, Any, tuple[Merged, ...]]


@dataclass(frozen=True)
class RunContext:
    """The environment of a job's collective."""

    environment: simpy.Environment
    fabric: Fabric
    hosts: HostTimes
    nodes: tuple[int, ...]  # of each worker
    device: Device
    seed: int
    job: int = 0  # its number in the variant


class Collective(Protocol):
    """Carries a job's network operations; all workers call it for the same operations in the same order."""

    @property
    def takes_floats(self) -> bool:
        """Whether it adds a message's floats if the sums of its words overflow."""
        ...

    @property
    def overflow(self) -> Overflow:
        """Its policy for integer sums that leave int32."""
        ...

    def pipelines(self, message: Message) -> bool:
        """Whether it agrees on a scaled message's exponents while it sends the words."""
        ...

    def exchange(self, worker: int, messages: tuple[Message, ...]) -> Wait:
        """Send one worker's messages now, and return the merged messages to the waiting SimPy process."""
        ...

    def switch_counters(self) -> list[dict[str, int]]:
        """Counters of its switch program, one mapping per switch, root first; empty without a program."""
        ...

    def leaks(self) -> list[str]:
        """Slots and entries of switches that still hold words at the end of a run."""
        ...

    def locate(self, worker: int, operation: int, part: int, word: int) -> str:
        """Where a word of a worker's message was merged: slot and unit, or segment.

        `operation` counts a worker's calls of `exchange` from 0, `part` the messages of the call. Only the
        latest `OPERATIONS_KEPT` operations are known.
        """
        ...

    def share(self) -> float:
        """Progress of the operations in flight, from 0 to 1."""
        ...

    def retransmitted_packets(self) -> int:
        """Packets retransmitted so far, by all workers."""
        ...
