"""Compiled kernels over indexes: writing them, counting them, and values at their set bits.

An index is read 64 bits at a time. Counting trailing zeros finds the next member and `word & (word − 1)`
drops it, so the work goes with the members: no bit is tested, and no value that is zero everywhere is read.
A word of 64 elements never spans two blocks, so each block's scale is loaded once. An index is written at
the speed of memory.

Every kernel works on the slices it is given, so threads may share an array by ranges of whole words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from homomorphic.codec import Gradient
from homomorphic.compiled import kernel
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
def write_index(values: NDArray[Any], index: Index) -> None:
    """Set a bit for every value that is not zero (−0.0 counts as zero); `index` is `(⌈values.size / 32⌉,)`.

    Of a gradient it names the members; of the words of an index, those that have any.
    """
    for w in range(index.size):
        some = values[32 * w : 32 * w + 32]
        word = 0
        for j in range(some.size):
            word |= int(some[j] != 0) << j
        index[w] = word


@kernel
def count_members(index: WideIndex) -> int:
    """How many bits are set."""
    members = 0
    for w in range(index.size):
        members += int(popcount(index[w]))  # type: ignore[call-arg]  # Numba passes the first one
    return members


@kernel
def first_missing(part: Index, whole: Index) -> int:
    """Number of the first word of `part` with a bit that `whole` lacks; their size if there is none."""
    for w in range(part.size):
        if part[w] & ~whole[w]:
            return w
    return part.size


@kernel
def gather_words(chosen: WideIndex, words: WideIndex, gathered: WideIndex) -> None:
    """Write the words whose bits are set in `chosen`, in ascending order, into `gathered`, one for each."""
    position = np.uint64(0)
    for w in range(chosen.size):
        first = np.uint64(WORD_ELEMENTS * w)
        word = chosen[w]
        while word:
            gathered[position] = words[first + trailing_zeros(word)]  # type: ignore[call-arg]
            position += np.uint64(1)
            word &= word - np.uint64(1)


@kernel
def scatter_words(chosen: WideIndex, gathered: WideIndex, words: WideIndex) -> None:
    """Put gathered words back where they were; the others of `words` stay as they are."""
    position = np.uint64(0)
    for w in range(chosen.size):
        first = np.uint64(WORD_ELEMENTS * w)
        word = chosen[w]
        while word:
            words[first + trailing_zeros(word)] = gathered[position]  # type: ignore[call-arg]
            position += np.uint64(1)
            word &= word - np.uint64(1)


@kernel
def widen(index: Index, wide: WideIndex) -> int:
    """Write the index as words of 64 bits, `(⌈index.size / 2⌉,)`, and return how many bits are set."""
    for w in range(index.size // 2):
        wide[w] = np.uint64(index[2 * w]) | (np.uint64(index[2 * w + 1]) << np.uint64(32))
    if index.size % 2:
        wide[-1] = np.uint64(index[-1])
    members = 0
    for w in range(wide.size):
        members += int(popcount(wide[w]))  # type: ignore[call-arg]  # Numba passes the first one
    return members


@kernel
def pack(index: WideIndex, gradient: Gradient, scales: Scales, block_elements: int, words: Int32s) -> None:
    """Write the integers of the elements in the index, in ascending order, into `words`, one for each.

    Block k of `block_elements`, a multiple of 64, is quantised with `scales[k]`.
    """
    block_words = block_elements // WORD_ELEMENTS
    position = np.uint64(0)  # unsigned here and below: a signed subscript may be negative, which costs a test
    for block in range(scales.size):
        values = gradient[block * block_elements : (block + 1) * block_elements]
        block_index = index[block * block_words : (block + 1) * block_words]
        scale = scales[block]
        for w in range(block_index.size):
            first = np.uint64(WORD_ELEMENTS * w)
            word = block_index[w]
            while word:
                element = first + trailing_zeros(word)  # type: ignore[call-arg]
                words[position] = quantized(values[element], scale)
                position += np.uint64(1)
                word &= word - np.uint64(1)


@kernel
def expand(index: WideIndex, words: Int32s, scales: Scales, block_elements: int, decoded: Gradient) -> None:
    """Write the value of every merged integer where its element is, and zero everywhere else.

    The zeros of a word are written just before its values: they are then in the cache, and `decoded` passes
    through memory once.
    """
    block_words = block_elements // WORD_ELEMENTS
    position = np.uint64(0)
    for block in range(scales.size):
        block_values = decoded[block * block_elements : (block + 1) * block_elements]
        block_index = index[block * block_words : (block + 1) * block_words]
        scale = scales[block]
        for w in range(block_index.size):
            values = block_values[WORD_ELEMENTS * w : WORD_ELEMENTS * (w + 1)]
            for i in range(values.size):
                values[i] = np.float32(0)
            word = block_index[w]
            while word:
                element: np.uint64 = trailing_zeros(word)  # type: ignore[call-arg]
                values[element] = np.float32(words[position]) / scale
                position += np.uint64(1)
                word &= word - np.uint64(1)
