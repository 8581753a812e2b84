"""Recursive halving and doubling over reliable messages: the engine carries out its schedule."""

from __future__ import annotations

from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.halving_doubling.schedule import halving_schedule
from netfold.sim.collectives.scheduled import ScheduledCollective
from netfold.sim.engine.schedule import Schedule


class HalvingDoubling(ScheduledCollective):
    """One job's halving and doubling, in rank order."""

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """The same for all messages."""
        return halving_schedule(self.workers)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word."""
        return f"message {part} of {place.in_words} by halving and doubling, as worker {worker} got it"
