"""The Bloom index against a set of bits per element, and against what theory says of its size and errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.index import bits
from netfold.homomorphic.index.bloom import Filter, design_filter, insert, query
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.testing import support
from tests.homomorphic.index.indexes import index_of, is_named
from tests.reference.codecs import codecs as plain
from tests.reference.codecs import index as reference

keys = st.integers(0, 2**64 - 1)


@given(
    elements=st.integers(1, 700),
    density=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    size=st.builds(Filter, st.integers(1, 40), st.integers(1, 24)),
    key=keys,
    seed=st.integers(0, 2**32),
)
def test_a_filter_is_that_of_the_reference(
    elements: int, density: float, size: Filter, key: int, seed: int
) -> None:
    wanted = np.random.default_rng(seed).random(elements) < density
    own = index_of(wanted)
    words = np.zeros(size.words, np.uint64)
    answered = np.full_like(own, 77)

    inserted = insert(own, 0, size.hashes, np.uint64(key), words)
    query(words, size.hashes, np.uint64(key), 0, answered)

    filled = reference.bloom_filter(set(np.flatnonzero(wanted).tolist()), *size, key)
    assert np.count_nonzero(own) == inserted
    assert sorted(filled) == plain.members(words.tolist(), 64)
    named = reference.named(filled, elements, *size, key)
    assert sorted(named) == np.flatnonzero(is_named(answered, elements)).tolist()
    assert set(np.flatnonzero(wanted).tolist()) <= named


@given(cut=st.integers(0, 40), key=keys)
def test_slices_of_an_index_are_those_of_the_whole(cut: int, key: int) -> None:
    own = index_of(np.random.default_rng(1).random(40 * 64) < 0.1)
    words, parts = np.zeros(30, np.uint64), np.zeros(30, np.uint64)
    answered, answers = np.empty_like(own), np.empty_like(own)

    insert(own, 0, 5, np.uint64(key), words)
    query(words, 5, np.uint64(key), 0, answered)
    for part in (slice(cut, None), slice(0, cut)):
        insert(own[part], part.start, 5, np.uint64(key), parts)
        query(words, 5, np.uint64(key), part.start, answers[part])

    assert words.tolist() == parts.tolist()
    assert answered.tolist() == answers.tolist()


@pytest.mark.parametrize("density", [0.001, 0.05])
@pytest.mark.parametrize(("pattern", "tolerance"), [("iid", 0.1), ("columns", 0.1), ("rows", 0.3)])
def test_half_the_bits_are_set_and_false_positives_as_frequent_as_designed(
    density: float, pattern: str, tolerance: float
) -> None:
    """Whole rows are named together: with a 64th of the events, their share is less certain."""
    elements, rounds = 1 << 20, 24
    random = np.random.default_rng(3)
    wanted = support(pattern, elements, density, random=random)
    if pattern == "columns":
        wanted = np.tile(np.arange(4096) < 4096 * density, elements // 4096)
    own = index_of(wanted)
    size = design_filter(elements, np.count_nonzero(wanted))
    assert size is not None
    false_positives, filled = [], []
    for round in range(rounds):
        words = np.zeros(size.words, np.uint64)
        answered = np.empty_like(own)
        key = np.uint64(mix_plain(round))
        insert(own, 0, size.hashes, key, words)
        query(words, size.hashes, key, 0, answered)
        named = is_named(answered, elements)

        assert (named | ~wanted).all()
        false_positives.append(np.count_nonzero(named & ~wanted))
        filled.append(bits.count_members(words) / (64 * size.words))

    share = np.mean(false_positives) / np.count_nonzero(~wanted)
    assert abs(share * 2**size.hashes - 1) < tolerance
    assert abs(np.mean(filled) - 0.5) < 0.01


@pytest.mark.parametrize(
    ("elements", "members", "expected"),
    [
        # f = 0.053 · ρ / (1 − ρ); hashes = log2(1/f), rounded; bits = members · hashes / ln 2.
        (25_000_000, 25_000, Filter(7890, 14)),  # f = 5.3e-5
        (25_000_000, 250_000, Filter(61_991, 11)),  # f = 5.4e-4
        (25_000_000, 1_250_000, Filter(225_422, 8)),  # f = 2.8e-3
        (25_000_000, 0, Filter(1, 24)),  # as for one member, and no more hashes than 24
        (25_000_000, 25_000_000, None),
        (64, 1, None),
        (0, 0, None),
    ],
)
def test_sizes(elements: int, members: int, expected: Filter | None) -> None:
    assert expected == design_filter(elements, members)


def test_a_bitmap_takes_over_above_7_3_percent() -> None:
    """With any real number of hashes the two cost the same at 7.4 %; with 8 of them, a little earlier."""
    densities = [thousandth for thousandth in range(1, 200) if design_filter(10**7, 10**4 * thousandth)]

    assert densities == list(range(1, 74))
