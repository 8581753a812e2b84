"""Dense codecs: bounds of block exponents, and that every name sends and decodes what its setting does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Carrier, Codec, EncodeError, codec_kinds
from netfold.homomorphic.codecs.dense import Dense
from netfold.homomorphic.codecs.exact import DenseExact
from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.codecs.none import Uncompressed
from netfold.homomorphic.fold import AllReduceResult, fold
from netfold.homomorphic.merge import WORD_MAX, Merge, Work
from netfold.homomorphic.message import Gradient, Round
from tests.examples import examples
from tests.homomorphic.gradients import Sample, bound_of, folded, samples

NAMES = [
    (Uncompressed(), Dense("float32")),
    (FixedPoint(), Dense()),
    (FixedPoint(64), Dense("block_exponent", 64)),
    (FixedPoint(factor=1e4), Dense("factor", factor=1e4)),
    (DenseExact(), Dense("exact")),
    (DenseExact(64), Dense("exact", 64)),
]


def sent_and_decoded(codec: Codec, sample: Sample, takes_floats: bool) -> list[Any] | str:
    """All words and sums, or the error's text."""
    workers = sample.round.workers
    encoders = [codec.worker(rank, workers, 1) for rank in range(workers)]
    try:
        found = fold(encoders, sample.gradients, replace(sample.round, takes_floats=takes_floats))
    except EncodeError as error:
        return str(error)
    messages = [message for operation in found.messages for each in operation for message in each]
    sent = [
        (one.label, one.merge, one.work, one.decode_work, str(one.words.dtype), one.words.tobytes())
        for one in messages
    ]
    return [*sent, *(one.tobytes() for one in found.decoded)]


@pytest.mark.parametrize(("name", "setting"), NAMES, ids=repr)
@examples(10)
@given(sample=samples(), takes_floats=st.booleans())
def test_a_name_is_its_setting(name: Codec, setting: Dense, sample: Sample, takes_floats: bool) -> None:
    assert name.worker(0, 1, 0) == setting.worker(0, 1, 0)
    assert (name.promise, name.merges, name.is_linear) == (setting.promise, setting.merges, setting.is_linear)
    assert sent_and_decoded(name, sample, takes_floats) == sent_and_decoded(setting, sample, takes_floats)
    assert bound_of(name, sample.gradients).tolist() == bound_of(setting, sample.gradients).tolist()


@pytest.mark.parametrize("kind", ["dense", "fixed_point"])
def test_the_network_s_unit_is_the_block_of_exponents(kind: str) -> None:
    codec: Any = codec_kinds()[kind]

    assert codec().carried_by(Carrier(unit_elements=64)) == codec(block_elements=64)
    assert codec(block_elements=32).carried_by(Carrier(unit_elements=64)) == codec(block_elements=32)
    assert FixedPoint(factor=2.0).carried_by(Carrier(unit_elements=64)) == FixedPoint(factor=2.0)
    for other in (Dense("float32"), Dense("exact"), Dense("factor", factor=2.0)):
        assert other.carried_by(Carrier(unit_elements=64)) == other


def test_blocks_are_read_once_for_their_exponents_and_once_to_quantise() -> None:
    """100 elements in two blocks, whose exponents are a byte each."""
    (message,) = next(FixedPoint(64).worker(0, 1, 0).exchange(np.ones(100, np.float32), Round(0, 0, 1, 1)))

    assert message.work == Work(2 * 400, 400 + 2)
    assert message.decode_work == Work(400 + 2, 400)


# Fixed point with a constant factor: the law, what it cannot carry, and floats in its place.


def run(codec: FixedPoint, sample: Sample, order: list[int], takes_floats: bool) -> AllReduceResult:
    workers = sample.round.workers
    encoders = [codec.worker(rank, workers, 1) for rank in range(workers)]
    return fold(encoders, sample.gradients, replace(sample.round, takes_floats=takes_floats), order)


@examples(20)
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


@examples(20)
@given(samples(), st.sampled_from([1e4, 1e6, 1e8]))
def test_the_law_with_floats_for_what_overflows(sample: Sample, factor: float) -> None:
    codec = FixedPoint(factor=factor)

    found = run(codec, sample, sample.order, takes_floats=True)

    with np.errstate(over="ignore", invalid="ignore"):
        total = np.sum(sample.gradients, axis=0, dtype=np.float64)
        error = np.abs(found.decoded[0] - total)
    assert (error <= bound_of(codec, sample.gradients)).all()
    assert all(found.decoded[0].tobytes() == one.tobytes() for one in found.decoded)


def test_what_a_factor_cannot_carry() -> None:
    gradient: Gradient = np.array([0.0, 1100.0], np.float32)
    text = (
        "gradient[1] is 1100: with 2 workers factor 1e+06 carries magnitudes up to 1073.74; "
        "use a smaller factor, or program atp"
    )
    with pytest.raises(EncodeError, match=f"^{re.escape(text)}$"):
        folded(FixedPoint(factor=1e6), [gradient, gradient])


def test_the_largest_word_that_a_factor_carries() -> None:
    """129 workers share int32: 16647160 each is the most that their sum has room for."""
    most = 16_647_160
    fits, leaves = ([np.array([sign * (most + more)], np.float32) for sign in (1, -1)] for more in (0, 1))

    for gradient in fits:
        assert folded(FixedPoint(factor=1.0), [gradient] * 129).decoded[0] == np.float32(129 * gradient[0])
    for gradient in leaves:
        with pytest.raises(EncodeError, match="carries magnitudes up to"):
            folded(FixedPoint(factor=1.0), [gradient] * 129)
