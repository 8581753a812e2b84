"""Kernels over indexes against plain loops, at every density and on every edge of a word."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.index.bits import (
    count_members,
    first_missing,
    gather_words,
    scatter_words,
    write_index,
)
from netfold.testing import support
from tests.reference.codecs import codecs as plain


@st.composite
def sparse_values(draw: st.DrawFn) -> list[float]:
    elements = draw(st.one_of(st.integers(1, 300), st.sampled_from([63, 64, 65, 127, 128, 129, 4096, 4097])))
    density = draw(st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.7, 0.99, 1.0]))
    pattern = draw(st.sampled_from(["iid", "rows", "columns"]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    chosen = support(pattern, elements, density, random=random)
    return (random.integers(-3, 4, elements) * chosen).tolist()


GUARD = 77  # in front of and behind what a kernel may write


def wide_index(wanted: list[bool]) -> np.ndarray:
    return np.array(plain.index_words(wanted, 64), np.uint64)


@given(values=sparse_values())
def test_an_index_is_that_of_the_reference(values: list[float]) -> None:
    narrow = np.empty(-(-len(values) // 32), np.uint32)
    write_index(np.array(values, np.float32), narrow)

    assert plain.index_words(values, 32) == narrow.tolist()
    assert np.count_nonzero(values) == count_members(wide_index([value != 0 for value in values]))


@given(words=st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]), min_size=1, max_size=200))
def test_words_with_a_member_are_found_gathered_and_put_back(words: list[int]) -> None:
    whole = np.array(words, np.uint64)
    narrow = np.empty(-(-whole.size // 32), np.uint32)
    write_index(whole, narrow)
    chosen = wide_index([word != 0 for word in words])
    gathered = np.full(sum(word != 0 for word in words) + 2, GUARD, np.uint64)
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
