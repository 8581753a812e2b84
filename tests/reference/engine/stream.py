"""What an aggregation stream consists of, in plain Python: units, and where their words belong.

The rules are the section "Aggregation streams (SwitchML)" of sim/engine/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Scaled, Segment
from tests.reference.codecs.quantise import quantise
from tests.reference.engine.chunk import Chunk, JobNumber
from tests.reference.switch.merging import NO_EXPONENT, unchanged_by, words_per_word


def width_of(segment: Segment) -> int:
    """Result words per word sent."""
    return words_per_word(segment.merge, segment.lane_bits)


@dataclass
class Place:
    """Where a unit's words come from and its result goes: `words[start:]`, cut at the segment's end."""

    segment: Segment
    start: int

    def part(self, part: int, elements: int) -> slice:
        """The words of one packet of the unit, maybe none."""
        size = self.segment.size
        start = self.start + part * elements
        return slice(min(start, size), min(start + elements, size))


class Stream:
    """One exchange of one worker, cut into units."""

    def __init__(self, numbered: JobNumber, segments: Sequence[Segment], scaled: Scaled | None) -> None:
        job = numbered.job
        unit_elements = job.unit_packets * job.frame.elements
        self.job = job
        self.scaled = scaled
        places = [
            Place(segment, start) for segment in segments for start in range(0, segment.size, unit_elements)
        ]
        self.segments = segments
        # A scaled stream sends the exponents of its first blocks ahead of any words.
        self.lead = min(numbered.window, len(places)) if scaled else 0
        self.places: list[Place | None] = [None] * self.lead + list(places)
        self.units = len(self.places)
        self.completed = 0
        # A scaled stream with fewer blocks than window slots uses as many slots as it has blocks: then the
        # unit before one in its slot is also the one that brings its agreed exponent.
        self.window = self.lead if scaled else numbered.window
        self._quantised: dict[int, list[int]] = {}  # by unit

    def merge(self, unit: int) -> Merge:
        """Merge of a unit; without words it does not matter which."""
        place = self.places[unit]
        return place.segment.merge if place else Merge.ADD

    def lane_bits(self, unit: int) -> int:
        """Width of the lanes of a unit's words."""
        place = self.places[unit]
        return place.segment.lane_bits if place else 32

    def table(self, unit: int) -> list[int] | None:
        """What lifts a unit's words, if they are codes."""
        place = self.places[unit]
        if place is None or place.segment.merge is not Merge.TABLE_ADD or place.segment.is_absent:
            return None
        assert place.segment.table is not None, "TABLE_ADD needs a table"
        return list(map(int, place.segment.table))

    def is_absent(self, unit: int) -> bool:
        """Whether this worker contributes nothing to a unit; a scaled stream has one segment."""
        place = self.places[unit]
        return (place.segment if place else self.segments[0]).is_absent

    def absent_words(self, unit: int, part: int) -> int:
        """Words that a packet's result has, where this worker contributes none."""
        place = self.places[unit]
        if place is None or not place.segment.is_absent:
            return 0
        words = place.part(part, self.job.frame.elements)
        return (words.stop - words.start) * width_of(place.segment)

    def words(self, unit: int, part: int) -> list[int]:
        """The words of one packet as int32 values."""
        place = self.places[unit]
        if place is None or place.segment.is_absent:
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

    def store(self, result: Chunk) -> None:
        """Write a result's words, agreed exponent and holders where they belong."""
        unit, part = result.cause.unit, result.cause.part
        place = self.places[unit]
        if place is not None:
            target = place.part(part, self.job.frame.elements)
            segment, lanes = place.segment, width_of(place.segment)
            words = unchanged_by(segment.merge) if result.is_header else result.words
            segment.result.view(np.int32)[lanes * target.start : lanes * target.stop] = words
            packet = place.start // self.job.frame.elements + part
            if segment.holders is not None:
                segment.holders[packet] = result.members
            if segment.members is not None and target.start < target.stop:
                segment.members[packet] = result.workers, result.members
        if self.scaled is not None and part == self.job.unit_packets - 1 and unit < self.scaled.agreed.size:
            self.scaled.agreed[unit] = result.exponent
