"""Marsit's one-bit merge: the surviving bit is that of a uniformly random worker."""

from __future__ import annotations

import itertools
import random
import re
from fractions import Fraction

import numpy as np
import pytest

from netfold.homomorphic.merge import combine, keep_threshold, merge_all, random_lanes, sign_words
from netfold.homomorphic.message import Merge, Merged
from tests.reference.codecs.codecs import surviving_bit


def tree_of(order: list[int], shape: random.Random | None = None) -> object:
    """A chain of merges in this order, or a random tree over it."""
    if shape is None:
        tree: object = order[0]
        for rank in order[1:]:
            tree = (tree, rank)
        return tree
    if len(order) == 1:
        return order[0]
    cut = shape.randrange(1, len(order))
    return tree_of(order[:cut], shape), tree_of(order[cut:], shape)


def assert_fair(tree: object, workers: int, thresholds: object = keep_threshold) -> None:
    for ones in range(workers + 1):
        bits = [1] * ones + [0] * (workers - ones)
        probability, _ = surviving_bit(tree, bits, thresholds)

        assert abs(probability - Fraction(ones, workers)) <= Fraction(workers, 2**32)


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


@pytest.mark.parametrize("workers", range(1, 17))
def test_chains_are_fair(workers: int) -> None:
    assert_fair(tree_of(list(range(workers))), workers)


@pytest.mark.parametrize("workers", range(2, 6))
def test_chains_are_fair_in_every_order(workers: int) -> None:
    for order in itertools.permutations(range(workers)):
        assert_fair(tree_of(list(order)), workers)


def test_trees_with_unequal_branches_are_fair() -> None:
    shape = random.Random(1)
    for workers in (3, 7, 15):
        for _ in range(5):
            assert_fair(tree_of(list(range(workers)), shape), workers)


def test_a_torus_with_uneven_rows_is_fair() -> None:
    assert_fair(tree_of([0, 1, 2]) and ((tree_of([0, 1, 2]), tree_of([3, 4])), 5), 6)


def test_without_worker_counts_a_chain_is_not_fair() -> None:
    """The control: keeping every bit with one half favours whoever comes last."""
    with pytest.raises(AssertionError):
        assert_fair(tree_of([0, 1, 2]), 3, lambda a, b: 2**31)


@pytest.mark.parametrize(("held", "arriving"), [(1, 1), (2, 1), (7, 1), (3, 2)])
def test_bits_survive_as_often_as_they_should(held: int, arriving: int) -> None:
    words = 4000
    merged = combine(
        Merge.SIGN,
        Merged(np.full(words, 2**32 - 1, np.uint32), held),
        Merged(np.zeros(words, np.uint32), arriving),
        key=3,
    )
    lanes = np.unpackbits(merged.words.view(np.uint8)).reshape(-1, 32)
    p, count = held / (held + arriving), 32 * words

    assert abs(lanes.mean() - p) < 5 * np.sqrt(p * (1 - p) / count)
    correlations = np.corrcoef(lanes.T) - np.eye(32)
    assert np.abs(correlations).max() < 5 / np.sqrt(words)
    assert merged.workers == held + arriving


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


def test_the_same_key_gives_the_same_bits_and_another_key_others() -> None:
    parts = [np.full(8, 2**32 - 1, np.uint32), np.zeros(8, np.uint32)]
    once, again, other = (merge_all(Merge.SIGN, parts, key).tolist() for key in (1, 1, 2))

    assert once == again != other


def test_probabilities_are_rounded_to_nearest() -> None:
    assert [keep_threshold(1, 2), keep_threshold(2, 1)] == [
        1431655765,
        2863311531,
    ]  # 2**32 / 3, twice


def test_an_empty_accumulator_takes_the_words() -> None:
    assert keep_threshold(0, 1) == 0
    words = np.array([7], np.uint32)
    merged = combine(Merge.SIGN, Merged(np.array([2**32 - 1], np.uint32), 0), Merged(words, 1))

    assert merged.words.tolist() == [7]


def test_a_merge_needs_someone_to_arrive() -> None:
    text = "sign merge of 3 and 0 workers: accumulated must be 0 or more, arriving at least 1"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        keep_threshold(3, 0)
