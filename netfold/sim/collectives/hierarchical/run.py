"""A hierarchy of host collectives over reliable messages: the engine carries out one composed schedule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netfold.sim.collectives.closed_form import Cut
from netfold.sim.collectives.collective import OperationPlace, RunContext
from netfold.sim.collectives.hierarchical.plan import HierarchicalPlan
from netfold.sim.collectives.hierarchical.schedule import composed
from netfold.sim.collectives.scheduled import ScheduledCollective
from netfold.sim.engine.schedule import Schedule


class Hierarchical(ScheduledCollective):
    """One job's hierarchy."""

    def __init__(self, plan: HierarchicalPlan, context: RunContext) -> None:
        super().__init__(plan, context)
        self._hierarchy = plan
        self._group_of = {rank: number for number, group in enumerate(plan.groups) for rank in group}
        self._cuts: dict[int, Cut] = {}  # by blocks
        self._by_chunks: dict[int, Cut] = {}

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """As many blocks as a message needs; one of HOST, whose words the codec cuts."""
        blocks = 1 if is_host else max(1, -(-words // self._hierarchy.chunk_words))
        if blocks not in self._cuts:
            plan = self._hierarchy
            cut = composed(plan.groups, plan.inner, plan.outer, blocks)
            self._cuts[blocks] = self._by_chunks[cut.schedule.chunks] = cut
        return self._cuts[blocks].schedule

    def ends(self, schedule: Schedule, words: int) -> NDArray[np.int64]:
        """Where chunks begin: they are not equal if the groups are not."""
        return self._by_chunks[schedule.chunks].ends(words)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word, and the worker's group."""
        group = f"group {self._group_of[worker]} of {len(self._hierarchy.groups)}"
        return f"message {part} of {place.in_words} in a hierarchy, as worker {worker} ({group}) got it"
