"""What a collective is."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

import simpy

from homomorphic.codec import Merged, Message

Wait = Generator[simpy.Event, Any, tuple[Merged, ...]]


class Collective(Protocol):
    """Carries a job's network operations; all workers call it for the same ones, in the same order."""

    def exchange(self, worker: int, messages: tuple[Message, ...]) -> Wait:
        """Send one worker's messages now; a SimPy process waits in it, and gets them merged."""
        ...

    def retransmitted_packets(self) -> int:
        """Packets sent again so far, by all workers."""
        ...
