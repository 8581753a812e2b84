"""Ring all-reduce over reliable messages.

The words are divided into n segments. In n − 1 reduce-scatter steps every worker sends one segment to the
next worker and merges the one it receives into its own; in n − 1 all-gather steps the finished segments go
round. On an idle network that takes 2(n − 1) times the time of one segment.

A codec's own merge (HOST) divides the words, merges two parts at each hop, and joins the finished parts. The
length of a part may change at every hop.
"""

from __future__ import annotations

from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.ring.schedule import ring_schedule
from netfold.sim.collectives.scheduled import ScheduledCollective
from netfold.sim.engine.schedule import Schedule


class Ring(ScheduledCollective):
    """One job's ring, in rank order."""

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """The same for all messages."""
        return ring_schedule(self.workers)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word; all workers merge it."""
        return f"message {part} of {place.in_words} around the ring, as worker {worker} got it"
