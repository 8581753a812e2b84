"""Codec `count_sketch` against plain Python, and what holds for its rounds and its options."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Carrier, DecodeError, EncodeError, Encoder, LockStepError
from netfold.homomorphic.codecs.count_sketch import CountSketch, SketchLayout
from netfold.homomorphic.feedback import FeedbackEncoder, MomentumEncoder
from netfold.homomorphic.fold import AllReduceResult, check_lock_step, fold
from netfold.homomorphic.merge import Merge, Merged
from netfold.homomorphic.message import Note, NoteKind, Round
from netfold.kernels import rng_streams
from tests.examples import examples
from tests.homomorphic.gradients import bound_of, encoders_of, labels
from tests.reference.systems.count_sketch import Hashes, Workers, mixed

SEED, BUCKET = 7, 3


def normal(elements: int, workers: int, seed: int = 1) -> list[np.ndarray]:
    random = np.random.default_rng([seed, workers])
    return [random.standard_normal(elements, np.float32) for _ in range(workers)]


def stepped(
    encoders: list[Encoder], gradients: list[np.ndarray], step: int = 0, bucket: int = BUCKET, **more: Any
) -> AllReduceResult:
    return fold(encoders, gradients, Round(step, bucket, len(gradients), SEED), **more)


def once(codec: CountSketch, gradients: list[np.ndarray], **more: Any) -> AllReduceResult:
    return stepped(encoders_of(codec, len(gradients)), gradients, **more)


@examples(25)
@given(
    elements=st.integers(1, 300),
    codec=st.builds(
        CountSketch,
        rows=st.sampled_from([1, 3, 5]),
        ratio=st.sampled_from([0.05, 0.2, 0.6, 1.0]),
        share=st.sampled_from([0.01, 0.05, 0.3]),
        candidates=st.sampled_from([0, 1, 4]),
        feedback=st.booleans(),
        momentum=st.sampled_from([0.0, 0.5]),
        masking=st.booleans(),
        values=st.sampled_from(["float32", "block_exponent"]),
        block_elements=st.none(),
    ),
    seed=st.integers(0, 2**32),
)
def test_steps_by_plain_python(elements: int, codec: CountSketch, seed: int) -> None:
    """Integers, a momentum of 1/2 and four workers: no sum, product or quantum is rounded."""
    random = np.random.default_rng(seed)
    layout = codec.layout(elements)
    lanes, key = 32 if layout.columns >= 32 else 1, mixed(SEED, rng_streams.COUNT_SKETCH, BUCKET)
    expected = Workers(
        4,
        elements,
        Hashes(layout.rows, layout.columns, lanes, key) if layout.rows else None,
        layout.chosen,
        layout.candidates if layout.rows else elements,
        codec.momentum,
        codec.feedback,
        codec.masking,
    )
    encoders = encoders_of(codec, 4)
    for step in range(4):
        rows = random.integers(-50, 51, (4, elements))
        gradients = list(rows.astype(np.float32))

        right = expected.step(rows.tolist())
        found = stepped(encoders, gradients, step)

        assert found.decoded[0].tolist() == right.total
        assert [one.tolist() for one in found.contributions] == right.contributions
        assert [one.elements.tolist() for one in found.results] == [right.chosen] * 4
        for encoder, residual, velocity in zip(
            encoders, expected.residuals, expected.velocities, strict=True
        ):
            inner = encoder
            if isinstance(inner, MomentumEncoder):
                assert inner.velocity(BUCKET).tolist() == velocity
                inner = inner.encoder
            if isinstance(inner, FeedbackEncoder):
                assert inner.residual(BUCKET).tolist() == residual


@pytest.mark.parametrize(
    ("options", "elements", "layout"),
    [
        ({}, 10_000, SketchLayout(5, 200, 400, 100)),
        ({"rows": 3}, 10_001, SketchLayout(3, 334, 404, 101)),
        ({"candidates": 0}, 10_000, SketchLayout(5, 200, 0, 100)),
        ({"ratio": 1.0}, 10_000, SketchLayout(0, 0, 10_000, 100)),  # as large as the bucket: sent whole
        ({"ratio": 0.95, "candidates": 4}, 10_000, SketchLayout(5, 1900, 400, 100)),
        ({}, 8, SketchLayout(5, 1, 4, 1)._replace(rows=0, columns=0, candidates=8)),
        ({}, 10, SketchLayout(5, 1, 4, 1)),
        ({"share": 1.0}, 100, SketchLayout(0, 0, 100, 100)),
    ],
)
def test_what_is_sent_of_a_bucket(options: dict[str, Any], elements: int, layout: SketchLayout) -> None:
    assert CountSketch(**options).layout(elements) == layout


@pytest.mark.parametrize(("values", "extra"), [("float32", 0), ("block_exponent", 1)])
def test_bytes_on_the_wire(values: Any, extra: int) -> None:
    codec = CountSketch(values=values)
    found = once(codec, normal(10_000, 2))
    one_round = once(replace(codec, candidates=0), normal(10_000, 2))

    # An exponent for each 256 words of the 1000 counters, and of the 400 candidates; here they are words.
    assert found.announced_bytes(0) == 4 * 1000 + 4 * 400 + extra * 4 * (4 + 2)
    assert labels(one_round)[-1] == "sketch"
    assert one_round.announced_bytes(0) == 4 * 1000 + extra * 4 * 4
    bits = codec.bits_per_element(2)
    assert bits.up == bits.down == 0.14 * (32 + extra * 8 / 256)


def test_workers_that_choose_differently_are_noticed() -> None:
    """Equal lengths, but other elements: without the digest, unlike values would be added up."""
    codec = CountSketch(values="float32", feedback=False)
    gradients = normal(3000, 2)
    exchanges = [
        one.exchange(own, Round(0, 0, 2, SEED))
        for one, own in zip(encoders_of(codec, 2), gradients, strict=True)
    ]
    sketches = [next(one)[0].words for one in exchanges]
    right = Merged(sketches[0] + sketches[1], 2)
    damaged = replace(right, words=np.roll(right.words, 1))

    messages = [one.send((merged,)) for one, merged in zip(exchanges, (right, damaged), strict=True)]

    assert messages[0][0].size == messages[1][0].size
    with pytest.raises(LockStepError, match="digest"):
        check_lock_step(messages)


def test_what_is_estimated_to_be_zero_stays_with_its_worker() -> None:
    gradients = [np.zeros(3000, np.float32) for _ in range(2)]
    gradients[0][5], gradients[1][5] = 2, -2
    gradients[0][7] = 1
    found = once(CountSketch(candidates=0), gradients)

    assert np.flatnonzero(found.decoded[0]).tolist() == [7]
    assert [np.flatnonzero(one).tolist() for one in found.contributions] == [[7], []]


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("options", [{}, {"ratio": 1.0}, {"values": "float32", "candidates": 0}])
def test_what_is_not_finite_is_refused(value: float, options: dict[str, Any]) -> None:
    gradient = np.ones(1000, np.float32)
    gradient[1] = value
    with pytest.raises(EncodeError, match=r"gradient\[1\] is"):
        once(CountSketch(**options), [gradient])


def test_counters_beyond_float32_are_refused() -> None:
    huge = np.full(10_000, 3e38, np.float32)
    with pytest.raises(EncodeError, match=r"counter \d+ of the sketch is -?inf: sums of this worker's"):
        once(CountSketch(values="float32"), [huge])
    with pytest.raises(EncodeError, match=r"the words of 'sketch', .* is .*fixed point carries"):
        once(CountSketch(), [huge / 40] * 4)
    one = np.zeros(10_000, np.float32)
    one[0] = 3e38
    with pytest.raises(
        DecodeError, match=r"counter \d+ of the added sketches is -?inf: sums of the workers'"
    ):
        once(CountSketch(values="float32"), [one, one])


def test_what_rounding_takes_is_held_back() -> None:
    """A value far below the largest of its block is rounded to a multiple of 2^(7 + 1 − 31 + 1)."""
    values = np.zeros(40, np.float32)
    values[3], values[4] = 200, 1 + 2.0**-23
    encoder = CountSketch(ratio=1.0, share=0.05).worker(0, 2, 0)
    other = CountSketch(ratio=1.0, share=0.05).worker(1, 2, 0)
    found = fold([encoder, other], [values, 0 * values], Round(0, 0, 2, 1))

    step = 2.0 ** (8 + 1 - 31)
    assert found.decoded[0][:5].tolist() == [0, 0, 0, 200, 1]
    assert encoder.residual(0)[4] == values[4] - 1 == 2.0**-23 < step


def test_the_bound_is_near_what_can_happen() -> None:
    """Totals are off by rounding alone: by a quarter of the bound or more somewhere, and nowhere by more."""
    found = once(CountSketch(ratio=1.0, share=1.0), normal(20_000, 3))
    off_by = np.abs(found.decoded[0] - np.sum(found.contributions, axis=0, dtype=float))
    relative = off_by / bound_of(CountSketch(), found.contributions)

    assert 0.25 < relative.max() <= 1


def test_one_round_names_its_estimates() -> None:
    notes: list[Note] = []
    codec = CountSketch(candidates=0)
    round = Round(0, 0, 1, SEED, report=notes.append)
    found = fold(encoders_of(codec, 1), normal(3000, 1), round)
    two = fold(encoders_of(CountSketch(), 1), normal(3000, 1), replace(round, report=notes.append))

    (note,) = notes
    assert note.kind is NoteKind.ESTIMATE
    assert (note.count, note.total) == (30, 3000)
    assert note.elements.tolist() == np.flatnonzero(found.decoded[0]).tolist()
    assert np.count_nonzero(two.decoded[0]) == 30


def test_buckets_keep_their_length() -> None:
    for codec in (CountSketch(momentum=0.5, feedback=False), CountSketch()):
        encoder = codec.worker(0, 1, 0)
        stepped([encoder], normal(100, 1))
        with pytest.raises(ValueError, match="keeps its length"):
            stepped([encoder], normal(101, 1))


def test_momentum_is_charged_for() -> None:
    def work(codec: CountSketch) -> tuple[int, int]:
        ((message,), *_), *_ = once(codec, normal(1000, 1)).messages
        flops.append(message.work.flops)
        return message.work.read_bytes, message.work.written_bytes

    flops: list[int] = []
    plain = CountSketch(feedback=False, values="float32", rows=3)
    assert work(plain) == (4 * (1000 + 3000), 4 * 3000)
    more = [work(replace(plain, momentum=0.9)), work(replace(plain, feedback=True))]
    assert more == [(4 * (4000 + 2000), 4 * 4000), (4 * (4000 + 4000), 4 * 5000)]
    assert flops[:2] == [2 * 3000, 2 * 3000 + 2 * 1000]  # a value is signed and added in each row


@pytest.mark.parametrize(("values", "is_scaled"), [("float32", 0), ("block_exponent", 1)])
def test_a_sketch_and_its_estimates_are_charged_for(values: Any, is_scaled: int) -> None:
    """Of 1000 elements in 3 rows. To scale its 102 counters they are read twice more, for one exponent."""
    encoder = CountSketch(feedback=False, values=values, rows=3).worker(0, 1, 0)
    exchange = encoder.exchange(*normal(1000, 1), Round(0, 0, 1, SEED))
    (message,) = next(exchange)
    sketch = 4 * 102
    work, decode_work = message.work, message.decode_work

    assert message.words.nbytes == sketch
    assert work.read_bytes == 4 * (1000 + 3000) + is_scaled * 2 * sketch
    assert work.written_bytes == 4 * 3000 + is_scaled * (sketch + 1)
    # Each element's counters are read and their median is written, which is read to select the largest.
    assert decode_work.read_bytes == 4 * (3000 + 1000) + is_scaled * (sketch + 1)
    assert decode_work.written_bytes == 4 * 1000 + is_scaled * sketch
    # An element's counters get its signs, and each is compared with all; to scale back takes one each.
    assert decode_work.flops == 1000 * (3 + 3 * 3) + is_scaled * 102
    if is_scaled:
        return
    # 40 candidates: their places, of 8 bytes, and values are read; the values are written.
    (values_of,) = exchange.send((Merged(message.words, 1),))
    assert (values_of.work.read_bytes, values_of.work.written_bytes) == (40 * (4 + 8), 40 * 4)


def test_what_it_declares() -> None:
    assert CountSketch().merges == {Merge.ADD}
    assert CountSketch(values="float32").merges == {Merge.FLOAT_ADD}
    assert CountSketch().carried_by(Carrier(unit_elements=64)).block_elements == 64
    assert CountSketch(block_elements=32).carried_by(Carrier()).block_elements == 32
    assert CountSketch(values="float32").carried_by(Carrier()).block_elements is None
    assert [CountSketch(momentum=momentum).state_bytes for momentum in (0.0, 0.9)] == [4, 8]
