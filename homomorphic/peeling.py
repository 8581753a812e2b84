"""Compiled kernels of the peelable sketch: indexes, counters, peeling and the packed values of a redo.

A tile is a run of elements with a table of counters of its own: three segments, and every member (an element
that is non-zero at some worker) adds its integer to one counter of each. Peeling finds a counter with a
single member left, which is that member's value, removes it from its two other counters, and goes on: an
invertible Bloom look-up table (Goodrich and Mitzenmacher, Allerton 2011) whose keys are known from the index.
Integers are modulo 2**32, so counters may overflow on the way and the values still come out exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from homomorphic.codec import Gradient
from homomorphic.compiled import kernel
from homomorphic.fixed_point import quantized
from homomorphic.keyed import splitmix64

Int32s = NDArray[np.int32]
Index = NDArray[np.uint32]  # bit j of word w is element 32·w + j

_LOW = 0xFFFFFFFF
_THIRD = 0xD1342543DE82EF95  # odd: the third position takes the middle of a product all bits enter


class Layout(NamedTuple):
    """How one round's values lie in their message; the same at every worker."""

    union: Index  # elements that are non-zero at some worker
    scales: NDArray[np.float32]  # (blocks,) integers per unit of value
    block_elements: int  # elements of one scale; divides tile_elements
    tile_elements: int  # a multiple of 32; the last tile may be short
    members: NDArray[np.int64]  # (tiles,)
    segments: NDArray[np.int64]  # (tiles,) counters of each of three segments; 0: the tile is sent dense
    offsets: NDArray[np.int64]  # (tiles + 1,) first word of each tile; no words: the tile is empty
    key: np.uint64  # of this round's hashes


@kernel
def find_members(index: Index, positions: Int32s) -> int:
    """Write the positions of set bits in ascending order and return how many there are.

    `positions` needs room for one more than that: every bit is written, and kept only if it is set.
    """
    count = 0
    for w in range(index.size):
        word = index[w]
        if word:
            for j in range(32):
                positions[count] = 32 * w + j
                count += int((word >> np.uint32(j)) & np.uint32(1))
    return count


@kernel
def counters_of(key: np.uint64, position: int, segment: int) -> tuple[np.uint64, np.uint64, np.uint64]:
    """One counter in each of three segments for an element of a tile."""
    size = np.uint64(segment)
    bits = splitmix64(key + np.uint64(position))
    first = ((bits >> np.uint64(32)) * size) >> np.uint64(32)
    second = ((bits & np.uint64(_LOW)) * size) >> np.uint64(32)
    third = (((bits * np.uint64(_THIRD)) >> np.uint64(32)) * size) >> np.uint64(32)
    return first, size + second, size + size + third


@njit(cache=True, nogil=True)
def peel(counters: Int32s, positions: Int32s, key: np.uint64, segment: int, sums: Int32s) -> bool:
    """Recover the integer of every member into `sums`, in the order of `positions`; consumes `counters`.

    Returns whether all members came out and nothing is left. Each member adds the same integer to all three
    segments, so a fault in a single counter leaves them with different totals and is always found.
    """
    degree = np.zeros(counters.size, np.int32)
    members = np.zeros(counters.size, np.int32)  # exclusive-or of those left; the member, where there is one
    for i in range(positions.size):
        for c in counters_of(key, positions[i], segment):
            degree[c] += 1
            members[c] ^= i

    queue = np.empty(counters.size, np.int32)  # first in, first out: a stack peels at half the speed
    tail = 0
    for counter in range(counters.size):
        if degree[counter] == 1:
            queue[tail] = counter
            tail += 1

    head = 0
    recovered = 0
    while head < tail:
        single = queue[head]
        head += 1
        if degree[single] == 1:  # else its member came out of another counter meanwhile
            i = members[single]
            value = counters[single]
            sums[i] = value
            recovered += 1
            for c in counters_of(key, positions[i], segment):
                counters[c] -= value
                members[c] ^= i
                degree[c] -= 1
                if degree[c] == 1:
                    queue[tail] = c
                    tail += 1
    return recovered == positions.size and not counters.any()


