"""Check that the workers of a job send matching messages; damaged words can make them diverge."""

from __future__ import annotations

from typing import NamedTuple

from netfold.homomorphic.codec import Codec, DecodeError, EncodeError
from netfold.homomorphic.message import Message


def require_declared(codec: Codec, worker: int, messages: tuple[Message, ...]) -> None:
    """Require that a codec whose worker has nothing to contribute to a merge has declared it.

    Raises
    ------
    EncodeError
        It has not.
    """
    if codec.may_be_absent:
        return
    for message in messages:
        if message.absent_words:
            raise EncodeError(
                f"worker {worker} contributes nothing to '{message.label}' "
                f"({message.absent_words} words by {message.merge.value}), but codec {codec.kind!r} does not "
                "declare that a worker may be absent (may_be_absent)"
            )


class _First(NamedTuple):
    """The messages of the first worker to begin an operation."""

    worker: int
    place: tuple[int, int, int]  # step, bucket, operation of the round
    kinds: list[tuple[object, ...]]
    description: str
    workers: list[int]  # that have begun it


class MessageAgreement:
    """Compares the messages that the workers of a job send in each operation, by its number over the run.

    A worker that has read damaged words may ask for a redo while the others begin their next round. So
    operations are compared over the whole run, not round by round.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._begun: dict[int, _First] = {}

    def require(
        self, number: int, worker: int, place: tuple[int, int, int], messages: tuple[Message, ...]
    ) -> None:
        """Require that messages have the same round, kinds and lengths as those of the other workers.

        Raises
        ------
        DecodeError
            The workers have read different things from what was merged before.
        """
        kinds, description = [message.kind for message in messages], _described(place, messages)
        first = self._begun.setdefault(number, _First(worker, place, kinds, description, []))
        if (place, kinds) != (first.place, first.kinds):
            raise DecodeError(
                f"worker {worker} sends {description} where worker {first.worker} sends {first.description}: "
                "they read different words from the operations before, so some were damaged on the way"
            )
        first.workers.append(worker)
        if len(first.workers) == self._workers:
            del self._begun[number]


def _described(place: tuple[int, int, int], messages: tuple[Message, ...]) -> str:
    step, bucket, _ = place
    what = " and ".join(f"{one.size} words of '{one.label}'" for one in messages) or "nothing"
    return f"{what} (step {step}, bucket {bucket})"
