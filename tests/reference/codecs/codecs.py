"""Words, merges, and block floating point on float32 scalars, one word at a time.

The last after p4lang/p4app-switchML @ b5c74a0, cpu_exponent_quantizer_ppp.cc: scale and product are float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

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


def scale_of(exponent: int, workers: int) -> np.float32:
    """Factor for words below 2^exponent, so that the sum of up to 255 workers fits int32."""
    scale: np.float32 = np.float32(2**31 - 1) / np.ldexp(np.float32(workers), exponent)
    return scale


def quantise(words: Iterable[np.float32], exponent: int, workers: int) -> list[int]:
    """int32 words of a block: float32 product, rounded half to even; -2**31 where int32 cannot hold it.

    Source: Intel 64 and IA-32 Architectures Software Developer's Manual, CVTPS2DQ: what is out of range
    becomes the integer indefinite value, 0x80000000.
    """
    scale = scale_of(exponent, workers)
    products = [float(np.rint(np.float32(word) * scale)) for word in words]
    return [int(product) if -(2**31) <= product < 2**31 else -(2**31) for product in products]
