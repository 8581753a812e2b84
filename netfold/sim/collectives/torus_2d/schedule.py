"""The schedule of a 2-D torus: what each worker sends and receives, stage by stage.

Each stage is a ring in every row or column. A worker receives in one order, and takes in what arrives in that
order; it sends as soon as it has what it received before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from netfold.sim.collectives.torus_2d.grid import Cut, Grid
from netfold.sim.engine.schedule import NONE, Schedule


class Stage(IntEnum):
    """Together with the first part of a chunk, its number is the step of a transfer."""

    REDUCE_ROW = 0
    REDUCE_COLUMN = 1
    GATHER_COLUMN = 2
    GATHER_ROW = 3


class Ring(NamedTuple):
    """A row or column, as one of its members sees it."""

    members: tuple[int, ...]  # ranks
    at: int  # the worker's place among them
    blocks: Sequence[Sequence[range]]  # the parts that each member owns, as they travel

    @property
    def following(self) -> int:
        """The next member."""
        return self.members[(self.at + 1) % len(self.members)]

    def behind(self, places: int) -> Sequence[range]:
        """The blocks of the member so many places before."""
        return self.blocks[(self.at - places) % len(self.members)]


class Transfer(NamedTuple):
    """A transfer, in the order of the schedule."""

    stage: Stage
    turn: int  # of the ring
    parts: range
    source: int
    target: int


def torus_schedule(grid: Grid, is_host: bool) -> Schedule:
    """The schedule of messages of words, or of HOST, whose parts travel each for itself."""
    return _schedule(grid.lengths, is_host)


@lru_cache(maxsize=8)
def _schedule(lengths: tuple[int, ...], is_host: bool) -> Schedule:
    grid = Grid(lengths)
    cut = grid.equal if is_host else grid.words
    waits: dict[Transfer, Transfer | None] = {}  # what it waits for: the last that its source received
    follows: dict[Transfer, Transfer | None] = {}
    for worker in range(grid.workers):
        received: Transfer | None = None
        for transfer in _program(grid, cut, worker, is_host):
            if transfer.source == worker:
                waits[transfer] = received
            else:
                follows[transfer] = received
                received = transfer
    ordered = sorted(waits, key=lambda one: (one.stage, one.turn, one.parts.start, one.source))
    number = {transfer: index for index, transfer in enumerate(ordered)}
    waited = [number[before] for one in ordered if (before := waits[one]) is not None]
    counts = [waits[one] is not None for one in ordered]
    led = [NONE if (before := follows[one]) is None else number[before] for one in ordered]
    pairs = [one.source * grid.workers + one.target for one in ordered]
    return Schedule(
        grid.workers,
        cut.parts,
        np.array([one.source for one in ordered], np.int32),
        np.array([one.target for one in ordered], np.int32),
        np.array([one.parts.start for one in ordered], np.int32),
        np.array([len(one.parts) for one in ordered], np.int32),
        np.array([one.stage <= Stage.REDUCE_COLUMN for one in ordered], np.bool_),
        np.array([one.stage * cut.parts + one.parts.start for one in ordered], np.int64),
        np.array(led, np.int32),
        np.unique(pairs, return_inverse=True)[1].astype(np.int32),
        np.append(0, np.cumsum(counts)).astype(np.int64),
        np.array(waited, np.int32),
    )


def _program(grid: Grid, cut: Cut, worker: int, is_host: bool) -> Iterator[Transfer]:
    """What a worker sends and receives, in its order."""
    row, position = grid.spots[worker]
    length, rows = grid.lengths[row], grid.rows
    members = tuple(grid.worker(row, one) for one in range(length))
    groups = [range(one.start * rows, one.stop * rows) for one in cut.groups[length]]
    along = Ring(
        members, position, [[range(part, part + 1) for part in one] if is_host else [one] for one in groups]
    )
    own = cut.groups[length][position] if rows > 1 else ()
    columns = [
        Ring(tuple(cut.column(segment)), row, [[range(part, part + 1)] for part in _parts(segment, rows)])
        for segment in own
    ]
    for stage, rings, first in (
        (Stage.REDUCE_ROW, [along], 1),
        (Stage.REDUCE_COLUMN, columns, 1),
        (Stage.GATHER_COLUMN, columns, 0),
        (Stage.GATHER_ROW, [along], 0),
    ):
        yield from _around(stage, rings, worker, first)


def _parts(segment: int, rows: int) -> range:
    """The parts of a segment, one for each row."""
    return range(segment * rows, (segment + 1) * rows)


def _around(stage: Stage, rings: Sequence[Ring], worker: int, first: int) -> Iterator[Transfer]:
    """One worker's way through rings of equal length: it first sends the block `first` places behind it."""
    turns = len(rings[0].members) - 1 if rings else 0
    for ring in rings if turns else ():
        for block in ring.behind(first):
            yield Transfer(stage, 0, block, worker, ring.following)
    for turn in range(turns):
        for ring in rings:
            before = ring.members[(ring.at - 1) % len(ring.members)]
            for block in ring.behind(first + turn + 1):
                yield Transfer(stage, turn, block, before, worker)
                if turn < turns - 1:
                    yield Transfer(stage, turn + 1, block, worker, ring.following)
