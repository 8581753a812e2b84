"""The counters of each element of a sketch: one formula with three settings.

A tile's elements are hashed in blocks of `lanes` neighbours. Block b has a row of `lanes` counters for each
of three hashes. Element i, which is lane t of block b, has the same lane in all rows, rotated by a turn:

    counter_j(i) = base_j + row_j(b) · lanes + (t + turn_j(b)) mod lanes        j = 0, 1, 2

* PUBLISHED: as the CUDA code of Li et al. does it (lihy0529/lossless_homomorphic_compression, with arXiv
  2402.07529): 1024 lanes, one array of rows for all three hashes (base 0, so rows may coincide), no turn,
  MurmurHash3 of the block number with seeds 0, 1, 2 in every round, a sign per block and hash.
* ROTATED: the same blocks, each turned by another hash, in three segments (counters never coincide), all
  keyed by the round, no signs. Columns of a matrix no longer collect in a few lanes.
* REPAIRED: three segments, row and turn from one SplitMix64 per block, keyed by the round; few lanes, or one.
  With one lane every element is hashed separately, so the structure of the gradient has no effect.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.union_index import WORD_ELEMENTS, WideIndex
from netfold.kernels.bits import popcount, trailing_zeros
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import Integer, splitmix64

PUBLISHED, ROTATED, REPAIRED = 0, 1, 2
PUBLISHED_LANES = 1024  # threads of a CUDA block
POSITIONS_SPARE = 8

_ONE, _LOW = np.uint64(1), np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_THIRD = np.uint64(0xD1342543DE82EF95)  # odd: the third hash is the top of a product of all bits
_TURN_SEED = 100

Positions = NDArray[np.uint32]


class Hashing(NamedTuple):
    """How the elements of one tile map to counters."""

    setting: int  # PUBLISHED, ROTATED or REPAIRED
    lanes: int  # a power of two
    rows: int
    """Rows of each of the three segments; PUBLISHED: of the one array."""
    key: np.uint64
    """Key of the round and tile."""


class Counters(NamedTuple):
    """The three counters of each of m items: uint32 (m,) each."""

    first: Positions
    second: Positions
    third: Positions


def counters_count(hashing: Hashing) -> int:
    return hashing.rows * hashing.lanes * (1 if hashing.setting == PUBLISHED else 3)


def empty_counters(items: int) -> Counters:
    return Counters(*np.empty((3, items), np.uint32))


@kernel
def find_positions(index: WideIndex, positions: Positions) -> int:
    """Write the positions of the set bits in ascending order and return how many there are.

    `positions` needs room for `POSITIONS_SPARE` more: this many are written for every word, set or not, and
    the next word overwrites those that are not. The number of set bits of a word cannot be predicted, and a
    mispredicted branch costs more than the writes: 0.9 ms for 25 M elements, where a loop over set bits takes
    2.0 at 1 % and 3.2 at 5 %.
    """
    count = np.uint64(0)
    for w in range(index.size):
        word = index[w]
        first = np.uint64(WORD_ELEMENTS * w)
        end = count + popcount(word)
        for i in range(POSITIONS_SPARE):
            positions[count + np.uint64(i)] = np.uint32(first + trailing_zeros(word))
            word &= word - _ONE
        count += np.uint64(POSITIONS_SPARE)
        while word:
            positions[count] = np.uint32(first + trailing_zeros(word))
            count += _ONE
            word &= word - _ONE
        count = end
    return int(count)


@inlined
def murmur3(block: Integer, seed: Integer) -> np.uint32:
    """MurmurHash3_x86_32 (Appleby, public domain) of a block number as four bytes, lowest first."""
    bits = _rotate(np.uint32(block) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    bits = np.uint32(seed) ^ np.uint32(bits)
    bits = np.uint32(_rotate(bits, 13) * np.uint32(5) + np.uint32(0xE6546B64)) ^ np.uint32(4)
    bits = np.uint32((bits ^ (bits >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    bits = np.uint32((bits ^ (bits >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(bits ^ (bits >> np.uint32(16)))


@inlined
def _rotate(bits: Integer, by: int) -> np.uint32:
    """The low 32 bits, rotated to the left."""
    low = np.uint32(bits)
    return np.uint32((low << np.uint32(by)) | (low >> np.uint32(32 - by)))


@inlined
def scale_to(bits: np.uint64, size: np.uint64) -> np.uint64:
    # The low 32 bits of a hash become a number below `size`, without a division.
    return ((bits & _LOW) * size) >> _HALF


@inlined
def _starts(hashing: Hashing, block: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Position of a block's lane 0 in each segment: row · lanes + turn."""
    lanes = np.uint64(hashing.lanes)
    rows = np.uint64(hashing.rows)
    if hashing.setting == REPAIRED:
        bits = splitmix64(hashing.key + block)
        size = rows * lanes
        return (
            scale_to(bits >> _HALF, size),
            scale_to(bits, size),
            scale_to((bits * _THIRD) >> _HALF, size),
        )
    if hashing.setting == ROTATED:
        return (
            _rotated_start(hashing, block, np.uint64(0)),
            _rotated_start(hashing, block, np.uint64(1)),
            _rotated_start(hashing, block, np.uint64(2)),
        )
    return (
        (np.uint64(murmur3(block, 0)) % rows) * lanes,
        (np.uint64(murmur3(block, 1)) % rows) * lanes,
        (np.uint64(murmur3(block, 2)) % rows) * lanes,
    )


