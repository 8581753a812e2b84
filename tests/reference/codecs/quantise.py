"""Block floating point on float32 scalars, one word at a time.

Source: p4lang/p4app-switchML @ b5c74a0, cpu_exponent_quantizer_ppp.cc: the scale and the product are float32.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


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
