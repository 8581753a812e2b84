"""Check that the workers of a job send matching messages; a codec or damaged words can make them diverge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from netfold.homomorphic.codec import Decoded
from netfold.homomorphic.fold import described
from netfold.homomorphic.message import Merged, Message
from netfold.kernels.words import identity
from netfold.sim.checks.finding import Findings, Operation
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.run.codec_errors import CodecError

Sent = tuple[Message, ...] | Decoded  # of a worker that ends the round


class _First(NamedTuple):
    """What the first worker to begin an operation sends."""

    worker: int
    sent: Sent
    workers: list[int]  # that have begun it


class MessageAgreement:
    """Compares what the workers of a job send in each operation, at the time when they begin it.

    A worker that ends its round while another sends, or the reverse, is found when the second of them gets
    there, so no worker waits for messages that never come. Rounds of several buckets may be in progress.
    """

    def __init__(self, workers: int, findings: Sequence[Findings] = ()) -> None:
        """`findings` are those on the job's rounds so far; the caller may append to them."""
        self._workers, self._findings = workers, findings
        self._begun: dict[OperationPlace, _First] = {}

    def require(
        self, place: OperationPlace, worker: int, sent: Sent, operations: Sequence[Operation] = ()
    ) -> None:
        """Require that a worker's messages have the same kinds and lengths as those of the others.

        `operations` are those of the round so far.

        Raises
        ------
        CodecError
            What both workers send, and whether damaged words are the reason.
        """
        first = self._begun.setdefault(place, _First(worker, sent, []))
        if _kinds(sent) != _kinds(first.sent):
            both = first.worker, worker
            differed = _differing_label(operations, both)
            decoded_alike = all(findings.replicas_agree for findings in self._findings)
            if differed is not None:
                why = f"they read different words of {differed!r}, so some were damaged on the way"
            elif not decoded_alike:
                why = "they decoded different sums in an earlier round, so words were damaged on the way"
            else:
                why = "all workers must send the same messages, and these read the same words before"
            raise CodecError(
                f"worker {worker} sends {described(sent)} where worker {first.worker} sends "
                f"{described(first.sent)} ({place}): {why}",
                is_undecoded=differed is not None or not decoded_alike,
            )
        first.workers.append(worker)
        if len(first.workers) == self._workers:
            del self._begun[place]


def _kinds(sent: Sent) -> list[tuple[object, ...]] | None:
    return None if isinstance(sent, Decoded) else [message.kind for message in sent]


def _differing_label(operations: Sequence[Operation], workers: tuple[int, int]) -> str | None:
    """The first message of which two workers received different words; None if there is none."""
    for operation in operations:
        if all(worker in operation.received for worker in workers):
            one, other = (operation.received[worker] for worker in workers)
            for message, first, second in zip(operation.sent[workers[0]], one, other, strict=True):
                if not _are_equal(first, second):
                    return message.label
    return None


def _are_equal(one: Merged, other: Merged) -> bool:
    """Whether two workers received the same bits."""
    arrays = [(merged.words, merged.exponents, *merged.parts) for merged in (one, other)]
    return len(arrays[0]) == len(arrays[1]) and all(
        identity(first) == identity(second) or _content(first) == _content(second)
        for first, second in zip(*arrays, strict=True)
    )


def _content(array: NDArray[Any] | None) -> bytes | None:
    return None if array is None else array.tobytes()
