"""Comparison of arrays, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.compiled import kernel

_SLICE = 1 << 18  # elements compared at once; a difference ends the search


def same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two 1-D arrays of 4-byte items have the same bits, including NaN and signs of zeros."""
    if identity(one) == identity(other):
        return True
    if one.size != other.size:
        return False
    bits, others = one.view(np.int32), other.view(np.int32)
    slices = (slice(begin, begin + _SLICE) for begin in range(0, one.size, _SLICE))
    return not any(count_differing(bits[part], others[part]) for part in slices)


def identity(array: NDArray[Any] | None) -> tuple[Any, ...]:
    """Equal for arrays that are the same memory."""
    if array is None:
        return ()
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str


@kernel
def count_differing(found: NDArray[np.int32], right: NDArray[np.int32]) -> int:
    """Count the words that differ."""
    count = 0
    for i in range(found.size):
        count += found[i] != right[i]
    return count
