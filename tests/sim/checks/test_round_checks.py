"""Findings on rounds, compared with sums by hand."""

from __future__ import annotations

import math
import random as rnd
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.block_floating_point import block_exponents
from netfold.homomorphic.codec import Codec, Decoded, Encoder
from netfold.homomorphic.codecs.exact import DenseExact
from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.codecs.none import Uncompressed
from netfold.homomorphic.error_bounds import PART_ELEMENTS, Sums
from netfold.homomorphic.merge import Holders, Merge, Merged
from netfold.homomorphic.message import Gradient, Message, Scaling
from netfold.sim.checks.round_checks import examine as examine_decoded
from netfold.sim.checks.round_findings import Exempt, Findings, RecordedOperation
from netfold.sim.engine.engine_data import Overflow
from tests.examples import examples
from tests.homomorphic.gradients import bound_of
from tests.reference.codecs.digits import right_merge
from tests.sim.exchanges import INTEGER_MERGES, messages_of, scaled_messages


def examine(
    codec: Codec,
    gradients: Sequence[Gradient],
    totals: Sequence[Gradient],
    operations: Sequence[RecordedOperation],
    *rest: Any,
    **more: Any,
) -> Findings:
    """The findings on these totals."""
    decoded = [Decoded(total, own) for total, own in zip(totals, gradients, strict=False)]
    decoded += [Decoded(total, gradients[0]) for total in totals[len(gradients) :]]
    return examine_decoded(codec, gradients, decoded[: len(totals)], operations, *rest, **more)


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


def found(
    bounds: tuple[float, ...], gradients: list[Gradient], decoded: list[Gradient], *exempt: Exempt
) -> Findings:
    return examine(Loose(bounds), gradients, decoded, [], *exempt)


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


def held(words: Sequence[float], bitmaps: list[int], dtype: type[np.generic] = np.int32) -> Merged:
    """Of slots with timers, of two words each."""
    return Merged(np.array(words, dtype), 3, holders=Holders(np.array(bitmaps, np.uint32), unit_words=2))


def test_a_result_that_holds_some_workers_is_their_sum() -> None:
    """Units of two words: the first holds workers 0 and 2, the second (of one word) all three."""
    gradients = [np.array(values, np.float32) for values in ([1, 2, 3], [10, 20, 30], [100, 200, 300])]
    sent = [Message(one.astype(np.int32), Merge.ADD, "values") for one in gradients]
    right = held([101, 202, 333], [0b101, 0b111])
    decoded = [right.words.astype(np.float32)] * 3

    def operation(*received: Merged) -> RecordedOperation:
        return RecordedOperation(
            {rank: (message,) for rank, message in enumerate(sent)},
            {rank: (merged,) for rank, merged in enumerate(received)},
        )

    found = examine(FixedPoint(factor=1.0), gradients, decoded, [operation(right, right, right)])
    assert (found.wrong_words, found.merges_verified(), found.max_abs_error) == (0, True, 0.0)
    assert found.held == (2, 2.5)

    wrong = held([101, 202, 333], [0b111, 0b111])
    expired = held([0, 0, 333], [0, 0b111])
    found = examine(FixedPoint(factor=1.0), gradients, decoded, [operation(right, wrong, expired)])
    assert (found.wrong_words, found.held.fewest) == (2, 0)
    assert found.held.mean == pytest.approx(14 / 6)


LARGEST = float(np.finfo(np.float32).max)


def named(*elements: int) -> NDArray[np.int64]:
    return np.array(elements, np.int64)


def test_estimates_have_no_bound_and_the_others_have() -> None:
    findings = found((1.0, 1.0, 1.0), [floats(1, 2, 3)], [floats(1.5, 9, 3)], Exempt(named(1), named()))

    assert (findings.max_error_over_bound, findings.worst_element) == (0.5, 0)
    assert (findings.max_bounded_error, findings.max_estimate_error, findings.max_abs_error) == (0.5, 7, 7)


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
    findings = found((bound,), gradients, [floats(decoded)] * 2, Exempt(named(), named(0)))

    assert findings.max_error_over_bound == (0.0 if is_right else math.inf)
    assert (findings.max_abs_error == 0.0) == (is_right or decoded == 3.0)


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


