"""What switch registers do with words, in plain Python: one word, one bit at a time.

The rules are in docs/explanation/engine/aggregation-streams.md. Sums are made lane
by lane: a word has lanes of 32, 16, 8 or 4 bits, lowest bits first. SIGN is Marsit's one-bit merge in its
weighted form (Wu et al., DAC 2022), TABLE_ADD is THC's (Li et al., NSDI 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.merge import Merge
from netfold.kernels.keyed_random import splitmix64_plain
from netfold.sim.engine.engine_data import Overflow

NO_EXPONENT = -128  # smallest int8: never wins a maximum
QUIET_NAN = 0x7FC00000
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
CODES_PER_WORD, CODE_BITS = 8, 4


class Operand(NamedTuple):
    """What a packet brings to a register; `words` are int32 values, codes lifted already.

    Without workers it brings no words: those that it stands for contribute nothing.
    """

    words: Sequence[int]
    merge: Merge
    exponent: int = NO_EXPONENT
    workers: int = 1  # whose words these are
    key: int = 0  # of SIGN's random bits
    lane_bits: int = 32  # of sums
    members: int = 0  # bitmap of these workers


@dataclass
class Register:
    """Words of one slot (and version), with what is kept beside them."""

    values: list[int] = field(default_factory=list)  # grows to the most words ever written
    exponent: int = NO_EXPONENT
    workers: int = 0  # none: the words are old ones, and nobody reads them
    members: int = 0

    def overwrite(self, operand: Operand) -> None:
        """Take the operand as it is; words beyond its own stay."""
        if operand.workers:
            self.values[: len(operand.words)] = operand.words
        self.exponent = operand.exponent
        self.workers = operand.workers
        self.members = operand.members

    def merge(self, operand: Operand, overflow: Overflow) -> int:
        """Merge the operand in, and return how many lanes overflowed."""
        if self.workers == 0 or operand.workers == 0:
            exponent = max(self.exponent, operand.exponent)
            if operand.workers:
                self.overwrite(operand)
            self.exponent = exponent
            return 0
        count = len(operand.words)
        old = self.read(count)
        overflowed = 0
        if operand.merge in (Merge.ADD, Merge.TABLE_ADD):
            pairs = zip(old, operand.words, strict=True)
            sums = [added_lanes(a, b, operand.lane_bits, overflow) for a, b in pairs]
            merged = [word for word, _ in sums]
            overflowed = sum(count for _, count in sums)
        elif operand.merge is Merge.SIGN:
            merged = merged_signs(
                old, operand.words, keep_threshold(self.workers, operand.workers), operand.key
            )
        else:
            merged = [merged_word(operand.merge, a, b) for a, b in zip(old, operand.words, strict=True)]
        self.values[:count] = merged
        self.exponent = max(self.exponent, operand.exponent)
        self.workers += operand.workers
        self.members |= operand.members
        return overflowed

    def read(self, count: int) -> list[int]:
        """The first words, 0 where none was ever written."""
        return self.values[:count] + [0] * (count - len(self.values))


def unchanged_by(merge: Merge) -> int:
    """The word of a result that nobody has contributed to: it changes no other in this merge."""
    return INT32_MIN if merge is Merge.MAX else 0


def added(old: int, new: int, overflow: Overflow, bits: int = 32) -> tuple[int, bool]:
    """Sum of two signed integers, and whether it overflowed: left its bits, or stuck against a non-zero."""
    smallest, largest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    total = old + new
    if overflow is Overflow.STICKY and abs(old) >= largest:
        return old, new != 0
    is_over = not smallest <= total <= largest
    if overflow is Overflow.WRAP:
        return signed(total, bits), is_over
    return min(max(total, smallest), largest), is_over


def added_lanes(old: int, new: int, bits: int, overflow: Overflow) -> tuple[int, int]:
    """Sum of two int32 words, lane by lane, and how many lanes overflowed.

    Lanes of 4 bits are counters that an adder of 32 bits adds: one that overflows carries into the next.
    """
    if bits == 4:
        return added_counters(old, new)
    pairs = zip(lanes_of(old, bits), lanes_of(new, bits), strict=True)
    sums = [added(a, b, overflow, bits) for a, b in pairs]
    return packed([lane for lane, _ in sums], bits), sum(is_over for _, is_over in sums)


def added_counters(old: int, new: int) -> tuple[int, int]:
    """Sum of two words of eight 4-bit counters, digit by digit, and how many digits carry."""
    word, carry, carries = 0, 0, 0
    for place in range(8):
        digit = (old >> 4 * place) % 16 + (new >> 4 * place) % 16 + carry
        word += digit % 16 << 4 * place
        carry = digit // 16
        carries += carry
    return signed(word), carries


def signed(integer: int, bits: int = 32) -> int:
    """The signed integer of so many bits that this one is modulo 2^bits."""
    return (integer + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def lanes_of(word: int, bits: int) -> list[int]:
    """The signed integers that a word is packed with, lowest bits first."""
    return [signed(word >> place, bits) for place in range(0, 32, bits)]


def packed(lanes: Sequence[int], bits: int) -> int:
    """The int32 word of these lanes."""
    return signed(sum(lane % 2**bits << bits * place for place, lane in enumerate(lanes)))


def words_per_word(merge: Merge, lane_bits: int) -> int:
    """Result words for each word sent: eight lanes for the eight codes of TABLE_ADD."""
    return CODES_PER_WORD * lane_bits // 32 if merge is Merge.TABLE_ADD else 1


def merged_word(merge: Merge, old: int, new: int) -> int:
    """OR of bit patterns, MAX of signed integers, or FLOAT_ADD of the float32 that the bits say."""
    if merge is Merge.OR:
        return old | new
    if merge is Merge.MAX:
        return max(old, new)
    assert merge is Merge.FLOAT_ADD, merge
    a, b = np.array([old, new], np.int32).view(np.float32)
    with np.errstate(all="ignore"):  # infinities are what IEEE 754 says
        total = np.array([a + b], np.float32)
    return QUIET_NAN if np.isnan(total[0]) else int(total.view(np.int32)[0])


def keep_threshold(accumulated: int, arriving: int) -> int:
    """Probability a / (a + b) that the register's bit survives, in units of 2^-32, rounded to nearest."""
    total = accumulated + arriving
    return ((accumulated << 32) + total // 2) // total


def merged_signs(old: Sequence[int], new: Sequence[int], threshold: int, key: int) -> list[int]:
    """Sign bits merged: where two differ, the register's survives with probability `threshold` / 2^32."""
    merged = []
    for index, (a, b) in enumerate(zip(old, new, strict=True)):
        kept = random_lanes(threshold, key, index)
        merged.append(signed(a & b | (a ^ b) & (a & kept | b & ~kept)))
    return merged


def random_lanes(threshold: int, key: int, index: int) -> int:
    """32 bits, each 1 with probability `threshold` / 2^32.

    From its binary digits, lowest first: OR with a fair bit takes p to (1 + p) / 2, AND takes it to p / 2.
    """
    lanes = 0
    for digit in range(32):
        fair = splitmix64_plain(key + 32 * index + digit)
        lanes = lanes | fair if threshold >> digit & 1 else lanes & fair
    return lanes % 2**32


def lifted(codes: Sequence[int], table: Sequence[int], lane_bits: int = 32) -> list[int]:
    """The table's value for each 4-bit code, eight to a word, lowest bits first; packed in lanes."""
    values = [table[code >> CODE_BITS * lane & 15] for code in codes for lane in range(CODES_PER_WORD)]
    count = 32 // lane_bits
    return [packed(values[first : first + count], lane_bits) for first in range(0, len(values), count)]
