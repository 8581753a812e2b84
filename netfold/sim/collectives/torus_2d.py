"""All-reduce on a 2-D torus (Mikami et al., arXiv 1811.05233, 2018): who owns what, run, and keys."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import MERGEABLE, Merge
from netfold.sim.collectives.between_hosts import ClosedForm, HostPlan, HostSection
from netfold.sim.collectives.collective import (
    CollectiveSpec,
    Composable,
    JobContext,
    OperationPlace,
    Resolved,
    RunContext,
    ScheduleSize,
    Steps,
    estimate_by,
)
from netfold.sim.collectives.collective import Cut as Part
from netfold.sim.collectives.host_messages import ScheduledCollective
from netfold.sim.engine.interface import NONE, Schedule
from netfold.sim.keys import Count

# Workers in rows, and the segments of a message that they own.
#
# Workers stand in rows, in rank order. Rows differ in length by one at most, the longer ones first: 11
# workers in 3 rows are 4 + 4 + 3.
#
# A row of c workers divides a message into c groups; the worker at position p ends up with group p of its
# row. If all rows are equally long, groups of different rows are the same segments, and the owners of a
# segment are a column. If not, one group of a short row covers several segments, so its owner is in several
# columns:
#
# * Words can be cut anywhere. Groups are equal shares of the message, and segments are what lies between the
#   boundaries of all rows' groups: for 4 + 4 + 3 from 0 to 1/4, 1/3, 1/2, 2/3, 3/4 and 1.
# * Messages with a merge of their codec (HOST) are cut by the codec, into equal parts. There are as many
#   segments as workers in the longest row, and a worker of a short row owns one segment or more.
#
# Every segment is divided into as many parts as there are rows, for its column.


class Spot(NamedTuple):
    """A worker's place."""

    row: int
    position: int
    """Its position in the row."""


@dataclass(frozen=True)
class TorusGrid:
    """Workers in rows, in rank order."""

    lengths: tuple[int, ...]
    """The length of each row, at least 1."""

    @classmethod
    def of(cls, workers: int, rows: int) -> TorusGrid:
        """So many workers in so many rows, at most one for each; the first rows may be longer by one."""
        short, longer = divmod(workers, rows)
        return cls((short + 1,) * longer + (short,) * (rows - longer))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.lengths)

    @property
    def columns(self) -> int:
        """Workers of the longest row."""
        return max(self.lengths)

    @property
    def workers(self) -> int:
        """All workers."""
        return sum(self.lengths)

    @cached_property
    def _firsts(self) -> tuple[int, ...]:
        return tuple(sum(self.lengths[:row]) for row in range(self.rows))

    def worker(self, row: int, position: int) -> int:
        """The rank at a spot."""
        return self._firsts[row] + position

    @cached_property
    def spots(self) -> tuple[Spot, ...]:
        """The spot of each worker."""
        return tuple(Spot(row, at) for row, length in enumerate(self.lengths) for at in range(length))

    @cached_property
    def words(self) -> TorusCut:
        """How words are cut."""
        lengths = sorted(set(self.lengths))
        starts = {Fraction(group, length) for length in lengths for group in range(length)}
        return TorusCut(self, tuple(sorted(starts)))

    @cached_property
    def equal(self) -> TorusCut:
        """How messages are cut that only their codec can cut."""
        return TorusCut(self, tuple(Fraction(segment, self.columns) for segment in range(self.columns)))


@dataclass(frozen=True)
class TorusCut:
    """The segments of a message; part i of it is part i % rows of segment i // rows."""

    grid: TorusGrid
    starts: tuple[Fraction, ...]
    """Where each segment starts, as a share of the message."""

    @property
    def segments(self) -> int:
        """Number of segments."""
        return len(self.starts)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return self.segments * self.grid.rows

    @cached_property
    def owners(self) -> dict[int, tuple[int, ...]]:
        """The position of each segment's owner in rows of some length."""
        return {
            length: tuple(math.floor(start * length) for start in self.starts)
            for length in set(self.grid.lengths)
        }

    @cached_property
    def groups(self) -> dict[int, tuple[range, ...]]:
        """The segments of each group of rows of some length."""
        firsts = {
            length: [owners.index(position) for position in range(length)]
            for length, owners in self.owners.items()
        }
        return {
            length: tuple(map(range, found, [*found[1:], self.segments])) for length, found in firsts.items()
        }

    def column(self, segment: int) -> list[int]:
        """The ranks of a segment's owners, row by row."""
        lengths = enumerate(self.grid.lengths)
        return [self.grid.worker(row, self.owners[length][segment]) for row, length in lengths]

    def ends(self, size: int) -> list[int]:
        """Where the parts begin in `size` words, and where the last one ends."""
        edges = [math.floor(start * size) for start in (*self.starts, Fraction(1))]
        rows = self.grid.rows
        found = [
            first + (end - first) * part // rows for first, end in pairwise(edges) for part in range(rows)
        ]
        return [*found, size]


def squarest(workers: int) -> int:
    """Rows of the grid nearest to a square: the largest divisor up to the root; of a prime, the root."""
    root = math.isqrt(workers)
    divisors: Sequence[int] = [rows for rows in range(2, root + 1) if workers % rows == 0]
    return divisors[-1] if divisors else root


