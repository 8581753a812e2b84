"""Ring all-reduce over reliable messages: the engine carries out its schedule.

A codec's own merge (HOST) divides the words into a part for each segment of each channel, merges two parts at
each hop, and joins the finished parts. The length of a part may change at every hop, so parts are not cut
into chunks.

A worker that is absent passes on what arrives; a segment to which nobody has contributed yet is a header that
keeps its place in the schedule.
"""

from __future__ import annotations

from netfold.sim.collectives.collective import OperationPlace, RunContext
from netfold.sim.collectives.ring.plan import RingPlan
from netfold.sim.collectives.ring.schedule import ring_schedule
from netfold.sim.collectives.scheduled import ScheduledCollective
from netfold.sim.engine.schedule import Schedule


class Ring(ScheduledCollective):
    """One job's rings, in rank order."""

    def __init__(self, plan: RingPlan, context: RunContext) -> None:
        super().__init__(plan, context)
        self._channels, self._chunk_words = plan.channels, plan.chunk_words

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """The same for all messages, unless segments are cut into chunks."""
        pieces = 1
        if self._chunk_words and not is_host:
            pieces = max(1, -(-words // (self._channels * self.workers * self._chunk_words)))
        return ring_schedule(self.workers, self._channels, pieces)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word; all workers merge it."""
        return f"message {part} of {place.in_words} around the ring, as worker {worker} got it"
