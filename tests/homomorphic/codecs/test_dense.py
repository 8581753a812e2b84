"""Dense codecs: bounds of block exponents, and that every name sends and decodes what its setting does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from netfold.homomorphic.carrier import Carrier
from netfold.homomorphic.codec import Codec, EncodeError
from netfold.homomorphic.codecs import codec_kinds
from netfold.homomorphic.codecs.dense.kinds import Dense, DenseExact, FixedPoint, Uncompressed
from netfold.homomorphic.fold import Folded, fold
from netfold.homomorphic.message import Gradient, Merge
from netfold.homomorphic.numbers.exponents import largest_exponent
from tests.homomorphic.gradients import Sample, bound_of, folded, samples

NAMES = [
    (Uncompressed(), Dense("float32")),
    (FixedPoint(), Dense()),
    (FixedPoint(64), Dense("block_exponent", 64)),
    (FixedPoint(factor=1e4), Dense("factor", factor=1e4)),
    (DenseExact(), Dense("exact")),
    (DenseExact(64), Dense("exact", 64)),
]


def bound_holds(codec: FixedPoint, gradients: list[Gradient]) -> bool:
    decoded = folded(codec, gradients).decoded[0]
    total = np.sum(gradients, axis=0, dtype=np.float64)
    return bool((np.abs(decoded - total) <= bound_of(codec, gradients)).all())


@given(workers=st.integers(1, 32), elements=st.integers(1, 9), data=st.data())
def test_the_bound_holds_for_all_values_that_fit(workers: int, elements: int, data: st.DataObject) -> None:
    limit = float(np.nextafter(np.float32(2.0 ** largest_exponent(workers)), np.float32(0)))
    fits = st.floats(-limit, limit, width=32)
    gradients = [data.draw(arrays(np.float32, elements, elements=fits)) for _ in range(workers)]

    assert bound_holds(FixedPoint(4), gradients)


@pytest.mark.parametrize("workers", [1, 2, 3, 31, 64])
def test_the_bound_is_tight_within_a_factor_of_ten(workers: int) -> None:
    """A bound that is never approached would prove nothing."""
    random = np.random.default_rng(workers)
    gradients = [random.standard_normal(20_000).astype(np.float32) for _ in range(workers)]
    decoded = folded(FixedPoint(), gradients).decoded[0]
    error = np.abs(decoded - np.sum(gradients, axis=0, dtype=np.float64))

    assert bound_holds(FixedPoint(), gradients)
    assert (error / bound_of(FixedPoint(), gradients)).max() > 0.1


@pytest.mark.parametrize("workers", [1, 2, 32])
@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, -1e-42, 1e-38, 2e-30])
def test_tiny_blocks_never_become_nan(workers: int, value: float) -> None:
    gradients = [np.full(5, value, np.float32)] * workers
    decoded = folded(FixedPoint(), gradients).decoded[0]

    assert bound_holds(FixedPoint(), gradients)
    assert not np.signbit(decoded[decoded == 0]).any()
    if abs(value) > 1e-33:
        assert decoded == pytest.approx(workers * value, rel=1e-4)


def test_values_below_half_a_step_become_zero_next_to_large_ones() -> None:
    decoded = folded(FixedPoint(), [np.array([1, 2.0**-32], np.float32)]).decoded[0]

    assert decoded.tolist() == [1, 0]


def test_blocks_need_elements() -> None:
    text = "block_elements is 0: a block needs at least 1 element; leave it out for the network's unit"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        FixedPoint(0)


def sent_and_decoded(codec: Codec, sample: Sample, takes_floats: bool) -> list[Any] | str:
    """All words and sums, or the error's text."""
    workers = sample.round.workers
    encoders = [codec.worker(rank, workers, 1) for rank in range(workers)]
    try:
        found = fold(encoders, sample.gradients, replace(sample.round, takes_floats=takes_floats))
    except EncodeError as error:
        return str(error)
    return [*_messages(found), *(one.tobytes() for one in found.decoded)]


def _messages(found: Folded) -> list[Any]:
    messages = [message for operation in found.messages for each in operation for message in each]
    return [
        (one.label, one.merge, one.work, one.decode_work, str(one.words.dtype), one.words.tobytes())
        for one in messages
    ]


@pytest.mark.parametrize(("name", "setting"), NAMES, ids=repr)
@given(sample=samples(), takes_floats=st.booleans())
def test_a_name_is_its_setting(name: Codec, setting: Dense, sample: Sample, takes_floats: bool) -> None:
    assert name.worker(0, 1, 0) == setting.worker(0, 1, 0)
    assert (name.promise, name.merges, name.is_linear) == (setting.promise, setting.merges, setting.is_linear)
    assert sent_and_decoded(name, sample, takes_floats) == sent_and_decoded(setting, sample, takes_floats)
    assert bound_of(name, sample.gradients).tolist() == bound_of(setting, sample.gradients).tolist()


def test_the_merges_of_all_values() -> None:
    """What a network must be able to do, and whether order decides."""
    found = [(one.merges, one.is_order_free) for one in (Dense("float32"), Dense(), Dense("exact"))]

    assert found == [
        ({Merge.FLOAT_ADD}, False),
        ({Merge.ADD}, True),
        ({Merge.MAX, Merge.ADD}, True),
    ]
    assert Dense("factor", factor=1.0).merges == {Merge.ADD}


@pytest.mark.parametrize("kind", ["dense", "fixed_point"])
def test_the_network_s_unit_is_the_block_of_exponents(kind: str) -> None:
    codec: Any = codec_kinds()[kind]

    assert codec().carried_by(Carrier(unit_elements=64)) == codec(block_elements=64)
    assert codec(block_elements=32).carried_by(Carrier(unit_elements=64)) == codec(block_elements=32)
    assert FixedPoint(factor=2.0).carried_by(Carrier(unit_elements=64)) == FixedPoint(factor=2.0)
    for other in (Dense("float32"), Dense("exact"), Dense("factor", factor=2.0)):
        assert other.carried_by(Carrier(unit_elements=64)) == other


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"values": "factor"}, "values is 'factor': it needs a factor, for example 1e6"),
        ({"factor": 1e6}, "factor belongs to values factor, found values block_exponent; remove it"),
        (
            {"values": "factor", "factor": 0.0},
            "factor is 0.0: must be finite and at least 2.94e-39, for example 1e6",
        ),
        (
            {"values": "float32", "block_elements": 64},
            "block_elements belongs to values block_exponent and exact, found values float32; remove it",
        ),
        (
            {"values": "factor", "factor": 1e6, "block_elements": 64},
            "block_elements belongs to values block_exponent and exact, found values factor; remove it",
        ),
        (
            {"block_elements": 0},
            "block_elements is 0: a block needs at least 1 element; leave it out for the network's unit",
        ),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        Dense(**options)


@pytest.mark.parametrize("codec", [DenseExact, lambda size: Dense("exact", size)])
def test_digits_are_agreed_on_by_whole_words_of_an_index(codec: Any) -> None:
    with pytest.raises(ValueError, match=r"^block_elements is 0: "):
        codec(0)
