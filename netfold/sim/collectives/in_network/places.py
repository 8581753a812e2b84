"""The slot of a switch in which a word was merged: the engine's rule, applied to what workers send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import words_per_word
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.engine.interface import Job, Segment


class _Stream(NamedTuple):
    """How one stream used the window's slots, the same for all workers."""

    number: int
    parts: tuple[int, ...]  # messages of the operation that it carried
    first_units: tuple[int, ...]  # of each, counted without the lead
    words_per_word: tuple[int, ...]  # of each: words received per word sent
    lead: int  # units ahead of the first word
    window: int  # units
    turns: NDArray[np.int64]  # (window,) units that each window slot had carried before


class Places:
    """The operations of a job's latest step, stream by stream; the first to open a stream records it.

    All workers open the same streams in the same order, whatever operations they belong to.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._unit_words = job.unit_packets * job.frame.elements
        self._opened = [0] * len(job.hosts)  # streams of each worker
        self._operations: dict[OperationPlace, list[_Stream]] = {}
        self._step = -1
        self._streams_count = 0
        self._turns = np.zeros(job.slots_count // job.unit_packets, np.int64)

    def open(
        self,
        worker: int,
        place: OperationPlace,
        parts: Sequence[int],
        segments: Sequence[Segment],
        is_scaled: bool = False,
    ) -> None:
        """Record that a worker opens a stream of an operation for these of its messages."""
        self._opened[worker] += 1
        if self._opened[worker] <= self._streams_count:
            return
        units = [-(-segment.size // self._unit_words) for segment in segments]
        lead = min(self._turns.size, units[0]) if is_scaled else 0
        window = lead or self._turns.size
        widths = tuple(words_per_word(segment.merge, segment.lane_bits) for segment in segments)
        first_units = np.cumsum([0, *units[:-1]]).tolist()
        turns = self._turns[:window].copy()
        if place.step != self._step:
            self._step = place.step
            self._operations.clear()
        self._operations.setdefault(place, []).append(
            _Stream(self._streams_count, tuple(parts), tuple(first_units), widths, lead, window, turns)
        )
        self._streams_count += 1
        self._turns[:window] += (sum(units) + lead - np.arange(window) + window - 1) // window

    def locate(self, place: OperationPlace, part: int, word: int) -> str:
        """Slot, version and unit of a word; all workers use the same slot for the same word."""
        job = self._job
        stream = next(one for one in self._operations[place] if part in one.parts)
        index = stream.parts.index(part)
        first_unit, word = stream.first_units[index], word // stream.words_per_word[index]
        unit = stream.lead + first_unit + word // self._unit_words
        where = f"unit {unit} of stream {stream.number}"
        if job.program.has_server:  # collisions move units from slot to slot, and to the server
            return f"{where}, in a slot that changes with collisions, or at the server"
        window_slot = unit % stream.window
        turn = int(stream.turns[window_slot]) + unit // stream.window
        packet = word % self._unit_words // job.frame.elements
        slot = job.slot_base + window_slot * job.unit_packets + packet
        version = turn % job.program.versions
        return f"slot {slot}, version {version}, {where}"
