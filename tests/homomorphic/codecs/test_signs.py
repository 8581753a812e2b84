"""One bit an element: votes of majority, signs that are summed in a cascade, and merges of weighted signs."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.codecs.cascaded_sign import CascadedSign
from netfold.homomorphic.codecs.majority import Majority, MajorityEncoder
from netfold.homomorphic.fold import fold
from netfold.homomorphic.merge import (
    Merge,
    Merged,
    combine,
    keep_threshold,
    merge_all,
    random_lanes,
    sign_words,
)
from netfold.homomorphic.message import Gradient, Round
from netfold.kernels.keyed_random import mix_plain
from netfold.testing import check_round
from tests.examples import examples
from tests.homomorphic.gradients import rows_of
from tests.reference.systems import signs as twin

VALUES = st.sampled_from([-1e30, -1.0, -1e-45, -0.0, 0.0, 1e-45, 2.5, math.inf, -math.inf])


@examples(50)
@given(rows=rows_of(VALUES, 40, 15))
def test_a_round_by_plain_python(rows: list[list[float]]) -> None:
    workers = len(rows)
    signs = [[1 if value >= 0 else -1 for value in row] for row in rows]
    balance = [sum(column) for column in zip(*signs, strict=True)]
    majority = [0 if not one else math.copysign(workers, one) for one in balance]

    found = check_round(Majority(), [np.array(row, np.float32) for row in rows])

    assert found.decoded[0].tolist() == majority
    assert [one.tolist() for one in found.contributions] == signs
    words = found.messages[0][0][0].words.view(np.uint32)
    votes = [int(words[place // 8]) >> 4 * (place % 8) & 15 for place in range(8 * words.size)]
    assert votes == [int(sign > 0) for sign in signs[0]] + [0] * (8 * words.size - len(signs[0]))


def test_how_many_workers_fit() -> None:
    assert Majority().refusal(15, "wrap") is None
    refusal = Majority().refusal(16, "wrap")
    assert refusal is not None
    assert refusal.reason == "majority has room for 15 workers, found 16"
    for overflow in ("saturate", "sticky"):
        refusal = Majority().refusal(2, overflow)
        assert refusal is not None
        assert "needs adders that wrap: votes are packed in words" in refusal.reason


def test_a_value_that_is_no_number_has_no_sign() -> None:
    with pytest.raises(EncodeError, match=r"gradient\[1\] is nan"):
        check_round(Majority(), [np.array([1, math.nan], np.float32)])


def test_more_votes_than_workers_are_refused() -> None:
    exchange = MajorityEncoder().exchange(np.zeros(9, np.float32), Round(0, 0, 3, 1))
    next(exchange)

    with pytest.raises(DecodeError, match="element 8 has more votes than there are workers, 3"):
        exchange.send((Merged(np.array([0x33333333, 4], np.int32), 3),))


# Differences of float32 scales are far from their rounding: no plain tie is decided by it.
CASCADED_SIGN_VALUES = st.sampled_from([-8.0, -1.0, -0.125, -0.0, 0.0, 0.25, 2.0, 5.0])


@examples(80)
@given(rows_of(CASCADED_SIGN_VALUES, 40, 5))
def test_a_chain_of_merges_by_plain_python(given_rows: list[list[float]]) -> None:
    found = check_round(CascadedSign(), [np.array(row, np.float32) for row in given_rows])

    assert found.decoded[0].tolist() == pytest.approx(twin.chains(given_rows), rel=1e-6, abs=1e-30)
    for row, one in zip(given_rows, found.contributions, strict=True):
        parts = [twin.compressed(row[cut]).values for cut in twin.cuts(len(row), len(given_rows))]
        assert one.tolist() == [value for part in parts for value in part]


@pytest.mark.parametrize(("elements", "parts"), [(6400, 3), (33, 2), (5, 1)])
def test_an_element_costs_one_bit_and_a_part_two_words(elements: int, parts: int) -> None:
    done = check_round(CascadedSign(), [np.ones(elements, np.float32)] * 3)
    assert done.announced_bytes(0) == 4 * -(-elements // 32) + 8 * parts
    assert done.messages[0][0][0].merge is Merge.HOST
    assert CascadedSign().bits_per_element(3) == (1, 1)


def test_equal_scales_of_opposite_signs_give_a_zero_that_is_positive() -> None:
    done = check_round(CascadedSign(), [np.array([2, -2, 2], np.float32), np.array([-2, -2, 2], np.float32)])
    scale = np.float32(8 / 3)  # magnitudes 0, 4 and 4
    assert done.decoded[0].tolist() == [scale, -scale, scale]


def test_feedback_keeps_what_was_not_sent() -> None:
    encoder = CascadedSign(feedback=True).worker(0, 1, 1)
    owed = np.zeros(4)
    for step, values in enumerate(([1.0, -2.0, 0.0, 5.0], [1.0, 1.0, -1.0, -1.0], [0.5, 0.0, 0.0, 8.0])):
        gradient: Gradient = np.array(values, np.float32)
        (done,) = fold([encoder], [gradient], Round(step, 0, 1, 1)).results
        owed = owed + values
        sent = twin.compressed(owed.tolist()).values
        assert done.contribution.tolist() == pytest.approx(sent, rel=1e-6)
        owed = owed - sent
        (held,) = encoder.state().values()
        assert held.tolist() == pytest.approx(owed.tolist(), abs=1e-5)
    assert CascadedSign(feedback=True).state_bytes == 4
    assert CascadedSign().state_bytes == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_values_that_leave_float32_are_refused(value: float) -> None:
    with pytest.raises(EncodeError, match=r"gradient\[1\] is .*: the scales of 2 workers may leave float32"):
        check_round(CascadedSign(), [np.array([1, value], np.float32)] * 2)


def test_equal_bits_survive_and_differing_bits_follow_the_lanes() -> None:
    held, arriving = 0x0000FFFF, 0x00FF00FF
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
