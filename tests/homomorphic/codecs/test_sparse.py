"""Codecs that send a part of the elements: blocks, packed ones, random ones, the largest."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Codec, DecodeError, EncodeError
from netfold.homomorphic.codecs.block_sparse import BLOCK_ELEMENTS, BlockSparse
from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.codecs.random_k import RandomK
from netfold.homomorphic.codecs.topk import TopK, TopKEncoder
from netfold.homomorphic.error_bounds import Sums
from netfold.homomorphic.fold import AllReduceResult, fold
from netfold.homomorphic.merge import Merge, Merged, Work
from netfold.homomorphic.message import Gradient, Message, Round, Tensor
from netfold.kernels import rng_streams
from tests.examples import examples, nightly
from tests.homomorphic.gradients import encoders_of, folded, play, rows_of
from tests.reference.engine import lookahead as plain
from tests.reference.systems.count_sketch import MASK, mixed, splitmix


@st.composite
def gradients(draw: st.DrawFn) -> list[Gradient]:
    """With live blocks at random, at the ends, everywhere and nowhere; the last block is often short."""
    workers = draw(st.integers(1, 4))
    blocks = draw(st.integers(1, 40))
    elements = blocks * BLOCK_ELEMENTS - draw(st.sampled_from([0, 1, 255]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    share = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    drawn = []
    for _ in range(workers):
        gradient = np.zeros(elements, np.float32)
        for block in np.flatnonzero(random.random(blocks) < share):
            own = gradient[block * BLOCK_ELEMENTS : (block + 1) * BLOCK_ELEMENTS]
            own[random.integers(own.size)] = random.standard_normal() or 1
        drawn.append(gradient)
    return drawn


def elements_of(blocks: list[int], gradient: Gradient) -> list[float]:
    parts = [gradient[block * BLOCK_ELEMENTS : (block + 1) * BLOCK_ELEMENTS] for block in blocks]
    return np.concatenate(parts).tolist() if parts else []


@given(sample=gradients(), columns=st.integers(1, 45))
def test_blocks_advance_as_look_ahead_says(sample: list[Gradient], columns: int) -> None:
    expected = plain.operations([one.tolist() for one in sample], columns, BLOCK_ELEMENTS)

    result = folded(BlockSparse("float32", columns=columns), sample)

    assert len(expected) == len(result.messages)
    for operation, messages in zip(expected, result.messages, strict=True):
        for rank, (values, following) in enumerate(messages):
            assert (values.label, values.merge) == ("blocks", Merge.FLOAT_ADD)
            assert (following.label, following.merge) == ("next blocks", Merge.MAX)
            assert elements_of(operation.blocks, sample[rank]) == values.words.tolist()
            assert Work(values.words.nbytes, values.words.nbytes) == values.decode_work
            assert operation.following[rank] == (-following.words).tolist()
    assert np.allclose(np.sum(sample, axis=0), result.decoded[0], atol=1e-5)


@given(sample=gradients())
def test_a_bitmap_costs_a_bit_per_block_and_two_operations(sample: list[Gradient]) -> None:
    elements = sample[0].size
    live = sorted(set().union(*(plain.live_blocks(one.tolist(), BLOCK_ELEMENTS) for one in sample)))

    result = folded(BlockSparse(blocks="bitmap"), sample)

    words = -(-elements // (32 * BLOCK_ELEMENTS)) + -(-elements // 4096) + len(elements_of(live, sample[0]))
    assert 4 * words == result.announced_bytes(0)
    expected = [["block index", "exponents"], ["blocks"]] if live else [["block index", "exponents"]]
    assert expected == [[one.label for one in operation[0]] for operation in result.messages]
    own = plain.live_blocks(sample[0].tolist(), BLOCK_ELEMENTS)
    bits = result.messages[0][0][0].words
    assert [int(bits[block // 32]) >> block % 32 & 1 for block in range(32 * bits.size)] == [
        int(block in own) for block in range(32 * bits.size)
    ]
    assert folded(FixedPoint(4096), sample).decoded[0].tobytes() == result.decoded[0].tobytes()


@pytest.mark.parametrize("next_block", [2, 3, 5, 8, -5, 99])
def test_next_blocks_that_cannot_be_are_refused(next_block: int) -> None:
    """Of two columns, the first is at block 2, and this worker's next in it is block 6."""
    gradient = np.zeros(12 * BLOCK_ELEMENTS, np.float32)
    gradient[[2 * BLOCK_ELEMENTS, 6 * BLOCK_ELEMENTS]] = 1

    def damage(number: int, message: Message, words: np.ndarray) -> None:
        if number == 1 and message.label == "next blocks":
            words[0] = -next_block

    text = (
        f"the merged next block after block 2 is {next_block}: must be 6, which this worker "
        "sent, or one of that column between the two: a worker's number was lost or damaged on the way"
    )
    with pytest.raises(DecodeError, match=f"^{re.escape(text)}$"):
        play(encoders_of(BlockSparse("float32", columns=2), 1), [gradient], damage=damage)


ELEMENTS = 1000


