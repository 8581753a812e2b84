"""Check that all workers of a job open equal streams in the same order.

A result is as long as the packet that caused it says, which of an absent worker is a header alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netfold.homomorphic.message import WORD_BITS, Merge
from netfold.sim.engine.interface import Segment

SERIALS_MAX = 1 << 20  # streams of a worker that the identity of an ATP entry can hold


class StreamLayout(NamedTuple):
    """The properties of a stream that are the same at all workers."""

    segments: tuple[tuple[int, Merge, int], ...]  # words, how they merge, and the width of their lanes
    is_scaled: bool
    has_floats: bool

    @classmethod
    def of(cls, segments: Sequence[Segment], is_scaled: bool) -> StreamLayout:
        """Layout of one worker's stream."""
        has_floats = any(segment.floats is not None for segment in segments)
        layouts = tuple((one.size, one.merge, one.lane_bits) for one in segments)
        return cls(layouts, is_scaled, has_floats)

    def __str__(self) -> str:
        words = " and ".join(
            f"{count} words by {merge.name}{'' if bits == WORD_BITS else f' in {bits}-bit lanes'}"
            for count, merge, bits in self.segments
        )
        floats = "with" if self.has_floats else "without"
        return f"{words}{', scaled,' if self.is_scaled else ''} {floats} floats to fall back to"


class LockStep:
    """The streams that some workers of a job have opened and others have not."""

    def __init__(self) -> None:
        # By job and stream: its layout, and how many workers have opened it.
        self._opened: dict[tuple[int, int], tuple[StreamLayout, int]] = {}

    def open(self, job: int, worker: int, serial: int, layout: StreamLayout, workers_count: int) -> None:
        """Record that a worker opens a stream.

        Raises
        ------
        ValueError
            Another worker's stream has another layout.
        RuntimeError
            The worker has used up its streams.
        """
        if serial >= SERIALS_MAX:
            raise RuntimeError(f"worker {worker} of job {job} has opened {serial} streams, the maximum")
        first, opened = self._opened.get((job, serial), (layout, 0))
        if layout != first:
            raise ValueError(f"worker {worker} of job {job} streams {layout}, another worker {first}")
        self._opened[job, serial] = first, opened + 1
        if opened + 1 == workers_count:
            del self._opened[job, serial]
