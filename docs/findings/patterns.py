"""Supports of gradients as boolean arrays, the same for the same seed."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.union_index import WideIndex

Pattern = Literal["iid", "rows", "columns", "power-law rows"]
Support = NDArray[np.bool_]


def support(
    pattern: Pattern, elements: int, density: float, row_elements: int, random: np.random.Generator
) -> Support:
    """Mask of non-zero elements: single elements, or whole rows or columns of a matrix.

    Rows of `power-law rows` are live with a probability proportional to 1 / rank, with ranks in random order,
    as the words of an embedding. The most popular are always live, so that the mean is about `density`.
    """
    if pattern == "iid":
        return random.random(elements) < density
    if pattern == "columns":
        return np.resize(random.random(row_elements) < density, elements)
    rows = -(-elements // row_elements)
    if pattern == "rows":
        chances = np.full(rows, density)
    else:
        chances = random.permutation(np.minimum(1, _top_rank(rows, density) / np.arange(1, rows + 1)))
    return np.repeat(random.random(rows) < chances, row_elements)[:elements]


def _top_rank(rows: int, density: float) -> float:
    """The rank r for which r + r · ln(rows / r), the mean number of live rows, is density · rows."""
    low, high = 0.0, float(rows)
    for _ in range(60):
        middle = (low + high) / 2
        if middle * (1 + np.log(rows / middle)) < density * rows:
            low = middle
        else:
            high = middle
    return high


def index_of(wanted: Support) -> WideIndex:
    """The index of a support, `(⌈elements / 64⌉,)`."""
    padded = np.zeros(-(-wanted.size // 64) * 64, np.bool_)
    padded[: wanted.size] = wanted
    return np.packbits(padded, bitorder="little").view(np.uint64)
