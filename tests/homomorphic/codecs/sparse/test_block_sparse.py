"""The block_sparse codec: which blocks travel when, against a plain simulation; bytes; refusals."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import DecodeError
from netfold.homomorphic.codecs.dense.kinds import FixedPoint
from netfold.homomorphic.codecs.sparse.block_sparse import BLOCK_ELEMENTS, BlockSparse
from netfold.homomorphic.message import Gradient, Merge, Message
from tests.homomorphic.gradients import folded
from tests.homomorphic.played import encoders_of, play
from tests.reference.engine import lookahead as plain


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


def live_of(sample: list[Gradient]) -> list[int]:
    """Blocks that are not zero at some worker."""
    return sorted(set().union(*(plain.live_blocks(one.tolist(), BLOCK_ELEMENTS) for one in sample)))


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
            assert operation.following[rank] == (-following.words).tolist()
    assert np.allclose(np.sum(sample, axis=0), result.decoded[0], atol=1e-5)


@given(sample=gradients())
def test_a_bitmap_costs_a_bit_per_block_and_two_operations(sample: list[Gradient]) -> None:
    elements = sample[0].size
    live = live_of(sample)

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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"columns": 0}, "columns is 0: must be at least 1, 512 is usual"),
        *(
            (
                {"block_elements": size},
                f"block_elements is {size}: must be a power of two from 256 to 65536, 4096 is a good choice",
            )
            for size in (128, 300, 1 << 17)
        ),
    ],
)
def test_options_that_cannot_work(options: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        BlockSparse(**options)
