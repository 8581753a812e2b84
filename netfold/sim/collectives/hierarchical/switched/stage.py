"""One phase of a hierarchy between some of a job's workers: a schedule that the engine carries out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netfold.sim.collectives.between_hosts import ChunkedPlan
from netfold.sim.collectives.closed_form import Cut
from netfold.sim.collectives.collective import OperationPlace, RunContext
from netfold.sim.collectives.hierarchical.schedule import in_blocks
from netfold.sim.collectives.scheduled import ScheduledCollective
from netfold.sim.engine.schedule import Schedule

_MESSAGES = 2**40  # numbers of a stage's messages, which identify them in keyed draws


def blocks_of(words: int, chunk_words: int) -> int:
    """Blocks that a message of so many words is cut into."""
    return max(1, -(-words // chunk_words))


class Stage(ScheduledCollective):
    """Carries messages of the workers `ranks` of a job by the schedule of `cut`, block by block.

    A schedule may be a half: then the words of a worker's result count that it is the owner of.
    """

    def __init__(
        self, plan: ChunkedPlan, context: RunContext, cut: Cut, ranks: Sequence[int], number: int
    ) -> None:
        """`context` is that of these workers; `number` tells apart the stages of a job."""
        super().__init__(plan, context)
        self._cut, self._chunk_words = cut, plan.chunk_words
        self._ranks = tuple(ranks)
        self._begun = number * _MESSAGES
        self._cuts: dict[int, Cut] = {}  # by blocks
        self._by_chunks: dict[int, Cut] = {}

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """As many blocks as a message needs."""
        blocks = blocks_of(words, self._chunk_words)
        if blocks not in self._cuts:
            cut = in_blocks(self._cut.schedule, self._cut.cells, blocks)
            self._cuts[blocks] = self._by_chunks[cut.schedule.chunks] = cut
        return self._cuts[blocks].schedule

    def ends(self, schedule: Schedule, words: int) -> NDArray[np.int64]:
        """Where chunks begin."""
        return self._by_chunks[schedule.chunks].ends(words)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message and operation of a word."""
        return f"message {part} of {place.in_words}"
