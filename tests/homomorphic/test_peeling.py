"""Sketch kernels against plain dicts, and the certainty of finding faults."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homomorphic.bits import write_index
from homomorphic.keyed import splitmix64_plain
from homomorphic.lossless import segment_counters
from homomorphic.peeling import Layout, counters_of, decode, encode, find_members, peel
from tests.reference import codecs as plain

keys = st.integers(0, 2**64 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)


def tile(values: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    positions = np.array(sorted(values), np.int32)
    return positions, np.array([values[position] for position in sorted(values)], np.int32)


@given(bits=st.lists(st.booleans(), max_size=200))
def test_an_index_names_the_non_zero_elements(bits: list[bool]) -> None:
    gradient = np.where(bits, np.float32(-1e-45), np.float32(-0.0)).astype(np.float32)
    index = np.empty(-(-len(bits) // 32), np.uint32)
    positions = np.empty(len(bits) + 1, np.int32)
    write_index(gradient, index)
    count = find_members(index, positions)

    assert np.flatnonzero(bits).tolist() == positions[:count].tolist()


@given(key=keys, position=st.integers(0, 2**31 - 1), segment=st.integers(1, 2**20))
def test_counters_are_those_of_the_reference(key: int, position: int, segment: int) -> None:
    assert plain.counters_of(key, position, segment) == list(counters_of(np.uint64(key), position, segment))


@given(
    values=st.dictionaries(st.integers(0, 5000), int32s, max_size=40), key=keys, segment=st.integers(1, 40)
)
def test_peeling_is_that_of_the_reference(values: dict[int, int], key: int, segment: int) -> None:
    counters = np.array(plain.sketch(values, key, segment), np.int32)
    positions, expected = tile(values)
    sums = np.zeros(positions.size, np.int32)

    complete = peel(counters, positions, np.uint64(key), segment, sums)

    assert (
        plain.peel(plain.sketch(values, key, segment), sorted(values), key, segment) is not None
    ) == complete
    if complete:
        assert expected.tolist() == sums.tolist()


@given(values=st.dictionaries(st.integers(0, 3000), int32s, min_size=1, max_size=60), round_key=keys)
def test_encoding_is_that_of_the_reference(values: dict[int, int], round_key: int) -> None:
    """Scale 1 makes the integers visible; only those that float32 holds are drawn."""
    values = {position: value >> 8 for position, value in values.items() if value >> 8}
    gradient = np.zeros(3001, np.float32)
    gradient[list(values)] = list(values.values())
    index = np.empty(94, np.uint32)
    write_index(gradient, index)
    segment = 40
    layout = Layout(
        index,
        np.ones(1, np.float32),
        4096,
        4096,
        np.array([len(values)]),
        np.array([segment]),
        np.array([0, 3 * segment]),
        np.uint64(round_key),
    )
    words = np.zeros(3 * segment, np.int32)
    encode(layout, gradient, index, words)
    tile_key = splitmix64_plain(round_key)

    assert plain.sketch(values, tile_key, segment) == words.tolist()
    decoded, failed = np.zeros(3001, np.float32), np.zeros(1, np.bool_)
    decode(layout, words, decoded, failed)
    assert failed[0] or decoded.tolist() == gradient.tolist()


@pytest.mark.parametrize("members", [1, 5, 60])
def test_a_fault_in_any_single_counter_is_found(members: int) -> None:
    random = np.random.default_rng(members)
    values = {int(position): int(value) for position, value in random.integers(1, 2**31, (members, 2))}
    segment = int(segment_counters(np.array([members]), 0.77)[0])
    positions, expected = tile(values)
    sums = np.empty(positions.size, np.int32)
    key = next(
        key
        for key in range(99)
        if plain.peel(plain.sketch(values, key, segment), sorted(values), key, segment)
    )
    sound = np.array(plain.sketch(values, key, segment), np.int32)

    assert peel(sound.copy(), positions, np.uint64(key), segment, sums)
    assert expected.tolist() == sums.tolist()
    for counter in range(sound.size):
        for fault in (1, -5, 2**30, -(2**31)):
            damaged = sound.copy()
            damaged[counter] = plain.wrap(int(damaged[counter]) + fault)

            assert not peel(damaged, positions, np.uint64(key), segment, sums)


@pytest.mark.parametrize("step", [1, 32, 64, 4096])
def test_regular_positions_peel_as_well_as_random_ones(step: int) -> None:
    """Rows and columns of a matrix are arithmetic sequences: the hash must not care."""
    members, trials = 3000, 40
    segment = int(segment_counters(np.array([members]), 0.77)[0])
    positions = (step * np.arange(members)).astype(np.int32)
    sums = np.empty(members, np.int32)

    peeled = sum(
        peel(np.zeros(3 * segment, np.int32), positions, np.uint64(splitmix64_plain(key)), segment, sums)
        for key in range(trials)
    )

    assert peeled >= trials - 2  # 0.3 % fail, mostly by two members that share all three counters


def test_nothing_peels_above_the_threshold() -> None:
    members = 3000
    segment = int(members / 0.83 / 3)
    positions = np.arange(members, dtype=np.int32)
    sums = np.empty(members, np.int32)

    assert not any(
        peel(np.zeros(3 * segment, np.int32), positions, np.uint64(key), segment, sums) for key in range(10)
    )
