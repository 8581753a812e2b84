"""Words, merges and indexes in plain Python: loops and fractions, slow and readable."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def wrap(integer: int) -> int:
    """The int32 that this integer is modulo 2^32."""
    return (integer + 2**31) % 2**32 - 2**31


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


def surviving_bit(tree: object, bits: Sequence[int], thresholds: object) -> tuple[Fraction, int]:
    """Exact probability that the merged bit is 1, and the workers it holds.

    `tree` is a rank, or a pair of trees (accumulated, arriving); `thresholds(a, b)` is the probability, in
    units of 2^-32, that the accumulated bit survives where two bits differ.
    """
    if isinstance(tree, int):
        return Fraction(bits[tree]), 1
    left, right = tree  # type: ignore[misc]
    p, a = surviving_bit(left, bits, thresholds)
    q, b = surviving_bit(right, bits, thresholds)
    keep = Fraction(thresholds(a, b), 2**32)  # type: ignore[operator]
    return p * q + p * (1 - q) * keep + (1 - p) * q * (1 - keep), a + b
