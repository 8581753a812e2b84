"""Codec `bird_shared`: the same rows everywhere, and sums of signs that are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import DecodeError, EncodeError, advance
from netfold.homomorphic.codecs.bird import shared
from netfold.homomorphic.codecs.bird.lanes import Digits, sign_fields, workers_max
from netfold.homomorphic.codecs.bird.shared import BirdShared
from netfold.homomorphic.fold import LockStepError
from netfold.homomorphic.message import Merge, Merged
from tests.examples import examples
from tests.homomorphic.codecs.bird.layers import (
    Shapes,
    buckets,
    drawn,
    folded,
    layers_of,
    places_of,
    round_of,
    tensors_of,
)
from tests.reference.systems import bird as twin

LANES = st.sampled_from([4, 8, 16, 32])


@examples(12)
@given(bucket=buckets(), share=st.sampled_from([0.1, 0.5, 1.0]), workers=st.integers(1, 7), lanes=LANES)
def test_a_round_by_the_plain_twin(
    bucket: tuple[Shapes, int], share: float, workers: int, lanes: int
) -> None:
    shapes, seed = bucket
    gradients = [drawn(shapes, seed + worker) for worker in range(workers)]
    layers = [layers_of(gradient, shapes) for gradient in gradients]

    found = folded(BirdShared(share, lanes), gradients, round_of(shapes, workers))  # type: ignore[arg-type]

    total = np.zeros(gradients[0].size, np.float32)
    for number, places in enumerate(places_of(shapes)):
        rows, scale = twin.shared([one[number] for one in layers], (7, 0, 0, number), share)
        for place in places:
            tensor = tensors_of(shapes)[place]
            signs = sum(np.sign(gradient[tensor.place]).astype(int) for gradient in gradients)
            signs = signs.reshape(tensor.shape[0], -1)
            is_kept = np.isin(np.arange(tensor.shape[0]), rows)[:, None]
            total[tensor.place] = (np.float32(scale) * np.float64(1) * signs * is_kept).ravel()
    assert found.decoded[0] == pytest.approx(total, rel=2e-7)


def test_all_workers_keep_the_same_rows_and_send_no_index() -> None:
    shapes: Shapes = [(40, 12, 1)]
    gradients = [drawn(shapes, worker) + np.float32(1e-6) for worker in range(5)]  # no element is zero
    for step in range(5):
        found = folded(BirdShared(0.2), gradients, round_of(shapes, 5, step))
        supports = {tuple(np.flatnonzero(one)) for one in found.contributions}
        assert len(supports) == 1
        rows = np.count_nonzero(found.contributions[0].reshape(-1)[:40])
        assert 0 < rows <= 8
        ((one, *_), (two, *_), (three, *_)) = found.messages
        assert [one[0].merge, two[0].merge, three[0].merge] == [Merge.MAX, Merge.ADD, Merge.ADD]
        assert one[0].words.size == 1  # of the layer
        assert two[0].words.size == 40  # of each row
        assert three[0].words.size == math.ceil(rows * 13 / 7)  # 7 signs of 4 bits in a word


@pytest.mark.parametrize(("lanes", "most"), [(4, 7), (8, 127), (16, 32767), (32, 2**30 - 1)])
def test_how_many_workers_fit(lanes: int, most: int) -> None:
    codec = BirdShared(lanes=lanes)  # type: ignore[arg-type]

    assert workers_max(lanes) == codec.workers_max == most
    assert codec.refusal(most, "wrap") is None
    refusal = codec.refusal(most + 1, "wrap")
    assert refusal is not None
    assert refusal.reason == f"bird_shared has room for {most} workers, found {most + 1}"
    assert (refusal.option, refusal.remedy) == ("lanes", "lanes: 32")
    fields = sign_fields(lanes, most)
    assert fields.limit >= (most if fields.is_signed else 2 * most)


def times(words: np.ndarray, lanes: int, workers: int) -> np.ndarray:
    """The same words of some workers, added lane by lane."""
    view = words.view({8: np.int8, 16: np.int16}.get(lanes, np.int32))
    with np.errstate(over="ignore"):
        return (view * np.array(workers).astype(view.dtype)).view(np.int32)


@examples(40)
@given(
    lanes=LANES,
    workers=st.integers(1, 127),
    values=st.lists(st.lists(st.integers(-1, 1), min_size=1, max_size=20), min_size=1, max_size=1),
)
def test_sums_at_the_limits_of_fields(lanes: int, workers: int, values: list[list[int]]) -> None:
    """All workers send the same, so sums are as large as they can be."""
    workers = min(workers, workers_max(lanes))
    fields = sign_fields(lanes, workers)
    own = np.array(values[0], np.int32)
    shift = 0 if fields.is_signed else 1
    words = fields.packed(own + shift)
    summed = times(words, lanes, workers)

    found = fields.unpacked(summed, own.size) - shift * workers

    assert found.tolist() == [workers * value for value in values[0]]


@examples(40)
@given(
    lanes=LANES, workers=st.integers(1, 127), numbers=st.lists(st.integers(0, 65535), min_size=1, max_size=9)
)
def test_sums_of_numbers_in_digits(lanes: int, workers: int, numbers: list[int]) -> None:
    workers = min(workers, workers_max(lanes))
    digits = Digits.of(16, lanes, workers)
    words = digits.packed(np.array(numbers, np.int64))
    summed = times(words, lanes, workers)

    found, most = digits.unpacked(summed, len(numbers))

    assert found.tolist() == [workers * number for number in numbers]
    assert most <= workers * (digits.base - 1) <= digits.fields.limit


def test_sums_that_no_workers_have() -> None:
    gradient, round = drawn([(4, 5, 0)], 1), round_of([(4, 5, 0)], 2)

    def until(label: str) -> tuple[object, np.ndarray]:
        exchange = BirdShared(1.0).worker(0, 2, 0).exchange(gradient, round)
        (message,) = next(exchange)
        while message.label != label:
            answers = (Merged(2 * message.words if message.merge is Merge.ADD else message.words, 2),)
            (message,) = advance(exchange, answers)  # type: ignore[misc]
        return exchange, message.words

    exchange, words = until("norms")
    with pytest.raises(DecodeError, match="a sum of digits of norms is not one of 2 workers"):
        exchange.send((Merged(words + 200_000, 2),))  # type: ignore[attr-defined]
    exchange, words = until("signs")
    with pytest.raises(DecodeError, match="a sum of signs is beyond the number of workers, 2"):
        exchange.send((Merged(words | 7, 2),))  # type: ignore[attr-defined]


def test_workers_that_chose_other_rows_are_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shared.sampled
    calls = []

    def sampled(chances: np.ndarray, key: int) -> np.ndarray:
        calls.append(key)
        return real(chances, key)[len(calls) - 1 :]

    monkeypatch.setattr(shared, "sampled", sampled)
    with pytest.raises(LockStepError, match="digest"):
        folded(BirdShared(1.0), [np.ones(40, np.float32)] * 2, round_of([(10, 4, 0)], 2))


def test_elements_that_are_not_finite_or_too_large() -> None:
    round = round_of([(2, 2, 0)], 2)
    with pytest.raises(EncodeError, match="its row has no norm"):
        folded(BirdShared(), [np.array([1, 2, 3, math.inf], np.float32)] * 2, round)
    with pytest.raises(EncodeError, match="may leave float32"):
        folded(BirdShared(1.0), [np.full(4, 3e38, np.float32)] * 2, round)
