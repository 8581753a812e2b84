"""How the words of a message are divided among the parallel trees of a job.

Every message is divided, so that one large bucket uses all trees (as SHARP and NCCL divide by channels), into
contiguous runs of whole units whose numbers differ by one at most. The first tree rotates from message to
message, so that messages with fewer units than trees use all trees too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from netfold.homomorphic.message import words_per_word
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.engine.interface import Segment, Shared


class Units(NamedTuple):
    """A run of a message's units."""

    first: int
    size: int

    @property
    def as_slice(self) -> slice:
        """The same as a slice."""
        return slice(self.first, self.first + self.size)


class _Divided(NamedTuple):
    """How a message is divided, and how many words of its result come of each that is sent."""

    units: tuple[Units, ...]  # of each tree
    width: int


class Shares:
    """The shares of the messages of a job's latest step; all workers divide a message alike."""

    def __init__(self, trees: int, workers: int, unit_packets: int, packet_words: int) -> None:
        self._trees, self._unit_packets, self._packet_words = trees, unit_packets, packet_words
        self._unit_words = unit_packets * packet_words
        self._opened = [0] * workers  # messages of each worker, over the run
        self._step = -1
        self._found: dict[tuple[OperationPlace, int], _Divided] = {}

    def of(self, worker: int, place: OperationPlace, part: int, segment: Segment) -> tuple[Units, ...]:
        """The share of each tree in the message that a worker sends next: all workers send the same ones."""
        number = self._opened[worker]
        self._opened[worker] += 1
        if place.step != self._step:
            self._step = place.step
            self._found.clear()
        if (place, part) not in self._found:
            units = divided(-(-segment.size // self._unit_words), self._trees, number)
            self._found[place, part] = _Divided(units, words_per_word(segment.merge, segment.lane_bits))
        return self._found[place, part].units

    def locate(self, place: OperationPlace, part: int, word: int) -> tuple[int, int]:
        """The tree that carried a word of a result, and the word's number in that tree's share."""
        if self._trees == 1:
            return 0, word
        units, width = self._found[place, part]
        unit = word // width // self._unit_words
        tree = next(tree for tree, run in enumerate(units) if run.first <= unit < run.first + run.size)
        return tree, word - units[tree].first * self._unit_words * width

    def piece(self, segment: Segment, units: Units) -> Segment:
        """The units of a segment that one tree carries, in the same memory."""
        first, last = units.first * self._unit_words, (units.first + units.size) * self._unit_words
        if first == 0 and last >= segment.size:
            return segment
        last = min(last, segment.size)
        width = words_per_word(segment.merge, segment.lane_bits)
        of_result = slice(width * first, width * last)
        packets = slice(units.first * self._unit_packets, (units.first + units.size) * self._unit_packets)
        shared, own, members = segment.shared, segment.own, segment.members
        return replace(
            segment,
            words=segment.words[first:last],
            result=segment.result[of_result],
            shared=None if shared is None else Shared(shared.words[of_result], shared.seen[packets]),
            own=None if own is None else own[packets],
            absent_words=last - first if segment.is_absent else 0,
            members=None if members is None else members[packets],
        )


def divided(units: int, trees: int, number: int) -> tuple[Units, ...]:
    """The units of each tree for the `number`-th message; tree `number` mod `trees` has the first ones."""
    least, more = divmod(units, trees)
    runs = [Units(run * least + min(run, more), least + (run < more)) for run in range(trees)]
    return tuple(runs[(tree - number) % trees] for tree in range(trees))
