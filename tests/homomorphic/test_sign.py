"""Marsit's one-bit merge: the surviving bit is that of a uniformly random worker."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest

from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.merge import combine, keep_threshold, merge_all, random_lanes, sign_words
from netfold.homomorphic.message import Merge, Merged
from tests.reference.systems import signs as twin


def test_equal_bits_survive_and_differing_bits_follow_the_lanes() -> None:
    held, arriving = 0b0011, 0b0101
    lanes = random_lanes(2**31, 9, 0)
    words = np.array([held], np.uint32)
    sign_words(words, np.array([arriving], np.uint32), 2**31, 9)

    expected = [
        h if h == a or keep else a
        for h, a, keep in ((held >> i & 1, arriving >> i & 1, lanes >> i & 1) for i in range(32))
    ]

    assert expected == [int(words[0]) >> i & 1 for i in range(32)]


@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize("rank", [0, -1])
def test_a_merge_of_many_takes_each_worker_as_often(workers: int, rank: int) -> None:
    """One worker's bits are all set: of 131,072 of the merged ones, an n-th is, within five deviations."""
    parts = [np.zeros(4096, np.uint32) for _ in range(workers)]
    parts[rank][:] = 0xFFFFFFFF
    share = int(np.bitwise_count(merge_all(Merge.SIGN, parts, key=5)).sum()) / 131_072

    assert abs(share - 1 / workers) < 5 * (1 / workers * (1 - 1 / workers) / 131_072) ** 0.5


def test_unanimous_bits_are_certain_and_one_worker_is_the_identity() -> None:
    words = np.array([0xF0F0F0F0, 0, 2**32 - 1], np.uint32)

    assert words.tolist() == merge_all(Merge.SIGN, [words] * 5, key=1).tolist()
    assert words.tolist() == merge_all(Merge.SIGN, [words], key=1).tolist()


def test_a_merge_needs_someone_to_arrive() -> None:
    text = "sign merge of 3 and 0 workers: accumulated must be 0 or more, arriving at least 1"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        keep_threshold(3, 0)


# Marsit's merge in the shapes of networks: exact probabilities, and the compiled kernel's draws.

Weights = Callable[[int, int], Fraction]
TORI = [(2, 2), (4,) * 4, (5,) * 3, (3, 2), (4, 3, 1), (1, 5, 2, 2), (2, 7)]


def kernel_weights(received: int, local: int) -> Fraction:
    """The probability that the product's kernels compare 32 random bits with."""
    return Fraction(keep_threshold(received, local), 2**32)


def trees() -> Iterator[tuple[object, int]]:
    """Every segment of rings up to 16, of tori with even and uneven rows, and random trees."""
    for workers in range(2, 17):
        ranks = list(range(workers))
        yield from ((twin.ring_tree(ranks, segment), workers) for segment in (0, 1, workers - 1))
        shape = random.Random(workers)
        yield from ((twin.random_tree(shape.sample(ranks, workers), shape), workers) for _ in range(4))
    for rows in TORI:
        for row_segment, column_segment in itertools.product(range(max(rows)), range(len(rows))):
            yield twin.torus_tree(rows, row_segment, column_segment), sum(rows)


def unfair(keep: Weights, all_trees: Iterator[tuple[object, int]], allowed: Fraction) -> int:
    """Trees in which some bits' merged mean is farther than allowed from their mean."""
    wrong = 0
    for tree, workers in all_trees:
        shape = random.Random(7)
        draws = [[int(shape.random() < 0.5) for _ in range(workers)] for _ in range(3)]
        first = [[int(rank == one) for rank in range(workers)] for one in (0, workers - 1)]
        wrong += any(
            abs(twin.probability(tree, bits, keep)[0] - Fraction(sum(bits), workers)) > allowed
            for bits in [*draws, *first, [0] * workers, [1] * workers]
        )
    return wrong


def test_the_kernel_s_probabilities_are_within_their_rounding() -> None:
    """32 bits: at most 16 merges, each off by half of 2⁻³²."""
    assert unfair(kernel_weights, trees(), Fraction(16, 2**33)) == 0
    errors = [abs(kernel_weights(a, b) - Fraction(a, a + b)) for a in range(1, 64) for b in range(1, 65 - a)]
    assert max(errors) <= Fraction(1, 2**33)


def merged_of(tree: object, own: list[np.ndarray], numbers: Iterator[int], key: int = 5) -> Merged:
    """The product's merges along a tree, each with a key of its own."""
    if isinstance(tree, int):
        return Merged(own[tree], 1)
    received, local = tree  # type: ignore[misc]
    one, other = (merged_of(part, own, numbers, key) for part in (received, local))
    return combine(Merge.SIGN, one, other, mix_plain(key, next(numbers)))


def test_variance_is_that_of_one_worker_and_positions_are_independent() -> None:
    """Of 500 merges of the same bits: p (1 − p) at each position, no correlation, unanimous bits certain."""
    random_bits = np.random.default_rng(3)
    own = [random_bits.integers(0, 2**32, 4, dtype=np.uint32) for _ in range(7)]
    own = [np.append(words, np.array([0xFFFFFFFF, 0], np.uint32)) for words in own]
    shape = random.Random(2)
    draws = []
    for draw in range(500):
        tree = twin.random_tree(shape.sample(range(7), 7), shape)
        merged = merged_of(tree, own, itertools.count(), key=draw)
        draws.append(np.unpackbits(merged.words.view(np.uint8), bitorder="little"))
    found = np.array(draws, np.float64)
    p = np.mean([np.unpackbits(words.view(np.uint8), bitorder="little") for words in own], axis=0)

    assert (found[:, -64:-32] == 1).all()
    assert (found[:, -32:] == 0).all()
    is_random = (p > 0) & (p < 1)
    assert is_random.sum() > 100
    off_by = np.abs(found.mean(axis=0) - p)[is_random] / np.sqrt(p * (1 - p) / 500)[is_random]
    assert off_by.max() < 5.5
    ratio = found.var(axis=0)[is_random].sum() / (p * (1 - p))[is_random].sum()
    assert abs(ratio - 1) < 0.02
    correlations = np.corrcoef(found[:, is_random].T) - np.eye(is_random.sum())
    assert np.abs(correlations).max() < 6 / np.sqrt(500)
