"""The largest elements of an array, exactly and without sorting it.

A sample gives a bound that a few more elements reach than are wanted. One pass collects those, and the wanted
ones are selected among them. The sample decides the time only: if it misleads, all elements are looked at.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.bits import trailing_zeros
from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.kernels.keyed import splitmix64

_SAMPLE = 1 << 16
_ELEMENTS_MIN = 4 * _SAMPLE  # below, the sample costs more than it saves
_DEVIATIONS = 5  # of the sample's count: too few elements are collected once in three million calls
_MAGNITUDE = np.int32(0x7FFFFFFF)  # the bits of a float32 without its sign
_CHUNK = 32

Places = NDArray[np.int64]
Int32s = NDArray[np.int32]


def largest(values: NDArray[np.float32], count: int) -> Places:
    """The `count` elements of the largest magnitude, in ascending order; the first of equal ones.

    values: `(elements,)`, of which there are at least `count`. NaN counts as larger than infinity.
    """
    bits = np.ascontiguousarray(values).view(np.int32)
    if count == 0:
        return np.empty(0, np.int64)
    found = _by_sample(bits, count) if bits.size >= _ELEMENTS_MIN else None
    if found is None:
        found = np.flatnonzero(_chosen(bits & _MAGNITUDE, count))
    return found


def _chosen(magnitudes: Int32s, count: int) -> NDArray[np.bool_]:
    """Whether each magnitude is among the `count` largest, or the first of equal ones."""
    place = magnitudes.size - count
    least = np.partition(magnitudes, place)[place]
    is_chosen: NDArray[np.bool_] = magnitudes > least
    equal = np.flatnonzero(magnitudes == least)
    is_chosen[equal[: count - np.count_nonzero(is_chosen)]] = True
    return is_chosen


def _by_sample(bits: Int32s, count: int) -> Places | None:
    """`largest` by way of a sample; None if that has misled, or cannot help."""
    expected = _SAMPLE * count / bits.size
    rank = math.ceil(expected + _DEVIATIONS * math.sqrt(expected)) + _DEVIATIONS
    if 2 * rank > _SAMPLE:
        return None
    sample = np.empty(_SAMPLE, np.int32)
    _draw(bits, sample)
    # Zeros are never collected. Where there are fewer others than wanted, the first zeros complete them.
    least = max(1, int(np.partition(sample, _SAMPLE - rank)[_SAMPLE - rank]))
    room = 2 * rank * (bits.size // _SAMPLE + 1)
    places, magnitudes = np.empty(room, np.uint32), np.empty(room, np.int32)
    found = _collect(bits, np.int32(least), places, magnitudes)
    if found < 0:
        return None
    if found >= count:
        return places[:found][_chosen(magnitudes[:found], count)].astype(np.int64)
    if least > 1:
        return None
    zeros = np.flatnonzero((bits & _MAGNITUDE) == 0)[: count - found]
    return np.sort(np.concatenate([places[:found].astype(np.int64), zeros]))


@kernel
def _draw(bits: Int32s, sample: Int32s) -> None:
    """Write magnitudes from random places of an array of less than 2**32."""
    size = np.uint64(bits.size)
    for i in range(sample.size):
        place = ((splitmix64(i) >> np.uint64(32)) * size) >> np.uint64(32)
        sample[i] = bits[place] & _MAGNITUDE


@kernel
def _collect(bits: Int32s, least: np.int32, places: NDArray[np.uint32], magnitudes: Int32s) -> int:
    """Write places and magnitudes of elements of at least `least`; returns how many, −1 without room."""
    count = np.uint64(0)
    for chunk in range((bits.size + _CHUNK - 1) // _CHUNK):
        own = bits[_CHUNK * chunk : _CHUNK * (chunk + 1)]
        mask = 0
        for j in range(own.size):
            mask |= int((own[j] & _MAGNITUDE) >= least) << j
        word = np.uint64(mask)
        if word and np.int64(count) + _CHUNK > places.size:
            return int(np.int64(-1))
        while word:
            j = trailing_zeros(word)
            places[count] = np.uint32(_CHUNK * chunk) + np.uint32(j)
            magnitudes[count] = own[j] & _MAGNITUDE
            count += np.uint64(1)
            word &= word - np.uint64(1)
    return int(np.int64(count))
