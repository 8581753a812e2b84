"""Codec `topk` against plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.codecs.sparse.topk import TopK, TopKEncoder
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Gradient, Merge, Merged
from netfold.homomorphic.round import Round, Tensor
from tests.examples import examples
from tests.homomorphic.gradients import folded

VALUES = st.sampled_from([-3.0, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0])  # ties are common


def largest_plain(values: list[float], count: int) -> list[int]:
    """Sort by magnitude, then by place."""
    return sorted(sorted(range(len(values)), key=lambda place: (-abs(values[place]), place))[:count])


@examples(100)
@given(
    rows=st.integers(1, 30).flatmap(
        lambda elements: st.lists(
            st.lists(VALUES, min_size=elements, max_size=elements), min_size=1, max_size=4
        )
    ),
    share=st.sampled_from([0.01, 0.1, 0.34, 0.5, 1.0]),
)
def test_a_round_by_plain_python(rows: list[list[float]], share: float) -> None:
    elements = len(rows[0])
    count = max(1, math.ceil(share * elements))
    chosen = [largest_plain(row, count) for row in rows]
    contributions = [
        [value if place in own else 0 for place, value in enumerate(row)]
        for row, own in zip(rows, chosen, strict=True)
    ]

    found = folded(TopK(share, feedback=False), [np.array(row, np.float32) for row in rows])

    assert [one.tolist() for one in found.contributions] == contributions
    assert found.decoded[0].tolist() == [sum(column) for column in zip(*contributions, strict=True)]
    ((message,), *_) = found.messages[0]
    assert message.merge is Merge.GATHER
    assert message.words[:count].tolist() == chosen[0]
    assert message.words[count:].view(np.float32).tolist() == [rows[0][place] for place in chosen[0]]


def round_of(*tensors: tuple[str, tuple[int, ...]]) -> Round:
    placed, start = [], 0
    for name, shape in tensors:
        placed.append(Tensor(name, shape, "layer", start))
        start += placed[-1].elements
    return Round(0, 0, 1, 1, tensors=tuple(placed))


def test_every_tensor_sends_its_share() -> None:
    gradient = np.array([9, 8, 7, 6, 0.1, 0.3, 0.2], np.float32)
    round = round_of(("weight", (2, 2)), ("bias", (3,)))

    def sent(codec: TopK) -> list[int]:
        found = fold([codec.worker(0, 1, 0)], [gradient], round)
        words = found.messages[0][0][0].words
        return [int(word) for word in words[: words.size // 2]]

    assert sent(TopK(0.5)) == [0, 1, 5, 6]  # two of four, two of three
    assert sent(TopK(0.5, of="bucket")) == [0, 1, 2, 3]


@pytest.mark.parametrize("share", [0.0, 1.0001, math.nan])
def test_shares_out_of_range_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="must be above 0 and at most 1"):
        TopK(share)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(EncodeError, match=r"gradient\[1\] is"):
        folded(TopK(), [np.array([0, value], np.float32)])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([1, 1, 0, 0], "worker 0's indices are not ascending elements of 3"),
        ([2, 1, 0, 0], "worker 0's indices are not ascending"),
        ([0, 3, 0, 0], "worker 0's indices are not ascending"),
        ([0, 0, 0], "worker 0's message has 3 words"),
    ],
)
def test_damaged_messages_are_refused(words: list[int], text: str) -> None:
    exchange = TopKEncoder(TopK()).exchange(np.zeros(3, np.float32), Round(0, 0, 1, 1))
    next(exchange)

    with pytest.raises(DecodeError, match=text):
        exchange.send((Merged(np.empty(0), 1, parts=(np.array(words, np.uint32),)),))


def test_a_worker_that_sends_nothing_counts_as_zero() -> None:
    exchange = TopKEncoder(TopK(1.0)).exchange(np.array([1, 2], np.float32), Round(0, 0, 2, 1))
    (message,) = next(exchange)
    empty: Gradient = np.empty(0, np.uint32)

    with pytest.raises(StopIteration) as stop:
        exchange.send((Merged(np.empty(0), 2, parts=(message.words, empty)),))

    assert stop.value.value.total.tolist() == [1, 2]
