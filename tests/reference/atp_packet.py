"""What ATP's packets say, and how they reach whoever takes them in.

The rules are the section "ATP" of sim/engine/README.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import NamedTuple

from tests.reference.fabric import Fabric, Packet
from tests.reference.stream import JobNumber

KEY_DATA, KEY_JITTER, KEY_FIRST_ENTRY, KEY_PROPOSAL, KEY_REPLY, KEY_COPY = 1, 9, 14, 15, 16, 17

NO_PROPOSAL = -1


@dataclass(kw_only=True)
class AtpPacket(Packet):
    """A packet that hands itself over: a copy of it arrives with its own key, hops, words and mark."""

    receive: Callable[[AtpPacket], None]
    words: list[int]  # int32 values, or the bits of floats; a new list whenever they change
    is_marked: bool = False  # ECN
    deliver: Callable[[], None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.deliver = partial(self.receive, self)


class Contribution(NamedTuple):
    """What a data packet says besides its words: from a worker, or from the switch for several workers."""

    stream: int
    unit: int
    bits: int  # of the workers whose words it holds
    entry: int
    is_resend: bool
    is_float: bool  # the overflow flag
    can_be_float: bool  # its segment has floats to send instead
    has_collided: bool = False


class Reply(NamedTuple):
    """What an acknowledgement says besides the sum: from the server to the switch, and to every worker."""

    worker: int  # lowest one in the packet that caused it
    stream: int
    unit: int
    number: int  # 0, 1, … of the unit
    entry: int
    is_float: bool
    is_request: bool  # for floats, instead of a sum
    proposal: int  # entry to use from now on, or NO_PROPOSAL


def first_entries(fabric: Fabric, job: JobNumber) -> list[int]:
    """Entry of each place in the window, all different; other jobs on the switch may have the same ones.

    Source: in-ATP/ATP, common/HashTable.cc (there CRC32 of application, index and salt).
    """
    server = job.job.server
    assert server is not None
    entries: list[int] = []
    for place in range(server.window_max):
        tries = (fabric.key(KEY_FIRST_ENTRY, job.number, place, salt) % server.entries for salt in count())
        entries.append(next(entry for entry in tries if entry not in entries))
    return entries
