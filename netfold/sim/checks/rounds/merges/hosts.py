"""Compare what hosts merged by a codec's own functions with a replay from the words that were sent.

The collective says in which order its hops merged; the replay merges in that order without a network. A
codec's server part is replayed by a replica that lives as long as the job and sees its rounds in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.codec import Request, Server
from netfold.homomorphic.merge import HostHop, replay
from netfold.homomorphic.message import Merge, Message, Words
from netfold.homomorphic.round import Tensor
from netfold.kernels.words import count_differing
from netfold.sim.checks.rounds.findings import AtHosts, Operation
from netfold.sim.checks.rounds.results import Result, distinct

Orders = Mapping[tuple[int, int], Sequence[Sequence[HostHop]]]  # by operation and message


@dataclass
class _Tally:
    """Counts over the messages of a round."""

    words: int = 0
    wrong: int = 0
    first: str = ""

    def add(self, count: int, place: str) -> None:
        """Count wrong words; the first place is kept."""
        self.wrong += count
        self.first = self.first or place


class _Place(NamedTuple):
    """A message of a round: its operation, its index there, and its label."""

    operation: int
    part: int
    label: str

    def __str__(self) -> str:
        return f"'{self.label}', message {self.part} of operation {self.operation}"


class HostReplay:
    """Replays the host merges and server answers of one job, round by round."""

    def __init__(self, server: Server | None = None, tensors: Sequence[tuple[Tensor, ...]] = ()) -> None:
        """Check the answers of a codec's server part with this replica; None: the codec has none.

        `tensors` are those of each bucket; empty: unknown.
        """
        self.server, self._tensors = server, tensors

    def examine(self, place: tuple[int, int], operations: Sequence[Operation], orders: Orders) -> AtHosts:
        """Compare the HOST and GATHER messages of a finished round; `place` is its step and bucket.

        `orders` are the hops of its HOST messages. Rounds of one bucket come in the order of their steps.
        """
        tally = _Tally()
        for index, operation in enumerate(operations):
            workers = range(len(operation.sent))
            for part, message in enumerate(operation.sent[0]):
                if message.merge not in (Merge.HOST, Merge.GATHER):
                    continue
                sent = [operation.sent[worker][part] for worker in workers]
                results = distinct([operation.received[worker][part] for worker in workers])
                at = _Place(index, part, message.label)
                if message.merge is Merge.HOST:
                    _check_merged(tally, at, sent, orders.get((index, part)), results)
                elif self.server is not None:
                    tensors = self._tensors[place[1]] if self._tensors else ()
                    request = Request(*place, index, message.label, tensors)
                    answer = self.server.merge([one.words for one in sent], request)
                    _compare(tally, f"the answer to {at}", answer, results)
                else:
                    _check_delivered(tally, at, sent, results)
        return AtHosts(tally.words, tally.wrong, tally.first)


def _check_merged(
    tally: _Tally,
    place: _Place,
    sent: Sequence[Message],
    order: Sequence[Sequence[HostHop]] | None,
    results: Sequence[Result],
) -> None:
    """Check a message that hosts merged by the codec's function."""
    merge = sent[0].host_merge
    if merge is None or order is None:
        tally.add(1, f"{place}: the collective does not say how it was merged")
        return
    try:
        right = replay(merge, [message.words for message in sent], order)
    except ValueError as error:
        tally.add(1, f"{place}: {error}")
        return
    _compare(tally, str(place), right, results)


def _check_delivered(
    tally: _Tally, place: _Place, sent: Sequence[Message], results: Sequence[Result]
) -> None:
    """Check that every worker has a message of every worker; their words are compared elsewhere."""
    for result in results:
        tally.words += len(result.workers) * sum(message.words.size for message in sent)
        if len(result.merged.parts) != len(sent):
            found = f"{len(result.merged.parts)} of {len(sent)} messages arrived"
            tally.add(1, f"{place}, worker {result.workers[0]}: {found}")


def _compare(tally: _Tally, what: str, right: Words, results: Sequence[Result]) -> None:
    """Compare the words of every worker with the right ones, bit for bit."""
    for result in results:
        found, workers = result.merged.words, result.workers
        tally.words += len(workers) * right.size
        if found.size != right.size:
            count = max(found.size, right.size)
            tally.add(
                len(workers) * count,
                f"{what}, worker {workers[0]}: {found.size} words, the replay has {right.size}",
            )
            continue
        bits, right_bits = found.view(np.uint32), right.view(np.uint32)
        if count := count_differing(bits.view(np.int32), right_bits.view(np.int32)):
            word = int(np.argmax(bits != right_bits))
            values = f"received {bits[word]:#010x}, the replay has {right_bits[word]:#010x}"
            tally.add(len(workers) * count, f"{what}, worker {workers[0]}, word {word} ({values})")
