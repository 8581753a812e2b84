"""What a collective needs for others to be composed of it: its schedule and closed form for some workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.collectives.between_hosts import Steps
from netfold.sim.collectives.spec import JobContext
from netfold.sim.engine.schedule import Schedule

Cells = tuple[Fraction, ...]  # (chunks + 1,) where chunks begin, as shares of a message, and 1


class Cut(NamedTuple):
    """A schedule, and where its chunks begin as shares of a message."""

    schedule: Schedule
    cells: Cells

    def ends(self, words: int) -> NDArray[np.int64]:
        """(chunks + 1,) where chunks begin in a message of `words`, rounded down, and where the last ends."""
        return np.array([words * edge.numerator // edge.denominator for edge in self.cells], np.int64)


def _fits(section: Any, workers: int, job: JobContext) -> None:
    """Default: any number of workers fits."""


@dataclass(frozen=True)
class Composable:
    """A collective between hosts as a part of another; all take its section and a number of workers."""

    cut: Callable[[Any, int], Cut]  # of a share that is carried as a whole, not in chunks
    steps: Callable[[Any, int], Steps]
    check: Callable[[Any, int, JobContext], None] = _fits  # raises ScenarioError


def equal_cells(chunks: int) -> Cells:
    """The cells of chunks that are equal shares of a message."""
    return tuple(Fraction(chunk, chunks) for chunk in range(chunks + 1))
