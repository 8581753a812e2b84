"""Expected costs of a round in each encoding, from counts alone: nothing is encoded for them.

A round is a sequence of network operations, each of one or more messages, and a worker's memory traffic
before and after them. The numbers of words and bytes follow from a bucket's last union (`Counts`) and from
its next sketch (`SketchSize`), the times from the network (`Carrier`). The bytes are those that the codecs
announce as `Work`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from netfold.homomorphic.carrier import Carrier, MessageSize
from netfold.homomorphic.codecs.sparse.block_sparse import BLOCK_ELEMENTS
from netfold.homomorphic.index.members import DENSE_SHARE
from netfold.homomorphic.numbers.formats import Values
from netfold.homomorphic.sketch.tiled import SketchSize, sketch_work_bytes

_INDEX_BYTES = 1 / 8  # of an index, per element
_AGREED_WORDS: dict[Values, int] = {"block_exponent": 1, "float32": 0, "exact": 2}  # by each block


class Counts(NamedTuple):
    """Counts of a bucket's last union, expected for its next round."""

    values: Values
    elements: int
    members: int  # elements that are non-zero at some worker
    own_members: float  # of one worker, expected: between an equal share and all
    live_runs: int  # of 64 elements, with a member
    live_elements: int  # in runs of 256 with a member
    block_elements: int  # of a block that agrees on its numbers
    dense_words: int  # for the values of all elements
    member_words: int  # for the values of members
    live_words: int  # for the values of live elements

    @property
    def agreed_words(self) -> int:
        """Words that the workers exchange to agree on numbers."""
        return _AGREED_WORDS[self.values] * -(-self.elements // self.block_elements)

    @property
    def digits(self) -> float:
        """Words per value of a member."""
        return self.member_words / self.members if self.members else 1.0

    def words_of(self, members: int) -> int:
        """Expected words for the values of some members."""
        return -(-members * self.member_words // self.members) if self.members else members

    @property
    def scanned_bytes(self) -> float:
        """Bytes read to find a worker's members and their numbers (see `members.nonzeros_of`)."""
        is_gathered = DENSE_SHARE * self.own_members <= self.elements
        read = self.own_members if is_gathered else self.elements
        return 4 * self.elements + (0 if self.values == "float32" else 4 * read)

    def summed_bytes(self, count: float, words: float) -> float:
        """Traffic of gathering and encoding values, and of decoding and putting back the sums."""
        return (3 * _INDEX_BYTES + 4) * self.elements + 4 * count + 8 * words


class RoundCost(NamedTuple):
    """A round's network operations, and a worker's memory traffic."""

    operations: tuple[tuple[MessageSize, ...], ...]
    passed_bytes: float


def _plain(*messages: int) -> tuple[MessageSize, ...]:
    """An operation of messages with these numbers of words."""
    return tuple(MessageSize(words) for words in messages)


def dense_cost(counts: Counts, unit_elements: int) -> RoundCost:
    """Cost of all elements; exponents are shared by `unit_elements`."""
    elements = counts.elements
    if counts.values == "float32":
        return RoundCost((_plain(elements),), 8 * elements)
    if counts.values == "exact":
        summed_bytes = counts.summed_bytes(elements, counts.dense_words)
        return RoundCost(
            (_plain(counts.agreed_words), _plain(counts.dense_words)), 4 * elements + summed_bytes
        )
    # Read for the exponents; read and written as integers; the same for the sum.
    return RoundCost(((MessageSize(elements, unit_elements),),), 20 * elements)


def packed_cost(counts: Counts) -> RoundCost:
    """Cost of a bit per element, then the values."""
    return RoundCost(
        (_plain(-(-counts.elements // 32), counts.agreed_words), _plain(counts.member_words)),
        counts.scanned_bytes + 6 * _INDEX_BYTES * counts.elements + _member_bytes(counts),
    )


def two_level_cost(counts: Counts) -> RoundCost:
    """Cost of a bit per 64 elements, the bits of live runs, then the values."""
    run_words = 2 * counts.live_runs
    return RoundCost(
        (
            _plain(-(-counts.elements // 2048), counts.agreed_words),
            _plain(run_words),
            _plain(counts.member_words),
        ),
        # Eight passes over the bits of live runs, and four over all bits.
        counts.scanned_bytes + 4 * _INDEX_BYTES * counts.elements + 8 * 4 * run_words + _member_bytes(counts),
    )


def bitmap_cost(counts: Counts) -> RoundCost:
    """Cost of a bit per 256 elements, then all elements of live blocks."""
    live = counts.live_elements
    summed_bytes = counts.summed_bytes(live, counts.live_words) if live else 0
    return RoundCost(
        (
            _plain(-(-counts.elements // (32 * BLOCK_ELEMENTS)), counts.agreed_words),
            _plain(counts.live_words),
        ),
        (4 if counts.values == "float32" else 8) * counts.elements + summed_bytes,
    )


def concurrent_cost(counts: Counts, size: SketchSize, redone_members: int) -> RoundCost:
    """Cost of index and sketch at once, then the members of tiles that differ from the forecast, packed."""
    direct_words, redone_words = (counts.words_of(some) for some in (size.direct_elements, redone_members))
    first = _plain(-(-counts.elements // 32), counts.agreed_words, size.words, direct_words)
    passed_bytes = counts.scanned_bytes + 6 * _INDEX_BYTES * counts.elements
    if size.words:
        passed_bytes += sketch_work_bytes(counts.elements, size.words, counts.own_members, counts.digits)
    for count, words in ((size.direct_elements, direct_words), (redone_members, redone_words)):
        passed_bytes += counts.summed_bytes(count, words) if count else 0
    return RoundCost((first, _plain(redone_words)), passed_bytes)


def _member_bytes(counts: Counts) -> float:
    return counts.summed_bytes(counts.members, counts.member_words) if counts.members else 0.0


def round_ps(cost: RoundCost, carrier: Carrier) -> int:
    """Expected time of a round."""
    operations_ps = sum(carrier.time_ps(operation) for operation in cost.operations)
    return carrier.memory_ps(math.ceil(cost.passed_bytes)) + operations_ps