# The plan of a job's torus.


@dataclass(frozen=True, kw_only=True)
class TorusPlan(HostPlan):
    """Workers in the rows of a grid."""

    grid: TorusGrid


# Its schedule: what each worker sends and receives, stage by stage.
#
# Each stage is a ring in every row or column. A worker receives in one order, and takes in what arrives in
# that order; it sends as soon as it has what it received before.


class TorusStage(IntEnum):
    """Together with the first part of a chunk, its number is the step of a transfer."""

    REDUCE_ROW = 0
    REDUCE_COLUMN = 1
    GATHER_COLUMN = 2
    GATHER_ROW = 3


class TorusRing(NamedTuple):
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

    stage: TorusStage
    turn: int
    """The turn of the ring."""
    parts: range
    source: int
    target: int


def torus_schedule(grid: TorusGrid, is_host: bool) -> Schedule:
    """The schedule of messages of words, or of HOST, whose parts travel each for itself."""
    return _schedule(grid.lengths, is_host)


@lru_cache(maxsize=8)
def _schedule(lengths: tuple[int, ...], is_host: bool) -> Schedule:
    grid = TorusGrid(lengths)
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
        np.array([one.stage <= TorusStage.REDUCE_COLUMN for one in ordered], np.bool_),
        np.array([one.stage * cut.parts + one.parts.start for one in ordered], np.int64),
        np.array(led, np.int32),
        np.unique(pairs, return_inverse=True)[1].astype(np.int32),
        np.append(0, np.cumsum(counts)).astype(np.int64),
        np.array(waited, np.int32),
    )


def _program(grid: TorusGrid, cut: TorusCut, worker: int, is_host: bool) -> Iterator[Transfer]:
    """What a worker sends and receives, in its order."""
    row, position = grid.spots[worker]
    length, rows = grid.lengths[row], grid.rows
    members = tuple(grid.worker(row, one) for one in range(length))
    groups = [range(one.start * rows, one.stop * rows) for one in cut.groups[length]]
    along = TorusRing(
        members, position, [[range(part, part + 1) for part in one] if is_host else [one] for one in groups]
    )
    own = cut.groups[length][position] if rows > 1 else ()
    columns = [
        TorusRing(
            tuple(cut.column(segment)), row, [[range(part, part + 1)] for part in _parts(segment, rows)]
        )
        for segment in own
    ]
    for stage, rings, first in (
        (TorusStage.REDUCE_ROW, [along], 1),
        (TorusStage.REDUCE_COLUMN, columns, 1),
        (TorusStage.GATHER_COLUMN, columns, 0),
        (TorusStage.GATHER_ROW, [along], 0),
    ):
        yield from _around(stage, rings, worker, first)


def _parts(segment: int, rows: int) -> range:
    # One for each row.
    return range(segment * rows, (segment + 1) * rows)


def _around(stage: TorusStage, rings: Sequence[TorusRing], worker: int, first: int) -> Iterator[Transfer]:
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


# How it runs, over reliable messages.
#
# Four stages, in each of which the workers of a row or a column form a ring:
#
# 1. reduce-scatter in every row: afterwards each worker holds its group of the row's words;
# 2. reduce-scatter in the column of every segment that it owns: each holds one part, of all workers;
# 3. all-gather in these columns;
# 4. all-gather in the rows.
#
# A worker that is in several columns does the same step of all of them before the next step. A chunk is
# passed on as soon as it is merged. Within a row, words travel as one chunk per group. A codec's own merge
# (HOST) cuts a message into parts once, and every part travels as a chunk of its own in all stages, because
# the length of a part may change at every hop.
#
# Every merge weighs by the workers that its two operands hold. An absent worker passes on what arrives.


class Torus2d(ScheduledCollective):
    """One job's torus."""

    def __init__(self, plan: TorusPlan, context: RunContext) -> None:
        super().__init__(plan, context)
        self.grid = plan.grid

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """One for messages of words, and one for those that the codec cuts."""
        return torus_schedule(self.grid, is_host)

    def ends(self, schedule: Schedule, words: int) -> NDArray[np.int64]:
        """The segments lie between the boundaries of all rows' groups."""
        return np.array(self.grid.words.ends(words), np.int64)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word, and the worker's place."""
        row, position = self.grid.spots[worker]
        at = f"row {row}, column {position}"
        return f"message {part} of {place.in_words} on the torus, as worker {worker} ({at}) got it"


# Its keys and closed forms.
#
# With R rows of C workers, a message of M words takes 2 (C − 1) steps of M / C words in the rows, and
# 2 (R − 1) steps of M / (R C) words in the columns. On an idle network with equal links that is
#
#     2 (1 − 1 / (R C)) · M words at the rate of a link, and 2 (C + R − 2) ways from host to host.
#
# A ring of n = R C workers sends as many words, over 2 (n − 1) ways. All workers together send 2 (n − 1) · M
# words in any grid. Rows that are not equally long cost rate: where the shortest has c workers, the rows need
# up to 2 (1 − 1 / C) · M at the rate of a link, and the columns up to 2 (R − 1) / (R c) · M.


