"""Exact numbers: every bit of the true sum, rounded once, for any values and numbers of workers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.message import Gradient, Merged
from netfold.homomorphic.numbers.compact import all_of
from netfold.homomorphic.numbers.digits import EMPTY_LOW, EMPTY_TOP
from netfold.homomorphic.numbers.exact import AgreedRanges, Exact
from netfold.homomorphic.numbers.formats import word_starts
from netfold.homomorphic.round import Round
from tests.examples import examples
from tests.homomorphic.gradients import agreed, starts_of
from tests.reference.codecs import digits as reference

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
tiny = st.integers(-(2**24), 2**24).map(lambda units: units * 2.0**-149)
huge = st.floats(2.0**126, float(reference.LARGEST), width=32).flatmap(lambda x: st.sampled_from([x, -x]))
normal = st.floats(-1, 1, width=32)
# Half steps of float32 at 1, and what decides the tie, far below on either side: in two digits, three, more.
halves = [1.0, -1.0, 2.0**-23, 2.0**-24, -(2.0**-24), 0.0, -0.0]
two_digits, three_digits, many_digits = (
    st.sampled_from([*halves, 2.0**low, -(2.0**low)]) for low in (-55, -78, -149)
)
overflows = st.sampled_from([float(reference.LARGEST), 2.0**103, 2.0**102, -(2.0**102), -(2.0**79)])
mixed = st.one_of(finite, tiny, normal, huge)
numbers = st.sampled_from(
    [finite, tiny, huge, normal, mixed, two_digits, three_digits, many_digits, overflows]
)


def summed(
    agreement: AgreedRanges, gradients: list[Gradient], starts: np.ndarray, group_blocks: int
) -> tuple[Gradient, int]:
    """Encode at every worker, add int32 words, decode; a sum that left int32 would be noticed."""
    total = np.zeros(word_starts(agreement, starts, group_blocks)[-1], np.int64)
    for gradient in gradients:
        words = np.full(total.size, 99, np.int32)
        agreement.encode(gradient, starts, group_blocks, words)
        total += words
    assert total.size == 0 or np.abs(total).max() < 2**31
    decoded = np.full(gradients[0].size, np.nan, np.float32)
    return decoded, agreement.decode(total.astype(np.int32), starts, group_blocks, decoded)


def expected(gradients: list[Gradient]) -> list[float]:
    return [reference.exact_sum(column) for column in zip(*[one.tolist() for one in gradients], strict=True)]


def same(ours: Gradient, theirs: list[float]) -> bool:
    return ours.tobytes() == np.array(theirs, np.float64).astype(np.float32).tobytes()


@examples(50)
@given(data=st.data(), workers=st.one_of(st.integers(1, 9), st.sampled_from([16, 64])))
def test_sums_are_the_nearest_float32_to_the_true_ones(data: st.DataObject, workers: int) -> None:
    elements = data.draw(st.integers(1, 12))
    of_element = [data.draw(numbers) for _ in range(elements)]
    columns = [data.draw(st.lists(one, min_size=workers, max_size=workers)) for one in of_element]
    if data.draw(st.booleans()):  # every second worker undoes what the one before it sent
        for column in columns:
            column[1::2] = [-value for value in column[: workers - 1 : 2]]
    gradients = [np.array(one, np.float32) for one in zip(*columns, strict=True)]
    block_elements = data.draw(st.sampled_from([1, 4, 16]))
    agreement = agreed(Exact(block_elements), gradients)
    group_blocks = data.draw(st.integers(1, 4))
    with np.errstate(over="ignore"):
        decoded, infinite = summed(agreement, gradients, starts_of(elements, block_elements), group_blocks)

    assert same(decoded, expected(gradients))
    assert int(np.isinf(decoded).sum()) == infinite


@pytest.mark.parametrize("workers", [2, 3, 8, 64])
def test_infinite_sums_are_counted_from_the_smallest_on(workers: int) -> None:
    """Of values below 2**top, n <= 2**b add up to infinity from top + b = 129 on, and never below."""
    top = 129 - (workers - 1).bit_length()
    largest = np.ldexp(1 - 2.0**-24, [top, top - 1]).astype(np.float32)
    gradients = [np.array([largest[0], -largest[0], largest[1], -largest[1]])] * workers
    for count, starts in ((2, [0, 2, 4]), (2, [0, 4])):
        with np.errstate(over="ignore"):
            decoded, infinite = summed(
                agreed(Exact(4 // (len(starts) - 1)), gradients), gradients, np.array(starts), 1
            )
        assert same(decoded, expected(gradients))
        assert int(np.isinf(decoded).sum()) == infinite == count


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 255, 257, 4097])
def test_digits_of_all_ones_fill_int32_and_never_leave_it(workers: int) -> None:
    """The worst case: every worker sends the largest float, cut into digits that are all ones."""
    for sign in (1, -1):
        gradients = [np.full(2, sign * (2.0**24 - 1), np.float32), np.full(2, sign * 2.0**-60, np.float32)]
        agreement = agreed(Exact(4), [gradients[0], *[gradients[1]] * (workers - 1)])
        words = np.empty(word_starts(agreement, starts_of(2, 4), 1)[-1], np.int32)
        agreement.encode(gradients[0], starts_of(2, 4), 1, words)

        assert np.abs(words.astype(np.int64)).max() * workers < 2**31
        assert agreement.ranges.digit_bits == 31 - np.ceil(np.log2(workers))


@given(
    values=st.lists(st.lists(st.one_of(finite, tiny, normal), max_size=5), min_size=1, max_size=6),
    workers=st.sampled_from([1, 2, 5, 64]),
    group_blocks=st.integers(1, 7),
)
def test_words_lie_plane_after_plane(values: list[list[float]], workers: int, group_blocks: int) -> None:
    starts = np.cumsum([0, *map(len, values)])
    dense = np.zeros((len(values), 8), np.float32)
    for row, block in zip(dense, values, strict=True):
        row[: len(block)] = block
    agreement = agreed(Exact(8), [dense.reshape(-1)] * workers)
    ranges = agreement.ranges
    words = np.full(word_starts(agreement, starts, group_blocks)[-1], 99, np.int32)
    compact = np.array([value for block in values for value in block], np.float32)
    agreement.encode(compact, starts, group_blocks, words)
    rule = (ranges.digit_bits, group_blocks)

    assert reference.layout(values, ranges.lows.tolist(), ranges.digits.tolist(), rule) == words.tolist()


@given(block=st.lists(finite, min_size=1, max_size=8))
def test_ranges_are_no_wider_than_the_values(block: list[float]) -> None:
    ranges = agreed(Exact(8), [np.array(block, np.float32)]).ranges
    others = [value for value in block if value != 0]

    if others:
        assert [max(map(reference.top, others))] == ranges.tops.tolist()
        assert [min(map(reference.lowest_bit, others))] == ranges.lows.tolist()
        assert -(-(ranges.tops[0] - ranges.lows[0]) // 31) == ranges.digits[0]
    else:
        assert ranges.digits.tolist() == [0]
        assert (ranges.tops[0], ranges.lows[0]) == (EMPTY_TOP, EMPTY_LOW)


@pytest.mark.parametrize(("top", "low"), [(top, low) for top in (4, 5, 6) for low in (-4, -3, -2)])
def test_a_forecast_covers_what_lies_within_it_and_no_more(top: int, low: int) -> None:
    """Values of 2**(top − 1) and 2**low, where bits from −3 up to below 5 were expected."""
    forecast, found = (
        agreed(Exact(4), [np.array([2.0 ** (above - 1), 2.0**lowest], np.float32)])
        for above, lowest in ((5, -3), (top, low))
    )
    assert forecast.covers(found).tolist() == [top <= 5 and low >= -3]


def test_blocks_longer_than_a_buffer_and_of_many_digits() -> None:
    random = np.random.default_rng(5)
    drawn = random.standard_normal((3, 1300)) * 10.0 ** random.uniform(-44, 37, (3, 1300))
    gradients = list(drawn.astype(np.float32))
    agreement = agreed(Exact(1024), gradients)
    decoded, _ = summed(agreement, gradients, starts_of(1300, 1024), 1)

    assert agreement.digits.min() > 3
    assert same(decoded, expected(gradients))


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_what_exact_numbers_cannot_carry(value: float) -> None:
    gradient = np.ones(400, np.float32)
    gradient[300] = value
    text = (
        f"gradient[300] is {value}: only finite values can be carried; "
        "lower the learning rate, or skip such steps"
    )
    with pytest.raises(EncodeError, match=f"^{re.escape(text)}$"):
        Exact(64).announce(all_of(gradient, 64), Round(0, 0, 2, 0))


@pytest.mark.parametrize(
    ("word", "merged", "text"),
    [
        (
            1,
            -1,
            "the merged top exponent of block 1 is -1: must be between 2, which this worker sent, and 128",
        ),
        (
            5,
            -7,
            "the merged exponents of block 2 say that values below 2**-149 are multiples of 2**7: "
            "a worker's exponents were damaged on the way",
        ),
    ],
)
def test_impossible_merged_ranges_are_refused(word: int, merged: int, text: str) -> None:
    """Of blocks of ones, of twos and of zeros."""
    form, round = Exact(64), Round(0, 0, 2, 0)
    gradient = np.repeat(np.array([1, 2, 0], np.float32), 64)
    sent = form.announce(all_of(gradient, form.block_elements), round)
    words = np.array([1, 2, EMPTY_TOP, 0, -1, -EMPTY_LOW], np.int32)

    assert words.tolist() == sent[0].words.tolist()
    words[word] = merged
    with pytest.raises(DecodeError, match=f"^{re.escape(text)}$"):
        form.agree(gradient.size, sent, [Merged(words, 2)], round)
