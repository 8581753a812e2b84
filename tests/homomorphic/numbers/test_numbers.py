"""What every number format promises, and what forecasts are worth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.bounds import FloatAddBound
from netfold.homomorphic.merge import merge_all
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.numbers.block_exponent import SPARE_BITS, AgreedExponents
from netfold.homomorphic.numbers.compact import all_of
from netfold.homomorphic.numbers.exponents import empty_exponent, largest_exponent
from netfold.homomorphic.numbers.formats import Agreed, NumberFormat, number_format, word_starts
from netfold.homomorphic.round import Round
from tests.examples import examples
from tests.homomorphic.gradients import Sample, agreed, bound_of, samples, starts_of
from tests.reference.codecs.quantise import quantise, scale_of

NAMES = ["block_exponent", "float32", "exact"]
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


@pytest.mark.parametrize("name", NAMES)
@examples(25)
@given(sample=samples(), block_elements=st.sampled_from([64, 4096]), group_blocks=st.integers(1, 3))
def test_errors_stay_in_bounds(name: str, sample: Sample, block_elements: int, group_blocks: int) -> None:
    form, gradients = number_format(name, block_elements), sample.gradients
    total = np.sum(gradients, axis=0, dtype=np.float64)
    decoded = summed(form, agreed(form, gradients), gradients, group_blocks)

    assert (np.abs(decoded - total) <= bound_of(form, gradients, is_forecast=False)).all()


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
