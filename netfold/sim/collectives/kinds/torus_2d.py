"""All-reduce on a 2-D torus (Mikami et al., arXiv 1811.05233, 2018)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.collectives.collective import JobContext
from netfold.sim.collectives.host_collective import HostCollective
from netfold.sim.collectives.host_messages import scheduled
from netfold.sim.collectives.transfers import Step, Transfers
from netfold.sim.engine.engine_data import NONE
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
    def spots(self) -> tuple[tuple[int, int], ...]:
        """The row of each worker, and its position there."""
        return tuple((row, at) for row, length in enumerate(self.lengths) for at in range(length))

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
            length: tuple(map(range, edges, [*edges[1:], self.segments])) for length, edges in firsts.items()
        }

    def column(self, segment: int) -> list[int]:
        """The ranks of a segment's owners, row by row."""
        lengths = enumerate(self.grid.lengths)
        return [self.grid.worker(row, self.owners[length][segment]) for row, length in lengths]

    def ends(self, size: int) -> list[int]:
        """Where the parts begin in `size` words, and where the last one ends."""
        edges = [math.floor(start * size) for start in (*self.starts, Fraction(1))]
        rows = self.grid.rows
        starts = [
            first + (end - first) * part // rows for first, end in pairwise(edges) for part in range(rows)
        ]
        return [*starts, size]


def squarest(workers: int) -> int:
    """Rows of the grid nearest to a square: the largest divisor up to the root; of a prime, the root."""
    root = math.isqrt(workers)
    divisors: Sequence[int] = [rows for rows in range(2, root + 1) if workers % rows == 0]
    return divisors[-1] if divisors else root


# Its schedule: rings in rows and in columns.


class _Rings(NamedTuple):
    """Blocks that go round rings of workers, B of them."""

    members: NDArray[np.int64]
    """(B, longest) The ring of each block."""
    length: NDArray[np.int64]  # of its ring
    owner: NDArray[np.int64]  # the place in the ring where it is reduced to
    first: NDArray[np.int64]  # its first part
    parts: NDArray[np.int64]  # how many it has


def _rows(grid: TorusGrid, cut: TorusCut, *, by_codec: bool) -> _Rings:
    """A row's group travels as one; parts that a codec merges, each by itself."""
    blocks = []
    for row, length in enumerate(grid.lengths):
        for owner, group in enumerate(cut.groups[length]):
            first, count = group.start * grid.rows, len(group) * grid.rows
            parts = [(part, 1) for part in range(first, first + count)] if by_codec else [(first, count)]
            blocks += [(row, length, owner, *part) for part in parts]
    row, length, owner, first, count = np.array(blocks, np.int64).T
    firsts = np.array([grid.worker(at, 0) for at in range(grid.rows)])
    return _Rings(firsts[row, None] + np.arange(grid.columns), length, owner, first, count)


