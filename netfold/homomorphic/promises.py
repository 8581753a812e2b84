"""Promises beyond a bound: the exact sum, and totals that are right on average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import PART_ELEMENTS, Doubles
from netfold.homomorphic.message import Gradient
from netfold.kernels.compiled import kernel

# What is right, whatever a codec does: true sums of gradients, rounded once.


_CHUNK = 1 << 18


class ExactSums(NamedTuple):
    """Sums of the workers' gradients, each `(elements,)`."""

    totals: NDArray[np.float64]  # sums in float64, one addition after the other
    rounded: NDArray[np.float32]  # the exact sums, rounded once, ties to even
    is_member: NDArray[np.bool_]  # non-zero at some worker


def exact_sums(gradients: Sequence[Gradient]) -> ExactSums:
    """Sums of finite gradients of equal length, at least one."""
    elements = gradients[0].size
    totals = np.empty(elements)
    rounded = np.empty(elements, np.float32)
    is_member = np.empty(elements, np.bool_)
    for begin in range(0, elements, _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        parts = [gradient[chunk] for gradient in gradients]
        totals[chunk], rounded[chunk] = rounded_sums(parts)
        is_member[chunk] = np.logical_or.reduce([part != 0 for part in parts])
    return ExactSums(totals, rounded, is_member)


def rounded_sums(parts: Sequence[Gradient]) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Float64 sums of finite values, and their exact sums rounded once to float32, ties to even.

    A float64 sum and the rounding error of each addition (Knuth's TwoSum, The Art of Computer Programming
    vol. 2, 4.2.2) give an interval with the exact sum in it. If both ends round to the same float32, that is
    the exact sum's. The others, a few in a million for most gradients, are added up exactly.
    """
    totals, lost = np.zeros((2, parts[0].size))
    for part in parts:
        _add_with_loss(np.ascontiguousarray(part), totals, lost)
    lost *= 1 + 2.0**-20  # more than the rounding errors of `lost` itself
    with np.errstate(over="ignore"):  # beyond float32 a sum rounds to infinity
        low = _towards(totals, lost, -np.inf).astype(np.float32)
        high = _towards(totals, lost, np.inf).astype(np.float32)
    for element in np.flatnonzero(low != high):
        low[element] = rounded_sum([float(part[element]) for part in parts])
    return totals, low


@kernel
def _add_with_loss(values: Gradient, totals: NDArray[np.float64], lost: NDArray[np.float64]) -> None:
    """Add values to float64 sums, and the size of each addition's rounding error to `lost`."""
    for i in range(values.size):
        total, addend = totals[i], np.float64(values[i])
        following = total + addend
        taken = following - total
        lost[i] += abs((total - (following - taken)) + (addend - taken))
        totals[i] = following


def _towards(totals: NDArray[np.float64], lost: NDArray[np.float64], end: float) -> NDArray[np.float64]:
    """The upper or lower end of the exact sums' interval; the sum itself if nothing was lost."""
    moved = np.nextafter(totals + np.copysign(lost, end), end)
    return np.where(lost > 0, moved, totals)


def rounded_sum(values: Sequence[float]) -> np.float32:
    """Exact sum of float32 values, rounded once to float32, ties to even.

    The sum is first rounded to odd in float64, so that the second rounding never sees a false tie (Boldo and
    Melquiond, IEEE Transactions on Computers 57(4), 2008).
    """
    total = math.fsum(values)
    rest = math.fsum([*values, -total])
    if rest and not np.float64(total).view(np.int64) & 1:
        total = math.nextafter(total, math.copysign(math.inf, rest))
    with np.errstate(over="ignore"):
        return np.float32(total)


FALSE_ALARMS_MAX = 1e-7  # probability that an unbiased codec fails in a run
_STATISTICS = 2
"""Sums of each stretch: of the errors, and of their part along the ideal."""


def count_inexact(total: Gradient, contributions: Sequence[Gradient]) -> int:
    """How many elements are not the exact sum of the contributions, rounded once; −0.0 equals 0.0."""
    if not all(np.isfinite(one).all() for one in contributions):
        return total.size
    return int(np.count_nonzero(total != rounded_sums(contributions)[1]))


@dataclass
class Drift:
    """Sums of a codec's random errors over stretches of a bucket, `(2, stretches)` each.

    The first row adds up the errors, the second those along the ideal's sign: a total that shrinks has errors
    of both signs, whose sum may be zero. A codec that is unbiased, given all rounds before, has errors of
    mean 0, so its sums stay near 0 (Freedman, "On tail probabilities for martingales", Annals of Probability
    3(1), 1975).
    """

    sums: Doubles
    variances: Doubles
    largest: Doubles  # one error at most

    @classmethod
    def empty(cls, elements: int) -> Drift:
        return cls(*np.zeros((3, _STATISTICS, -(-elements // PART_ELEMENTS))))

    @np.errstate(invalid="ignore")  # infinities that cancel are a bias
    def add(self, first: int, errors: Doubles, ideal: Doubles, variance: Doubles, largest: Doubles) -> None:
        """Add the errors of the stretch that begins with element `first`."""
        stretch = first // PART_ELEMENTS
        self.sums[:, stretch] += errors.sum(), (errors * np.sign(ideal)).sum()
        self.variances[:, stretch] += variance.sum()
        self.largest[:, stretch] = np.maximum(self.largest[:, stretch], largest.max(initial=0.0))

    @np.errstate(invalid="ignore")
    def join(self, other: Drift) -> Drift:
        """The drift of this bucket and another of its rounds."""
        largest = np.maximum(self.largest, other.largest)
        return Drift(self.sums + other.sums, self.variances + other.variances, largest)


class Bias(NamedTuple):
    """The sum of errors that is farthest from 0, relative to what chance allows."""

    over_allowed: float  # more than 1 is no chance
    bucket: int
    stretch: int
    sum: float
    allowed: float
    statistics: int  # how many were compared


def largest_bias(drifts: dict[int, Drift]) -> Bias:
    """Compare the sums of all buckets with what chance allows.

    With variances V and errors of at most M, |Σ| exceeds t with a probability of at most
    2 exp(−t² / (2 (V + M t / 3))).
    """
    count = sum(drift.sums.size for drift in drifts.values())
    log = math.log(2 * max(1, count) / FALSE_ALARMS_MAX)
    worst = Bias(0.0, 0, 0, 0.0, 0.0, count)
    for bucket, drift in drifts.items():
        linear = log * drift.largest / 3
        allowed = linear + np.sqrt(linear**2 + 2 * log * drift.variances)
        over: NDArray[np.float64] = np.divide(
            np.abs(drift.sums), allowed, out=np.where(drift.sums == 0, 0.0, np.inf), where=allowed > 0
        )
        over[~np.isfinite(drift.sums)] = np.inf
        if over.size and over.max() > worst.over_allowed:
            row, stretch = np.unravel_index(int(np.argmax(over)), over.shape)
            figures = float(drift.sums[row, stretch]), float(allowed[row, stretch])
            worst = Bias(float(over.max()), bucket, int(stretch), *figures, count)
    return worst
