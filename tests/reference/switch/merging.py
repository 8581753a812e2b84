"""What switch registers do with words, in plain Python: one word, one bit at a time.

The rules are in the section "Aggregation streams (SwitchML)" of sim/engine/README.md. SIGN is
Marsit's one-bit merge in its weighted form (Wu et al., DAC 2022), TABLE_ADD is THC's (Li et al., NSDI 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.kernels.keyed import splitmix64_plain
from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Overflow

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
        """Merge the operand in, and return how many words overflowed."""
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
            sums = [added(a, b, overflow) for a, b in zip(old, operand.words, strict=True)]
            merged = [word for word, _ in sums]
            overflowed = sum(is_over for _, is_over in sums)
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


def as_int32(integer: int) -> int:
    """The int32 that this integer is modulo 2^32."""
    return (integer + 2**31) % 2**32 - 2**31


def added(old: int, new: int, overflow: Overflow) -> tuple[int, bool]:
    """Sum of two int32 words, and whether it overflowed: it left int32, or stuck against a non-zero word."""
    total = old + new
    if overflow is Overflow.STICKY and abs(old) >= INT32_MAX:
        return old, new != 0
    is_over = not INT32_MIN <= total <= INT32_MAX
    if overflow is Overflow.WRAP:
        return as_int32(total), is_over
    return min(max(total, INT32_MIN), INT32_MAX), is_over


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
        merged.append(as_int32(a & b | (a ^ b) & (a & kept | b & ~kept)))
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


def lifted(codes: Sequence[int], table: Sequence[int]) -> list[int]:
    """The table's word for each 4-bit code, eight to a word, lowest bits first."""
    return [table[code >> CODE_BITS * lane & 15] for code in codes for lane in range(CODES_PER_WORD)]
