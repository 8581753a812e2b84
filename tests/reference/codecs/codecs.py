"""Words, merges and indexes in plain Python: loops and fractions, slow and readable."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.reference.switch.merging import signed as wrap


def wrapping_sum(columns: Sequence[Sequence[int]]) -> list[int]:
    """Sum of equally long lists, word by word, as int32 registers hold it."""
    return [wrap(sum(words)) for words in zip(*columns, strict=True)]


def quantise_exactly(value: float, exponent: int, workers: int) -> int:
    """round(x · 2^31 / (n · 2^e)), half to even: the released client's integer where n is a power of two."""
    return round(Fraction(value) * Fraction(2) ** (31 - exponent) / workers)


def index_words(values: Sequence[float], width: int) -> list[int]:
    """A bit per element: bit j of word w is set if element width·w + j is not zero."""
    words = [0] * (-(-len(values) // width))
    for element, value in enumerate(values):
        if value != 0:
            words[element // width] += 2 ** (element % width)
    return words


def members(words: Sequence[int], width: int) -> list[int]:
    """Elements that an index names, in ascending order."""
    return [width * w + j for w, word in enumerate(words) for j in range(width) if word // 2**j % 2]
