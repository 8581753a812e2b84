"""Kernels of packed values against plain loops, at every density and on every edge of a word."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from homomorphic.bits import (
    count_members,
    expand,
    first_missing,
    gather_words,
    pack,
    popcount,
    scatter_words,
    trailing_zeros,
    widen,
    write_index,
)
from homomorphic.compiled import kernel
from tests.homomorphic.gradients import support
from tests.reference import codecs as plain

GUARD = 77  # in front of and behind what a kernel may write


class Case(NamedTuple):
    """Values that products with powers of two leave exact, the elements wanted, and a scale per block."""

    values: list[float]
    wanted: list[bool]
    scales: list[float]
    block_elements: int

    @property
    def scale_of_element(self) -> list[float]:
        return [self.scales[element // self.block_elements] for element in range(len(self.values))]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    elements = draw(st.one_of(st.integers(1, 300), st.sampled_from([63, 64, 65, 127, 128, 129, 4096, 4097])))
    density = draw(st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.7, 0.99, 1.0]))
    pattern = draw(st.sampled_from(["iid", "rows", "columns"]))
    block_elements = draw(st.sampled_from([64, 128, 4096, 65_536]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    blocks = -(-elements // block_elements)
    halves = random.integers(-(2**23), 2**23, elements) / 2  # ties, and zeros among the wanted
    return Case(
        (halves * (random.random(elements) < 0.8)).tolist(),
        support(pattern, elements, density, random).tolist(),
        (2.0 ** random.integers(-3, 4, blocks)).tolist(),
        block_elements,
    )


def wide_index(wanted: list[bool]) -> tuple[np.ndarray, int]:
    narrow = np.array(plain.index_words(wanted, 32), np.uint32)
    wide = np.full(-(-len(wanted) // 64), 2**64 - 1, np.uint64)
    return wide, widen(narrow, wide)


def guarded(size: int, dtype: type[np.generic]) -> np.ndarray:
    return np.full(size + 2, GUARD, dtype)


@kernel
def counts(word: np.uint64) -> tuple[np.uint64, np.uint64]:
    return popcount(word), trailing_zeros(word)


@given(word=st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 63).map(lambda bit: 1 << bit)))
def test_bits_of_a_word_are_counted(word: int) -> None:
    trailing = 64 if word == 0 else (word & -word).bit_length() - 1

    assert (word.bit_count(), trailing) == counts(np.uint64(word))


@given(case=cases())
def test_an_index_is_that_of_the_reference_in_words_of_either_width(case: Case) -> None:
    narrow = np.empty(-(-len(case.values) // 32), np.uint32)
    write_index(np.array(case.values, np.float32), narrow)
    wide, members = wide_index([value != 0 for value in case.values])

    assert plain.index_words(case.values, 32) == narrow.tolist()
    assert plain.index_words(case.values, 64) == wide.tolist()
    assert np.count_nonzero(case.values) == members


@given(words=st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]), min_size=1, max_size=200))
def test_words_with_a_member_are_found_gathered_and_put_back(words: list[int]) -> None:
    whole = np.array(words, np.uint64)
    narrow = np.empty(-(-whole.size // 32), np.uint32)
    write_index(whole, narrow)
    chosen, live = wide_index([word != 0 for word in words])
    gathered = guarded(live, np.uint64)
    back = np.full_like(whole, GUARD)

    gather_words(chosen, whole, gathered[1:-1])
    scatter_words(chosen, gathered[1:-1], back)

    assert plain.index_words(words, 32) == narrow.tolist()
    assert [GUARD, *(word for word in words if word), GUARD] == gathered.tolist()
    assert [word or GUARD for word in words] == back.tolist()
    assert sum(word.bit_count() for word in words) == count_members(whole)


@given(
    part=st.lists(st.integers(0, 3), max_size=50),
    whole=st.lists(st.integers(0, 3), min_size=50, max_size=50),
)
def test_the_first_word_with_a_bit_too_many(part: list[int], whole: list[int]) -> None:
    missing = first_missing(np.array(part, np.uint32), np.array(whole[: len(part)], np.uint32))

    contradictions = [w for w, word in enumerate(part) if word & ~whole[w]]
    assert min(contradictions, default=len(part)) == missing


@given(case=cases())
def test_packed_words_are_those_of_the_reference(case: Case) -> None:
    index, members = wide_index(case.wanted)
    positions = plain.members(index.tolist(), 64)
    words = guarded(members, np.int32)
    gradient, scales = np.array(case.values, np.float32), np.array(case.scales, np.float32)

    pack(index, gradient, scales, case.block_elements, words[1:-1])

    assert np.flatnonzero(case.wanted).tolist() == positions
    expected = plain.pack(positions, case.values, case.scale_of_element)
    assert [GUARD, *expected, GUARD] == words.tolist()


@given(case=cases(), seed=st.integers(0, 2**32))
def test_expanded_values_are_those_of_the_reference(case: Case, seed: int) -> None:
    index, members = wide_index(case.wanted)
    positions = plain.members(index.tolist(), 64)
    words = np.random.default_rng(seed).integers(-(2**24), 2**24, members, np.int32)  # what float32 holds
    decoded = guarded(len(case.values), np.float32)

    expand(index, words, np.array(case.scales, np.float32), case.block_elements, decoded[1:-1])

    expected = plain.expand(positions, words.tolist(), case.scale_of_element)
    assert [GUARD, *expected, GUARD] == decoded.tolist()
