"""Compiled kernels of codecs that send one bit for each element: 1 where it is not negative.

Bit j of word w is the sign of element 32·w + j; the bits beyond the last element are 0. Zero, also −0.0,
counts as positive.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.message import WORD_BITS, Gradient

Bits = NDArray[np.uint32]  # (words_of(elements),)


def words_of(elements: int) -> int:
    """Words with a bit for each element."""
    return -(-elements // WORD_BITS)


@kernel
def pack_signs(values: Gradient, words: Bits) -> None:
    """Write the signs of values."""
    for w in range(words.size):
        some = values[32 * w : 32 * w + 32]
        word = np.uint32(0)
        for j in range(some.size):
            word |= np.uint32(some[j] >= np.float32(0)) << np.uint32(j)
        words[w] = word


@kernel
def pack_owed(gradient: Gradient, residual: Gradient, words: Bits) -> None:
    """Write the signs of gradient + residual, without writing the sum; limited by reading the two."""
    for w in range(words.size):
        own = gradient[32 * w : 32 * w + 32]
        held = residual[32 * w : 32 * w + 32]
        word = np.uint32(0)
        for j in range(own.size):
            word |= np.uint32(own[j] + held[j] >= np.float32(0)) << np.uint32(j)
        words[w] = word


@kernel
def unpack_signs(words: Bits, magnitude: np.float32, values: Gradient) -> None:
    """Write ±magnitude for each bit."""
    for w in range(words.size):
        some = values[32 * w : 32 * w + 32]
        word = words[w]
        for j in range(some.size):
            some[j] = magnitude if (word >> np.uint32(j)) & np.uint32(1) else -magnitude


@kernel
def keep_rest(words: Bits, magnitude: np.float32, gradient: Gradient, residual: Gradient) -> None:
    """residual = (gradient + residual) ∓ magnitude, by each bit; both operations round to float32."""
    for w in range(words.size):
        own = gradient[32 * w : 32 * w + 32]
        held = residual[32 * w : 32 * w + 32]
        word = words[w]
        for j in range(own.size):
            taken = magnitude if (word >> np.uint32(j)) & np.uint32(1) else -magnitude
            held[j] = (own[j] + held[j]) - taken
