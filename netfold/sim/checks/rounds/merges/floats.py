"""Merged float32 words, compared with the float64 sum of the words sent within the error of the additions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import add_values, addition_error
from netfold.homomorphic.message import Holders, Merged, Words
from netfold.sim.checks.rounds import kernels
from netfold.sim.checks.rounds.results import MessagePlace, Result, Slice, by_holders, complete, holds, slices


def check_floats(place: MessagePlace, sent: Mapping[int, Words], results: Sequence[Result]) -> None:
    """Compare float32 sums with the float64 sum of the words sent, by rank; see `addition_error`."""
    size = next(iter(sent.values())).size
    for holders, group in by_holders(complete(place, results, size, "wrong_floats")):
        for own in slices(size):
            added = [result for result in group if _is_added(result.merged, own)]
            if added:
                sums = _FloatSums.of(sent, own, holders)
            for result in added:
                _compare(place, sums, own, result)


def _is_added(merged: Merged, own: Slice) -> bool:
    """Whether any word of a slice was added as a float."""
    return merged.is_float is None or bool(merged.is_float[own.merged].any())


class _FloatSums(NamedTuple):
    """The float64 sum of a slice, and the largest error of its float32 sum."""

    total: NDArray[np.float64]
    magnitude: NDArray[np.float64]  # of the words that are finite
    allowed: NDArray[np.float64]

    @classmethod
    def of(cls, sent: Mapping[int, Words], own: Slice, holders: Holders | None) -> _FloatSums:
        """Sums over the workers that the result holds."""
        total, magnitude = np.zeros((2, own.last - own.first))
        additions: int | NDArray[np.float64] = len(sent) - 1
        if holders is not None:
            held = np.bitwise_count(holders.bitmaps[np.arange(own.first, own.last) // holders.unit_words])
            additions = np.maximum(held.astype(np.float64) - 1, 0)
        for rank, words in sent.items():
            values = words[own.first : own.last]
            if holders is not None:
                values = np.where(holds(holders, own, rank), values, np.float32(0))
            add_values(values, total, magnitude)
        if not np.isfinite(magnitude.max(initial=0.0)):
            magnitude = _finite_magnitude(sent, own, holders)
        return cls(total, magnitude, addition_error(additions, magnitude))


def _finite_magnitude(sent: Mapping[int, Words], own: Slice, holders: Holders | None) -> NDArray[np.float64]:
    """Σ|x| of the words that are finite."""
    magnitude = np.zeros(own.last - own.first)
    for rank, words in sent.items():
        values = words[own.first : own.last]
        counts = np.isfinite(values)
        if holders is not None:
            counts &= holds(holders, own, rank).astype(np.bool_)
        magnitude += np.abs(np.where(counts, values, np.float32(0)), dtype=np.float64)
    return magnitude


def _compare(place: MessagePlace, sums: _FloatSums, own: Slice, result: Result) -> None:
    """Compare a slice of one result."""
    merged = result.merged
    found = merged.words[own.merged].view(np.float32)
    words = np.arange(own.first, own.last)
    if merged.is_float is not None:
        chosen = np.flatnonzero(merged.is_float[own.merged])
        found, words = found[chosen], words[chosen]
        sums = _FloatSums(*(column[chosen] for column in sums))
    count = kernels.count_beyond(found, sums.total, sums.allowed, sums.magnitude)
    if not count:
        return
    for word in range(found.size):
        one = slice(word, word + 1)
        columns = found[one], sums.total[one], sums.allowed[one], sums.magnitude[one]
        if kernels.count_beyond(*columns):
            values = float(found[word]), float(sums.total[word])
            first = result.wrong_word(place, int(words[word]), values, float(sums.allowed[word]))
            result.wrong_floats.add(count, first)
            return
