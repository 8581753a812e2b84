"""Merges of signs: is each bit some worker's, and is a random merge fair to all of them?

**What is random.** SIGN keeps, at each bit position, the bit of one of the n present workers, each with
probability 1/n. Given the bits sent, with m ones among n, the merged bit r is 1 with probability p = m/n,
independently of all other positions. Bits may be correlated between workers and between positions: they are
given. Worker w agrees with r with probability p where its bit is 1, and 1 − p where it is 0. So its
agreements minus their mean, over any set of positions, are

    D_w = Σ σ_w (r − m/n),    σ_w = +1 where its bit is 1, −1 where it is 0,

a sum of independent terms with mean 0 and at most 1 in size. Its variance V = Σ (m/n)(1 − m/n) is the same
for all workers. Where all agree nothing is random. The sum with σ = 1 is the *ones*: no value of a bit may
survive more often than it was sent.

**How far D may be.** Over rounds D is a martingale: what is sent may depend on earlier results, but the mean
of each term given the past is 0. Freedman's inequality ("On tail probabilities for martingales", Annals of
Probability 3(1), 1975; for one round it is Bernstein's) says

    P(D ≥ x while V ≤ v, at any time) ≤ exp(−x² / (2 (v + x/3))).

`allowed` solves for the x at which the right side is exp(−level). V of one round is known before its bits
are drawn. V of several rounds is not: it is rounded up to a grid v_j = 2^(j/4), j = 0, 1, …, and grid point j
gets the share 1/((j + 1)(j + 2)) of the false alarms, which sum to 1 (`allowed_over_rounds`).

**Rounding.** Merges draw with probabilities that are multiples of 2⁻³², so after n − 1 merges p is off by at
most n · 2⁻³³ at each position; the positions number at most V n² / (n − 1). This is added to V and to x.

**False alarms.** A job may raise one with probability `FALSE_ALARMS` = 1e-8 at most, so a run of up to a
hundred jobs with less than 1e-6. It is divided by a union bound, which needs no independence:

* half for statistics of single rounds, half for sums over rounds;
* of each half, the t-th message (or sum), t = 1, 2, …, gets the share 1/(t (t + 1)): these sum to 1, however
  long the job runs;
* a message is divided into 1, 2, 4, … equal stretches of words; each of these divisions gets an equal share,
  and so does each stretch of one;
* of each stretch, each worker and the ones get an equal share, half for either side.

Stretches find merges with wrong weights whose favourites differ from place to place, as in a ring, where each
segment starts at another worker, and as in switches, where each unit has another last arrival.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import Merge, Merged, Words
from netfold.homomorphic.message import Message
from netfold.kernels.bits import same_bits
from netfold.kernels.compiled import kernel
from netfold.kernels.exp_log import LN2, exps, logs
from netfold.sim.checks.round_findings import RecordedOperation, Result, distinct

Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Signs = NDArray[np.uint32]

FALSE_ALARMS = 1e-8
"""Probability that one job raises a false alarm, at most."""
_GRID = 4  # points per doubling of a variance that is not known in advance


class StretchSums(NamedTuple):
    """Sums over equal stretches of messages."""

    deviations: Doubles  # (stretches, workers + 1): D of each worker, and of the ones
    variances: Doubles  # (stretches,): V


class Unfair(NamedTuple):
    """The statistic that is farthest beyond what is allowed."""

    worker: int | None  # None: the ones
    stretch: int
    stretches: int
    """Stretches that the message is divided into."""
    excess: float  # agreements above the mean; negative: below
    allowed: float
    sigmas: float  # the excess in standard deviations


def allowed(variances: Doubles, level: Doubles | float) -> Doubles:
    """The excess that a sum reaches with probability exp(−level) at most (see above), given its variance."""
    third = np.asarray(level) / 3
    return np.asarray(third + np.sqrt(third * third + 2 * variances * level))


def allowed_over_rounds(variances: Doubles, level: Doubles | float) -> Doubles:
    """The same for variances that depend on what was drawn before, at any number of rounds."""
    point = np.maximum(np.ceil(logs(np.maximum(variances, 1.0)) * (_GRID / LN2)), 0)
    return allowed(exps(point, LN2 / _GRID), level + logs((point + 1) * (point + 2)))


def worst(sums: StretchSums, share: float, is_over_rounds: bool) -> Unfair | None:
    """The statistic farthest beyond what is allowed, if any is, with `share` of the job's false alarms."""
    farthest: Unfair | None = None
    divisions = list(_divisions(sums))
    statistics = sums.deviations.shape[1]
    workers = statistics - 1
    for deviations, variances in divisions:
        stretches = variances.size
        count = len(divisions) * stretches * statistics * 2
        level = math.log(count) - math.log(share) - math.log(FALSE_ALARMS)
        rounding = variances * (workers**3 / max(workers - 1, 1) * 2.0**-33)
        limit = (allowed_over_rounds if is_over_rounds else allowed)(variances + rounding, level) + rounding
        over = np.abs(deviations) - limit[:, np.newaxis]
        stretch, statistic = map(int, np.unravel_index(int(np.argmax(over)), over.shape))
        if over[stretch, statistic] <= 0:
            continue
        excess = float(deviations[stretch, statistic])
        sigmas = excess / math.sqrt(max(float(variances[stretch]), 5e-324))
        if farthest is None or abs(sigmas) > abs(farthest.sigmas):
            worker = statistic if statistic < workers else None
            farthest = Unfair(worker, stretch, stretches, excess, float(limit[stretch]), sigmas)
    return farthest


