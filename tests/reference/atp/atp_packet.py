"""What ATP's packets say besides their words, and the entries that they start with.

The rules are the section "ATP" of sim/engine/README.md.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from tests.reference.engine.chunk import JobNumber
from tests.reference.engine.fabric import Fabric

KEY_DATA, KEY_JITTER, KEY_FIRST_ENTRY, KEY_PROPOSAL, KEY_REPLY, KEY_COPY = 1, 9, 14, 15, 16, 17

NO_PROPOSAL = -1


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


def full_bytes(job: JobNumber) -> int:
    """Wire size of every packet."""
    frame = job.job.frame
    return frame.wire_bytes(frame.elements, first=True, last=True)
