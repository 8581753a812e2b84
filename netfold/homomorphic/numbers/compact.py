"""Compact arrays: some values of a gradient, in ascending order and cut at its blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import Gradient


class Compact(NamedTuple):
    """Values of some elements; block b's are `values[starts[b]:starts[b + 1]]`."""

    values: Gradient
    starts: NDArray[np.int64]  # (blocks + 1,)
    gradient: Gradient  # the source of the values


def block_starts(elements: int, block_elements: int) -> NDArray[np.int64]:
    """Starts of blocks, and the number of elements as the last: `(blocks + 1,)`."""
    blocks = -(-elements // block_elements)
    return np.minimum(np.arange(blocks + 1) * block_elements, elements)


def all_of(gradient: Gradient, block_elements: int) -> Compact:
    """All elements, as a compact array."""
    return Compact(gradient, block_starts(gradient.size, block_elements), gradient)
