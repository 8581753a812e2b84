"""Turns in one order at all workers, without which workers that wait for each other might wait for ever.

The first worker with room for the next turn chooses it, of what waits there, by rank. The others follow: each
gives its turns in the chosen order, and waits for the next one even if something else could go. The choice
takes no time and no packet. Real systems have a coordinator that sends it.

In a step, buckets come into flight by turns and, where the network is serial, their operations enter it by
turns. Why some worker can always go on: take the first operation in the common order that is not complete
at all workers, number k of bucket b. All operations before it are complete everywhere, so every worker has
room for it and can give the turn to no other. The worker that chose it had b in flight and operation k − 1
of b complete. That one is before it in the order, so it is complete everywhere. Therefore a worker that does
not send operation k yet either computes, which ends, or has not got b in flight. Then its places are taken by
buckets that are before b in the order of buckets. The worker that chose had one of these, c, finished when b
came into flight. All operations of c are before operation k, so they are complete here too, and c is only
decoded, which ends and frees a place. That repeats until b is in flight. If no such operation exists, take
the first bucket in the order that is not finished at all workers: each has a place for it or has it in
flight, so each will send its next operation. A network that is not serial carries that operation at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import simpy

from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.network.fabric import EndOfInstant, Stage


@dataclass
class _Turn:
    """One turn of the common order."""

    place: OperationPlace
    workers_left: int  # that have not had it


class Turns:
    """Gives every worker `at_once` turns at a time, in the same order at all workers."""

    def __init__(self, environment: simpy.Environment, workers: int, at_once: int) -> None:
        self._environment, self._workers = environment, workers
        self._order: dict[int, _Turn] = {}  # by position; without those that all workers have had
        self._chosen = 0  # length of the order so far
        self._given = [0] * workers
        self._room = [at_once] * workers
        self._waiting: list[dict[OperationPlace, tuple[int, simpy.Event]]] = [{} for _ in range(workers)]
        self._is_deciding = [False] * workers

    def take(self, worker: int, place: OperationPlace, rank: int) -> simpy.Event:
        """Event at which a worker's turn begins; it ends with `release`."""
        begins = self._environment.event()
        self._waiting[worker][place] = rank, begins
        self._decide_later(worker)
        return begins

    def release(self, worker: int) -> None:
        """End a turn of a worker."""
        self._room[worker] += 1
        self._decide_later(worker)

    def _decide_later(self, worker: int) -> None:
        if self._is_deciding[worker] or not self._waiting[worker] or not self._room[worker]:
            return
        self._is_deciding[worker] = True
        decision = EndOfInstant(self._environment, Stage.TURN)
        decision.callbacks.append(lambda _: self._decide(worker))

    def _decide(self, worker: int) -> None:
        """Give a worker its next turns, as far as it has room and the next of the order waits there."""
        self._is_deciding[worker] = False
        waiting = self._waiting[worker]
        while waiting and self._room[worker]:
            position = self._given[worker]
            if position == self._chosen:
                first = min(waiting, key=lambda place: (waiting[place][0], place))
                self._order[position] = _Turn(first, self._workers)
                self._chosen += 1
            turn = self._order[position]
            if turn.place not in waiting:
                return
            turn.workers_left -= 1
            if not turn.workers_left:
                del self._order[position]
            _, begins = waiting.pop(turn.place)
            self._room[worker] -= 1
            self._given[worker] += 1
            begins.succeed()