def halve(sums: StretchSums) -> StretchSums:
    """The same sums with half as many stretches."""
    pairs = sums.deviations.reshape(-1, 2, sums.deviations.shape[1])
    return StretchSums(pairs.sum(axis=1), sums.variances.reshape(-1, 2).sum(axis=1))


def _divisions(sums: StretchSums) -> Iterator[StretchSums]:
    """The sums of the finest division, and of all coarser ones."""
    yield sums
    while sums.variances.size > 1:
        sums = halve(sums)
        yield sums


@kernel
def tally(sent: Signs, result: Signs, first: int, edges: Longs, ones: Longs, sums: Longs) -> int:
    """Add a part of a merged message of bits to the sums of its stretches; count words with unsent bits.

    `sent` (workers, words) and `result` begin with word `first` of the message; stretch s begins with word
    `edges[s]`; `ones` (32,) is scratch. `sums` (stretches, workers + 2) has n times the deviation of each
    worker and of the ones, and n² times the variance. A bit that no worker sent has neither.
    """
    workers = sent.shape[0]
    wrong, stretch = 0, 0
    for i in range(result.size):
        while first + i >= edges[stretch + 1]:
            stretch += 1
        for bit in range(32):
            ones[bit] = 0
        for worker in range(workers):
            word = sent[worker, i]
            for bit in range(32):
                ones[bit] += np.int64((word >> np.uint32(bit)) & np.uint32(1))
        merged, is_wrong, spread, excess = result[i], False, np.int64(0), np.int64(0)
        for bit in range(32):
            ones_count = ones[bit]
            deviation = workers * np.int64((merged >> np.uint32(bit)) & np.uint32(1)) - ones_count
            is_unsent = deviation == workers or deviation == -workers
            is_wrong |= is_unsent
            spread += ones_count * (workers - ones_count)
            ones[bit] = 0 if is_unsent else deviation
            excess += ones[bit]
        wrong += is_wrong
        for worker in range(workers):
            word, agreed = sent[worker, i], np.int64(0)
            for bit in range(32):
                agreed += ones[bit] * (2 * np.int64((word >> np.uint32(bit)) & np.uint32(1)) - 1)
            sums[stretch, worker] += agreed
        sums[stretch, workers] += excess
        sums[stretch, workers + 1] += spread
    return wrong


# Merged sign bits: each is some present worker's, and no worker's survive more often than its weight allows.
#
# `SignCheck` belongs to a job: it adds up the statistics of its rounds, so that a small bias in a small
# bucket is found in the course of a run. The top of this file says what is allowed and proves how rare false
# alarms are.


STRETCH_WORDS = 64
"""Words of the shortest stretch of a long message."""
STRETCHES_MAX = 1 << 14
_PART_WORDS = 1 << 12
"""Words, of all workers together, that are looked at at once."""

Locate = Callable[[int, tuple[int, int, int], int, int], str]
"""Where a word was merged, from its worker, operation, part and number."""


