"""The released code of Li et al. in plain Python: index cells, flags, one table, estimates.

Written from its description: blocks of 1024 that keep their lanes, three rows and signs by MurmurHash3 of the
block, a row for every `ratio` blocks; in float32 the lowest bit of a member's mantissa is a flag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np

from tests.reference.codecs import sketch as sketch_of_integers
from tests.reference.codecs.codecs import wrap
from tests.reference.codecs.sketch import Choices, Peeled, published

LANES = 1024


def cells(values: Sequence[float]) -> list[int]:
    """Index in cells of 4 bits, eight to a word, lowest first, as int32."""
    words = [0] * ceil(len(values) / 8)
    for element, value in enumerate(values):
        words[element // 8] += int(value != 0) << 4 * (element % 8)
    return [wrap(word) for word in words]


def members(gradients: Sequence[Sequence[float]]) -> list[int]:
    """Elements of whole blocks that are not zero at some worker."""
    end = len(gradients[0]) // LANES * LANES
    return [element for element in range(end) if any(values[element] != 0 for values in gradients)]


def rows(elements: int, ratio: float) -> int:
    """Rows of the table: one for every `ratio` whole blocks."""
    return ceil(elements // LANES / ratio)


def choices(elements: Sequence[int], rows: int) -> dict[int, Choices]:
    return {element: published(element, LANES, rows) for element in elements}


def flag(value: float) -> np.float32:
    return (np.float32(value).view(np.uint32) | np.uint32(1)).view(np.float32)


def without_flag(value: np.float32) -> np.float32:
    """The same with that bit clear."""
    return (value.view(np.uint32) & np.uint32(0xFFFFFFFE)).view(np.float32)


def sketch(values: Sequence[float], chosen: Mapping[int, Choices], counters: int) -> list[np.float32]:
    """One worker's float32 table: flagged members in ascending order."""
    table = [np.float32(0)] * counters
    for element, three in chosen.items():
        for counter, sign in three:
            table[counter] += sign * flag(values[element])
    return table


def peel(merged: Sequence[np.float32], chosen: Mapping[int, Choices]) -> Peeled:
    """In every round, take out all members that are alone in a counter when it begins."""
    return sketch_of_integers.peel(merged, chosen, without_flag, np.float32)