MAX, MIN = 2**31 - 1, -(2**31)
TINY = 2.0**-149
TYPES: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16, 32: np.int32}
SIZES = [1, PART_ELEMENTS - 1, PART_ELEMENTS, PART_ELEMENTS + 1]


def examined(
    sent: Sequence[Message], received: Sequence[Merged], overflow: Overflow = Overflow.WRAP
) -> Findings:
    """Findings on a round of one message; no decoded sum is wrong."""
    zeros = [np.zeros(1, np.float32)] * len(sent)
    operation = RecordedOperation(
        {r: (one,) for r, one in enumerate(sent)}, {r: (one,) for r, one in enumerate(received)}, 7
    )
    return examine(Uncompressed(), zeros, zeros, [operation], overflow=overflow)


def merged(sent: Sequence[Message]) -> Merged:
    right = right_merge(sent)
    dtype = np.uint32 if sent[0].merge is Merge.OR else np.int32
    exponents = None if right.exponents is None else np.array(right.exponents, np.int8)
    return Merged(np.array(right.words, dtype), len(sent), exponents)


def with_word(one: Merged, word: int, change: int) -> Merged:
    words = one.words.copy()
    words.view(np.int32)[word] ^= change
    return replace(one, words=words)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("merge", [*INTEGER_MERGES, Merge.TABLE_ADD, None])
