"""Results of aggregation, stored once for all workers with equal words."""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import Words, words_per_word
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.engine.interface import Segment, Shared

# From this size on, memory is mapped and stays untouched until written.
_RESERVED_BYTES = 1 << 20

MessageKey = tuple[OperationPlace, int]  # a message of an operation


@dataclass
class _SharedResult:
    """The shared result of one message of an operation."""

    shared: Shared
    served: set[int] = field(default_factory=set)  # workers that have their words


class Results:
    """Allocates buffers for the results of one job's messages, and returns each worker's words.

    A result is stored once, and packets in which a worker got other words than the first are stored again.
    Words that are returned are never written again.
    """

    def __init__(self, workers: int, unit_words: int, unit_packets: int) -> None:
        self._workers, self._unit_words, self._unit_packets = workers, unit_words, unit_packets
        self._results: dict[MessageKey, _SharedResult] = {}

    def allocate(self, key: MessageKey, units: int, words: int, dtype: Any) -> ResultBuffer:
        """Allocate the buffer of a worker's result of a message: `words` words in `units` units."""
        packets = units * self._unit_packets
        if key not in self._results:
            self._results[key] = _SharedResult(Shared(np.empty(words, dtype), np.zeros(packets, np.uint8)))
        shared = self._results[key].shared
        if (shared.words.size, shared.words.dtype) != (words, np.dtype(dtype)):
            return ResultBuffer(np.empty(words, dtype), None, None)  # the engine reports the difference
        return ResultBuffer(_reserved(words, dtype), shared, np.zeros(packets, np.uint8))

    def take(self, worker: int, key: MessageKey, segment: Segment) -> Words:
        """Return a worker's words of a complete result, shared with other workers if equal."""
        shared, own = segment.shared, segment.own
        if shared is None or own is None:
            return segment.result
        result = self._results[key]
        result.served.add(worker)
        if len(result.served) == self._workers:
            del self._results[key]
        if not own.any():
            return shared.words
        words = shared.words.copy()
        for packet in np.flatnonzero(own):
            place = self._words_of(int(packet), segment)
            words[place] = segment.result[place]
        return words

    def _words_of(self, packet: int, segment: Segment) -> slice:
        """The words of a result that one of its packets carries."""
        width = words_per_word(segment.merge, segment.lane_bits)
        size = width * self._unit_words // self._unit_packets
        return slice(packet * size, (packet + 1) * size)


@dataclass(frozen=True)
class ResultBuffer:
    """The arrays that the engine writes a worker's result to; see `Segment`."""

    result: NDArray[Any]
    shared: Shared | None
    own: NDArray[np.uint8] | None


def _reserved(count: int, dtype: Any) -> NDArray[Any]:
    """An array whose pages are allocated on the first write."""
    size_bytes = count * np.dtype(dtype).itemsize
    if size_bytes < _RESERVED_BYTES:
        return np.empty(count, dtype)
    return np.frombuffer(mmap.mmap(-1, size_bytes), dtype)
