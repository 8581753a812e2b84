"""Merged integer words: the sum, union or maximum of those sent, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import PART_ELEMENTS
from netfold.homomorphic.message import (
    CODE_BITS,
    SUMS,
    WORD_BITS,
    Holders,
    Merge,
    Message,
    Words,
)
from netfold.kernels.words import count_differing
from netfold.sim.checks.rounds import kernels
from netfold.sim.checks.rounds.results import (
    MessagePlace,
    Result,
    Slice,
    Tally,
    by_holders,
    complete,
    holds,
    slices,
)
from netfold.sim.engine.interface import Overflow

Lanes = NDArray[Any]  # integers of the width of a lane
_LANE_TYPES: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16}  # others are added as words
_CODE_SHIFTS = np.arange(0, WORD_BITS, CODE_BITS, dtype=np.uint32)


def check_integers(
    place: MessagePlace, sent: Mapping[int, Message], results: Sequence[Result], overflow: Overflow
) -> None:
    """Sums, unions and maxima in 64 bits, modulo 2**32, against every result; and agreed exponents.

    Sums are compared lane by lane, modulo the lane's width. `sent` are the messages by rank.
    """
    integers = _Integers(sent)
    first = next(iter(sent.values()))
    size = first.words.size
    for holders, group in by_holders(complete(place, results, first.merged_size, "wrong")):
        for own in slices(size, integers.lanes, integers.merged_words):
            right = integers.united(own, holders).astype(integers.lane)  # modulo the lane's width
            for result in group:
                _compare(place, integers, (own, result, overflow), right)
    for result in results:
        check_exponents(place, first, integers.exponents, result)


def _compare(
    place: MessagePlace,
    integers: _Integers,
    what: tuple[Slice, Result, Overflow],
    right: Lanes,
) -> None:
    """Compare a slice of one result; words that were added as floats are not integers."""
    own, result, overflow = what
    merged = result.merged
    found = merged.words[own.merged].view(integers.lane)
    if merged.is_float is not None and merged.is_float[own.merged].any():
        found = np.where(merged.is_float[own.merged], right, found)
    if not count_differing(found.view(np.int32), right.view(np.int32)):
        return
    is_wrong = found != right
    if overflow is not Overflow.WRAP and integers.are_added:
        is_clipped = is_wrong & integers.may_be_clipped(own, merged.holders, found, overflow)
        is_wrong &= ~is_clipped
        _add_to_tally(place, result, own, (result.clipped, is_clipped), (found, right))
    _add_to_tally(place, result, own, (result.wrong, is_wrong), (found, right))


def _add_to_tally(
    place: MessagePlace,
    result: Result,
    own: Slice,
    marked: tuple[Tally, NDArray[np.bool_]],
    lanes: tuple[Lanes, Lanes],
) -> None:
    """Add the marked lanes of a slice to a tally."""
    tally, is_marked = marked
    count = int(np.count_nonzero(is_marked))
    if count:
        first = int(np.argmax(is_marked))
        word, lane = divmod(first, own.lanes // own.merged_words)
        found = result.wrong_word(
            place, own.merged.start + word, (int(lanes[0][first]), int(lanes[1][first]))
        )
        tally.add(count, found if own.lanes == own.merged_words else replace(found, lane=lane))


def check_exponents(
    place: MessagePlace, message: Message, right: NDArray[np.int8] | None, result: Result
) -> None:
    """Check that the agreed exponents are the largest of each block."""
    if right is None or message.scaling is None:
        return
    found = result.merged.exponents
    is_complete = found is not None and found.size == right.size
    differs = found != right if is_complete else np.ones(right.size, np.bool_)
    count = int(np.count_nonzero(differs))
    if count:
        word = int(np.argmax(differs)) * message.scaling.block_elements
        result.wrong.add(count, result.wrong_word(place, word, (None, None)))


class _Integers:
    """Sums, unions and maxima of the words that all workers sent, in 64 bits."""

    def __init__(self, sent: Mapping[int, Message]) -> None:
        self._sent = sent
        self._first_rank, first = next(iter(sent.items()))
        self.lane = _LANE_TYPES.get(first.lane_bits, np.int32)
        # of a word sent
        self.merged_words = first.merged_words
        self.lanes = self.merged_words * (4 // np.dtype(self.lane).itemsize)
        self.are_added = first.merge in SUMS
        self._total = np.empty(self.lanes * min(PART_ELEMENTS, first.words.size), np.int64)
        exponents = [one.scaling.exponents for one in sent.values() if one.scaling is not None]
        self.exponents = np.maximum.reduce(exponents) if exponents else None
        self._scales = None if self.exponents is None else _scales(first, self.exponents)

    def united(self, own: Slice, holders: Holders | None) -> NDArray[np.int64]:
        """Sum, union or maximum of a slice, of the workers held; the next call reuses the array."""
        total = self._total[: own.size]
        total.fill(0)
        for rank, message in self._sent.items():
            if self.are_added and holders is None:
                self._add(message, own, total)
                continue
            values = self._values(message, own, rank, holders)
            if self.are_added:
                total += values
            elif message.merge is Merge.OR:
                total |= values
            elif rank != self._first_rank:
                np.maximum(total, values, out=total)
            else:
                np.copyto(total, values)
        return total

    def _add(self, message: Message, own: Slice, total: NDArray[np.int64]) -> None:
        words = message.words[own.first : own.last]
        if message.scaling is not None:
            assert self._scales is not None
            kernels.add_scaled(words, self._scales, own.first, message.scaling.block_elements, total)
        elif message.has_codes:
            kernels.add_integers(_lifted(message, words), total)
        else:
            kernels.add_integers(words.view(self.lane), total)

    def _values(self, message: Message, own: Slice, rank: int, holders: Holders | None) -> NDArray[np.int64]:
        """One worker's integers of a slice; 0 where a result does not hold it."""
        values = np.zeros(own.size, np.int64)
        if self.are_added:
            self._add(message, own, values)
        else:
            values += message.words[own.first : own.last]
        return values if holders is None else np.where(holds(holders, own, rank), values, 0)

    def may_be_clipped(
        self, own: Slice, holders: Holders | None, found: Lanes, overflow: Overflow
    ) -> NDArray[np.bool_]:
        """Which lanes can be results of adders that saturate or stick, where a partial sum leaves the lane.

        With P and N the sums of the positive and the negative lanes, T of all: where P alone may leave it,
        the result lies between min(T, MAX + N) and min(T, MAX) for any order or tree; with adders that stick,
        up to MAX. The lower limit is the mirror image, but adders stick at −MAX already; where both may
        be left, any result is possible.
        """
        parts = [self._values(message, own, rank, holders) for rank, message in self._sent.items()]
        positive = sum(np.maximum(part, 0) for part in parts)
        negative = sum(np.minimum(part, 0) for part in parts)
        total = positive + negative
        sticks = overflow is Overflow.STICKY  # from ±largest on
        largest, smallest = int(np.iinfo(self.lane).max), int(np.iinfo(self.lane).min)
        above, below = positive > largest - sticks, negative < smallest + 2 * sticks
        least = smallest if sticks else np.maximum(total, smallest)
        most = largest if sticks else np.minimum(total, largest)
        low = np.where(above, np.minimum(total, largest + negative), least)
        high = np.where(above, most, np.maximum(total, smallest + sticks + positive))
        is_between = (low <= found) & (found <= high)
        return np.asarray((above & below) | ((above | below) & is_between))


def _lifted(message: Message, words: Words) -> NDArray[np.int32]:
    """The table's value of each packed code."""
    assert message.table is not None, "table_add without a table"
    codes = words[:, np.newaxis] >> _CODE_SHIFTS & np.uint32(15)
    return np.ascontiguousarray(message.table[codes].reshape(-1), np.int32)


def _scales(message: Message, exponents: NDArray[np.int8]) -> NDArray[np.float32]:
    """Integers per unit of value of each block."""
    assert message.scaling is not None
    workers = message.scaling.workers
    full = np.float32(2**31 - 1 if workers <= 255 else 2**31 - 256 - workers)
    return np.asarray(full / np.ldexp(np.float32(workers), exponents.astype(np.int32)), np.float32)
