"""The arithmetic of a switch's ALUs on two words, including overflow.

ADD wraps (two's complement, as SwitchML's registers), saturates, or is sticky: it saturates, and a word that
has reached ±(2**31 − 1) stays as it is until it is overwritten (ATP's guard; in-ATP/ATP, `registers.p4`).
Every word whose true sum leaves int32, or that sticks against a non-zero word, is counted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.compiled import inlined, kernel
from netfold.homomorphic.merge import float_add_words, max_words, or_words, sign_words
from netfold.homomorphic.message import WORD_MAX, Merge

ADD, OR, MAX = Merge.ADD.number, Merge.OR.number, Merge.MAX.number
FLOAT_ADD, SIGN, TABLE_ADD = Merge.FLOAT_ADD.number, Merge.SIGN.number, Merge.TABLE_ADD.number
WRAP, SATURATE, STICKY = 0, 1, 2

Words = NDArray[np.int32]


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
def merge_otherwise(values: Words, words: Words, merge: int, threshold: np.int64, key: np.uint64) -> None:
    """Every merge except ADD, in place; `threshold` and `key` are SIGN's (`homomorphic.merge.sign_words`)."""
    if merge == OR:
        or_words(values, words)
    elif merge == MAX:
        max_words(values, words)
    elif merge == FLOAT_ADD:
        float_add_words(values.view(np.float32), words.view(np.float32))
    else:
        sign_words(values.view(np.uint32), words.view(np.uint32), threshold, key)
