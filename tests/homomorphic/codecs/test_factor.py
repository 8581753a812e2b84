"""Fixed point with a constant factor: the law, what it cannot carry, and floats in its place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import EncodeError
from netfold.homomorphic.codecs.dense.kinds import FixedPoint, Uncompressed
from netfold.homomorphic.codecs.sketched.lossless import Lossless
from netfold.homomorphic.fold import Folded, fold
from netfold.homomorphic.message import WORD_MAX, Gradient, Merge
from netfold.homomorphic.round import Round
from tests.homomorphic.gradients import Sample, bound_of, folded, samples


def run(codec: FixedPoint, sample: Sample, order: list[int], takes_floats: bool) -> Folded:
    workers = sample.round.workers
    encoders = [codec.worker(rank, workers, 1) for rank in range(workers)]
    return fold(encoders, sample.gradients, replace(sample.round, takes_floats=takes_floats), order)


@given(samples(), st.sampled_from([1.0, 1e4, 1e6, 1e8]))
def test_the_law_with_a_factor(sample: Sample, factor: float) -> None:
    """Values in range are exact in any order; others are an error that names the element."""
    codec = FixedPoint(factor=factor)
    limit = WORD_MAX // sample.round.workers
    fits = all((np.abs(np.rint(one.astype(np.float64) * factor)) <= limit).all() for one in sample.gradients)
    if not fits:
        with pytest.raises(EncodeError, match=r"gradient\[\d+\] is .* carries magnitudes up to"):
            run(codec, sample, sample.order, takes_floats=False)
        return

    by_rank, shuffled = (run(codec, sample, order, False) for order in (sorted(sample.order), sample.order))

    assert by_rank.decoded[0].tobytes() == shuffled.decoded[0].tobytes()
    assert by_rank.decoded[0].tobytes() == by_rank.decoded[-1].tobytes()
    total = np.sum(sample.gradients, axis=0, dtype=np.float64)
    assert (np.abs(by_rank.decoded[0] - total) <= bound_of(codec, sample.gradients)).all()
    ((message, *_),) = by_rank.messages
    assert (message[0].merge, message[0].scaling, message[0].floats) == (Merge.ADD, None, None)
    assert by_rank.announced_bytes(0) == sample.gradients[0].nbytes


@given(samples(), st.sampled_from([1e4, 1e6, 1e8]))
def test_the_law_with_floats_for_what_overflows(sample: Sample, factor: float) -> None:
    codec = FixedPoint(factor=factor)

    found = run(codec, sample, sample.order, takes_floats=True)

    with np.errstate(over="ignore", invalid="ignore"):
        total = np.sum(sample.gradients, axis=0, dtype=np.float64)
        error = np.abs(found.decoded[0] - total)
    assert (error <= bound_of(codec, sample.gradients)).all()
    assert all(found.decoded[0].tobytes() == one.tobytes() for one in found.decoded)


def test_sums_by_hand() -> None:
    gradients = [np.array([1.5, -0.25, 0.0004], np.float32), np.array([2.0, 0.25, 0.0004], np.float32)]

    assert folded(FixedPoint(factor=1000), gradients).decoded[0].tolist() == [3.5, 0.0, 0.0]


@pytest.mark.parametrize("largest", [2000.0, 2500.0])
def test_floats_replace_words_whose_sum_overflows(largest: float) -> None:
    """2000 fits a word of factor 1e6 and twice as much does not; 2500 fits none."""
    gradients = [np.array([largest, 1.0], np.float32), np.array([largest, 2.0], np.float32)]
    found = run(FixedPoint(factor=1e6), Sample(gradients, Round(0, 0, 2, 1), [0, 1]), [0, 1], True)

    assert found.decoded[0].tolist() == [2 * largest, 3.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            1100.0,
            "gradient[1] is 1100: with 2 workers factor 1e+06 carries magnitudes up to 1073.74; "
            "use a smaller factor, or program atp",
        ),
        (
            float("nan"),
            "gradient[1] is nan: only finite values can be carried; "
            "lower the learning rate, or skip such steps",
        ),
    ],
)
def test_what_a_factor_cannot_carry(value: float, text: str) -> None:
    gradient: Gradient = np.array([0.0, value], np.float32)

    with pytest.raises(EncodeError) as caught:
        folded(FixedPoint(factor=1e6), [gradient, gradient])
    assert str(caught.value) == text


def test_the_largest_word_that_a_factor_carries() -> None:
    """129 workers share int32: 16647160 each is the most that their sum has room for."""
    most = 16_647_160
    fits, leaves = ([np.array([sign * (most + more)], np.float32) for sign in (1, -1)] for more in (0, 1))

    for gradient in fits:
        assert folded(FixedPoint(factor=1.0), [gradient] * 129).decoded[0] == np.float32(129 * gradient[0])
    for gradient in leaves:
        with pytest.raises(EncodeError, match="carries magnitudes up to"):
            folded(FixedPoint(factor=1.0), [gradient] * 129)


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e-320, 2.0**-129, float("inf"), float("nan")])
def test_factors_that_are_none(factor: float) -> None:
    with pytest.raises(ValueError) as caught:
        FixedPoint(factor=factor)
    assert str(caught.value) == f"factor is {factor}: must be finite and at least 2.94e-39, for example 1e6"


def test_half_of_the_smallest_factor_makes_0_of_every_value() -> None:
    largest = float(np.finfo(np.float32).max)
    least = FixedPoint(factor=2.0**-128).factor

    assert least is not None
    assert (round(largest * least), round(largest * least / 2)) == (1, 0)


def test_a_factor_has_no_blocks() -> None:
    with pytest.raises(ValueError, match=r"^factor and block_elements exclude each other: "):
        FixedPoint(64, 1e6)


def test_what_is_linear() -> None:
    assert (FixedPoint(factor=1e6).is_linear, Uncompressed().is_linear) == (True, True)
    assert (FixedPoint().is_linear, Lossless().is_linear) == (False, False)