KIND = "torus_2d"
_IN_FLIGHT_BYTES = 8  # per element and row: chunks that a row's workers send and receive at the same time


class Torus2dSection(HostSection):
    """All-reduce between the hosts on a logical 2-D torus: rings in rows, and rings in columns."""

    kind: Literal["torus_2d"]
    rows: Count | None = None
    """Rows of workers, in rank order, equally long or some longer by one; by default the largest divisor of
    the workers up to their square root, and of a prime the root."""
    columns: Count | None = None
    """Workers of the longest row; by default as many as `rows` need."""


def steps_of(grid: TorusGrid) -> Steps:
    """Rings of the rows, half of whose steps merge; then rings of the columns."""
    shortest, cut = min(grid.lengths), grid.words
    in_rows = [
        (grid.worker(row, at), grid.worker(row, (at + 1) % length))
        for row, length in enumerate(grid.lengths)
        for at in range(length)
    ]
    columns = [cut.column(segment) for segment in range(cut.segments)]
    down = [(one[row], one[(row + 1) % grid.rows]) for one in columns for row in range(grid.rows)]
    most = max(len(group) for group in cut.groups[shortest])  # columns of a worker of the shortest row
    parts = grid.rows * shortest * most  # parts of average size
    below = Steps(down, hops=2 * (grid.rows - 1), chunks=parts, merges=grid.rows - 1)
    if grid.columns == 1:
        return below
    hops = 2 * (grid.columns - 1)
    after = below if grid.rows > 1 else None
    return Steps(in_rows, hops=hops, chunks=grid.columns, merges=grid.columns - 1, then=after)


def size_of(grid: TorusGrid, is_host: bool) -> ScheduleSize:
    """The size of its schedule for words, or for HOST, whose parts all travel each for itself."""
    if is_host:
        return ScheduleSize(2 * (grid.workers - 1) * grid.equal.parts, grid.equal.parts)
    in_rows = 2 * sum(length * (length - 1) for length in grid.lengths)
    return ScheduleSize(in_rows + 2 * (grid.rows - 1) * grid.words.parts, grid.words.parts)


def _resolve(section: Torus2dSection, job: JobContext) -> Resolved:
    """The plan of a job's torus.

    Raises
    ------
    ScenarioError
        The workers do not fit the rows and columns; or as for `ClosedForm.resolve`.
    """
    grid = _grid(section, job)
    is_host = Merge.HOST in job.codec.merges
    schedule = ClosedForm(KIND, lambda workers: steps_of(grid), lambda workers: size_of(grid, is_host))
    found = schedule.resolve_on(section, job, job.nodes, partial(TorusPlan, grid=grid))
    plan = replace(
        found.plan,
        held_bytes=found.plan.held_bytes + _IN_FLIGHT_BYTES * (grid.rows - 1),
        settled={**found.plan.settled, "rows": grid.rows, "columns": grid.columns},
    )
    return found._replace(plan=plan)


def _grid(section: Torus2dSection, job: JobContext) -> TorusGrid:
    """The grid of a job's workers."""
    workers, rows, columns = len(job.hosts), section.rows, section.columns
    for key, asked in (("rows", rows), ("columns", columns)):
        if asked is not None and asked > workers:
            found = f"{workers} worker{'s' if workers > 1 else ''} cannot stand in {asked} {key}"
            raise job.location.job_error(f"collective.{key}", found, f"use at most {workers}")
    grid = _grid_of(section, workers)
    if columns is not None and columns != grid.columns:
        lengths = " + ".join(map(str, grid.lengths))
        raise job.location.job_error(
            "collective.columns",
            f"{workers} workers in {grid.rows} rows are {lengths}, {columns} columns do not fit them",
            f"use collective.columns: {grid.columns}" + ("" if section.rows is None else ", or only rows"),
        )
    return grid


def _grid_of(section: Any, workers: int) -> TorusGrid:
    """The grid that the keys ask for, whether the columns fit or not."""
    rows, columns = section.rows, section.columns
    if rows is None:
        rows = squarest(workers) if columns is None else -(-workers // columns)
    return TorusGrid.of(workers, rows)


def _part_of(section: Any, workers: int) -> Part:
    """Its schedule, and where the parts of its segments begin."""
    grid = _grid_of(section, workers)
    edges, rows = [*grid.words.starts, Fraction(1)], grid.rows
    cells = [start + (end - start) * row / rows for start, end in pairwise(edges) for row in range(rows)]
    return Part(torus_schedule(grid, is_host=False), (*cells, Fraction(1)))


def _check(section: Any, workers: int, job: JobContext) -> None:
    _grid(section, replace(job, hosts=job.hosts[:workers]))


def _steps(section: Any, workers: int) -> Steps:
    return steps_of(_grid_of(section, workers))


TORUS_2D = CollectiveSpec(
    KIND,
    MERGEABLE | {Merge.HOST},
    Torus2dSection,
    _resolve,
    Torus2d,
    carries_absence=True,
    composable=Composable(_part_of, _steps, _check),
    estimate=estimate_by(_steps),
)