def once(codec: Codec, gradients: list[Gradient], step: int = 0, seed: int = 1) -> AllReduceResult:
    workers = len(gradients)
    encoders = [codec.worker(rank, workers, 0) for rank in range(workers)]
    return fold(encoders, gradients, Round(step, 0, workers, seed))


def chosen_plain(elements: int, count: int, seed: int, step: int, bucket: int) -> list[int]:
    """The elements with the smallest hashes; splitmix64 in plain Python."""
    key = mixed(seed, rng_streams.RANDOM_K, step, bucket)
    return sorted(sorted(range(elements), key=lambda i: splitmix((key + i) & MASK))[:count])


@pytest.mark.parametrize(("share", "elements"), [(0.01, 1000), (0.3, 77), (1.0, 65), (0.5, 1)])
def test_the_elements_are_those_of_the_smallest_hashes(share: float, elements: int) -> None:
    gradients = [np.full(elements, rank + 1, np.float32) for rank in range(3)]
    found = once(RandomK(share), gradients, step=5, seed=9)
    chosen = chosen_plain(elements, max(1, math.ceil(share * elements)), 9, 5, 0)

    assert np.flatnonzero(found.decoded[0]).tolist() == chosen
    assert {float(value) for value in found.decoded[2][chosen]} == {6.0}
    assert found.contributions[2].sum() == 3 * len(chosen)
    assert found.messages[0][0][0].words.size == len(chosen)
    assert found.messages[0][0][0].merge is Merge.FLOAT_ADD


@pytest.mark.parametrize("values", ["float32", pytest.param("block_exponent", marks=nightly)])
def test_unbiased_sums_are_right_on_average(values: str) -> None:
    random = np.random.default_rng(3)
    gradients = [random.standard_normal(ELEMENTS).astype(np.float32) for _ in range(4)]
    codec = RandomK(0.25, unbiased=True, values=values)  # type: ignore[arg-type]
    rounds = 400

    totals = np.mean([once(codec, gradients, step=step).decoded[0] for step in range(rounds)], axis=0)

    true = np.sum(gradients, axis=0, dtype=np.float64)
    deviation = np.sqrt(3 * true**2 / rounds)  # (scale − 1) · Σ² of one round
    assert np.abs(totals - true).max() <= (6 * deviation + 1e-5).max()
    assert (np.abs(totals - true) <= 6 * deviation + 1e-5).all()
    assert 0.9 < np.sqrt(np.mean(((totals - true) / deviation) ** 2)) < 1.1
    variance = codec.variance(gradients).of(Sums(0, true, np.sum(np.abs(gradients), axis=0)))
    assert np.allclose(variance, 3 * true**2, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("values", ["float32", "block_exponent"])
def test_choosing_elements_is_counted_once_for_all_elements(values: str) -> None:
    """A draw of 8 bytes for each is written and read twice, a byte is written and read, and a bit written."""

    def counted(share: float) -> tuple[int, int]:
        codec = RandomK(share, feedback=False, values=values)  # type: ignore[arg-type]
        exchange = codec.worker(0, 1, 0).exchange(np.ones(ELEMENTS, np.float32), Round(0, 0, 1, 1))
        work = next(exchange)[0].work
        return work.read_bytes, work.written_bytes

    few, more = counted(0.01), counted(0.02)
    # Of each element that is sent: its value is read, and written if the first message has the values.
    one_read, one_written = ((b - a) / 10 for a, b in zip(few, more, strict=True))
    assert one_read == 4
    assert one_written == (4 if values == "float32" else 0)
    index_bytes = 8 * math.ceil(ELEMENTS / 64)
    read, written = few[0] - 10 * 4, few[1] - 10 * one_written
    indexes = 2 * index_bytes if values == "float32" else 0  # counted and gathered by it
    assert read == (8 * 2 + 1) * ELEMENTS + indexes
    assert written == (8 + 1) * ELEMENTS + ELEMENTS // 8 + (0 if values == "float32" else 4)


VALUES = st.sampled_from([-3.0, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0])  # ties are common


def largest_plain(values: list[float], count: int) -> list[int]:
    """Sort by magnitude, then by place."""
    return sorted(sorted(range(len(values)), key=lambda place: (-abs(values[place]), place))[:count])


@examples(100)
@given(rows=rows_of(VALUES, 30, 4), share=st.sampled_from([0.01, 0.1, 0.34, 0.5, 1.0]))
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


def test_every_tensor_sends_its_share() -> None:
    gradient = np.array([9, 8, 7, 6, 0.1, 0.3, 0.2], np.float32)
    tensors = Tensor("weight", (2, 2), "layer", 0), Tensor("bias", (3,), "layer", 4)

    def sent(codec: TopK) -> list[int]:
        found = fold([codec.worker(0, 1, 0)], [gradient], Round(0, 0, 1, 1, tensors=tensors))
        words = found.messages[0][0][0].words
        return [int(word) for word in words[: words.size // 2]]

    assert sent(TopK(0.5)) == [0, 1, 5, 6]  # two of four, two of three
    assert sent(TopK(0.5, of="bucket")) == [0, 1, 2, 3]
    assert TopK(0.5).bits_per_element(3) == (32, 64)  # an index and a value of each other element


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