class MessageOfRound(NamedTuple):
    step: int
    bucket: int
    operation: int
    """The operation's number in the round."""
    part: int
    label: str

    def __str__(self) -> str:
        return f"'{self.label}' (step {self.step}, bucket {self.bucket}, operation {self.operation})"


@dataclass(frozen=True)
class WrongSigns:
    """A merged word with bits that cannot be."""

    place: MessageOfRound
    worker: int
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

    place: MessageOfRound
    messages: int
    """Messages whose statistics were added up."""
    words: tuple[int, int]  # the stretch, both ends included
    bias: Unfair

    def __str__(self) -> str:
        bias, (first, last) = self.bias, self.words
        is_ones = bias.worker is None
        whose = "merged bits are one" if is_ones else f"worker {bias.worker}'s bits survive"
        often = "more" if bias.excess > 0 else "less"
        fair = "they were sent" if is_ones else "its weight allows"
        over = f", over {self.messages} messages" if self.messages > 1 else ""
        return (
            f"{whose} {often} often than {fair} in words {first} to {last} of {self.place}{over}: "
            f"{abs(bias.excess):.0f} bits off the mean ({abs(bias.sigmas):.1f} standard deviations), "
            f"at most {bias.allowed:.0f} allowed"
        )


class Merger(NamedTuple):
    """Tells where the words of a message were merged."""

    operation: tuple[int, int, int]  # step, bucket, number in the round
    part: int
    locate: Locate

    def wrong(self, place: MessageOfRound, result: Result, word: int, why: str) -> WrongSigns:
        """A wrong word of a result, as its first worker received it."""
        worker = result.workers[0]
        return WrongSigns(place, worker, word, why, self.locate(worker, self.operation, self.part, word))


@dataclass
class _OverRounds:
    """Sums over the rounds of a run."""

    number: int
    """The number of these sums, from 1."""
    sums: StretchSums
    rounds: int = 0


