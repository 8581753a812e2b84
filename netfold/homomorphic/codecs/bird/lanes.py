"""Small integers packed in words, which adders sum: signs, and numbers digit by digit.

A field holds one sum. In lanes of 32 bits a word has as many fields as fit without its sign bit: no sum of
the workers leaves its field, so any adder of words will do. Lanes of 4 bits are fields up to the sign bit, so
adders must wrap. Such fields count from 0: a sign is sent as 0, 1 or 2, and the sum of n workers is n more
than that of the signs. Lanes of 8 and 16 bits are signed, and a field each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codecs.bird.rows import Norms, Rows
from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.message import COUNTER_BITS, WORD_BITS, Gradient

_SIGNED: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16}
_FREE_BITS = WORD_BITS - 1  # of a word, without its sign

Integers = NDArray[np.int32]


@dataclass(frozen=True)
class Fields:
    """Fields of words."""

    bits: int
    per_word: int
    is_signed: bool

    @property
    def limit(self) -> int:
        """The largest sum."""
        return (1 << self.bits - self.is_signed) - 1

    def packed(self, values: NDArray[Any]) -> NDArray[np.int32]:
        """Words of integers that fit, lowest bits first."""
        padded = np.zeros((-(-values.size // self.per_word), self.per_word), np.uint32)
        padded.ravel()[: values.size] = values if not self.is_signed else values & (2**self.bits - 1)
        words = padded[:, 0].copy()
        for field in range(1, self.per_word):
            words |= padded[:, field] << np.uint32(self.bits * field)
        return words.view(np.int32)

    def unpacked(self, words: NDArray[np.int32], count: int) -> Integers:
        """The first `count` fields."""
        if self.is_signed:
            return words.view(_SIGNED[self.bits])[:count].astype(np.int32)
        values = np.empty((words.size, self.per_word), np.int32)
        for field in range(self.per_word):
            values[:, field] = words.view(np.uint32) >> np.uint32(self.bits * field) & np.uint32(self.limit)
        return values.ravel()[:count]


def sign_fields(lane_bits: int, workers: int) -> Fields:
    """Fields for sums of as many signs: 2n + 1 sums need ⌈log2(2n + 1)⌉ bits."""
    if lane_bits == WORD_BITS:
        bits = (2 * workers).bit_length()
        return Fields(bits, _FREE_BITS // bits, False)
    return _lane(lane_bits)


def number_fields(lane_bits: int) -> Fields:
    """Fields for sums of digits of numbers: as wide as lanes allow."""
    return Fields(_FREE_BITS, 1, False) if lane_bits == WORD_BITS else _lane(lane_bits)


def _lane(lane_bits: int) -> Fields:
    return Fields(lane_bits, WORD_BITS // lane_bits, lane_bits in _SIGNED)


def workers_max(lane_bits: int) -> int:
    """Workers whose signs fields have room for."""
    if lane_bits == WORD_BITS:
        return ((1 << _FREE_BITS) - 1) // 2
    return _lane(lane_bits).limit // (2 if lane_bits == COUNTER_BITS else 1)


@dataclass(frozen=True)
class Digits:
    """How numbers below 2^`number_bits` are sent, so that sums of digits of all workers fit in fields."""

    fields: Fields
    base: int
    count: int  # of each number

    @classmethod
    def of(cls, number_bits: int, lane_bits: int, workers: int) -> Digits:
        """The largest base whose digits have sums that fit.

        Raises
        ------
        ValueError
            Not even sums of bits fit.
        """
        fields = number_fields(lane_bits)
        if workers > fields.limit:
            raise ValueError(
                f"lanes of {lane_bits} bits have room for digits of {fields.limit} workers, found {workers}"
            )
        base, count = min(2**number_bits, fields.limit // workers + 1), 1
        while base**count < 2**number_bits:
            count += 1
        return cls(fields, base, count)

    def packed(self, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
        """Words of the digits of numbers, lowest first, number after number."""
        return self.fields.packed((numbers[:, None] // self._powers % self.base).ravel())

    def unpacked(self, words: NDArray[np.int32], count: int) -> tuple[NDArray[np.int64], int]:
        """Sums of numbers from words of sums of digits; and the largest sum of digits."""
        sums = self.fields.unpacked(words, count * self.count).reshape(count, self.count)
        return np.asarray(sums.astype(np.int64) @ self._powers), int(sums.max(initial=0))

    @property
    def _powers(self) -> NDArray[np.int64]:
        return self.base ** np.arange(self.count, dtype=np.int64)


@kernel
def gather_signs(values: Gradient, row_elements: int, rows: Rows, signs: Integers) -> None:
    """Write the sign of each element of some rows, row after row: −1, 0 or 1."""
    for r in range(rows.size):
        own = values[rows[r] * row_elements : (rows[r] + 1) * row_elements]
        into = signs[r * row_elements : (r + 1) * row_elements]
        for i in range(own.size):
            into[i] = np.int32(own[i] > 0) - np.int32(own[i] < 0)


@kernel
def scatter_sums(sums: Integers, row_elements: int, rows: Rows, scale: float, total: Gradient) -> None:
    """Write scale · sum into some rows, rounded once to float32."""
    for r in range(rows.size):
        own = sums[r * row_elements : (r + 1) * row_elements]
        into = total[rows[r] * row_elements : (rows[r] + 1) * row_elements]
        for i in range(own.size):
            into[i] = np.float32(scale * own[i])


@kernel
def round_up_or_down(values: Norms, draws: Norms, numbers: Rows) -> None:
    """Round at random: up with a probability of the fraction, so that the expectation is the value."""
    for i in range(values.size):
        whole = np.floor(values[i])
        numbers[i] = np.int64(whole) + np.int64(draws[i] < values[i] - whole)