def _columns(grid: TorusGrid, cut: TorusCut) -> _Rings:
    """The owners of a segment, of whose parts each ends up with one."""
    part = np.arange(cut.parts)
    columns = np.array([cut.column(segment) for segment in range(cut.segments)], np.int64)
    each = np.full(cut.parts, grid.rows), part % grid.rows, part, np.ones(cut.parts, np.int64)
    return _Rings(columns[part // grid.rows], *each)


def _steps(grid: TorusGrid, cut: TorusCut, *, by_codec: bool) -> Iterator[Step]:
    """A worker sends as soon as it has what it received before, and takes in what arrives in one order."""
    rows, columns = _rows(grid, cut, by_codec=by_codec), _columns(grid, cut)
    latest = np.full(grid.workers, NONE, np.int64)  # the last transfer that each worker takes in
    count = 0
    for stage, (rings, reduces) in enumerate(
        ((rows, True), (columns, True), (columns, False), (rows, False))
    ):
        brought = np.full(rings.owner.size, NONE, np.int64)  # the transfer that brought each block
        before = latest.copy()
        for turn in range(int(rings.length.max()) - 1):
            going = np.flatnonzero(turn < rings.length - 1)
            length = rings.length[going]
            at = (rings.owner[going] + reduces + turn) % length
            source, target = rings.members[going, at], rings.members[going, (at + 1) % length]
            order = np.lexsort((source, rings.first[going]))
            going, source, target = going[order], source[order], target[order]
            number = count + np.arange(going.size)
            count += going.size
            waits = before[source] if turn == 0 else brought[going]
            brought[going] = number
            by_target = np.argsort(target, kind="stable")
            follows = np.empty(going.size, np.int64)
            follows[by_target] = np.append(NONE, number[by_target][:-1])
            is_first = np.diff(target[by_target], prepend=-1) != 0
            follows[by_target[is_first]] = latest[target[by_target[is_first]]]
            latest[target] = number
            yield Step(
                source,
                target,
                rings.first[going],
                rings.parts[going],
                merges=reduces,
                waits=waits,
                follows=follows,
                name=stage * cut.parts + rings.first[going],
            )


# The class: four stages, in each of which the workers of a row or a column form a ring.
#
# 1. reduce-scatter in every row: afterwards each worker holds its group of the row's words;
# 2. reduce-scatter in the column of every segment that it owns: each holds one part, of all workers;
# 3. all-gather in these columns;
# 4. all-gather in the rows.
#
# A worker that is in several columns does the same step of all of them before the next step. A chunk is
# passed on as soon as it is merged. Within a row, words travel as one chunk per group. A codec's own merge
# (HOST) cuts a message into parts once, and every part travels as a chunk of its own in all stages, because
# the length of a part may change at every hop. Every merge weighs by the workers that its two operands hold.
# An absent worker passes on what arrives.
#
# With R rows of C workers, a message of M words takes 2 (C − 1) steps of M / C words in the rows, and
# 2 (R − 1) steps of M / (R C) words in the columns. On an idle network with equal links that is
#
#     2 (1 − 1 / (R C)) · M words at the rate of a link, and 2 (C + R − 2) ways from host to host.
#
# A ring of n = R C workers sends as many words, over 2 (n − 1) ways. All workers together send 2 (n − 1) · M
# words in any grid. Rows that are not equally long cost rate: where the shortest has c workers, the rows need
# up to 2 (1 − 1 / C) · M at the rate of a link, and the columns up to 2 (R − 1) / (R c) · M.


_IN_FLIGHT_BYTES = 8  # per element and row: chunks that a row's workers send and receive at the same time


class Torus2d(HostCollective):
    """All-reduce between the hosts on a logical 2-D torus: rings in rows, and rings in columns."""

    kind: Literal["torus_2d"]
    rows: Count | None = None
    """Rows of workers, in rank order, equally long or some longer by one; by default the largest divisor of
    the workers up to their square root, and of a prime the root."""
    columns: Count | None = None
    """Workers of the longest row; by default as many as `rows` need."""

    @property
    def path_in_words(self) -> str:
        """Where words are."""
        return "on the torus"

    def where(self, worker: int, workers: int) -> str:
        """Its row and column."""
        row, position = self.grid(workers).spots[worker]
        return f" (row {row}, column {position})"

    def grid(self, workers: int) -> TorusGrid:
        """The grid that the keys ask for, whether the columns fit or not."""
        rows = self.rows
        if rows is None:
            rows = squarest(workers) if self.columns is None else -(-workers // self.columns)
        return TorusGrid.of(workers, rows)

    def fit(self, workers: int, job: JobContext) -> None:
        """Raise ScenarioError if the workers do not fit the rows and columns."""
        rows, columns = self.rows, self.columns
        for key, wanted_count in (("rows", rows), ("columns", columns)):
            if wanted_count is not None and wanted_count > workers:
                problem = f"{workers} worker{'s' if workers > 1 else ''} cannot stand in {wanted_count} {key}"
                raise job.location.job_error(f"collective.{key}", problem, f"use at most {workers}")
        grid = self.grid(workers)
        if columns is not None and columns != grid.columns:
            lengths = " + ".join(map(str, grid.lengths))
            raise job.location.job_error(
                "collective.columns",
                f"{workers} workers in {grid.rows} rows are {lengths}, {columns} columns do not fit them",
                f"use collective.columns: {grid.columns}" + ("" if rows is None else ", or only rows"),
            )

    def settled(self, workers: int) -> Mapping[str, str | int]:
        """Its rows and columns."""
        grid = self.grid(workers)
        return {"rows": grid.rows, "columns": grid.columns}

    def held_bytes(self, workers: int) -> int:
        """Memory per element of the chunks in flight in its rows."""
        return _IN_FLIGHT_BYTES * (self.grid(workers).rows - 1)

    def schedule(self, workers: int, words: int, by_codec: bool = False) -> Transfers:
        """One for messages of words, and one for those that the codec cuts."""
        grid = self.grid(workers)
        cut = grid.equal if by_codec else grid.words
        if by_codec:
            return Transfers(workers, cut.parts, _steps(grid, cut, by_codec=True))
        edges = [*cut.starts, Fraction(1)]
        cells = [
            start + (end - start) * row / grid.rows
            for start, end in pairwise(edges)
            for row in range(grid.rows)
        ]
        return Transfers(
            workers,
            cut.parts,
            _steps(grid, cut, by_codec=False),
            cuts=(*cells, Fraction(1)),
            ends=lambda words: np.array(cut.ends(words), np.int64),
        )


TORUS_2D = scheduled(Torus2d, listed=4)
