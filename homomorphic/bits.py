"""Compiled kernels of the packed codec: values at the set bits of an index, gathered and put back.

An index is read 64 bits at a time. The number of set bits says how often the inner loop turns, and counting
trailing zeros finds the next one, so no bit is tested and no element that is zero everywhere is touched.
A word of 64 elements never spans two blocks, so each block's scale is loaded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from homomorphic.codec import Gradient
from homomorphic.compiled import inlined, kernel
from homomorphic.fixed_point import quantized

WORD_ELEMENTS = 64

Int32s = NDArray[np.int32]
Index = NDArray[np.uint32]  # bit j of word w is element 32·w + j
WideIndex = NDArray[np.uint64]  # bit j of word w is element 64·w + j
Scales = NDArray[np.float32]


@intrinsic
def popcount(typing_context: Any, word: Any) -> Any:
    """Number of set bits of a uint64."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Position of the lowest set bit of a uint64; 64 if there is none."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@kernel
def widen(index: Index, wide: WideIndex) -> int:
    """Write the index as words of 64 bits, `(⌈index.size / 2⌉,)`, and return how many bits are set."""
    members = np.uint64(0)
    for w in range(index.size // 2):
        word = np.uint64(index[2 * w]) | np.uint64(index[2 * w + 1]) << np.uint64(32)
        wide[w] = word
        members += popcount(word)
    if index.size % 2:
        wide[-1] = np.uint64(index[-1])
        members += popcount(wide[-1])
    return np.int64(members)


@kernel
def pack(index: WideIndex, gradient: Gradient, scales: Scales, block_elements: int, words: Int32s) -> None:
    """Write the integers of the elements in the index, in ascending order, into `words`, one for each.

    Block k of `block_elements`, a multiple of 64, is quantised with `scales[k]`.
    """
    begin = 0
    block_words = block_elements // WORD_ELEMENTS
    for block in range(scales.size):
        scale = scales[block]
        first = block * block_words
        for w in range(first, min(first + block_words, index.size)):
            word = index[w]
            count = np.int64(popcount(word))
            _pack_word(word, gradient[WORD_ELEMENTS * w :], scale, words[begin : begin + count])
            begin += count


@inlined
def _pack_word(word: np.uint64, values: Gradient, scale: np.float32, words: Int32s) -> None:
    """Integers of the elements of one word of the index."""
    for i in range(words.size):
        words[i] = quantized(values[trailing_zeros(word)], scale)
        word &= word - np.uint64(1)


@kernel
def expand(index: WideIndex, words: Int32s, scales: Scales, block_elements: int, decoded: Gradient) -> None:
    """Write the value of every merged integer where its element is, and zero everywhere else."""
    begin = 0
    block_words = block_elements // WORD_ELEMENTS
    for block in range(scales.size):
        scale = scales[block]
        first = block * block_words
        for w in range(first, min(first + block_words, index.size)):
            word = index[w]
            count = np.int64(popcount(word))
            values = decoded[WORD_ELEMENTS * w : WORD_ELEMENTS * (w + 1)]
            _expand_word(word, words[begin : begin + count], scale, values)
            begin += count


@inlined
def _expand_word(word: np.uint64, words: Int32s, scale: np.float32, values: Gradient) -> None:
    """Values of the (at most 64) elements of one word of the index."""
    for i in range(values.size):
        values[i] = np.float32(0)
    for i in range(words.size):
        values[trailing_zeros(word)] = np.float32(words[i]) / scale
        word &= word - np.uint64(1)
