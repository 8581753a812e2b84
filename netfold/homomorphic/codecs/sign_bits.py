"""Signs as bits: kernels that codecs of one bit for each element share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import WORD_BITS
from netfold.homomorphic.message import Gradient
from netfold.kernels.compiled import intrinsic, kernel

# Compiled kernels of codecs that send one bit for each element: 1 where it is not negative.
#
# Bit j of word w is the sign of element 32·w + j; the bits beyond the last element are 0. Zero, also −0.0,
# counts as positive.


_AHEAD = 6144  # bytes that are requested before they are read
Bits = NDArray[np.uint32]  # (words_of(elements),)


def words_of(elements: int) -> int:
    """Words with a bit for each element."""
    return -(-elements // WORD_BITS)


@kernel
def pack_signs(values: Gradient, words: Bits) -> None:
    """Write the signs of values."""
    for w in range(words.size):
        word_values = values[32 * w : 32 * w + 32]
        word = np.uint32(0)
        for j in range(word_values.size):
            word |= np.uint32(word_values[j] >= np.float32(0)) << np.uint32(j)
        words[w] = word


@intrinsic
def _signs_of_sums(typing_context: Any, gradient: Any, residual: Any, first: Any) -> Any:
    """The signs of 32 sums that begin with element `first` of two contiguous arrays, as the bits of a uint32.

    One comparison of 32 floats: LLVM packs its outcomes into a word by instructions that it does not find
    for a loop of shifts, which takes a quarter longer than reading. Both arrays are prefetched, which never
    faults: it saves another tenth.
    """
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        floats = ir.VectorType(ir.FloatType(), WORD_BITS)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")

        def loaded(index: int) -> Any:
            array = context.make_array(signature.args[index])(context, builder, arguments[index])
            begin = builder.gep(array.data, [arguments[2]])
            for line in (0, 64):
                ahead = builder.gep(
                    builder.bitcast(begin, byte), [ir.Constant(ir.IntType(64), _AHEAD + line)]
                )
                builder.call(prefetch, [ahead, number(0), number(3), number(1)])
            return builder.load(builder.bitcast(begin, floats.as_pointer()), align=4)

        total = builder.fadd(loaded(0), loaded(1))
        is_positive = builder.fcmp_ordered(">=", total, ir.Constant(floats, [0.0] * WORD_BITS))
        return builder.bitcast(is_positive, ir.IntType(WORD_BITS))

    return types.uint32(gradient, residual, types.int64), generate


@kernel
def pack_owed(gradient: Gradient, residual: Gradient, words: Bits) -> None:
    """Write the signs of gradient + residual, without writing the sum; limited by reading the two.

    Both are contiguous.
    """
    whole = gradient.size // 32
    for w in range(whole):
        words[w] = _signs_of_sums(gradient, residual, 32 * w)
    for w in range(whole, words.size):
        values = gradient[32 * w :]
        word_residual = residual[32 * w :]
        word = np.uint32(0)
        for j in range(values.size):
            word |= np.uint32(values[j] + word_residual[j] >= np.float32(0)) << np.uint32(j)
        words[w] = word


@kernel
def unpack_signs(words: Bits, magnitude: np.float32, values: Gradient) -> None:
    """Write ±magnitude for each bit."""
    for w in range(words.size):
        word_values = values[32 * w : 32 * w + 32]
        word = words[w]
        for j in range(word_values.size):
            word_values[j] = magnitude if (word >> np.uint32(j)) & np.uint32(1) else -magnitude


@kernel
def keep_rest(words: Bits, magnitude: np.float32, gradient: Gradient, residual: Gradient) -> None:
    """residual = (gradient + residual) ∓ magnitude, by each bit; both operations round to float32."""
    for w in range(words.size):
        values = gradient[32 * w : 32 * w + 32]
        word_residual = residual[32 * w : 32 * w + 32]
        word = words[w]
        for j in range(values.size):
            decoded = magnitude if (word >> np.uint32(j)) & np.uint32(1) else -magnitude
            word_residual[j] = (values[j] + word_residual[j]) - decoded