def test_one_bit_of_an_integer_word_is_seen(merge: Merge | None, size: int) -> None:
    """At any worker, in any word, in any bit: and that one alone."""
    sent = scaled_messages(3, size, 16, 1) if merge is None else messages_of(merge, 3, size)
    right = merged(sent)
    assert examined(sent, [right] * 3).wrong_words == 0
    assert examined(sent, [right, replace(right, words=right.words.copy()), right]).wrong_words == 0

    lanes = right.words.size // size
    for worker, word, bit in ((0, 0, 0), (1, lanes * size - 1, 31), (2, lanes * size // 2, 7)):
        received = [right] * 3
        received[worker] = with_word(right, word, 1 << bit if bit < 31 else MIN)
        found = examined(sent, received)

        assert (found.wrong_words, found.merges_verified()) == (1, False)
        assert found.first_wrong is not None
        first = found.first_wrong
        assert (first.operation, first.part, first.worker, first.word) == (7, 0, worker, word)
        wrong, wanted = received[worker].words.view(np.int32)[word], right.words.view(np.int32)[word]
        assert (first.received, first.right) == (wrong, wanted)


def test_a_wrong_agreed_exponent_is_counted() -> None:
    """At one worker, with the right words: a worker that decodes it is off by a power of two."""
    sent = scaled_messages(3, 100, 16, 1)
    right = merged(sent)
    assert right.exponents is not None
    for block in (0, 6):
        wrong = right.exponents.copy()
        wrong[block] += 1
        found = examined(sent, [right, right, replace(right, exponents=wrong)])

        assert found.wrong_words == 1
        assert found.first_wrong is not None
        assert (found.first_wrong.worker, found.first_wrong.word) == (2, 16 * block)
        assert (found.first_wrong.received, str(found.first_wrong).count("received")) == (None, 0)
    assert examined(sent, [right, right, replace(right, exponents=None)]).wrong_words == 7


def test_words_that_are_missing_are_all_wrong() -> None:
    sent = messages_of(Merge.ADD, 2, 10)
    right = merged(sent)
    short, long = replace(right, words=right.words[:9]), replace(right, words=np.append(right.words, 0))

    assert examined(sent, [right, short]).wrong_words == 10
    assert examined(sent, [long, right]).wrong_words == 11
    lanes = of_words(Merge.TABLE_ADD, 8, 2, 10)
    assert examined(lanes, [merged(lanes), Merged(merged(lanes).words[:19], 2)]).wrong_words == 20
    floats = messages_of(Merge.FLOAT_ADD, 2, 10)
    half = Merged(floats[0].words[:5], 2)
    assert examined(floats, [half, half]).wrong_floats == 20


def test_gathered_words_come_as_they_were_sent() -> None:
    sent = [Message(np.array(words, np.float32), Merge.GATHER, "rows") for words in ([math.nan, 1], [2])]
    right = Merged(np.empty(0, np.float32), 2, parts=tuple(one.words.copy() for one in sent))
    other = replace(right, parts=(right.parts[0], np.array([3], np.float32)))
    more = replace(right, parts=(right.parts[0], np.array([2, 2, 2], np.float32)))

    assert examined(sent, [right, right]).wrong_words == 0
    assert examined(sent, [right, other]).wrong_words == 1
    assert examined(sent, [more, right]).wrong_words == 3


def float_messages(*columns: Sequence[float]) -> list[Message]:
    """One message per worker; `columns[word][worker]`."""
    return [
        Message(np.array(words, np.float32), Merge.FLOAT_ADD, "values")
        for words in zip(*columns, strict=True)
    ]


def floats_found(sent: Sequence[Message], words: Sequence[float]) -> Findings:
    one = Merged(np.array(words, np.float32), len(sent))
    return examined(sent, [one] * len(sent))


@pytest.mark.parametrize("workers", [2, 3, 8, 64])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_float_word_just_inside_and_just_outside(workers: int, sign: int) -> None:
    """(n − 1) · u · Σ|x|, where the sum itself is small, so that float32 can express the limit."""
    column = [float(np.float32(sign)), *[float(np.float32(-sign / (workers - 1)))] * (workers - 1)]
    total = sum(map(Fraction, column))
    limit = (workers - 1) * Fraction(2) ** -24 * sum(map(abs, map(Fraction, column)))
    for side in (1, -1):
        inside, outside = (
            np.float32(float(total + side * limit * share))
            for share in (Fraction(999, 1000), Fraction(1001, 1000))
        )
        sent = float_messages([0.0] * workers, column)

        assert floats_found(sent, [0.0, inside]).wrong_floats == 0
        found = floats_found(sent, [0.0, outside])
        assert (found.wrong_floats, found.float_words) == (workers, 2 * workers)
        assert found.first_wrong_float is not None
        assert found.first_wrong_float.word == 1
        assert found.first_wrong_float.received == outside
        assert found.first_wrong_float.right == pytest.approx(float(total), rel=1e-12)
        assert found.first_wrong_float.allowed == pytest.approx(float(limit), rel=1e-6)


def test_one_worker_s_floats_come_back_as_they_were_sent() -> None:
    sent = float_messages([1.0])
    assert floats_found(sent, [1.0]).wrong_floats == 0
    assert floats_found(sent, [float(np.nextafter(np.float32(1), np.float32(2)))]).wrong_floats == 1


def test_denormals_may_be_off_by_the_smallest_one_per_addition() -> None:
    """u · Σ|x| is nothing there; what a flipped bit makes of a zero is far more."""
    sent = float_messages([0.0, 0.0, 0.0])

    for words, wrong in (([0.0], 0), ([2 * TINY], 0), ([3 * TINY], 3), ([-3 * TINY], 3), ([2.0**-127], 3)):
        assert floats_found(sent, words).wrong_floats == wrong


@pytest.mark.parametrize(
    ("column", "word", "is_right"),
    [
        ([LARGEST, LARGEST], math.inf, True),
        ([LARGEST, LARGEST], LARGEST, False),  # finite, and half of the sum
        ([LARGEST / 2, LARGEST / 4], math.inf, False),
        ([LARGEST / 2, LARGEST / 4], math.nan, False),
        ([LARGEST / 2, LARGEST / 2 * (1 - 2.0**-21)], math.inf, False),  # no rounding makes up for so much
        ([LARGEST, LARGEST, -LARGEST], math.inf, True),  # in one order
        ([LARGEST, LARGEST, -LARGEST], LARGEST, True),  # in another
        ([math.nan, 1.0], math.nan, True),
        ([math.nan, 1.0], 1.0, False),
        ([math.nan, 1.0], math.inf, False),
        ([math.inf, 1.0], math.inf, True),
        ([math.inf, 1.0], 1.0, False),
        ([math.inf, 1.0], -math.inf, False),
        ([math.inf, 1.0], math.nan, False),
        ([-math.inf, LARGEST / 2, 1.0], math.inf, False),
        ([-math.inf, LARGEST, LARGEST], math.nan, True),  # which met the infinity of the finite words
        ([-math.inf, LARGEST, LARGEST], math.inf, False),
        ([math.inf, -math.inf], math.nan, True),
    ],
)
def test_what_is_not_finite_where_it_may_be(column: list[float], word: float, is_right: bool) -> None:
    assert (floats_found(float_messages(column), [word]).wrong_floats == 0) == is_right


def test_partial_sums_of_many_workers_that_round_up_may_overflow() -> None:
    """127 additions, each rounded up by half of the last place, pass what float32 holds; the sum does not."""
    last_place = 2.0**104
    small = float(np.nextafter(np.float32(66_051.5 * last_place), np.float32(math.inf)))
    column = [2.0**127 + 4 * last_place, *[small] * 127]
    total = np.float32(column[0])
    with np.errstate(over="ignore"):
        for value in column[1:]:
            total += np.float32(value)
    assert np.isinf(total)
    assert sum(column) < LARGEST

    assert floats_found(float_messages(column), [math.inf]).wrong_floats == 0
    assert floats_found(float_messages(column), [LARGEST / 2]).wrong_floats == 128


@given(data=st.data())
def test_additions_in_any_order_and_tree_are_right(data: st.DataObject) -> None:
    """No sum that float32 additions can make is called wrong."""
    workers = data.draw(st.integers(1, 16))
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    near = st.floats(-4, 4, width=32)
    column = data.draw(st.lists(st.one_of(floats, near), min_size=workers, max_size=workers))
    sums = [np.float32(value) for value in column]
    picks = rnd.Random(data.draw(st.integers(0, 2**32)))
    with np.errstate(over="ignore", invalid="ignore"):
        while len(sums) > 1:
            one, other = (sums.pop(picks.randrange(len(sums))) for _ in range(2))
            sums.append(one + other)

    assert floats_found(float_messages(column), [float(sums[0])]).wrong_floats == 0


def test_floats_that_hold_some_workers_are_their_sum() -> None:
    """And as many additions may be off as there were: none for one worker, one for two."""
    sent = float_messages([1.0, 2.0, 4.0], [1.0, 1.0, -1.0], [1.0, 0.5, 0.25])
    near = np.nextafter(
        np.float32(1.75), np.float32(2)
    )  # off by 2u · 1: as two additions of Σ|x| 1.75 may be

    for words, wrong in (([5, 0, 1.75], 0), ([7, 0, 1.75], 1), ([5, 0, near], 0), ([5, 2.0**-23, 1.75], 0)):
        assert examined(sent, [held(words, [0b101, 0b111], np.float32)] * 3).wrong_floats == 3 * wrong
    alone = held([2, 1 + 2.0**-23, 1.75], [0b010, 0b111], np.float32)
    empty = held([0, 0, 1.75], [0, 0b111], np.float32)
    assert examined(sent, [alone, empty, empty]).wrong_floats == 1


def overflowing() -> tuple[list[Message], Merged]:
    """ATP: three words of a unit that is sent as floats, then two of one that is not."""
    gradients = [np.array([3000.0, 1.0, 2.0, 5.0, 7.0], np.float32)] * 2
    words = np.array([MAX, 10**6, 2 * 10**6, 5 * 10**6, 7 * 10**6], np.int32)
    sent = [Message(words, Merge.ADD, "values", floats=one) for one in gradients]
    result = np.array([6000, 2, 4, 0, 0], np.float32).view(np.int32)
    result[3:] = 10**7, 14 * 10**6
    return sent, Merged(result, 2, is_float=np.array([True, True, True, False, False]))


def test_units_sent_as_floats_are_compared_with_floats_and_others_with_integers() -> None:
    sent, right = overflowing()
    found = examined(sent, [right, right])
    assert (found.wrong_words, found.wrong_floats, found.float_words, found.is_integer) == (0, 0, 6, False)
    assert found.bit_exact is None

    for word, change, wrong in (
        (3, 1, (1, 0)),
        (4, 1 << 20, (1, 0)),
        (1, 1 << 3, (0, 1)),
        (0, 1 << 31, (0, 1)),
    ):
        bad = with_word(right, word, change - 2**32 if change == 1 << 31 else change)
        found = examined(sent, [right, bad])

        assert (found.wrong_words, found.wrong_floats) == wrong
        first = found.first_wrong or found.first_wrong_float
        assert first is not None
        assert (first.worker, first.word) == (1, word)


def test_floats_that_say_they_are_integers_are_wrong() -> None:
    sent, right = overflowing()
    found = examined(sent, [replace(right, is_float=None)] * 2)

    assert (found.wrong_words, found.wrong_floats) == (6, 0)


@pytest.mark.parametrize(
    ("words", "overflow", "clipped", "wrong"),
    [
        # 2^31 − 1 + 10 − 100: from 2^31 − 101 (clipped first) to the sum itself
        ((MAX, 10, -100), Overflow.SATURATE, [MAX - 100], [MAX - 101, MAX - 89, MAX]),
        ((MAX, 10, -100), Overflow.STICKY, [MAX - 100, MAX], [MAX - 101]),
        ((MIN, -10, 100), Overflow.SATURATE, [MIN + 100], [MIN + 101, MIN + 89, MIN]),
        ((MIN, -10, 100), Overflow.STICKY, [MIN + 101, MIN, MIN + 1], [MIN + 102]),
        ((2**30, 2**30), Overflow.SATURATE, [MAX], [MAX - 1, 5]),
        ((2**30, 2**30 - 1), Overflow.SATURATE, [], [MAX - 1, 5]),  # just fits
        ((2**30, 2**30 - 2), Overflow.STICKY, [], [MAX, 5]),
        ((-(2**30), -(2**30)), Overflow.SATURATE, [], [MIN + 1, 5]),
        ((-(2**30), -(2**30) - 1), Overflow.SATURATE, [MIN], [MIN + 1, 5]),
        ((2**30, 2**30), Overflow.WRAP, [], [MAX]),
    ],
)
def test_what_is_clipped_and_what_is_wrong(
    words: tuple[int, ...], overflow: Overflow, clipped: list[int], wrong: list[int]
) -> None:
    sent = [Message(np.array([0, word], np.int32), Merge.ADD, "values") for word in words]
    for results, counts in ((clipped, (0, 1)), (wrong, (1, 0))):
        for result in results:
            bad = Merged(np.array([0, result], np.int32), len(words))
            right = merged(sent)
            found = examined(sent, [bad, *[right] * (len(words) - 1)], overflow)

            assert (found.wrong_words, found.clipped_words) == counts, result
            first = found.first_wrong or found.first_clipped
            assert first is not None
            assert (first.worker, first.word, first.received) == (0, 1, result)


def test_scaled_words_of_many_workers_are_quantised_as_their_client_does() -> None:
    """From 256 workers on the scale is a little less."""
    random = np.random.default_rng(3)
    for workers in (255, 256, 300):
        gradients = [random.standard_normal(70).astype(np.float32) for _ in range(workers)]
        sent = [
            Message(one, Merge.ADD, "values", scaling=Scaling(block_exponents(one, 32, workers), 32, workers))
            for one in gradients
        ]
        assert examined(sent, [merged(sent)] * workers).wrong_words == 0


@pytest.mark.parametrize("codec", [FixedPoint(256), DenseExact()], ids=lambda one: one.kind)
def test_nothing_of_the_gradients_size_is_allocated(codec: Codec) -> None:
    """Beside 4 MB per worker and array: less than 2 MB, exponents and scratch together."""
    size = 1 << 20
    random = np.random.default_rng(1)
    gradients = [random.standard_normal(size).astype(np.float32) for _ in range(4)]
    total = np.sum(gradients, axis=0, dtype=np.float32)
    decoded = [total, *[total.copy() for _ in range(3)]]
    exponents = [block_exponents(one, 256, 4) for one in gradients]
    scaled = {
        rank: (Message(one, Merge.ADD, "values", scaling=Scaling(exponents[rank], 256, 4)),)
        for rank, one in enumerate(gradients)
    }
    plain = {rank: (Message(one, Merge.FLOAT_ADD, "values"),) for rank, one in enumerate(gradients)}
    integers = [Merged(np.zeros(size, np.int32), 4, exponents[0]) for _ in range(4)]
    operations = [
        RecordedOperation(scaled, {rank: (one,) for rank, one in enumerate(integers)}),
        RecordedOperation(plain, {rank: (Merged(decoded[rank], 4),) for rank in range(4)}),
    ]

    examine(codec, gradients, decoded, operations)  # what is compiled or imported is not counted
    tracemalloc.start()
    try:
        found = examine(codec, gradients, decoded, operations)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (found.wrong_floats, found.replicas_agree) == (0, True)
    assert peak_bytes < 2 << 20


# Words of several lanes: each lane by itself.


def of_words(merge: Merge, lane_bits: int, workers: int, size: int) -> list[Message]:
    """Random words of every worker."""
    random = np.random.default_rng(lane_bits)
    half = 2 ** (lane_bits - 1)
    table = random.integers(-half, half, 16).astype(np.int32) if merge is Merge.TABLE_ADD else None
    dtype = np.int32 if table is None else np.uint32
    columns = [random.integers(0, 2**32, size, np.uint32).view(dtype) for _ in range(workers)]
    return [Message(words, merge, "sums", table=table, lane_bits=lane_bits) for words in columns]


def of_lanes(lane_bits: int, *columns: Sequence[int]) -> list[Message]:
    """One message per worker, with these lanes."""
    arrays = [np.array(lanes, TYPES[lane_bits]).view(np.int32) for lanes in columns]
    return [Message(words, Merge.ADD, "sums", lane_bits=lane_bits) for words in arrays]


def result(lane_bits: int, lanes: Sequence[int], workers: int) -> Merged:
    return Merged(np.array(lanes, TYPES[lane_bits]).view(np.int32), workers)


@pytest.mark.parametrize("size", [1, PART_ELEMENTS + 1])
@pytest.mark.parametrize(
    ("merge", "lane_bits"),
    [(Merge.ADD, 4), (Merge.ADD, 8), (Merge.ADD, 16), (Merge.TABLE_ADD, 8), (Merge.TABLE_ADD, 16)],
)
def test_one_bit_of_a_lane_is_seen_and_named(merge: Merge, lane_bits: int, size: int) -> None:
    sent = of_words(merge, lane_bits, 5, size)
    words = np.array(right_merge(sent).words, np.int32)
    right = Merged(words, 5)
    assert examined(sent, [right] * 5).wrong_words == 0
    assert examined(sent, [right] * 5).merges_verified()

    bits = 32 if lane_bits == 4 else lane_bits  # counters are compared as words
    for word, bit in ((0, 0), (words.size - 1, 31), (words.size // 2, 17)):
        wrong = words.copy()
        wrong.view(np.uint32)[word] ^= np.uint32(1 << bit)
        found = examined(sent, [right, Merged(wrong, 5), right, right, right])

        assert (found.wrong_words, found.merges_verified()) == (1, False)
        first = found.first_wrong
        assert first is not None
        lane = None if bits == 32 else bit // bits
        assert (first.worker, first.word, first.lane) == (1, word, lane)
        place = word * (32 // bits) + (lane or 0)
        lanes = (wrong.view(TYPES[bits])[place], words.view(TYPES[bits])[place])
        assert (first.received, first.right) == lanes
        named = f"word {word}" if lane is None else f"lane {lane} of word {word}"
        assert str(first).startswith(
            f"worker 1, {named} of 'sums' (received {lanes[0]}, the sum is {lanes[1]})"
        )


@pytest.mark.parametrize("lane_bits", [8, 16])
@pytest.mark.parametrize("overflow", Overflow)
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_lane_may_be_clipped_where_its_sum_leaves_it(
    lane_bits: int, overflow: Overflow, beyond: int
) -> None:
    """127 is never 126; 128 is 127 in adders that do not wrap, and −128 in those that do."""
    most = 2 ** (lane_bits - 1) - 1
    rest = [0] * (32 // lane_bits - 1)
    sent = of_lanes(lane_bits, [most, *rest], [beyond, *rest])

    def found(lane: int) -> tuple[int, int]:
        findings = examined(sent, [result(lane_bits, [lane, *rest], 2)] * 2, overflow)
        return findings.wrong_words, findings.clipped_words

    if not beyond:
        assert (found(most), found(-most - 1)) == ((0, 0), (2, 0))
        # sticky adders may have stuck at the limit, from which no word moves them
        assert found(most - 1) == (2, 0)
    elif overflow is Overflow.WRAP:
        assert (found(-most - 1), found(most)) == ((0, 0), (2, 0))
    else:
        assert (found(most), found(most - 1)) == ((0, 2), (2, 0))


@pytest.mark.parametrize("lane_bits", [8, 16, 32])
def test_a_lane_may_stick_one_above_its_smallest(lane_bits: int) -> None:
    """Adders stick at −127 already, so that −127 − 1 may stay −127; one more is wrong."""
    most, rest = 2 ** (lane_bits - 1) - 1, [0] * (32 // lane_bits - 1)
    sent = of_lanes(lane_bits, [-most, *rest], [-1, *rest])
    for lane, overflow, counts in (
        (-most, Overflow.STICKY, (0, 2)),
        (-most + 1, Overflow.STICKY, (2, 0)),
        (-most - 1, Overflow.STICKY, (0, 0)),
        (-most, Overflow.SATURATE, (2, 0)),
    ):
        found = examined(sent, [result(lane_bits, [lane, *rest], 2)] * 2, overflow)
        assert (found.wrong_words, found.clipped_words) == counts


def clipped(lanes: list[int], most: int, picks: rnd.Random, sticks: bool) -> int:
    """Registers of a lane's width that saturate, in some order and tree; or that stick, one by one."""

    def clip(lane: int) -> int:
        return max(-most - 1, min(most, lane))

    sums = list(lanes)
    if sticks:
        picks.shuffle(sums)
        total = sums[0]
        for lane in sums[1:]:
            total = total if abs(total) >= most else clip(total + lane)
        return total
    while len(sums) > 1:
        one, other = (sums.pop(picks.randrange(len(sums))) for _ in range(2))
        sums.append(clip(one + other))
    return sums[0]


@given(
    lane_bits=st.sampled_from([8, 16, 32]),
    workers=st.integers(1, 5),
    overflow=st.sampled_from([Overflow.SATURATE, Overflow.STICKY]),
    data=st.data(),
)
def test_lanes_of_adders_that_do_not_wrap_are_never_wrong(
    lane_bits: int, workers: int, overflow: Overflow, data: st.DataObject
) -> None:
    most, count = 2 ** (lane_bits - 1) - 1, 32 // lane_bits
    ends = [most, most - 1, -most, -most - 1, most // 2 + 1, -most // 2, 0, 1, -1]
    lanes = st.one_of(st.integers(-most - 1, most), st.sampled_from(ends))
    columns = [data.draw(st.lists(lanes, min_size=count, max_size=count)) for _ in range(workers)]
    picks = rnd.Random(data.draw(st.integers(0, 2**32)))
    sums = [
        clipped(list(own), most, picks, overflow is Overflow.STICKY) for own in zip(*columns, strict=True)
    ]
    sent = of_lanes(lane_bits, *columns)

    found = examined(sent, [result(lane_bits, sums, workers)] * workers, overflow)

    assert found.wrong_words == 0
    differing = sum(total != sum(own) for total, own in zip(sums, zip(*columns, strict=True), strict=True))
    assert found.clipped_words <= workers * differing


def test_lanes_that_hold_some_workers_are_their_sum() -> None:
    """Two words a unit: in the first of workers 0 and 2, in the second of worker 1."""
    sent = of_lanes(8, [1] * 16, [10] * 16, [100] * 16)
    lanes: NDArray[np.int8] = np.array([101] * 8 + [10] * 8, np.int8)
    one = Merged(lanes.view(np.int32), 3, holders=Holders(np.array([0b101, 0b010], np.uint32), 2))
    assert examined(sent, [one] * 3).wrong_words == 0
    wrong = lanes.copy()
    wrong[9] = 11
    found = examined(sent, [replace(one, words=wrong.view(np.int32))] * 3)
    assert (found.wrong_words, found.first_wrong and found.first_wrong.lane) == (3, 1)
