"""What packets of aggregation jobs say, and how one is put into an envelope, in plain Python.

The rules are the section "Aggregation streams (SwitchML)" of sim/engine/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Job
from tests.reference.engine.fabric import Fabric
from tests.reference.engine.link import Label, Packet
from tests.reference.switch.merging import NO_EXPONENT, lifted, words_per_word


class Cause(NamedTuple):
    """The worker's packet that a packet is, or that made a switch send it."""

    worker: int
    stream: int
    unit: int
    part: int  # which packet of the unit
    attempt: int
    copy: int = 0  # which copy of that packet, or of one on the way from it; 0: none


class Chunk(NamedTuple):
    """What a packet says: words on their way up to a slot, or from it."""

    cause: Cause
    window_slot: int
    turn: int  # units completed in this window slot before
    merge: Merge
    words: Sequence[int]  # int32 values
    exponent: int = NO_EXPONENT
    psn: int = -1  # between workers and switch
    workers: int = 1  # whose words these are
    members: int = 0  # bitmap of these workers, in jobs of few enough
    table: Sequence[int] | None = None  # of words that are still codes
    lane_bits: int = 32  # of sums
    absent_words: int = 0  # without workers: words of the result that it becomes part of

    @property
    def length(self) -> int:
        """Words of a result that it becomes part of, codes lifted."""
        return len(self.lifted().words) if self.workers else self.absent_words

    @property
    def is_header(self) -> bool:
        """Whether it travels without words, because nobody has contributed any."""
        return not self.workers and not self.words

    @property
    def version(self) -> int:
        """Which of the two versions of its slot it is for."""
        return self.turn % 2

    def lifted(self) -> Chunk:
        """With the table's words in place of codes."""
        if self.table is None:
            return self
        return self._replace(words=lifted(self.words, self.table, self.lane_bits), table=None)


@dataclass
class JobNumber:
    """A job and the number the engine gave it."""

    job: Job
    number: int

    @property
    def window(self) -> int:
        """Units a worker may have outstanding."""
        return self.job.slots_count // self.job.unit_packets

    def owner(self, worker: int) -> int:
        """What the log calls a worker."""
        return self.number * 65536 + worker

    def slot(self, chunk: Chunk) -> int:
        """Slot of a chunk, counted from the job's first."""
        return chunk.window_slot * self.job.unit_packets + chunk.cause.part

    def size_bytes(self, chunk: Chunk) -> int:
        """Wire size of a chunk: that of a full one, however few words it carries, or of a header alone."""
        is_wide = chunk.merge is Merge.TABLE_ADD and chunk.table is None
        width = words_per_word(chunk.merge, chunk.lane_bits) if is_wide else 1
        elements = self.job.frame.elements * width * (not chunk.is_header)
        part = chunk.cause.part
        return self.job.frame.wire_bytes(elements, first=part == 0, last=part == self.job.unit_packets - 1)


class Way(NamedTuple):
    """Where a chunk goes next, and what sets its packet apart from others with the same cause."""

    target: int  # node
    route: int
    purpose: int  # of its key
    party: int  # in its key
    owner: int  # worker that the log calls its owner
    deliver: Callable[[Chunk], None]


def packet_of(fabric: Fabric, job: JobNumber, chunk: Chunk, way: Way) -> Packet:
    """A packet that carries a chunk; it is delivered with the words that faults left."""
    cause = chunk.cause
    return Packet(
        target=way.target,
        route=way.route,
        size_bytes=job.size_bytes(chunk),
        key=fabric.key(
            way.purpose,
            job.number,
            way.party,
            cause.stream,
            cause.unit,
            cause.part,
            cause.attempt,
            copy=cause.copy,
        ),
        label=Label(job.owner(way.owner), cause.unit, cause.part, cause.attempt),
        deliver=lambda packet: way.deliver(
            chunk._replace(words=packet.words, cause=cause._replace(copy=packet.copy))
        ),
        words=chunk.words,
        starts_message=cause.part == 0,
        copy=cause.copy,
    )
