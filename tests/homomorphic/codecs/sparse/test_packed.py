"""The packed codec end to end: the bits of dense fixed point, one word per member, and refusals."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest

from netfold.homomorphic.codecs.sparse.packed import Packed
from tests.homomorphic.gradients import folded
from tests.homomorphic.gradients import sparse as gradients_of

sparse = partial(gradients_of, seed=3)


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


@pytest.mark.parametrize("block_elements", [32, 100, 1 << 17])
def test_blocks_that_cannot_work(block_elements: int) -> None:
    text = (
        f"block_elements is {block_elements}: must be a power of two from 64 to 65536, 4096 is a good choice"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        Packed(block_elements=block_elements)
