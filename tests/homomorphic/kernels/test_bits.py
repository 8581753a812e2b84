"""Bits of a word against Python's own count."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from netfold.homomorphic.kernels import comparison as bits
from netfold.homomorphic.kernels.bits import popcount, trailing_zeros
from netfold.homomorphic.kernels.comparison import same_bits
from netfold.homomorphic.kernels.compiled import kernel


@kernel
def counts(word: np.uint64) -> tuple[np.uint64, np.uint64]:
    return popcount(word), trailing_zeros(word)


@given(word=st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 63).map(lambda bit: 1 << bit)))
def test_bits_of_a_word_are_counted(word: int) -> None:
    trailing = 64 if word == 0 else (word & -word).bit_length() - 1

    assert (word.bit_count(), trailing) == counts(np.uint64(word))


# Arrays are the same where their bytes are.

WORDS = st.lists(st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf]), max_size=12)


@given(WORDS, WORDS)
@example([1.0] * 12, [1.0] * 11 + [-0.0])
@example([1.0], [1.0] * 8)
def test_arrays_are_the_same_where_their_bytes_are(one: list[float], other: list[float]) -> None:
    left, right = np.array(one, np.float32), np.array(other, np.float32)
    before = bits._SLICE
    bits._SLICE = 4
    try:
        assert same_bits(left, right) == (left.tobytes() == right.tobytes())
        assert same_bits(left, left.copy())
    finally:
        bits._SLICE = before


def test_views_of_the_same_memory_are_the_same_if_they_are_as_long() -> None:
    whole = np.arange(8, dtype=np.int32)

    assert same_bits(whole, whole[:])
    assert not same_bits(whole, whole[:7])
    assert not same_bits(whole[::2], whole[:4])
