"""Merged integer words: the sum, union or maximum of those sent, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import PART_ELEMENTS
from netfold.homomorphic.kernels.comparison import count_differing
from netfold.homomorphic.message import EXPONENT_MIN, WORD_MAX, Holders, Merge, Message, Words
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

_WORD_MIN = -WORD_MAX - 1
_CODE_SHIFTS = np.arange(0, 4 * Merge.TABLE_ADD.lanes, 4, dtype=np.uint32)


def check_integers(
    place: MessagePlace, sent: Sequence[Message], results: Sequence[Result], overflow: Overflow
) -> None:
    """Sums, unions and maxima in 64 bits, modulo 2**32, against every result; and agreed exponents."""
    integers = _Integers(sent)
    size = sent[0].size
    for holders, group in by_holders(complete(place, results, integers.lanes * size, "wrong")):
        for own in slices(size, integers.lanes):
            right = _wrapped(integers.united(own, holders))
            for result in group:
                _compare(place, integers, (own, result, overflow), right)
    for result in results:
        _check_exponents(place, sent[0], integers.exponents, result)


def _wrapped(total: NDArray[np.int64]) -> NDArray[np.int32]:
    """The sums as registers of 32 bits hold them."""
    return total.astype(np.uint32).view(np.int32)


def _compare(
    place: MessagePlace,
    integers: _Integers,
    what: tuple[Slice, Result, Overflow],
    right: NDArray[np.int32],
) -> None:
    """Compare a slice of one result; words that were added as floats are not integers."""
    own, result, overflow = what
    merged = result.merged
    found = merged.words[own.merged].view(np.int32)
    if merged.is_float is not None and merged.is_float[own.merged].any():
        found = np.where(merged.is_float[own.merged], right, found)
    count = count_differing(found, right)
    if not count:
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
    words: tuple[NDArray[np.int32], NDArray[np.int32]],
) -> None:
    """Add the marked words of a slice to a tally."""
    tally, is_marked = marked
    count = int(np.count_nonzero(is_marked))
    if count:
        word = int(np.argmax(is_marked))
        values = int(words[0][word]), int(words[1][word])
        tally.add(count, result.wrong_word(place, own.merged.start + word, values))


def _check_exponents(
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

    def __init__(self, sent: Sequence[Message]) -> None:
        first = sent[0]
        self._present = [(rank, message) for rank, message in enumerate(sent) if not message.is_absent]
        self.lanes = first.merge.lanes if first.words.dtype == np.uint32 else 1
        self.are_added = first.merge in (Merge.ADD, Merge.TABLE_ADD)
        self._total = np.empty(self.lanes * min(PART_ELEMENTS, first.size), np.int64)
        self._smallest = _WORD_MIN if first.merge is Merge.MAX and not self._present else 0
        present = [message for _, message in self._present]
        exponents = [message.scaling.exponents for message in present if message.scaling is not None]
        self.exponents = np.maximum.reduce(exponents) if exponents else _nobodys_exponents(first)
        self._scales = None if not exponents or self.exponents is None else _scales(first, self.exponents)

    def united(self, own: Slice, holders: Holders | None) -> NDArray[np.int64]:
        """Sum, union or maximum of a slice, of the workers held; the next call reuses the array.

        Of nobody: 0, of MAX the smallest int32.
        """
        total = self._total[: own.lanes * (own.last - own.first)]
        total.fill(self._smallest)
        for index, (rank, message) in enumerate(self._present):
            if self.are_added and holders is None:
                self._add(message, own, total)
                continue
            values = self._values(message, own, rank, holders)
            if self.are_added:
                total += values
            elif message.merge is Merge.OR:
                total |= values
            elif index:
                np.maximum(total, values, out=total)
            else:
                np.copyto(total, values)
        return total

    def _add(self, message: Message, own: Slice, total: NDArray[np.int64]) -> None:
        words = message.words[own.first : own.last]
        if message.scaling is not None:
            assert self._scales is not None
            kernels.add_scaled(words, self._scales, own.first, message.scaling.block_elements, total)
        elif own.lanes > 1:
            kernels.add_integers(_lifted(message, words), total)
        else:
            kernels.add_integers(words, total)

    def _values(self, message: Message, own: Slice, rank: int, holders: Holders | None) -> NDArray[np.int64]:
        """One worker's integers of a slice; 0 where a result does not hold it."""
        values = np.zeros(own.lanes * (own.last - own.first), np.int64)
        if self.are_added:
            self._add(message, own, values)
        else:
            values += message.words[own.first : own.last]
        return values if holders is None else np.where(holds(holders, own, rank), values, 0)

    def may_be_clipped(
        self, own: Slice, holders: Holders | None, found: NDArray[np.int32], overflow: Overflow
    ) -> NDArray[np.bool_]:
        """Which words can be results of adders that saturate or stick, where a partial sum leaves int32.

        With P and N the sums of the positive and the negative words, T of all: where P alone may leave int32
        the result lies between min(T, MAX + N) and min(T, MAX) for any order or tree; with adders that stick,
        up to MAX. The lower limit is the mirror image; where both may be left, any result is possible.
        """
        parts = [self._values(message, own, rank, holders) for rank, message in self._present]
        positive = sum(np.maximum(part, 0) for part in parts)
        negative = sum(np.minimum(part, 0) for part in parts)
        total = positive + negative
        sticks = overflow is Overflow.STICKY  # from ±(2**31 − 1) on
        above, below = positive > WORD_MAX - sticks, negative < _WORD_MIN + 2 * sticks
        least = _WORD_MIN if sticks else np.maximum(total, _WORD_MIN)
        most = WORD_MAX if sticks else np.minimum(total, WORD_MAX)
        low = np.where(above, np.minimum(total, WORD_MAX + negative), least)
        high = np.where(above, most, np.maximum(total, _WORD_MIN + positive))
        is_between = (low <= found) & (found <= high)
        return np.asarray((above & below) | ((above | below) & is_between))


def _nobodys_exponents(message: Message) -> NDArray[np.int8] | None:
    """Agreed exponents of a scaled message that nobody contributes to."""
    if message.scaling is None:
        return None
    return np.full(-(-message.size // message.scaling.block_elements), EXPONENT_MIN, np.int8)


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
