"""Merged sign bits: each is some present worker's, and no worker's survive more often than its weight allows.

`Signs` belongs to a job: it adds up the statistics of its rounds, so that a small bias in a small bucket is
found in the course of a run. `fairness` says what is allowed and proves how rare false alarms are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge, Merged, Message, Words
from netfold.kernels.words import same_bits
from netfold.sim.checks.rounds.findings import Operation
from netfold.sim.checks.rounds.merges import fairness
from netfold.sim.checks.rounds.merges.fairness import Sums, Unfair
from netfold.sim.checks.rounds.results import Result, distinct

STRETCH_WORDS = 64  # of the shortest stretch of a long message
STRETCHES_MAX = 1 << 14
_PART_WORDS = 1 << 12  # of all workers that are looked at at once

Locate = Callable[
    [int, tuple[int, int, int], int, int], str
]  # worker, operation, part, word: where it was merged


class Place(NamedTuple):
    """A message of a round."""

    step: int
    bucket: int
    operation: int  # of the round
    part: int
    label: str

    def __str__(self) -> str:
        return f"'{self.label}' (step {self.step}, bucket {self.bucket}, operation {self.operation})"


@dataclass(frozen=True)
class WrongSigns:
    """A merged word with bits that cannot be."""

    place: Place
    worker: int  # that received it
    word: int | None  # None: the result has another length
    why: str
    merged_at: str = ""

    def __str__(self) -> str:
        where = "" if self.word is None else f", word {self.word}"
        at = f": {self.merged_at}" if self.merged_at else ""
        return f"worker {self.worker}{where} of {self.place} ({self.why}){at}"


@dataclass(frozen=True)
class UnfairSigns:
    """Bits of a worker that survive too often or too seldom."""

    place: Place
    messages: int  # whose statistics were added up
    words: tuple[int, int]  # the stretch, both ends included
    found: Unfair

    def __str__(self) -> str:
        found, (first, last) = self.found, self.words
        is_ones = found.worker is None
        whose = "merged bits are one" if is_ones else f"worker {found.worker}'s bits survive"
        often = "more" if found.excess > 0 else "less"
        fair = "they were sent" if is_ones else "its weight allows"
        over = f", over {self.messages} messages" if self.messages > 1 else ""
        return (
            f"{whose} {often} often than {fair} in words {first} to {last} of {self.place}{over}: "
            f"{abs(found.excess):.0f} bits off the mean ({abs(found.sigmas):.1f} standard deviations), "
            f"at most {found.allowed:.0f} allowed"
        )


class Merger(NamedTuple):
    """Tells where the words of a message were merged."""

    operation: tuple[int, int, int]  # step, bucket, number in the round
    part: int
    locate: Locate

    def wrong(self, place: Place, result: Result, word: int, why: str) -> WrongSigns:
        """A wrong word of a result, as its first worker received it."""
        worker = result.workers[0]
        return WrongSigns(place, worker, word, why, self.locate(worker, self.operation, self.part, word))


@dataclass
class _OverRounds:
    """Sums over the rounds of a run."""

    number: int  # of these sums, from 1
    sums: Sums
    rounds: int = 0


@dataclass
class Signs:
    """The checks of one job's SIGN messages."""

    words: int = 0  # merged words, over all workers
    wrong_words: int = 0
    first_wrong: WrongSigns | None = None
    first_unfair: UnfairSigns | None = None
    _messages: int = 0
    _over_rounds: dict[tuple[int, ...], _OverRounds] = field(default_factory=dict)

    def examine(self, step: int, bucket: int, operations: Sequence[Operation], locate: Locate) -> None:
        """Examine the SIGN messages of a finished round."""
        for number, operation in enumerate(operations):
            ranks = sorted(operation.sent)
            for part, message in enumerate(operation.sent[ranks[0]]):
                if message.merge is Merge.SIGN and message.size:
                    place = Place(step, bucket, number, part, message.label)
                    sent = [operation.sent[rank][part] for rank in ranks]
                    received = [operation.received[rank][part] for rank in ranks]
                    self._examine(place, sent, received, Merger((step, bucket, number), part, locate))

    def _examine(
        self, place: Place, sent: Sequence[Message], received: Sequence[Merged], merger: Merger
    ) -> None:
        """Examine one message; results that several workers share are examined once."""
        size = sent[0].size
        self.words += size * len(received)
        results = _by_bits(received)
        whole = [result for result in results if result.merged.words.size == size]
        for result in results:
            if result.merged.words.size != size:
                why = f"it has {result.merged.words.size} words, {size} were sent"
                self._note_wrong(size * len(result.workers), WrongSigns(place, result.workers[0], None, why))
        present = [rank for rank, message in enumerate(sent) if not message.is_absent]
        if not whole or not present:
            return
        words, merged = [sent[rank].words for rank in present], _bits(whole[0])
        wrong, sums = _tallied(words, merged, _edges(size, len(sent)))
        if wrong:
            wrong_word = merger.wrong(place, whole[0], *_first_unsent(words, merged))
            self._note_wrong(wrong * len(whole[0].workers), wrong_word)
        for other in whole[1:]:
            self._compare(place, whole[0], other, merger)
        deviations = np.zeros((sums.variances.size, len(sent) + 1))
        deviations[:, [*present, len(sent)]] = sums.deviations
        self._judge(place, size, Sums(deviations, sums.variances))

    def _compare(self, place: Place, most: Result, other: Result, merger: Merger) -> None:
        """Require that a result has the same bits as the one that most workers received."""
        found, right = _bits(other), _bits(most)
        differs = np.flatnonzero(found != right)
        if differs.size:
            word = int(differs[0])
            why = f"received {found[word]:#010x}, worker {most.workers[0]} received {right[word]:#010x}"
            self._note_wrong(differs.size * len(other.workers), merger.wrong(place, other, word, why))

    def _note_wrong(self, words: int, first: WrongSigns) -> None:
        self.wrong_words += words
        self.first_wrong = self.first_wrong or first

    def _judge(self, place: Place, size: int, sums: Sums) -> None:
        """Hold the statistics of one message, and their sums over rounds, to what is allowed."""
        self._messages += 1
        found = fairness.worst(sums, _share(self._messages), is_over_rounds=False)
        self._note_unfair(found, place, 1, size)
        workers = sums.deviations.shape[1] - 1
        while sums.variances.size > _fewest_stretches(workers):
            sums = fairness.halved(sums)
        for key in ((place.bucket, place.operation, place.part), ()):  # (): all messages together
            if key not in self._over_rounds:
                zeros = Sums(np.zeros_like(sums.deviations), np.zeros_like(sums.variances))
                self._over_rounds[key] = _OverRounds(len(self._over_rounds) + 1, zeros)
            known = self._over_rounds[key]
            known.rounds += 1
            known.sums.deviations[:] += sums.deviations
            known.sums.variances[:] += sums.variances
            found = fairness.worst(known.sums, _share(known.number), is_over_rounds=True)
            self._note_unfair(found, place, known.rounds, size)

    def _note_unfair(self, found: Unfair | None, place: Place, messages: int, size: int) -> None:
        if found is not None and self.first_unfair is None:
            first, end = (size * (found.stretch + more) // found.stretches for more in (0, 1))
            self.first_unfair = UnfairSigns(place, messages, (first, end - 1), found)


def _share(number: int) -> float:
    """The share of false alarms of the number-th message, or of the number-th sums over rounds."""
    return 0.5 / (number * (number + 1))


def _fewest_stretches(workers: int) -> int:
    """Stretches of a message, a power of two: at least four for every worker, for segments of a ring."""
    return min(1 << (4 * workers - 1).bit_length(), STRETCHES_MAX)


def _edges(size: int, workers: int) -> NDArray[np.int64]:
    """Where the shortest stretches of a message begin, and where the last one ends."""
    wanted = -(-size // STRETCH_WORDS)
    stretches = max(_fewest_stretches(workers), min(1 << (wanted - 1).bit_length(), STRETCHES_MAX))
    return np.arange(stretches + 1) * size // stretches


def _by_bits(received: Sequence[Merged]) -> list[Result]:
    """The results that differ, those that most workers received first."""
    results: list[Result] = []
    for own in distinct(received):
        same = [one for one in results if same_bits(one.merged.words, own.merged.words)]
        if same:
            same[0].workers += own.workers
        else:
            results.append(own)
    return sorted(results, key=lambda one: -len(one.workers))


def _bits(result: Result) -> Words:
    return np.ascontiguousarray(result.merged.words).view(np.uint32)


def _parts(sent: Sequence[Words], merged: Words) -> Iterator[tuple[int, Words, Words]]:
    """Consecutive parts: the first word, the words sent `(workers, words)`, the merged words."""
    for first in range(0, merged.size, _PART_WORDS):
        part = slice(first, first + _PART_WORDS)
        yield first, np.stack([words[part].view(np.uint32) for words in sent]), merged[part]


def _tallied(sent: Sequence[Words], merged: Words, edges: NDArray[np.int64]) -> tuple[int, Sums]:
    """How many merged words have bits that nobody sent, and the sums of the stretches."""
    workers, wrong = len(sent), 0
    sums = np.zeros((edges.size - 1, workers + 2), np.int64)
    ones = np.empty(32, np.int64)
    for first, words, result in _parts(sent, merged):
        wrong += fairness.tally(words, result, first, edges, ones, sums)
    return wrong, Sums(sums[:, :-1] / workers, sums[:, -1] / workers**2)


def _first_unsent(sent: Sequence[Words], merged: Words) -> tuple[int, str]:
    """The first merged word with bits that nobody sent, and which."""
    for first, words, result in _parts(sent, merged):
        union, common = np.bitwise_or.reduce(words), np.bitwise_and.reduce(words)
        unsent = (result & ~union) | (common & ~result)
        if unsent.any():
            index = int(np.flatnonzero(unsent)[0])
            return first + index, f"no worker sent its bits {unsent[index]:#010x}"
    raise AssertionError("all bits were sent")
