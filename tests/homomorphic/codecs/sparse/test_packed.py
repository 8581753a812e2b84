"""The packed codec end to end: the bits of dense fixed point, one word per member, and refusals."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.codecs.dense.kinds import FixedPoint
from netfold.homomorphic.codecs.sketched.lossless import Lossless
from netfold.homomorphic.codecs.sparse.packed import Packed
from netfold.homomorphic.message import Gradient, Message
from tests.homomorphic.gradients import Sample, folded, labels, samples
from tests.homomorphic.gradients import sparse as gradients_of
from tests.homomorphic.played import encoders_of, play

sparse = partial(gradients_of, seed=3)


def play_damaged(gradients: list[Gradient], damage: dict[str, int]) -> None:
    """A round in which the first words of some merged messages are off by `damage[label]`."""

    def change(number: int, message: Message, words: np.ndarray) -> None:
        words[0] = (int(words[0]) + damage.get(message.label, 0)) % 2**32

    play(encoders_of(Packed(), len(gradients)), gradients, damage=change)


@given(sample=samples(), block_elements=st.sampled_from([64, 128, 4096, 65_536]))
def test_decoded_bits_are_those_of_dense_fixed_point(sample: Sample, block_elements: int) -> None:
    packed = folded(Packed(block_elements=block_elements), sample.gradients, sample.order)
    dense = folded(FixedPoint(block_elements), sample.gradients)

    assert [one.tobytes() for one in dense.decoded] == [one.tobytes() for one in packed.decoded]


@pytest.mark.parametrize("workers", [1, 3, 64])
@pytest.mark.parametrize("elements", [1, 31, 32, 33, 63, 64, 65, 4095, 4097, 65_537])
@pytest.mark.parametrize("density", [0.0, 0.01, 1.0])
def test_sizes_densities_and_worker_counts(elements: int, density: float, workers: int) -> None:
    gradients = sparse(elements, density, workers)

    assert (
        folded(FixedPoint(4096), gradients).decoded[0].tobytes()
        == folded(Packed(), gradients).decoded[0].tobytes()
    )


@pytest.mark.parametrize("pattern", ["iid", "rows", "columns"])
@pytest.mark.parametrize("density", [0.001, 0.1, 0.5])
def test_a_word_per_member_for_any_pattern(density: float, pattern: str) -> None:
    gradients = sparse(1_000_000, density, 2, pattern)
    union = np.count_nonzero((gradients[0] != 0) | (gradients[1] != 0))

    result = folded(Packed(), gradients)

    assert result.announced_bytes(0) == 125_000 + 4 * 245 + 4 * union
    assert folded(FixedPoint(4096), gradients).decoded[0].tobytes() == result.decoded[0].tobytes()


def test_the_first_operation_is_that_of_lossless() -> None:
    gradients = sparse(10_000, 0.1, 3)
    packed, sketched = (folded(codec, gradients).messages[0] for codec in (Packed(), Lossless()))

    for ours, theirs in zip(packed, sketched, strict=True):
        assert [(one.words.tobytes(), one.merge, one.label, one.work) for one in theirs] == [
            (one.words.tobytes(), one.merge, one.label, one.work) for one in ours
        ]


def test_words_are_the_members_integers_in_ascending_order() -> None:
    """Of two workers with values below 1, the scale is 2^30."""
    first = np.zeros(100, np.float32)
    first[[3, 70]] = [0.5, -0.25]
    second = np.zeros(100, np.float32)
    second[[64, 70]] = [0.75, 0.25]
    result = folded(Packed(), [first, second])

    integers = [messages[0].words.tolist() for messages in result.messages[1]]
    assert integers == [[2**29, 0, -(2**28)], [0, 3 * 2**28, 2**28]]
    assert (first + second).tolist() == result.decoded[0].tolist()


def test_an_all_zero_gradient_sends_its_index_only() -> None:
    result = folded(Packed(), [np.full(10_000, -0.0, np.float32)] * 3)

    assert labels(result) == ["index", "exponents"]
    assert not result.decoded[0].any()
    assert not np.signbit(result.decoded[0]).any()


def test_members_that_cancel_decode_to_zero() -> None:
    gradient = sparse(10_000, 0.1, 1)[0]
    result = folded(Packed(), [gradient, -gradient])

    assert labels(result) == ["index", "exponents", "values"]
    assert not result.decoded[0].any()


def test_work_counts_the_bytes_of_every_pass() -> None:
    gradient = sparse(8192 + 32, 0.1, 1)[0]  # an odd number of index words: in memory it is a half longer
    sent_bytes, wide_bytes = 257 * 4, 129 * 8
    (index, exponents), (values,) = (operation[0] for operation in folded(Packed(), [gradient]).messages)
    members_bytes = 4 * np.count_nonzero(gradient)

    assert (gradient.nbytes, sent_bytes) == (index.work.read_bytes, index.work.written_bytes)
    assert (members_bytes, 4 * 3) == (exponents.work.read_bytes, exponents.work.written_bytes)
    assert (index.size_bytes, exponents.size_bytes) == (sent_bytes, 4 * 3)
    assert 2 * wide_bytes + members_bytes == values.work.read_bytes
    assert members_bytes == values.work.written_bytes
    assert wide_bytes + members_bytes == values.decode_work.read_bytes
    assert gradient.nbytes == values.decode_work.written_bytes


@pytest.mark.parametrize(
    ("elements", "damage", "text"),
    [
        (
            64,
            {"index": -1},
            "the merged index lacks elements this worker sent, first in word 0: "
            "a worker's index was lost or damaged on the way",
        ),
        (
            3,
            {"index": 8},
            "the merged index has elements beyond the last, 2: a worker's index was damaged on the way",
        ),
        (
            3,
            {"exponents": 127},
            "the merged exponent of block 0 is 128: must be between 1, which this worker sent, and 127",
        ),
    ],
)
def test_contradictions_are_refused(elements: int, damage: dict[str, int], text: str) -> None:
    with pytest.raises(DecodeError, match=f"^{re.escape(text)}$"):
        play_damaged([np.ones(elements, np.float32)], damage)


def test_what_fixed_point_cannot_carry_is_refused() -> None:
    gradient = np.zeros(100, np.float32)
    gradient[70] = 2.0**127
    text = (
        "gradient[70] is 1.70141e+38: with 2 workers fixed point carries magnitudes below 8.50706e+37; "
        "clip or scale the gradient"
    )
    with pytest.raises(EncodeError, match=f"^{re.escape(text)}$"):
        folded(Packed(), [gradient, gradient])


@pytest.mark.parametrize("block_elements", [-64, 0, 32, 100, 1 << 17])
def test_blocks_that_cannot_work(block_elements: int) -> None:
    text = (
        f"block_elements is {block_elements}: must be a power of two from 64 to 65536, 4096 is a good choice"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        Packed(block_elements=block_elements)
