"""Findings on rounds, compared with sums by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.bounds import PART_ELEMENTS, Sums
from netfold.homomorphic.codec import Codec, Encoder
from netfold.homomorphic.codecs.dense.kinds import FixedPoint, Uncompressed
from netfold.homomorphic.message import Gradient, Holders, Merge, Merged, Message
from netfold.sim.checks.codec_notes import Exempt
from netfold.sim.checks.rounds import Findings, Operation
from tests.examples import examples
from tests.homomorphic.gradients import bound_of
from tests.sim.checks.wholes import examine

FLOATS = st.one_of(st.just(0.0), st.floats(-1e6, 1e6, width=32), st.floats(-(2.0**-10), 2.0**-10, width=32))


@dataclass(frozen=True)
class Loose(Codec):
    """A codec with a different bound for each element."""

    merges = frozenset({Merge.ADD})

    bounds: tuple[float, ...]

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        raise AssertionError("no test needs its encoder")

    def error_bound(self, gradients: list[Gradient]) -> Loose:
        return self

    def of(self, sums: Sums) -> np.ndarray:
        return np.array(self.bounds[sums.first : sums.first + sums.total.size])


def floats(*values: float) -> Gradient:
    return np.array(values, np.float32)


def found(bounds: tuple[float, ...], gradients: list[Gradient], decoded: list[Gradient]) -> Findings:
    return examine(Loose(bounds), gradients, decoded, [])


@given(
    gradients=st.integers(1, 6).flatmap(
        lambda elements: st.lists(
            st.lists(FLOATS, min_size=elements, max_size=elements), min_size=1, max_size=4
        )
    ),
    error=st.floats(-10, 10, width=32),
)
@examples(60)
def test_errors_and_supports_by_hand(gradients: list[list[float]], error: float) -> None:
    columns = list(zip(*gradients, strict=True))
    decoded = floats(*(math.fsum(column) for column in columns))
    decoded[-1] += np.float32(error)

    findings = examine(FixedPoint(4), [floats(*one) for one in gradients], [decoded] * len(gradients), [])

    errors = [abs(float(decoded[i]) - math.fsum(column)) for i, column in enumerate(columns)]
    bounds = bound_of(FixedPoint(4), [floats(*one) for one in gradients]).tolist()
    over = [error / bound for error, bound in zip(errors, bounds, strict=True)]
    assert findings.max_abs_error == pytest.approx(max(errors), rel=1e-9, abs=1e-9)
    assert findings.max_error_over_bound == pytest.approx(max(over), rel=1e-6, abs=1e-4)
    assert over[findings.worst_element] == pytest.approx(max(over), rel=1e-6, abs=1e-4)
    assert findings.nonzeros == sum(value != 0 for value in gradients[0])
    assert findings.union_nonzeros == sum(any(column) for column in columns)


@pytest.mark.parametrize(
    ("bounds", "decoded", "over", "worst", "error"),
    [
        ((1.0, 0.1, 4.0), (6.5, 2.2, 4), 2, 1, 2),  # not where the error is largest
        ((0.0, 0.0, 0.0), (6, 2, 6), 0, 0, 0),  # no error is within any bound
        ((0.0, 0.0, 0.0), (6, 2, 7), math.inf, 2, 1),
        *(
            ((bound, 1.0, 1.0), (6 + off, 2, 6), math.inf, 0, off)
            for bound in (math.inf, math.nan)
            for off in (0, 1)
        ),
        *(((1.0,) * 3, (6, value, 6), math.inf, 1, math.inf) for value in (math.nan, math.inf, -math.inf)),
    ],
)
def test_the_worst_element_is_the_one_farthest_over_its_bound(
    bounds: tuple[float, ...], decoded: tuple[float, ...], over: float, worst: int, error: float
) -> None:
    """A bound that is not finite never passes; what is not finite is wrong. The sums are 6, 2 and 6."""
    findings = found(bounds, [floats(2, 0, 3), floats(4, 2, 3)], [floats(*decoded)] * 2)

    assert findings.max_error_over_bound == pytest.approx(over, rel=1e-5)
    assert (findings.worst_element, findings.max_abs_error) == (worst, error)


def test_an_infinity_is_wrong_where_only_a_partial_sum_leaves_float32() -> None:
    """3e38 + 3e38 − 3e38 in float32, in this order; the codec has no note."""
    gradients = [floats(3e38), floats(3e38), floats(-3e38)]

    wrong = examine(Uncompressed(), gradients, [floats(math.inf)] * 3, [])
    right = examine(Uncompressed(), gradients[:2], [floats(math.inf)] * 2, [])

    assert wrong.max_error_over_bound == math.inf
    assert (right.max_error_over_bound, right.max_abs_error) == (0.0, 0.0)
    # Of two of the largest float32 infinity is right, and hides no other element.
    other = examine(Uncompressed(), [floats(3e38, 1), floats(3e38, 2)], [floats(math.inf, 7)] * 2, [])
    assert (other.worst_element, other.max_error_over_bound > 1) == (1, True)


@pytest.mark.parametrize("worker", [0, 1, 2])
@pytest.mark.parametrize(
    ("off_by", "over"), [(0.5, 1.0), (-0.5, 1.0), (0.5 + 2.0**-20, 1.1), (-0.5 - 2.0**-20, 1.1)]
)
def test_every_worker_s_sum_has_the_bound(worker: int, off_by: float, over: float) -> None:
    """Just inside and just outside, on both sides."""
    gradients = [floats(1, 2), floats(3, 4), floats(0, 0)]
    decoded = [floats(4, 6) for _ in range(3)]
    decoded[worker][1] += np.float32(off_by)

    findings = found((0.5, 0.5), gradients, decoded)

    assert (findings.max_error_over_bound > 1.0) == (over > 1)
    assert findings.max_error_over_bound >= 1.0
    assert (findings.worst_element, findings.replicas_agree) == (1, False)


def test_replicas_agree_bit_for_bit() -> None:
    gradients = [floats(1), floats(1)]
    nan = floats(math.nan)
    for one, other, agree in (
        (floats(2), floats(2), True),
        (floats(2), np.nextafter(floats(2), floats(3)), False),
        (floats(0), floats(-0.0), False),
        (nan, nan.copy(), True),
    ):
        assert agree == found((10.0,), gradients, [one, other]).replicas_agree


@pytest.mark.parametrize("element", [0, PART_ELEMENTS - 1, PART_ELEMENTS, 2 * PART_ELEMENTS])
def test_replicas_that_differ_in_one_bit_of_one_part(element: int) -> None:
    size = 2 * PART_ELEMENTS + 1
    gradients, decoded = [np.ones(size, np.float32)] * 3, [np.full(size, 3, np.float32) for _ in range(3)]
    assert examine(Uncompressed(), gradients, decoded, []).replicas_agree

    decoded[2].view(np.int32)[element] ^= 1

    assert not examine(Uncompressed(), gradients, decoded, []).replicas_agree


def held(words: list[int], bitmaps: list[int]) -> Merged:
    return Merged(np.array(words, np.int32), 3, holders=Holders(np.array(bitmaps, np.uint32), unit_words=2))


def test_a_result_that_holds_some_workers_is_their_sum() -> None:
    """Units of two words: the first holds workers 0 and 2, the second (of one word) all three."""
    gradients = [np.array(values, np.float32) for values in ([1, 2, 3], [10, 20, 30], [100, 200, 300])]
    sent = [Message(one.astype(np.int32), Merge.ADD, "values") for one in gradients]
    right = held([101, 202, 333], [0b101, 0b111])
    decoded = [right.words.astype(np.float32)] * 3

    def operation(*received: Merged) -> Operation:
        return Operation(
            {rank: (message,) for rank, message in enumerate(sent)},
            {rank: (merged,) for rank, merged in enumerate(received)},
        )

    found = examine(FixedPoint(factor=1.0), gradients, decoded, [operation(right, right, right)])
    assert (found.wrong_words, found.merges_verified(), found.max_abs_error) == (0, True, 0.0)
    assert (found.workers_held_min, found.workers_held_mean) == (2, 2.5)

    wrong = held([101, 202, 333], [0b111, 0b111])
    expired = held([0, 0, 333], [0, 0b111])
    found = examine(FixedPoint(factor=1.0), gradients, decoded, [operation(right, wrong, expired)])
    assert (found.wrong_words, found.workers_held_min) == (2, 0)
    assert found.workers_held_mean == pytest.approx(14 / 6)


LARGEST = float(np.finfo(np.float32).max)


def exempted(
    bounds: tuple[float, ...], gradients: list[Gradient], decoded: Gradient, exempt: Exempt
) -> Findings:
    replicas = [decoded] * len(gradients)
    return examine(Loose(bounds), gradients, replicas, [], exempt)


def named(*elements: int) -> NDArray[np.int64]:
    return np.array(elements, np.int64)


def test_estimates_have_no_bound_and_the_others_have() -> None:
    found = exempted((1.0, 1.0, 1.0), [floats(1, 2, 3)], floats(1.5, 9, 3), Exempt(named(1), named()))

    assert (found.max_error_over_bound, found.worst_element) == (0.5, 0)
    assert (found.max_bounded_error, found.max_estimate_error, found.max_abs_error) == (0.5, 7, 7)


@pytest.mark.parametrize(
    ("gradients", "decoded", "bound", "is_right"),
    [
        ([floats(LARGEST), floats(LARGEST)], math.inf, 1.0, True),
        ([floats(-LARGEST), floats(-LARGEST)], -math.inf, 1.0, True),
        ([floats(-LARGEST), floats(-LARGEST)], math.inf, 1.0, False),
        ([floats(LARGEST), floats(LARGEST)], LARGEST, 1.0, False),  # said to be infinite
        ([floats(LARGEST / 2), floats(LARGEST / 2)], math.inf, 1.0, False),
        ([floats(LARGEST / 2), floats(LARGEST / 2)], math.inf, LARGEST / 1000, True),  # may round to it
        ([floats(1), floats(2)], 3.0, 1.0, False),
        ([floats(LARGEST), floats(LARGEST)], math.nan, 1.0, False),
    ],
)
def test_infinities_are_held_to_be_one(
    gradients: list[Gradient], decoded: float, bound: float, is_right: bool
) -> None:
    found = exempted((bound,), gradients, floats(decoded), Exempt(named(), named(0)))

    assert found.max_error_over_bound == (0.0 if is_right else math.inf)
    assert (found.max_abs_error == 0.0) == (is_right or decoded == 3.0)


def test_exempt_elements_are_found_in_every_part() -> None:
    """Gradients are looked at 2**20 elements at a time."""
    elements = (1 << 20) + 5
    decoded = np.ones(elements, np.float32)
    off = named(3, (1 << 20) - 1, 1 << 20, elements - 1)
    decoded[off] = 2
    ones = [np.ones(elements, np.float32)]

    assert examine(Uncompressed(), ones, [decoded], [], Exempt(off, named())).max_error_over_bound == 0
    for missing in off:
        known = Exempt(off[off != missing], named())
        found = examine(Uncompressed(), ones, [decoded], [], known)
        assert (found.max_error_over_bound > 1, found.worst_element) == (True, missing)


def test_the_magnitude_at_the_worst_element_is_what_is_added_up_there() -> None:
    """3e38 + 3e38 − 3e38 is finite, and an infinity after two of them."""
    gradients = [floats(1, 3e38), floats(1, 3e38), floats(1, -3e38)]

    findings = found((1.0, 1e32), gradients, [floats(3, math.inf)] * 3)

    assert (findings.max_error_over_bound, findings.worst_element) == (math.inf, 1)
    assert findings.worst_magnitude == pytest.approx(9e38)
