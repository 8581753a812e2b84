"""What a round of an encoding is expected to take, from counts: nothing is encoded for it.

A round is network operations that wait for each other, each of one or more messages, and bytes of memory that
a worker passes over before and after them. How many words and bytes follows from what a bucket's last union
was like (`Counts`) and from what its next sketch would be (`SketchSize`); how long they take, from the
network (`Carrier`). The bytes are those the codecs announce as `Work`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from netfold.homomorphic.codec import Carrier, MessageSize
from netfold.homomorphic.codecs.block_sparse import BLOCK_ELEMENTS
from netfold.homomorphic.index.members import DENSE_SHARE
from netfold.homomorphic.numbers.formats import Values
from netfold.homomorphic.sketch.tiled import SketchSize, sketch_work_bytes

_INDEX_BYTES = 1 / 8  # of an index, per element
_AGREED_WORDS: dict[Values, int] = {"block_exponent": 1, "float32": 0, "exact": 2}  # by each block


class Counts(NamedTuple):
    """What a bucket's last union says about its next round."""

    values: Values
    elements: int
    members: int  # elements that are not zero at some worker
    own_members: float  # of one worker, expected: anything from an equal share to all of them
    live_runs: int  # of 64 elements, with a member
    live_elements: int  # those of runs of 256 with a member
    block_elements: int  # that agree on their numbers together
    dense_words: int  # of the values of all elements
    member_words: int  # of those of members …
    live_words: int  # … and of live elements

    @property
    def agreed_words(self) -> int:
        """Words of what the numbers of the blocks need."""
        return _AGREED_WORDS[self.values] * -(-self.elements // self.block_elements)

    @property
    def digits(self) -> float:
        """Words per value of a member."""
        return self.member_words / self.members if self.members else 1.0

    def words_of(self, members: int) -> int:
        """Words of the values of some members, expected."""
        return -(-members * self.member_words // self.members) if self.members else members

    @property
    def scanned_bytes(self) -> float:
        """Read to find a worker's members, and what their numbers need (see `members.nonzeros_of`)."""
        is_gathered = DENSE_SHARE * self.own_members <= self.elements
        read = self.own_members if is_gathered else self.elements
        return 4 * self.elements + (0 if self.values == "float32" else 4 * read)

    def summed_bytes(self, count: float, words: float) -> float:
        """Passed over to gather values and encode their words, and to decode and put back the sums."""
        return (3 * _INDEX_BYTES + 4) * self.elements + 4 * count + 8 * words


class Cost(NamedTuple):
    """What a round asks of the network, and of a worker's memory."""

    operations: tuple[tuple[MessageSize, ...], ...]
    passed_bytes: float


def _plain(*messages: int) -> tuple[MessageSize, ...]:
    """An operation of messages of so many words."""
    return tuple(MessageSize(words) for words in messages)


def dense_cost(counts: Counts, unit_elements: int) -> Cost:
    """Every element; with exponents, they are those of units of so many."""
    elements = counts.elements
    if counts.values == "float32":
        return Cost((_plain(elements),), 8 * elements)
    if counts.values == "exact":
        summed_bytes = counts.summed_bytes(elements, counts.dense_words)
        return Cost((_plain(counts.agreed_words), _plain(counts.dense_words)), 4 * elements + summed_bytes)
    # Read for the exponents, read and written as integers, and so the sum.
    return Cost(((MessageSize(elements, unit_elements),),), 20 * elements)


def packed_cost(counts: Counts) -> Cost:
    """A bit per element, then the values."""
    return Cost(
        (_plain(-(-counts.elements // 32), counts.agreed_words), _plain(counts.member_words)),
        counts.scanned_bytes + 6 * _INDEX_BYTES * counts.elements + _member_bytes(counts),
    )


def two_level_cost(counts: Counts) -> Cost:
    """A bit per 64 elements, the bits of those that are not zero, the values."""
    told_words = 2 * counts.live_runs
    return Cost(
        (
            _plain(-(-counts.elements // 2048), counts.agreed_words),
            _plain(told_words),
            _plain(counts.member_words),
        ),
        # Eight times over the bits of live runs, and four times over all that there are.
        counts.scanned_bytes
        + 4 * _INDEX_BYTES * counts.elements
        + 8 * 4 * told_words
        + _member_bytes(counts),
    )


def bitmap_cost(counts: Counts) -> Cost:
    """A bit per 256 elements, then all elements of those that are not zero."""
    live = counts.live_elements
    summed_bytes = counts.summed_bytes(live, counts.live_words) if live else 0
    return Cost(
        (
            _plain(-(-counts.elements // (32 * BLOCK_ELEMENTS)), counts.agreed_words),
            _plain(counts.live_words),
        ),
        (4 if counts.values == "float32" else 8) * counts.elements + summed_bytes,
    )


def concurrent_cost(counts: Counts, size: SketchSize, redone_members: int) -> Cost:
    """Index and sketch at once, then the members of tiles that were not as expected, packed."""
    direct_words, redone_words = (counts.words_of(some) for some in (size.direct_elements, redone_members))
    first = _plain(-(-counts.elements // 32), counts.agreed_words, size.words, direct_words)
    passed_bytes = counts.scanned_bytes + 6 * _INDEX_BYTES * counts.elements
    if size.words:
        passed_bytes += sketch_work_bytes(counts.elements, size.words, counts.own_members, counts.digits)
    for count, words in ((size.direct_elements, direct_words), (redone_members, redone_words)):
        passed_bytes += counts.summed_bytes(count, words) if count else 0
    return Cost((first, _plain(redone_words)), passed_bytes)


def _member_bytes(counts: Counts) -> float:
    return counts.summed_bytes(counts.members, counts.member_words) if counts.members else 0.0


def round_ps(cost: Cost, carrier: Carrier) -> int:
    """How long that takes."""
    operations_ps = sum(carrier.time_ps(operation) for operation in cost.operations)
    return carrier.memory_ps(math.ceil(cost.passed_bytes)) + operations_ps
