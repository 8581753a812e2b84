"""What sparse codecs agree on first: which elements are non-zero anywhere, and each block's exponent.

One network operation carries both. Each worker sends a bit per element (is it non-zero?), united by OR, and
an exponent per block (see `fixed_point`), of which the largest counts.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from homomorphic.codec import DecodeError, Gradient, Merge, Merged, Message, Round, Work
from homomorphic.fixed_point import block_exponents, largest_exponent, scale_of
from homomorphic.peeling import Index, write_index

BLOCK_ELEMENTS_MAX = 65_536


class Membership(NamedTuple):
    """Who takes part in a round; all but the first is the same at every worker."""

    own: Index  # elements that are non-zero at this worker
    union: Index  # elements that are non-zero at some worker
    scales: NDArray[np.float32]  # (blocks,) integers per unit of value


def agree(
    gradient: Gradient, block_elements: int, round: Round
) -> Generator[tuple[Message, ...], tuple[Merged, ...], Membership]:
    """Exchange index and exponents; return what all workers agreed on.

    Raises
    ------
    EncodeError
        An element is NaN or infinite, or too large for the sum of this many workers.
    DecodeError
        The merged words contradict what this worker sent.
    """
    index = np.empty(-(-gradient.size // 32), np.uint32)
    write_index(gradient, index)
    exponents = block_exponents(gradient, block_elements, round.workers).astype(np.int32)
    # The gradient is read once for the index and once for the exponents.
    work = Work(2 * gradient.nbytes, index.nbytes + exponents.nbytes)
    union, agreed = yield (
        Message(index, Merge.OR, "index", work),
        Message(exponents, Merge.MAX, "exponents"),
    )
    _check_union(index, union.words, gradient.size)
    _check_exponents(exponents, agreed.words, round.workers)
    return Membership(index, union.words, _scales_of(agreed.words, round.workers))


def check_block_elements(block_elements: int, least: int) -> None:
    """Check the block size of a sparse codec; `least` is the elements of one word of its index.

    Raises
    ------
    ValueError
        It is not a power of two between the least and 65536.
    """
    is_power = block_elements > 0 and block_elements & (block_elements - 1) == 0
    if not (is_power and least <= block_elements <= BLOCK_ELEMENTS_MAX):
        raise ValueError(
            f"block_elements is {block_elements}: must be a power of two from {least} to "
            f"{BLOCK_ELEMENTS_MAX}, 4096 is a good choice"
        )


def _scales_of(exponents: NDArray[np.int32], workers: int) -> NDArray[np.float32]:
    """Scale of every block, from its agreed exponent."""
    scale_of_level = {level: scale_of(level, workers) for level in np.unique(exponents).tolist()}
    return np.array([scale_of_level[level] for level in exponents.tolist()], np.float32)


def _check_union(index: Index, union: Index, elements: int) -> None:
    """Refuse a merged index that contradicts this worker's: sums from it would be silently wrong."""
    missing = np.flatnonzero(index & ~union)
    if missing.size:
        raise DecodeError(
            f"the merged index lacks elements this worker sent, first in word {missing[0]}: "
            "a worker's index was lost or damaged on the way"
        )
    padding_bits = 32 * union.size - elements
    if padding_bits and union[-1] >> np.uint32(32 - padding_bits):
        raise DecodeError(
            f"the merged index names elements beyond the last, {elements - 1}: "
            "a worker's index was damaged on the way"
        )


def _check_exponents(exponents: NDArray[np.int32], agreed: NDArray[np.int32], workers: int) -> None:
    """Refuse merged exponents that no maximum can have given."""
    limit = largest_exponent(workers)
    wrong = np.flatnonzero((agreed < exponents) | (agreed > limit))
    if wrong.size:
        block = int(wrong[0])
        raise DecodeError(
            f"the merged exponent of block {block} is {agreed[block]}: must lie between {exponents[block]}, "
            f"which this worker sent, and {limit}"
        )
