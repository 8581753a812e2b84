"""Numbers as integers: scaling, shared exponents, and digits of exact sums."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from netfold.homomorphic.block_floating_point import (
    all_of,
    announced_exponents,
    block_exponents,
    empty_exponent,
    factor_words,
    largest_exponent,
    quantize_block,
    smallest_exponent,
)
from netfold.homomorphic.block_floating_point import scale_of as scale_of_exponent
from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.error_bounds import FloatAddBound
from netfold.homomorphic.merge import Merged, merge_all
from netfold.homomorphic.message import Gradient, Round
from netfold.homomorphic.number_formats import (
    EMPTY_LOW,
    EMPTY_TOP,
    SPARE_BITS,
    Agreed,
    AgreedExponents,
    AgreedRanges,
    Exact,
    NumberFormat,
    number_format,
    word_starts,
)
from tests.examples import examples
from tests.homomorphic.gradients import Sample, agreed, bound_of, samples, starts_of
from tests.reference.codecs import digits as reference
from tests.reference.codecs.codecs import quantise, quantise_exactly, scale_of

INTEGERS = ["block_exponent", "exact"]


def summed(
    form: NumberFormat, agreement: Agreed, gradients: list[Gradient], group_blocks: int = 1
) -> Gradient:
    starts = starts_of(gradients[0].size, form.block_elements)
    parts = np.empty((len(gradients), word_starts(agreement, starts, group_blocks)[-1]), form.dtype)
    for gradient, words in zip(gradients, parts, strict=True):
        agreement.encode(gradient, starts, group_blocks, words)
    decoded = np.empty(gradients[0].size, np.float32)
    agreement.decode(merge_all(form.merge, list(parts)), starts, group_blocks, decoded)
    return decoded


@pytest.mark.parametrize("name", INTEGERS)
@examples(25)
@given(sample=samples(), raise_by=st.integers(-2, 5))
def test_covered_blocks_decode_within_the_bound_of_forecasts(
    name: str, sample: Sample, raise_by: int
) -> None:
    """The forecast is made from values of other magnitude, and trusted only where it covers."""
    form = number_format(name, 64)
    factor = np.float32(2.0**raise_by)
    earlier = [np.where(np.abs(one) < 2.0**100, one * factor, one) for one in sample.gradients]
    forecast, actual = form.forecast([agreed(form, earlier)]), agreed(form, sample.gradients)
    covered = np.repeat(forecast.covers(actual), 64)[: earlier[0].size]
    total = np.sum(sample.gradients, axis=0, dtype=np.float64)
    decoded = summed(form, forecast, [np.where(covered, one, 0) for one in sample.gradients])
    bound = bound_of(form, sample.gradients, is_forecast=True)

    assert (np.abs(decoded - total) <= bound)[covered].all()


@examples(25)
@given(
    counts=st.lists(st.integers(0, 70), min_size=1, max_size=20),
    skipped=st.integers(0, 500),
    seed=st.integers(0, 9),
)
def test_compact_blocks_use_their_own_steps(counts: list[int], skipped: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    exponents = random.integers(-20, 20, len(counts)).astype(np.int32)
    agreement = AgreedExponents(exponents, 3)
    starts = skipped + np.cumsum([0, *counts])
    block_of = np.repeat(np.arange(len(counts)), counts)
    values = (random.uniform(-1, 1, block_of.size) * 2.0 ** exponents[block_of]).astype(np.float32)
    words, decoded = np.empty(values.size, np.int32), np.empty(values.size, np.float32)
    agreement.encode(values, starts, 1, words)

    assert agreement.decode(words, starts, 1, decoded) == 0
    for i, exponent in enumerate(exponents[block_of].tolist()):
        assert quantise([values[i]], exponent, 3) == [words[i]]
        assert np.float32(words[i]) / scale_of(exponent, 3) == decoded[i]


def test_floats_pass_as_they_are() -> None:
    gradients = [np.array([np.nan, np.inf, -0.0, 1e-45, 3e38], np.float32)] * 2
    form = number_format("float32", 4)
    decoded = summed(form, agreed(form, gradients), gradients)

    assert form.announce(all_of(gradients[0], 64), Round(0, 0, 2, 0)) == ()
    assert agreed(form, gradients).digits.tolist() == [1, 1]
    assert [str(float(one)) for one in decoded] == ["nan", "inf", "-0.0", "2.802596928649634e-45", "inf"]
    assert form.error_bound([gradients[0][3:]] * 2, False) == FloatAddBound(2)


def test_exponent_forecasts_leave_one_bit_and_cover_three_more() -> None:
    form, two = number_format("block_exponent", 64), 2
    history = [AgreedExponents(np.array(one, np.int32), two) for one in ([3, -5, 126], [1, 2, 126])]
    forecast = form.forecast(history)
    exponents = forecast.exponents.tolist()

    assert exponents == [4, 3, largest_exponent(two)] == [4, 3, 126]
    for difference, is_covered in ((1, False), (0, True), (-SPARE_BITS, True), (-SPARE_BITS - 1, False)):
        actual = AgreedExponents(forecast.exponents + np.int32(difference), two)

        assert forecast.covers(actual).tolist() == [is_covered] * 3
    assert forecast.covers(AgreedExponents(np.full(3, empty_exponent(two), np.int32), two)).all()


def test_blocks_empty_so_far_expect_what_their_neighbours_have() -> None:
    workers = 4
    empty = empty_exponent(workers)
    form = number_format("block_exponent", 64)
    rounds = [[empty, 3, empty, empty, 7, empty], [empty, 2, empty, empty, 8, empty]]
    history = [AgreedExponents(np.array(one, np.int32), workers) for one in rounds]
    nothing = AgreedExponents(np.full(6, empty, np.int32), workers)

    assert form.forecast(history).exponents.tolist() == [4, 4, 9, 9, 9, 9]
    assert form.forecast([nothing]).exponents.tolist() == [empty] * 6
    assert not form.forecast([nothing]).covers(history[0])[[1, 4]].any()


def test_range_forecasts_contain_earlier_ranges_with_room() -> None:
    form = number_format("exact", 64)
    gradients = [np.repeat(np.array([0, 1, 0, 1024, 0], np.float32), 64)] * 8
    gradients[3] = gradients[3] * np.float32(1 + 2.0**-20)
    actual = agreed(form, gradients)
    forecast = form.forecast([actual, agreed(form, [one / 4 for one in gradients])])
    ranges = forecast.ranges

    assert forecast.covers(actual).all()
    assert actual.ranges.tops.tolist() == [-149, 1, -149, 11, -149]
    assert ranges.tops.tolist() == [2, 2, 12, 12, 12]
    assert ranges.lows.tolist() == [2 - 28, 2 - 28, 12 - 56, 12 - 28, 12 - 28]  # whole digits
    assert not actual.covers(forecast).any()
    empty = agreed(form, [np.zeros(128, np.float32)] * 8)
    assert form.forecast([empty]).digits.tolist() == [0, 0]


BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(value=finite, log2_workers=st.integers(0, 5))
def test_integers_are_the_exact_product_rounded_half_to_even(value: float, log2_workers: int) -> None:
    """With 2^k workers the scale is a power of two as well, so the float32 product is exact (or tiny)."""
    workers = 1 << log2_workers
    x = np.array([value], np.float32)
    if abs(value) >= 2.0 ** largest_exponent(workers):
        return
    (exponent,) = block_exponents(x, 1, workers)
    words = np.empty(1, np.int32)
    quantize_block(x, exponent, workers, words)

    assert quantise_exactly(value, int(exponent), workers) == words[0]


@given(
    values=st.lists(st.floats(-(2.0**23), 2.0**23, width=32), max_size=9),
    factor=st.sampled_from([1.0, 0.5, 100.0]),
)
def test_words_of_a_factor_are_the_exact_products_rounded_half_to_even(
    values: list[float], factor: float
) -> None:
    """A float32 times 100 is exact in float64."""
    words = factor_words(np.array(values, np.float32), factor, Round(0, 0, 2, 0))

    assert words.tolist() == [round(Fraction(value) * Fraction(factor)) for value in values]


@pytest.mark.parametrize("value", [2.0**30, -(2.0**30), np.nan, np.inf])
def test_words_of_a_factor_sum_within_int32_or_are_refused(value: float) -> None:
    """Of two workers each has up to ⌊(2^31 − 1) / 2⌋ = 2^30 − 1; the float32 below 2^30 is 2^30 − 64."""
    with pytest.raises(EncodeError, match=r"^gradient\[1\] is "):
        factor_words(np.array([2.0**30 - 64, value], np.float32), 1.0, Round(0, 0, 2, 0))


def test_a_product_beyond_int32_is_the_least_integer() -> None:
    """As CVTPS2DQ has it; 2^31 is the first that is beyond, and -2^31 the last that is not."""
    below = float(np.nextafter(np.float32(2**31), np.float32(0)))
    values = np.array([below, 2.0**31, -(2.0**31), -(2.0**31) - 256, 1e30, -1e30], np.float32)
    words = np.empty(values.size, np.int32)
    quantize_block(values, 31, 1, words)

    assert words.tolist() == [int(below)] + [-(2**31)] * 5


@pytest.mark.parametrize("workers", [*range(1, 33), 64, 255, 256, 264, 1000, 4096, 65_536, 99_999])
def test_sums_of_the_largest_values_fit_int32(workers: int) -> None:
    words = np.empty(1, np.int32)
    for sign in (1, -1):
        quantize_block(np.array([sign * BELOW_ONE], np.float32), 0, workers, words)

        assert -(2**31) <= workers * int(words[0]) <= 2**31 - 1
    assert workers * int(words[0]) < -(2**31) * (1 - 2.0**-14)  # and they use the range


@given(block=arrays(np.float32, st.integers(1, 40), elements=finite), block_elements=st.integers(1, 40))
def test_exponents_exceed_every_value_and_half_of_them_does_not(block: Gradient, block_elements: int) -> None:
    block = block / np.float32(16)  # what three workers can carry
    for k, exponent in enumerate(block_exponents(block, block_elements, 3).tolist()):
        largest = float(np.abs(block[k * block_elements : (k + 1) * block_elements]).max())

        assert largest < 2.0**exponent
        assert exponent == smallest_exponent(3) or largest >= 2.0 ** (exponent - 1)


@pytest.mark.parametrize("workers", [1, 2, 3, 32, 64, 1000])
def test_scales_are_finite_for_all_exponents_allowed(workers: int) -> None:
    low, high = smallest_exponent(workers), largest_exponent(workers)

    assert all(0 < scale_of_exponent(exponent, workers) < np.inf for exponent in range(low, high + 1))
    assert 2.0**31 / (workers * 2.0 ** (low - 1)) >= 2.0**128  # one lower would not be
    assert -128 <= low < high <= 127


@pytest.mark.parametrize("workers", [1, 2, 3, 255, 256])
def test_a_block_of_zeros_announces_less_than_the_tiniest_value(workers: int) -> None:
    """So that it does not count in a maximum, and all workers know where there is nothing at all."""
    values = np.array([0, -0.0, 2.0**-149, 0, 0, 1.5], np.float32)
    zeros, tiny, ones = announced_exponents(all_of(values, 2), workers).tolist()

    assert zeros == tiny - 1
    assert np.isfinite(scale_of_exponent(tiny, workers))
    assert ones == 1


@pytest.mark.parametrize(
    ("value", "workers", "text"),
    [
        (
            np.nan,
            1,
            "gradient[300] is nan: only finite values can be carried; "
            "lower the learning rate, or skip such steps",
        ),
        (
            -(2.0**125),
            8,
            "gradient[300] is -4.25353e+37: with 8 workers fixed point carries magnitudes below 2.12676e+37; "
            "clip or scale the gradient",
        ),
    ],
)
def test_what_fixed_point_cannot_carry(value: float, workers: int, text: str) -> None:
    gradient = np.ones(400, np.float32)
    gradient[300] = value
    with pytest.raises(EncodeError, match=f"^{re.escape(text)}$"):
        block_exponents(gradient, 64, workers)


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


def summed_exactly(
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
        decoded, infinite = summed_exactly(
            agreement, gradients, starts_of(elements, block_elements), group_blocks
        )

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
            decoded, infinite = summed_exactly(
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
    decoded, _ = summed_exactly(agreement, gradients, starts_of(1300, 1024), 1)

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
