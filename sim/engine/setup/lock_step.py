"""All workers of a job stream the same lengths in the same order: results are as long as what caused them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netfold.homomorphic.codec import Merge
from netfold.sim.engine.interface import Segment

SERIALS_MAX = 1 << 20  # streams of a worker: what an ATP entry can tell apart


class Shape(NamedTuple):
    """What the streams of all workers have in common."""

    segments: tuple[tuple[int, Merge], ...]  # words, and how they merge
    is_scaled: bool
    has_floats: bool

    @classmethod
    def of(cls, segments: Sequence[Segment], is_scaled: bool) -> Shape:
        """Shape of one worker's stream."""
        has_floats = any(segment.floats is not None for segment in segments)
        return cls(tuple((one.words.size, one.merge) for one in segments), is_scaled, has_floats)

    def __str__(self) -> str:
        words = " and ".join(f"{count} words by {merge.name}" for count, merge in self.segments)
        floats = "with" if self.has_floats else "without"
        return f"{words}{', scaled,' if self.is_scaled else ''} {floats} floats to fall back to"


class LockStep:
    """The streams that some workers of a job have opened and others have not."""

    def __init__(self) -> None:
        # By job and stream: its shape, and how many have opened it.
        self._opened: dict[tuple[int, int], tuple[Shape, int]] = {}

    def open(self, job: int, worker: int, serial: int, shape: Shape, workers_count: int) -> None:
        """Note that a worker opens a stream.

        Raises
        ------
        ValueError
            Another worker's looks different.
        RuntimeError
            It is one too many.
        """
        if serial >= SERIALS_MAX:
            raise RuntimeError(f"worker {worker} of job {job} has opened {serial} streams, that is all")
        first, opened = self._opened.get((job, serial), (shape, 0))
        if shape != first:
            raise ValueError(f"worker {worker} of job {job} streams {shape}, another worker {first}")
        self._opened[job, serial] = first, opened + 1
        if opened + 1 == workers_count:
            del self._opened[job, serial]
