"""All-reduce on a 2-D torus over reliable messages.

Four stages, in each of which the workers of a row or a column form a ring:

1. reduce-scatter in every row: afterwards each worker holds its group of the row's words;
2. reduce-scatter in the column of every segment that it owns: each holds one part, of all workers;
3. all-gather in these columns;
4. all-gather in the rows.

A worker that is in several columns does the same step of all of them before the next step. A chunk is passed
on as soon as it is merged. Within a row, words travel as one chunk per group. A codec's own merge (HOST) cuts
a message into parts once, and every part travels as a chunk of its own in all stages, because the length of a
part may change at every hop.

Every merge weighs by the workers that its two operands hold. An absent worker passes on what arrives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netfold.sim.collectives.collective import OperationPlace, RunContext
from netfold.sim.collectives.scheduled import ScheduledCollective
from netfold.sim.collectives.torus_2d.plan import TorusPlan
from netfold.sim.collectives.torus_2d.schedule import torus_schedule
from netfold.sim.engine.schedule import Schedule


class Torus2d(ScheduledCollective):
    """One job's torus."""

    def __init__(self, plan: TorusPlan, context: RunContext) -> None:
        super().__init__(plan, context)
        self.grid = plan.grid

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """One for messages of words, and one for those that the codec cuts."""
        return torus_schedule(self.grid, is_host)

    def ends(self, schedule: Schedule, words: int) -> NDArray[np.int64]:
        """The segments lie between the boundaries of all rows' groups (`grid.py`)."""
        return np.array(self.grid.words.ends(words), np.int64)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word, and the worker's place."""
        row, position = self.grid.spots[worker]
        at = f"row {row}, column {position}"
        return f"message {part} of {place.in_words} on the torus, as worker {worker} ({at}) got it"
