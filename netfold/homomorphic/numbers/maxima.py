"""Maxima that workers agree on block by block: checks and forecasts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import DecodeError

Int32s = NDArray[np.int32]


def check_maxima(name: str, sent: Int32s, merged: Int32s, limit: int) -> None:
    """Reject merged numbers that cannot be a maximum over workers, this one among them.

    Raises
    ------
    DecodeError
        A merged number is smaller than what this worker sent, or larger than the limit.
    """
    wrong = np.flatnonzero((merged < sent) | (merged > limit))
    if wrong.size:
        block = int(wrong[0])
        raise DecodeError(
            f"the merged {name} of block {block} is {merged[block]}: must be between {sent[block]}, "
            f"which this worker sent, and {limit}"
        )


def largest_so_far(rounds: Sequence[Int32s], empty: int) -> Int32s:
    """Largest of several rounds' maxima, per block.

    A block that was empty in all rounds takes the larger maximum of its nearest non-empty neighbours. If all
    blocks were empty, they stay empty.
    """
    largest: Int32s = np.max(rounds, axis=0)
    known = np.flatnonzero(largest != empty)
    if known.size == 0:
        return largest
    after = np.searchsorted(known, np.arange(largest.size))
    before = known[np.maximum(after - 1, 0)]
    guess = np.maximum(largest[before], largest[known[np.minimum(after, known.size - 1)]])
    return np.where(largest == empty, guess, largest)