@njit(cache=True, nogil=True)
def encode(layout: Layout, gradient: Gradient, index: Index, words: Int32s) -> None:
    """Write one worker's values message; `index` holds its own non-zero elements, `words` must be zero."""
    size = layout.tile_elements
    positions = np.empty(size + 1, np.int32)
    for tile in range(layout.segments.size):
        values = gradient[tile * size : (tile + 1) * size]
        scales = layout.scales[tile * size // layout.block_elements :]
        tile_words = words[layout.offsets[tile] : layout.offsets[tile + 1]]
        segment = layout.segments[tile]
        if segment == 0:
            for i in range(tile_words.size):
                tile_words[i] = quantized(values[i], scales[i // layout.block_elements])
        else:
            key = splitmix64(layout.key + np.uint64(tile))
            count = find_members(index[tile * size // 32 : (tile + 1) * size // 32], positions)
            for position in positions[:count]:
                value = quantized(values[position], scales[position // layout.block_elements])
                for c in counters_of(key, position, segment):
                    tile_words[c] += value


@njit(cache=True, nogil=True)
def decode(layout: Layout, words: Int32s, decoded: Gradient, failed: NDArray[np.bool_]) -> None:
    """Write the sums of a merged values message into `decoded` (zero elsewhere); mark tiles that failed."""
    size = layout.tile_elements
    positions = np.empty(size + 1, np.int32)
    for tile in range(layout.segments.size):
        values = decoded[tile * size : (tile + 1) * size]
        scales = layout.scales[tile * size // layout.block_elements :]
        tile_words = words[layout.offsets[tile] : layout.offsets[tile + 1]]
        segment = layout.segments[tile]
        if segment == 0:
            for i in range(tile_words.size):
                values[i] = np.float32(tile_words[i]) / scales[i // layout.block_elements]
        else:
            key = splitmix64(layout.key + np.uint64(tile))
            count = find_members(layout.union[tile * size // 32 : (tile + 1) * size // 32], positions)
            sums = np.empty(count, np.int32)
            failed[tile] = not peel(tile_words.copy(), positions[:count], key, segment, sums)
            if not failed[tile]:
                _spread(layout.block_elements, positions, scales, sums, values)


@njit(cache=True, nogil=True)
def pack(layout: Layout, tiles: NDArray[np.int64], gradient: Gradient, words: Int32s) -> None:
    """Write the integers of all members of some tiles, one after the other: the words of a redo."""
    size = layout.tile_elements
    positions = np.empty(size + 1, np.int32)
    begin = 0
    for tile in tiles:
        values = gradient[tile * size : (tile + 1) * size]
        scales = layout.scales[tile * size // layout.block_elements :]
        count = find_members(layout.union[tile * size // 32 : (tile + 1) * size // 32], positions)
        for i in range(count):
            scale = scales[positions[i] // layout.block_elements]
            words[begin + i] = quantized(values[positions[i]], scale)
        begin += count


@njit(cache=True, nogil=True)
def unpack(layout: Layout, tiles: NDArray[np.int64], words: Int32s, decoded: Gradient) -> None:
    """Write the sums of a merged redo message into `decoded`."""
    size = layout.tile_elements
    positions = np.empty(size + 1, np.int32)
    begin = 0
    for tile in tiles:
        values = decoded[tile * size : (tile + 1) * size]
        scales = layout.scales[tile * size // layout.block_elements :]
        count = find_members(layout.union[tile * size // 32 : (tile + 1) * size // 32], positions)
        _spread(layout.block_elements, positions, scales, words[begin : begin + count], values)
        begin += count


@kernel
def _spread(
    block_elements: int, positions: Int32s, scales: NDArray[np.float32], sums: Int32s, values: Gradient
) -> None:
    """Put dequantised sums where their members are in the tile."""
    for i in range(sums.size):
        position = positions[i]
        values[position] = np.float32(sums[i]) / scales[position // block_elements]