@dataclass
class SignCheck:
    """The checks of one job's SIGN messages."""

    words: int = 0  # merged words, over all workers
    wrong_words: int = 0
    first_wrong: WrongSigns | None = None
    first_unfair: UnfairSigns | None = None
    _messages: int = 0
    _over_rounds: dict[tuple[int, ...], _OverRounds] = field(default_factory=dict)

    def examine(
        self, step: int, bucket: int, operations: Sequence[RecordedOperation], locate: Locate
    ) -> None:
        """Examine the SIGN messages of a finished round."""
        for number, operation in enumerate(operations):
            ranks = sorted(operation.sent)
            for part, message in enumerate(operation.sent[ranks[0]]):
                if message.merge is Merge.SIGN and message.size:
                    message_id = MessageOfRound(step, bucket, number, part, message.label)
                    sent = [operation.sent[rank][part] for rank in ranks]
                    received = [operation.received[rank][part] for rank in ranks]
                    self._examine(message_id, sent, received, Merger((step, bucket, number), part, locate))

    def _examine(
        self, place: MessageOfRound, sent: Sequence[Message], received: Sequence[Merged], merger: Merger
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
        wrong, sums = _tally(words, merged, _edges(size, len(sent)))
        if wrong:
            wrong_word = merger.wrong(place, whole[0], *_first_unsent(words, merged))
            self._note_wrong(wrong * len(whole[0].workers), wrong_word)
        for other in whole[1:]:
            self._compare(place, whole[0], other, merger)
        deviations = np.zeros((sums.variances.size, len(sent) + 1))
        deviations[:, [*present, len(sent)]] = sums.deviations
        self._judge(place, size, StretchSums(deviations, sums.variances))

    def _compare(self, place: MessageOfRound, most: Result, other: Result, merger: Merger) -> None:
        """Require that a result has the same bits as the one that most workers received."""
        bits, right = _bits(other), _bits(most)
        differs = np.flatnonzero(bits != right)
        if differs.size:
            word = int(differs[0])
            why = f"received {bits[word]:#010x}, worker {most.workers[0]} received {right[word]:#010x}"
            self._note_wrong(differs.size * len(other.workers), merger.wrong(place, other, word, why))

    def _note_wrong(self, words: int, first: WrongSigns) -> None:
        self.wrong_words += words
        self.first_wrong = self.first_wrong or first

    def _judge(self, place: MessageOfRound, size: int, sums: StretchSums) -> None:
        """Hold the statistics of one message, and their sums over rounds, to what is allowed."""
        self._messages += 1
        bias = worst(sums, _share(self._messages), is_over_rounds=False)
        self._note_unfair(bias, place, 1, size)
        workers = sums.deviations.shape[1] - 1
        while sums.variances.size > _fewest_stretches(workers):
            sums = halve(sums)
        for key in ((place.bucket, place.operation, place.part), ()):  # (): all messages together
            if key not in self._over_rounds:
                zeros = StretchSums(np.zeros_like(sums.deviations), np.zeros_like(sums.variances))
                self._over_rounds[key] = _OverRounds(len(self._over_rounds) + 1, zeros)
            known = self._over_rounds[key]
            known.rounds += 1
            known.sums.deviations[:] += sums.deviations
            known.sums.variances[:] += sums.variances
            bias = worst(known.sums, _share(known.number), is_over_rounds=True)
            self._note_unfair(bias, place, known.rounds, size)

    def _note_unfair(self, unfair: Unfair | None, place: MessageOfRound, messages: int, size: int) -> None:
        if unfair is not None and self.first_unfair is None:
            first, end = (size * (unfair.stretch + more) // unfair.stretches for more in (0, 1))
            self.first_unfair = UnfairSigns(place, messages, (first, end - 1), unfair)


def _share(number: int) -> float:
    # Half of the false alarms are for messages, half for sums over rounds; the number-th gets this share.
    return 0.5 / (number * (number + 1))


def _fewest_stretches(workers: int) -> int:
    # A power of two; at least four for every worker, for segments of a ring.
    return min(1 << (4 * workers - 1).bit_length(), STRETCHES_MAX)


def _edges(size: int, workers: int) -> NDArray[np.int64]:
    """Where the shortest stretches of a message begin, and where the last one ends."""
    wanted = -(-size // STRETCH_WORDS)
    stretches = max(_fewest_stretches(workers), min(1 << (wanted - 1).bit_length(), STRETCHES_MAX))
    return np.arange(stretches + 1) * size // stretches


def _by_bits(received: Sequence[Merged]) -> list[Result]:
    """The results that differ, those that most workers received first."""
    results: list[Result] = []
    for outcome in distinct(received):
        same = [group for group in results if same_bits(group.merged.words, outcome.merged.words)]
        if same:
            same[0].workers += outcome.workers
        else:
            results.append(outcome)
    return sorted(results, key=lambda group: -len(group.workers))


def _bits(result: Result) -> Words:
    return np.ascontiguousarray(result.merged.words).view(np.uint32)


def _parts(sent: Sequence[Words], merged: Words) -> Iterator[tuple[int, Words, Words]]:
    """Consecutive parts: the first word, the words sent `(workers, words)`, the merged words."""
    for first in range(0, merged.size, _PART_WORDS):
        part = slice(first, first + _PART_WORDS)
        yield first, np.stack([words[part].view(np.uint32) for words in sent]), merged[part]


def _tally(sent: Sequence[Words], merged: Words, edges: NDArray[np.int64]) -> tuple[int, StretchSums]:
    """How many merged words have bits that nobody sent, and the sums of the stretches."""
    workers, wrong = len(sent), 0
    sums = np.zeros((edges.size - 1, workers + 2), np.int64)
    ones = np.empty(32, np.int64)
    for first, words, result in _parts(sent, merged):
        wrong += tally(words, result, first, edges, ones, sums)
    return wrong, StretchSums(sums[:, :-1] / workers, sums[:, -1] / workers**2)


def _first_unsent(sent: Sequence[Words], merged: Words) -> tuple[int, str]:
    """The first merged word with bits that nobody sent, and which."""
    for first, words, result in _parts(sent, merged):
        union, common = np.bitwise_or.reduce(words), np.bitwise_and.reduce(words)
        unsent = (result & ~union) | (common & ~result)
        if unsent.any():
            index = int(np.flatnonzero(unsent)[0])
            return first + index, f"no worker sent its bits {unsent[index]:#010x}"
    raise AssertionError("all bits were sent")
