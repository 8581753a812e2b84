"""Some of a gradient's values, in ascending order of their elements and cut where its blocks are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Gradient


class Compact(NamedTuple):
    """Values of some elements; block b's are `values[starts[b]:starts[b + 1]]`."""

    values: Gradient
    starts: NDArray[np.int64]  # (blocks + 1,)
    gradient: Gradient  # that they are of


def block_starts(elements: int, block_elements: int) -> NDArray[np.int64]:
    """Where blocks of all elements begin, and last how many elements there are: `(blocks + 1,)`."""
    blocks = -(-elements // block_elements)
    return np.minimum(np.arange(blocks + 1) * block_elements, elements)


def all_of(gradient: Gradient, block_elements: int) -> Compact:
    """Every element."""
    return Compact(gradient, block_starts(gradient.size, block_elements), gradient)
