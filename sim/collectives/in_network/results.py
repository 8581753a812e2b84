"""Results of aggregation, kept once for all workers that got the same words."""

from __future__ import annotations

import mmap
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Words
from netfold.sim.engine.interface import Segment, Shared

# From this size on, memory is asked of the system and stays untouched until written.
_RESERVED_BYTES = 1 << 20


@dataclass
class _SharedResult:
    """The shared result of one message of an operation."""

    shared: Shared
    served: set[int] = field(default_factory=set)  # workers that have it back


class Results:
    """Hands out room for the results of one job's messages, and gives each worker its words.

    A result takes its size once, and once more for every packet in which a worker got other words than the
    first one. Words that are handed out are never written again.
    """

    def __init__(self, workers: int, unit_words: int, unit_packets: int) -> None:
        self._workers, self._unit_words, self._unit_packets = workers, unit_words, unit_packets
        self._results: dict[tuple[int, int], _SharedResult] = {}  # by operation and message
        self._operations: defaultdict[int, int] = defaultdict(int)  # begun so far, by worker

    def begin(self, worker: int) -> int:
        """A worker begins its next operation; returns its number."""
        self._operations[worker] += 1
        return self._operations[worker] - 1

    def allocate(self, operation: int, part: int, units: int, words: int, dtype: Any) -> ResultBuffer:
        """Where a worker's result of a message goes: `words` of them, in `units` units."""
        packets, key = units * self._unit_packets, (operation, part)
        if key not in self._results:
            self._results[key] = _SharedResult(Shared(np.empty(words, dtype), np.zeros(packets, np.uint8)))
        shared = self._results[key].shared
        if (shared.words.size, shared.words.dtype) != (words, np.dtype(dtype)):
            return ResultBuffer(np.empty(words, dtype), None, None)  # the engine tells what differs
        return ResultBuffer(_reserved(words, dtype), shared, np.zeros(packets, np.uint8))

    def take(self, worker: int, operation: int, part: int, segment: Segment) -> Words:
        """A worker's words of a result that is complete; those of others if they are the same."""
        shared, own = segment.shared, segment.own
        if shared is None or own is None:
            return segment.result
        result = self._results[operation, part]
        result.served.add(worker)
        if len(result.served) == self._workers:
            del self._results[operation, part]
        if not own.any():
            return shared.words
        words = shared.words.copy()
        for packet in np.flatnonzero(own):
            place = self._words_of(int(packet), segment)
            words[place] = segment.result[place]
        return words

    def _words_of(self, packet: int, segment: Segment) -> slice:
        """The words of a result that one of its packets carries."""
        lanes = segment.result.size // segment.words.size
        size = lanes * self._unit_words // self._unit_packets
        return slice(packet * size, (packet + 1) * size)


@dataclass(frozen=True)
class ResultBuffer:
    """Where the engine writes a worker's result; see `Segment`."""

    result: NDArray[Any]
    shared: Shared | None
    own: NDArray[np.uint8] | None


def _reserved(count: int, dtype: Any) -> NDArray[Any]:
    """An array whose memory is taken page by page, when something is written there."""
    size_bytes = count * np.dtype(dtype).itemsize
    if size_bytes < _RESERVED_BYTES:
        return np.empty(count, dtype)
    return np.frombuffer(mmap.mmap(-1, size_bytes), dtype)