@inlined
def _rotated_start(hashing: Hashing, block: np.uint64, number: np.uint64) -> np.uint64:
    lanes = np.uint64(hashing.lanes)
    row = np.uint64(murmur3(block, splitmix64(hashing.key + number))) % np.uint64(hashing.rows)
    turn = np.uint64(murmur3(block, splitmix64(hashing.key + np.uint64(_TURN_SEED) + number)))
    return row * lanes + (turn & (lanes - _ONE))


@kernel
def place(hashing: Hashing, positions: Positions, counters: Counters) -> None:
    """Write the three counters of the elements at some positions of a tile (ascending) into `counters`."""
    if hashing.setting == REPAIRED and hashing.lanes == 1:
        _place_elements(hashing, positions, counters)
    else:
        _place_blocks(hashing, positions, counters)


@kernel
def _place_elements(hashing: Hashing, positions: Positions, counters: Counters) -> None:
    """Hash every element; without branches, several hashes are computed at once."""
    size = np.uint64(hashing.rows)
    for k in range(positions.size):
        bits = splitmix64(hashing.key + np.uint64(positions[k]))
        counters.first[k] = np.uint32(scale_to(bits >> _HALF, size))
        counters.second[k] = np.uint32(size + scale_to(bits, size))
        counters.third[k] = np.uint32(size + size + scale_to((bits * _THIRD) >> _HALF, size))


@kernel
def _place_blocks(hashing: Hashing, positions: Positions, counters: Counters) -> None:
    """Hash every block that has any of the elements."""
    shift: np.uint64 = trailing_zeros(np.uint64(hashing.lanes))
    mask = np.uint64(hashing.lanes - 1)
    segment = np.uint64(0 if hashing.setting == PUBLISHED else hashing.rows * hashing.lanes)
    hashed = ~np.uint64(0)
    first = second = third = np.uint64(0)
    for k in range(positions.size):
        position = np.uint64(positions[k])
        block = position >> shift
        if block != hashed:
            first, second, third = _starts(hashing, block)
            hashed = block
        # A start has the row in its high bits and the turn in its low bits; the lane is added to the turn.
        counters.first[k] = np.uint32((first & ~mask) | ((first + position) & mask))
        counters.second[k] = np.uint32(segment + ((second & ~mask) | ((second + position) & mask)))
        counters.third[k] = np.uint32(segment + segment + ((third & ~mask) | ((third + position) & mask)))


@kernel
def find_signs(hashing: Hashing, positions: Positions, negative: NDArray[np.uint8]) -> None:
    """Write the counters that take an element's negated value: bit j for hash j. Only PUBLISHED has signs."""
    shift: np.uint64 = trailing_zeros(np.uint64(hashing.lanes))
    for k in range(positions.size):
        block = np.uint64(positions[k]) >> shift
        signs = np.uint32(0)
        if hashing.setting == PUBLISHED:
            for j in range(3):
                signs |= (murmur3(block, j) >> np.uint32(31)) << np.uint32(j)
        negative[k] = np.uint8(signs)
