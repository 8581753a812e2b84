"""Bits of a word against Python's own count."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.kernels.bits import popcount, trailing_zeros
from netfold.homomorphic.kernels.compiled import kernel


@kernel
def counts(word: np.uint64) -> tuple[np.uint64, np.uint64]:
    return popcount(word), trailing_zeros(word)


@given(word=st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 63).map(lambda bit: 1 << bit)))
def test_bits_of_a_word_are_counted(word: int) -> None:
    trailing = 64 if word == 0 else (word & -word).bit_length() - 1

    assert (word.bit_count(), trailing) == counts(np.uint64(word))
