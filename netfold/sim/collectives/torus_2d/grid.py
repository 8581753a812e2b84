"""Workers in rows, and the segments of a message that they own.

Workers stand in rows, in rank order. Rows differ in length by one at most, the longer ones first: 11 workers
in 3 rows are 4 + 4 + 3.

A row of c workers divides a message into c groups; the worker at position p ends up with group p of its row.
If all rows are equally long, groups of different rows are the same segments, and the owners of a segment are
a column. If not, one group of a short row covers several segments, so its owner is in several columns:

* Words can be cut anywhere. Groups are equal shares of the message, and segments are what lies between the
  boundaries of all rows' groups: for 4 + 4 + 3 from 0 to 1/4, 1/3, 1/2, 2/3, 3/4 and 1.
* Messages with a merge of their codec (HOST) are cut by the codec, into equal parts. There are as many
  segments as workers in the longest row, and a worker of a short row owns one segment or more.

Every segment is divided into as many parts as there are rows, for its column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple


class Spot(NamedTuple):
    """A worker's place."""

    row: int
    position: int  # in the row


@dataclass(frozen=True)
class Grid:
    """Workers in rows, in rank order."""

    lengths: tuple[int, ...]  # of each row, at least 1

    @classmethod
    def of(cls, workers: int, rows: int) -> Grid:
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
    def words(self) -> Cut:
        """How words are cut."""
        lengths = sorted(set(self.lengths))
        starts = {Fraction(group, length) for length in lengths for group in range(length)}
        return Cut(self, tuple(sorted(starts)))

    @cached_property
    def equal(self) -> Cut:
        """How messages are cut that only their codec can cut."""
        return Cut(self, tuple(Fraction(segment, self.columns) for segment in range(self.columns)))


@dataclass(frozen=True)
class Cut:
    """The segments of a message; part i of it is part i % rows of segment i // rows."""

    grid: Grid
    starts: tuple[Fraction, ...]  # of each segment, as a share of the message

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
