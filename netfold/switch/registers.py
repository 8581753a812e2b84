"""Register arrays of slots: the state of a switch between packets.

Bitmap, counter, values and exponent are separate registers, as in hardware: after a fault they can disagree,
and then results are wrong. Each program uses the fields it needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import (
    WORD_BITS,
    WORD_MAX,
    Merge,
    float_add_words,
    max_words,
    or_words,
    sign_words,
)
from netfold.kernels.compiled import inlined, kernel

# The verdict on a packet after its pass through the switch.
CONSUMED, COMPLETE, ANSWER, DROPPED, LATE, EXPIRED, ANSWERED = 0, 1, 2, 3, 4, 5, 6
VERDICTS = ("consumed", "complete", "answer", "dropped", "late", "expired", "answered by the parent")

# The action of its words on the slot's values.
READ, OVERWRITE, MERGE = 0, 1, 2

CHILDREN_MAX = 64
"""Children that a bitmap has room for here; those of programs and switches may be narrower."""

# One row per slot and version. Rows `2 · slot + version`; the other version of a row is `row ^ 1`.
SLOT = np.dtype(
    [
        ("bitmap", "u8"),  # children seen
        ("counter", "i4"),  # children missing
        ("exponent", "i4"),  # values of an int8
        ("workers", "i4"),  # how many workers are in the values; 0: the values are old ones
        ("is_answered", "i4"),  # a point below the root: the values are its parent's result
        ("generation", "i4"),  # slots with timers: units completed here before this one
        ("is_emitted", "i4"),
        ("words_count", "i4"),  # slots with timers: from the packet that started the row, like the next five
        ("owner", "i4"),
        ("serial", "i4"),
        ("unit", "i4"),
        ("attempt", "i4"),
        ("merge", "i4"),
        ("last_child", "i4"),  # the latest packet's, like its verdict and time; for diagnosis
        ("last_verdict", "i4"),
        ("members", "u4"),  # bitmap of the workers in the values
        ("last_ps", "i8"),
        ("timer_order", "i8"),  # order of the armed timer, or −1
    ],
    align=True,
)


class Registers(NamedTuple):
    """All slots of all switches."""

    slots: NDArray[Any]  # (rows,) SLOT
    values: NDArray[np.int32]  # (rows, words)


def new_registers(slots: int, words: int) -> Registers:
    """Cleared registers for `slots` slots, two versions each, of `words` words."""
    registers = Registers(np.zeros(2 * slots, SLOT).view(np.recarray), np.zeros((2 * slots, words), np.int32))
    _clear_slots(registers, slice(None))  # values are zero, and their memory not touched
    return registers


def clear(registers: Registers, rows: slice) -> None:
    """Reset rows to their initial state; armed timers no longer fire."""
    _clear_slots(registers, rows)
    registers.values[rows] = 0


def _clear_slots(registers: Registers, rows: slice) -> None:
    registers.slots[rows] = np.zeros((), SLOT)
    registers.slots["generation"][rows] = -1
    registers.slots["timer_order"][rows] = -1
    registers.slots["last_ps"][rows] = -1


# The arithmetic of a switch's ALUs on two words, including overflow.
#
# ADD wraps (two's complement, as SwitchML's registers), saturates, or is sticky: it saturates, and a word
# that has reached ±(2**31 − 1) stays as it is until it is overwritten (ATP's guard; in-ATP/ATP,
# `registers.p4`). Every word whose true sum leaves int32, or that sticks against a non-zero word, is
# counted. Lanes of 8 and 16 bits, packed in words, have adders of their width, for which the same holds.
# Lanes of 4 bits are counters that an adder of 32 bits adds; every carry out of one is counted.


ADD, OR, MAX = Merge.ADD.number, Merge.OR.number, Merge.MAX.number
FLOAT_ADD, SIGN, TABLE_ADD = Merge.FLOAT_ADD.number, Merge.SIGN.number, Merge.TABLE_ADD.number
WRAP, SATURATE, STICKY = 0, 1, 2
_MERGES = 8  # numbers of merges of whole words are below
_TOP_BITS = np.uint32(0x88888888)
_ONES = np.uint32(0x11111111)

Words = NDArray[np.int32]


def number_of(merge: Merge, lane_bits: int) -> int:
    # Compiled code knows a merge and its width by one number: the merge's own for lanes of 32 bits.
    return merge.number + _MERGES * ((WORD_BITS // lane_bits).bit_length() - 1)


@inlined
def merge_of(number: int) -> int:
    # The same merge has this number in lanes of 32 bits.
    return number & (_MERGES - 1)


@inlined
def has_narrow_lanes(number: int) -> bool:
    # Lanes of less than 32 bits are narrow.
    return number >= _MERGES


@inlined
def lane_bits_of(number: int) -> int:
    return WORD_BITS >> (number // _MERGES)


@kernel
def add_wrapping(values: Words, words: Words) -> int:
    """Add in place modulo 2**32; returns how many sums left int32."""
    overflowed = np.int32(0)
    for i in range(words.size):
        old, word = values[i], words[i]
        total = np.int32(old + word)
        overflowed -= np.int32((old ^ total) & (word ^ total)) >> np.int32(31)
        values[i] = total
    return int(overflowed)


@kernel
def add_saturating(values: Words, words: Words) -> int:
    """Add in place, clamped to int32; returns how many sums left it."""
    overflowed = 0
    for i in range(words.size):
        total = np.int64(values[i]) + np.int64(words[i])
        clamped = min(max(total, np.int64(-(2**31))), np.int64(WORD_MAX))
        overflowed += clamped != total
        values[i] = clamped
    return overflowed


@kernel
def add_sticky(values: Words, words: Words) -> int:
    """Add in place, clamped to int32; words at ±(2**31 − 1) or beyond stay. Returns how many overflowed."""
    overflowed = 0
    for i in range(words.size):
        old = np.int64(values[i])
        total = old + np.int64(words[i])
        clamped = min(max(total, np.int64(-(2**31))), np.int64(WORD_MAX))
        if old >= WORD_MAX or old <= -WORD_MAX:
            clamped = old
        overflowed += clamped != total
        values[i] = clamped
    return overflowed


@inlined
def add(values: Words, words: Words, overflow: int) -> int:
    """Add in place as the policy says; returns how many words overflowed."""
    if overflow == WRAP:
        return add_wrapping(values, words)
    if overflow == SATURATE:
        return add_saturating(values, words)
    return add_sticky(values, words)


@kernel
def add_lanes(values: Words, words: Words, lane_bits: int, overflow: int) -> int:
    """Add lanes of any width in place, as the policy says; returns how many lanes overflowed.

    Those of 4 bits wrap, whatever the policy.
    """
    if lane_bits == 8:
        return add_narrow(values.view(np.int8), words.view(np.int8), 127, overflow)
    if lane_bits == 16:
        return add_narrow(values.view(np.int16), words.view(np.int16), 32767, overflow)
    if lane_bits == 4:
        return add_counters(values, words)
    return add(values, words, overflow)


@kernel
def add_narrow(values: NDArray[Any], lanes: NDArray[Any], most: int, overflow: int) -> int:
    """Add int8 or int16, of which `most` is the largest, in place; returns how many sums overflowed."""
    overflowed = 0
    for i in range(lanes.size):
        old = np.int64(values[i])
        total = old + np.int64(lanes[i])
        clamped = min(max(total, -most - 1), most)
        if overflow == STICKY and (old >= most or old <= -most):
            clamped = old
        overflowed += clamped != total
        values[i] = total if overflow == WRAP else clamped
    return overflowed


@kernel
def add_counters(values: Words, words: Words) -> int:
    """Add words of eight 4-bit counters in place, modulo 2**32; returns how many carries left a counter."""
    carried = 0
    for i in range(words.size):
        old, word = np.uint32(values[i]), np.uint32(words[i])
        total = np.uint32(old + word)
        tops = ((old & word) | ((old | word) & ~total)) & _TOP_BITS  # carries out of the lanes
        carried += int(np.uint32((tops >> np.uint32(3)) * _ONES) >> np.uint32(28))
        values[i] = np.int32(total)
    return carried


@kernel
def merge_without_overflow(
    values: Words, words: Words, merge: int, threshold: np.int64, key: np.uint64
) -> None:
    """Merges without an overflow policy, in place; `threshold` and `key` are SIGN's (`merge.sign_words`)."""
    if merge == OR:
        or_words(values, words)
    elif merge == MAX:
        max_words(values, words)
    elif merge == FLOAT_ADD:
        float_add_words(values.view(np.float32), words.view(np.float32))
    else:
        sign_words(values.view(np.uint32), words.view(np.uint32), threshold, key)
