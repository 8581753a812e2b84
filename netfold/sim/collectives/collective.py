"""The protocol of collectives in a run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import simpy

from netfold.homomorphic.codec import Server
from netfold.homomorphic.merge import HostHop
from netfold.homomorphic.message import Merged, Message
from netfold.homomorphic.round import Tensor
from netfold.sim.engine.interface import Overflow
from netfold.sim.network.fabric import Fabric, HostTimes
from netfold.sim.workload.device_model import Device

Wait = Generator[simpy.Event, Any, tuple[Merged, ...]]


MergeOrders = dict[tuple[int, int], Sequence[Sequence[HostHop]]]


class OperationPlace(NamedTuple):
    """One network operation of a job, the same at all workers."""

    step: int
    bucket: int
    operation: int  # of the round

    def __str__(self) -> str:
        return f"step {self.step}, bucket {self.bucket}, operation {self.operation}"

    @property
    def in_words(self) -> str:
        """The same as part of a sentence."""
        return f"operation {self.operation} of bucket {self.bucket} of step {self.step}"


def _no_server() -> Server | None:
    """Default: the codec has no server part."""
    return None


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
    make_server: Callable[[], Server | None] = _no_server  # the codec's part where messages meet
    tensors: Sequence[tuple[Tensor, ...]] = ()  # of each bucket; empty: unknown
    ranks: tuple[int, ...] = ()  # of its workers in the job, if they are only some of these


class Collective(Protocol):
    """Carries a job's network operations; all workers call it for the same operations."""

    @property
    def servers(self) -> Sequence[Server]:
        """The codec's server parts, for their `state` and `restore`; empty if it has none."""
        ...

    @property
    def is_serial(self) -> bool:
        """Whether it carries one operation of a worker at a time, in the same order at all workers."""
        ...

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

    def exchange(self, worker: int, messages: tuple[Message, ...], place: OperationPlace) -> Wait:
        """Send one worker's messages now, and return the merged messages to the waiting SimPy process."""
        ...

    def merge_orders(self, step: int, bucket: int) -> MergeOrders:
        """The hops at which HOST messages of a finished round merged, by operation and message.

        It is asked once per round, and forgets them then.
        """
        ...

    def switch_counters(self) -> list[dict[str, int]]:
        """Counters of its switch program, one mapping per switch, root first; empty without a program."""
        ...

    def leaks(self) -> list[str]:
        """Slots and entries of switches that still hold words at the end of a run."""
        ...

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """Where a word of message `part` of an operation of the latest step was merged: slot or segment."""
        ...

    def share(self) -> float:
        """Progress of the operations in flight, from 0 to 1."""
        ...

    def retransmitted_packets(self) -> int:
        """Packets retransmitted so far, by all workers."""
        ...
