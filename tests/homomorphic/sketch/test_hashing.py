"""Counters of elements against the reference, published test vectors, and the spread over counters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.sketch.hashing import (
    POSITIONS_SPARE,
    PUBLISHED,
    REPAIRED,
    ROTATED,
    Hashing,
    empty_counters,
    find_positions,
    find_signs,
    murmur3,
    place,
)
from tests.examples import examples
from tests.reference.codecs import codecs
from tests.reference.codecs import sketch as plain

# Of the four bytes of 0, 1, 2, 3, lowest first; agree with the published C++ code of MurmurHash3_x86_32.
VECTORS = {
    0: [0x2362F9DE, 0xFBF1402A, 0x40B23B7F, 0x32850971],
    1: [0x78ED212D, 0x5E11E574, 0xDB9A7E8C, 0xCF6CC8A9],
    2: [0x06DFADFC, 0x13D35112, 0x2CDEFD20, 0xDE0EB68B],
}

keys = st.integers(0, 2**64 - 1)
all_lanes = st.integers(0, 10).map(lambda exponent: 2**exponent)


@kernel
def murmurs(blocks: np.ndarray, seed: int, hashes: np.ndarray) -> None:
    for i in range(blocks.size):
        hashes[i] = murmur3(blocks[i], seed)


def compiled_murmurs(blocks: list[int], seed: int) -> list[int]:
    hashes = np.empty(len(blocks), np.uint32)
    murmurs(np.array(blocks, np.uint64), np.uint64(seed), hashes)
    return hashes.tolist()


def choices(hashing: Hashing, positions: list[int]) -> list[plain.Choices]:
    counters, negative = empty_counters(len(positions)), np.empty(len(positions), np.uint8)
    place(hashing, np.array(positions, np.uint32), counters)
    find_signs(hashing, np.array(positions, np.uint32), negative)
    signs = [[-1 if bits >> j & 1 else 1 for j in range(3)] for bits in negative.tolist()]
    return [
        list(zip(three, of_three, strict=True))
        for three, of_three in zip(zip(*(one.tolist() for one in counters), strict=True), signs, strict=True)
    ]


@pytest.mark.parametrize("seed", VECTORS)
def test_murmur_gives_the_published_vectors(seed: int) -> None:
    assert VECTORS[seed] == compiled_murmurs([0, 1, 2, 3], seed)
    assert VECTORS[seed] == [plain.murmur3(block, seed) for block in range(4)]


@given(bits=st.lists(st.integers(0, 2**64 - 1).map(lambda word: word & word >> 3), max_size=6))
@example(bits=[2**64 - 1, 0, 1, 2**63, 255, 511])
def test_positions_are_those_of_set_bits(bits: list[int]) -> None:
    expected = codecs.members(bits, 64)
    positions = np.full(len(expected) + POSITIONS_SPARE + 1, 77, np.uint32)

    assert find_positions(np.array(bits, np.uint64), positions[:-1]) == len(expected)
    assert positions[: len(expected)].tolist() == expected
    assert positions[-1] == 77


@given(
    positions=st.sets(st.integers(0, 2**32 - 1), max_size=20).map(sorted),
    lanes=all_lanes,
    rows=st.integers(1, 2**18),
    key=keys,
)
@examples(60)
def test_counters_are_those_of_the_reference_in_every_setting(
    positions: list[int], lanes: int, rows: int, key: int
) -> None:
    key64 = np.uint64(key)

    assert [plain.published(one, lanes, rows) for one in positions] == choices(
        Hashing(PUBLISHED, lanes, rows, key64), positions
    )
    assert [plain.rotated(one, lanes, rows, key) for one in positions] == choices(
        Hashing(ROTATED, lanes, rows, key64), positions
    )
    assert [plain.repaired(one, lanes, rows, key) for one in positions] == choices(
        Hashing(REPAIRED, lanes, rows, key64), positions
    )
