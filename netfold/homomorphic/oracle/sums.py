"""What is right, whatever a codec does: true sums of gradients, rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.message import Gradient

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
