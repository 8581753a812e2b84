"""What an engine is told and what it answers: plain data, shared by the compiled engine and its reference."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Frame:
    """Sizes of one packet format. All wire sizes include FCS (4 B), preamble and inter-packet gap (20 B)."""

    name: str
    elements: int  # 32-bit words per full packet
    overhead_bytes: int  # wire bytes that are not payload
    first_bytes: int = 0  # more on the first packet of a message
    last_bytes: int = 0  # more on the last
    ack_bytes: int = 84

    def wire_bytes(self, words: int, *, first: bool, last: bool) -> int:
        """Bytes on the wire of one packet that carries `words` words."""
        return self.overhead_bytes + 4 * words + self.first_bytes * first + self.last_bytes * last


@dataclass(frozen=True)
class Job:
    """One aggregation job on one switch: `hosts[r]` is the node of worker r."""

    hosts: tuple[int, ...]
    switch: int
    slot_base: int
    slots_count: int  # = window · unit_packets; each slot has two versions
    unit_packets: int
    frame: Frame
    timeout_ps: int
    first_timeout_ps: int
    timeout_max_ps: int  # doubling stops here
    routes: tuple[int, ...]  # per worker, non-negative: picks among equal-cost paths
    loopback_link: int = -1  # link from the switch to itself that every result passes, or -1


class Merge(IntEnum):
    """Merges a switch register can do in one pass."""

    ADD = 0
    OR = 1
    MAX = 2


@dataclass(frozen=True)
class Segment:
    """One message of a stream: C-contiguous arrays of 4-byte items; `result` is written in place."""

    words: NDArray[Any]  # int32 or uint32; float32 if scaled
    result: NDArray[Any]  # int32 or uint32, same length
    merge: Merge


@dataclass(frozen=True)
class Scaled:
    """Block exponents of a scaled stream (one segment, one exponent per unit-sized block)."""

    exponents: NDArray[np.int8]  # (blocks,) this worker's
    agreed: NDArray[np.int8]  # (blocks,) written: the maximum over workers


@dataclass(frozen=True)
class Flow:
    """One reliable unicast message; without `words` and `received` bytes are counted, not carried."""

    source: int
    target: int
    words_count: int
    words: NDArray[Any] | None
    received: NDArray[Any] | None  # written in place at the target
    frame: Frame
    window: int
    timeout_ps: int
    ack_every: int
    route: int
    key: int


@dataclass(frozen=True)
class Completion:
    """Something an engine finished: a worker's stream, or a delivered flow."""

    time_ps: int
    kind: str  # "stream" | "flow"
    job: int  # stream: job index; flow: -1
    worker: int  # stream: worker; flow: the number open_flow returned
