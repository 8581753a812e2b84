"""Workers of a job must send alike; words that were damaged at some of them can keep them from it."""

from __future__ import annotations

from typing import NamedTuple

from netfold.homomorphic.codec import DecodeError, Message


class _First(NamedTuple):
    """What the first worker sends in an operation."""

    worker: int
    place: tuple[int, int, int]  # step, bucket, operation of the round
    kinds: list[tuple[object, ...]]
    told: str
    workers: list[int]  # that have come to it


class Alike:
    """The operations that some workers of a job have begun and others have not, by number over the run.

    A worker that has read damaged words may ask for a redo where the others go on to their next round, so it
    is not enough to compare those of a round.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._begun: dict[int, _First] = {}

    def require(
        self, number: int, worker: int, place: tuple[int, int, int], messages: tuple[Message, ...]
    ) -> None:
        """Refuse messages that make no sum: those of another worker differ in round, kind or length.

        Raises
        ------
        DecodeError
            The workers have read different things from what was merged before.
        """
        kinds, told = [message.kind for message in messages], _told(place, messages)
        first = self._begun.setdefault(number, _First(worker, place, kinds, told, []))
        if (place, kinds) != (first.place, first.kinds):
            raise DecodeError(
                f"worker {worker} sends {told} where worker {first.worker} sends {first.told}: they read "
                "different words from the operations before, so some were damaged on the way"
            )
        first.workers.append(worker)
        if len(first.workers) == self._workers:
            del self._begun[number]


def _told(place: tuple[int, int, int], messages: tuple[Message, ...]) -> str:
    step, bucket, _ = place
    what = " and ".join(f"{one.words.size} words of '{one.label}'" for one in messages) or "nothing"
    return f"{what} (step {step}, bucket {bucket})"
