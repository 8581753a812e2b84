"""Builds schedules from columns: what several collectives need to write theirs as NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.schedule import NONE, Schedule

Ints = NDArray[np.int64]


@dataclass
class Transfers:
    """Transfers of a schedule that is being built; each has the number of those added before it."""

    workers: int
    chunks: int
    count: int = 0
    _columns: list[tuple[Ints, ...]] = field(default_factory=list)
    _merges: list[NDArray[np.bool_]] = field(default_factory=list)
    _waits: list[tuple[Ints, Ints]] = field(default_factory=list)

    def add(
        self,
        pairs: tuple[Ints, Ints],
        cells: tuple[Ints | int, Ints | int],
        *,
        merges: bool | NDArray[np.bool_],
        follows: Ints | int = NONE,
        lane: Ints | int = NONE,
    ) -> Ints:
        """Add transfers (sources, targets) of cells (first, count); returns their numbers."""
        size = pairs[0].size
        shaped = (np.broadcast_to(np.asarray(one, np.int64), size) for one in (*pairs, *cells, follows, lane))
        self._columns.append(tuple(shaped))
        self._merges.append(np.broadcast_to(np.asarray(merges, np.bool_), size))
        numbers = np.arange(self.count, self.count + size, dtype=np.int64)
        self.count += size
        return numbers

    def wait(self, waiting: Ints, awaited: Ints) -> None:
        """Let each transfer wait for another; for NONE of −1."""
        known = awaited >= 0
        self._waits.append((waiting[known], awaited[known]))

    def schedule(self, step: Ints | None = None, channel: Ints | int = 0) -> Schedule:
        """The schedule; `step` is by default the number of a transfer, and `channel` the same for all."""
        columns = [np.concatenate(one) for one in zip(*self._columns, strict=True)] or [_NO_INTS] * 6
        source, target, first, count, follows, lane = columns
        waits_first, waits_for = _grouped(self._waits, self.count)
        return Schedule(
            workers=self.workers,
            chunks=self.chunks,
            source=source.astype(np.int32),
            target=target.astype(np.int32),
            first=first.astype(np.int32),
            count=count.astype(np.int32),
            merges=np.concatenate(self._merges) if self._merges else np.empty(0, np.bool_),
            step=np.arange(self.count, dtype=np.int64) if step is None else step,
            follows=follows.astype(np.int32),
            lane=lane.astype(np.int32),
            waits_first=waits_first,
            waits_for=waits_for,
            channel=np.broadcast_to(np.asarray(channel, np.int32), self.count),
        )


_NO_INTS = np.empty(0, np.int64)


def _grouped(waits: Sequence[tuple[Ints, Ints]], count: int) -> tuple[Ints, NDArray[np.int32]]:
    """What is awaited, in the order of those that wait, and where each one's begin."""
    waiting = np.concatenate([one for one, _ in waits] or [_NO_INTS])
    awaited = np.concatenate([one for _, one in waits] or [_NO_INTS])
    if np.any(waiting[1:] < waiting[:-1]):
        order = np.argsort(waiting, kind="stable")
        waiting, awaited = waiting[order], awaited[order]
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(waiting, minlength=count), out=first[1:])
    return first, awaited.astype(np.int32)
