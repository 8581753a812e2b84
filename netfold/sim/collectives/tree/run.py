"""Binary trees over reliable messages: the engine carries out their schedule.

A codec's own merge (HOST) cuts a message into as many parts for each tree as it is links deep, up and down:
then half of the links of a way are at work at a time.
"""

from __future__ import annotations

from netfold.sim.collectives.collective import OperationPlace, RunContext
from netfold.sim.collectives.scheduled import ScheduledCollective
from netfold.sim.collectives.tree.plan import TreePlan
from netfold.sim.collectives.tree.schedule import tree_schedule
from netfold.sim.engine.schedule import Schedule


class Tree(ScheduledCollective):
    """One job's trees."""

    def __init__(self, plan: TreePlan, context: RunContext) -> None:
        super().__init__(plan, context)
        self._trees, self._chunk_words = plan.trees, plan.chunk_words

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """As many chunks as a message needs; of HOST, a fixed number."""
        pieces = -(-words // (self._trees * self._chunk_words))
        if is_host:
            pieces = 2 * (self.workers.bit_length() - 1)
        return tree_schedule(self.workers, self._trees, max(1, pieces))

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word."""
        where = f"{self._trees} trees" if self._trees > 1 else "the tree"
        return f"message {part} of {place.in_words} on {where}, as worker {worker} got it"
