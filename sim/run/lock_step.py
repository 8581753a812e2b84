"""Check that the workers of a job send matching messages; damaged words can make them diverge."""

from __future__ import annotations

from typing import NamedTuple

from netfold.homomorphic.codec import DecodeError
from netfold.homomorphic.message import Message
from netfold.sim.collectives.collective import OperationPlace


class _First(NamedTuple):
    """The messages of the first worker to begin an operation."""

    worker: int
    kinds: list[tuple[object, ...]]
    description: str
    workers: list[int]  # that have begun it


class _Ended(NamedTuple):
    """The first worker to end a round."""

    worker: int
    operations_count: int
    workers: list[int]  # that have ended it


class MessageAgreement:
    """Compares the messages that the workers of a job send in each operation, and where their rounds end.

    A worker that has read damaged words may ask for a redo while the others end the round.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._begun: dict[OperationPlace, _First] = {}
        self._ended: dict[tuple[int, int], _Ended] = {}

    def require(self, place: OperationPlace, worker: int, messages: tuple[Message, ...]) -> None:
        """Require that messages have the same kinds and lengths as those of the other workers.

        Raises
        ------
        DecodeError
            The workers have read different things from what was merged before.
        """
        kinds, description = [message.kind for message in messages], _described(place, messages)
        ended = self._ended.get((place.step, place.bucket))
        if ended is not None and place.operation >= ended.operations_count:
            raise _differs(worker, description, ended.worker, _nothing(place))
        first = self._begun.setdefault(place, _First(worker, kinds, description, []))
        if kinds != first.kinds:
            raise _differs(worker, description, first.worker, first.description)
        first.workers.append(worker)
        if len(first.workers) == self._workers:
            del self._begun[place]

    def end(self, following: OperationPlace, worker: int) -> None:
        """Require that no worker goes on with a round which a worker ends before the operation `following`.

        Raises
        ------
        DecodeError
            As in `require`.
        """
        first = self._begun.get(following)
        if first is not None:
            raise _differs(worker, _nothing(following), first.worker, first.description)
        key = following.step, following.bucket
        ended = self._ended.setdefault(key, _Ended(worker, following.operation, []))
        ended.workers.append(worker)
        if len(ended.workers) == self._workers:
            del self._ended[key]


def _differs(worker: int, description: str, other: int, other_description: str) -> DecodeError:
    return DecodeError(
        f"worker {worker} sends {description} where worker {other} sends {other_description}: "
        "they read different words from the operations before, so some were damaged on the way"
    )


def _described(place: OperationPlace, messages: tuple[Message, ...]) -> str:
    what = " and ".join(f"{one.words.size} words of '{one.label}'" for one in messages) or "nothing"
    return f"{what} (step {place.step}, bucket {place.bucket})"


def _nothing(place: OperationPlace) -> str:
    return f"nothing more (step {place.step}, bucket {place.bucket})"
