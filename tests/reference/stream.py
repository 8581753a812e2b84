"""What an aggregation stream consists of, in plain Python: packets, units, and where their words belong.

The rules are the section "Aggregation streams (SwitchML)" of sim/engine/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sim.engine.model import Frame, Job, Merge, Scaled, Segment
from tests.reference.quantise import quantise
from tests.reference.switchml import NO_EXPONENT


class Contribution(NamedTuple):
    """What a packet from a worker to the switch says."""

    worker: int
    stream: int
    unit: int
    part: int  # which packet of the unit
    attempt: int
    psn: int
    window_slot: int
    version: int
    merge: Merge
    words: list[int]
    exponent: int


class Result(NamedTuple):
    """What a packet from the switch to a worker says."""

    stream: int
    unit: int
    part: int
    psn: int
    words: list[int]
    exponent: int


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


def full_bytes(frame: Frame, part: int, unit_packets: int) -> int:
    """Wire size of packet `part` of a unit: always that of a full one, however few words it carries."""
    return frame.wire_bytes(frame.elements, first=part == 0, last=part == unit_packets - 1)


@dataclass
class Place:
    """Where a unit's words come from and its result goes: `words[start:]`, cut at the segment's end."""

    segment: Segment
    start: int

    def part(self, part: int, elements: int) -> slice:
        """The words of one packet of the unit, maybe none."""
        size = self.segment.words.size
        start = self.start + part * elements
        return slice(min(start, size), min(start + elements, size))


class Stream:
    """One exchange of one worker, cut into units."""

    def __init__(self, job: Job, window: int, segments: Sequence[Segment], scaled: Scaled | None) -> None:
        unit_elements = job.unit_packets * job.frame.elements
        self.job = job
        self.scaled = scaled
        places = [
            Place(segment, start)
            for segment in segments
            for start in range(0, segment.words.size, unit_elements)
        ]
        # A scaled stream sends the exponents of its first blocks ahead of any words.
        self.lead = min(window, len(places)) if scaled else 0
        self.places: list[Place | None] = [None] * self.lead + list(places)
        self.units = len(self.places)
        self.completed = 0
        # A scaled stream with fewer blocks than window slots uses as many slots as it has blocks: then the
        # unit before one in its slot is also the one that brings its agreed exponent.
        self.window = self.lead if scaled else window
        self._quantised: dict[int, list[int]] = {}  # by unit

    def merge(self, unit: int) -> Merge:
        """Merge of a unit; without words it does not matter which."""
        place = self.places[unit]
        return place.segment.merge if place else Merge.ADD

    def words(self, unit: int, part: int) -> list[int]:
        """The words of one packet as int32 values."""
        place = self.places[unit]
        if place is None:
            return []
        elements = self.job.frame.elements
        if self.scaled is None:
            return list(map(int, place.segment.words.view(np.int32)[place.part(part, elements)]))
        if unit not in self._quantised:  # first sent: a retransmission sends the same words
            block = place.segment.words[place.start : place.start + self.job.unit_packets * elements]
            exponent = int(self.scaled.agreed[unit - self.lead])
            self._quantised[unit] = quantise(block, exponent, len(self.job.hosts))
        return self._quantised[unit][part * elements : (part + 1) * elements]

    def exponent(self, unit: int, part: int) -> int:
        """This worker's exponent that a packet announces."""
        if self.scaled is None or part < self.job.unit_packets - 1 or unit >= self.scaled.exponents.size:
            return NO_EXPONENT
        return int(self.scaled.exponents[unit])

    def store(self, result: Result) -> None:
        """Write a result's words and agreed exponent where they belong."""
        place = self.places[result.unit]
        if place is not None:
            target = place.part(result.part, self.job.frame.elements)
            place.segment.result.view(np.int32)[target] = result.words
        if self.scaled is None or result.part < self.job.unit_packets - 1:
            return
        if result.unit < self.scaled.agreed.size:
            self.scaled.agreed[result.unit] = result.exponent
