"""What is right: how far a decoded sum may be from the true one, the exact sum, and totals right on average.

Bounds are computed part by part.

A codec reads whole gradients once for what its bound depends on (exponents of blocks, the largest magnitude).
It then computes the bound part by part, from sums that the caller needs anyway. So no float64 array is as
large as the gradient.

u = 2**-24 is the unit roundoff of float32, v = 2**-53 that of float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.bits import identity
from netfold.kernels.compiled import kernel

Gradient = NDArray[np.float32]
Doubles = NDArray[np.float64]
Item = TypeVar("Item", bound=np.generic)

PART_ELEMENTS = 1 << 14
"""Elements of one part, whose arrays stay in the cache."""
FLOAT_MAX = float(np.finfo(np.float32).max)
TINY = 2.0**-149  # the smallest float32 above zero

_U, _V = 2.0**-24, 2.0**-53
_SECOND_ORDER = 1 + 2.0**-20  # products of two errors, and rounding of the bound itself


class Sums(NamedTuple):
    """Float64 sums over workers of the elements `first`, `first + 1`, …"""

    first: int
    total: Doubles
    magnitude: Doubles  # Σ|x|


class ErrorBound(Protocol):
    """Largest allowed `|decoded − Σ gradients|` of one bucket."""

    def of(self, sums: Sums) -> Doubles:
        """The bound of each element of a part, `(elements,)`; the caller may change the array."""


def with_counts(arrays: Iterable[NDArray[Item]]) -> list[tuple[NDArray[Item], int]]:
    """Arrays that are different memory, in their order, each with how often it occurs."""
    counted: dict[tuple[Any, ...], tuple[NDArray[Item], int]] = {}
    for array in arrays:
        key = identity(array)
        first, count = counted.get(key, (array, 0))
        counted[key] = first, count + 1
    return list(counted.values())


def sums_of_parts(
    gradients: Sequence[Gradient], bitmaps: NDArray[np.uint32] | None = None, unit_elements: int = 1
) -> Iterator[Sums]:
    """Sums of consecutive parts. The next part reuses the arrays.

    With `bitmaps` (units,), worker r counts in the units whose bit r is set. An array that several workers
    share is read once and multiplied, which is exact in float64.
    """
    size = gradients[0].size
    counted = with_counts(gradients) if bitmaps is None else [(gradient, 1) for gradient in gradients]
    total, magnitude = np.empty((2, min(PART_ELEMENTS, size)))
    for first in range(0, size, PART_ELEMENTS):
        last = min(first + PART_ELEMENTS, size)
        sums = Sums(first, total[: last - first], magnitude[: last - first])
        sums.total.fill(0)
        sums.magnitude.fill(0)
        held = None if bitmaps is None else bitmaps[np.arange(first, last) // unit_elements]
        for rank, (gradient, count) in enumerate(counted):
            values = gradient[first:last]
            if held is not None:
                values = np.where(held >> np.uint32(rank) & np.uint32(1), values, np.float32(0))
            add_counted(values, count, sums.total, sums.magnitude)
        yield sums


def whole_bound(bound: ErrorBound, gradients: Sequence[Gradient]) -> Doubles:
    """The bound of every element, `(elements,)`."""
    parts = [bound.of(sums) for sums in sums_of_parts(gradients)]
    return np.concatenate(parts) if parts else np.empty(0)


@kernel
def add_values(values: Gradient, total: Doubles, magnitude: Doubles) -> None:
    """Add values, and their magnitudes, in place."""
    for i in range(values.size):
        value = np.float64(values[i])
        total[i] += value
        magnitude[i] += abs(value)


def add_counted(values: Gradient, count: int, total: Doubles, magnitude: Doubles) -> None:
    """Add values, and their magnitudes, so many times, in place."""
    if count == 1:
        add_values(values, total, magnitude)
        return
    product = np.multiply(values, count, dtype=np.float64)
    total += product
    magnitude += np.abs(product)


@kernel
def raise_to_largest(bits: NDArray[np.int32], starts: NDArray[np.int64], largest: NDArray[np.int32]) -> None:
    """Raise `largest` to the bits of the largest magnitude of each block; NaN is above infinity."""
    for block in range(largest.size):
        block_bits = bits[starts[block] : starts[block + 1]]
        high = largest[block]
        for i in range(block_bits.size):
            high = max(high, block_bits[i] & np.int32(0x7FFFFFFF))
        largest[block] = high


def largest_magnitudes(gradients: Sequence[Gradient], block_elements: int) -> Gradient:
    """Largest magnitude of each block over all workers, `(blocks,)`; the last block may be short."""
    elements = gradients[0].size
    starts = np.append(np.arange(0, elements, block_elements), elements)
    largest = np.zeros(starts.size - 1, np.int32)
    for gradient, _ in with_counts(gradients):
        raise_to_largest(np.ascontiguousarray(gradient).view(np.int32), starts, largest)
    return largest.view(np.float32)


def addition_error(additions: int | Doubles, magnitude: Doubles) -> Doubles:
    """Largest distance of a float32 sum of k additions, in any order, from the float64 sum of the words."""
    # k · u · Σ|x| for any order or tree of the additions, without terms of second order (Jeannerod and Rump,
    # "Improved error bounds for inner products in floating-point arithmetic", SIAM Journal on Matrix Analysis
    # and Applications 34(2), 2013); k · v · Σ|x| for the float64 sum by the same theorem. The factor covers
    # the rounding of Σ|x|. Denormal sums are exact in float32; the smallest denormal per addition allows for
    # adders that flush them. All partial sums are finite: a sum that overflows stays infinite or NaN.
    allowed: Doubles = magnitude * (additions * ((_U + _V) * (1 + 2.0**-40)))
    allowed += additions * TINY
    return allowed


@dataclass(frozen=True)
class FloatAddBound:
    """Bound of n − 1 float32 additions in any order whose partial sums stay in float32."""

    workers: int

    def of(self, sums: Sums) -> Doubles:
        return addition_error(self.workers - 1, sums.magnitude)


@dataclass(frozen=True)
class FactorBound:
    """Bound of integers made by a constant factor.

    Each worker's rounding is off by 1/2; products are float64 and sums are integers; the decoded value is
    rounded to float32: n / (2 · factor) + u · |Σ|. If some sum may leave int32, any element may have been
    added as float32 instead, with the bound of float32 additions.
    """

    workers: int
    factor: float
    may_be_float: bool

    def of(self, sums: Sums) -> Doubles:
        """Add the errors of rounding to integers and to float32."""
        bound = self.workers / (2 * self.factor) + _U * np.abs(sums.total)
        if self.may_be_float:
            bound = np.maximum(bound, FloatAddBound(self.workers).of(sums))
        return np.asarray(bound * _SECOND_ORDER + TINY)


@dataclass(frozen=True)
class BlockBound:
    """Bound of block floating point.

    Each worker's float32 product is off by a relative u and its rounding by 1/2; the integer sum is exact;
    conversion to float32 and division are off by u each: n / (2 · scale) + u · Σ|x| + 2u · |Σ|. The error of
    the scale cancels: the same float32 multiplies and divides. The factor covers the second order, the last
    term denormal results.
    """

    half_steps: Doubles  # n / (2 · scale) of each block
    block_elements: int

    def of(self, sums: Sums) -> Doubles:
        """Look up each element's block."""
        bound = np.empty(sums.total.size)
        _block_bound(sums.first, sums.total, sums.magnitude, self.half_steps, self.block_elements, bound)
        return bound


@kernel
def _block_bound(
    first: int,
    total: Doubles,
    magnitude: Doubles,
    half_steps: Doubles,
    block_elements: int,
    bound: Doubles,
) -> None:
    begin = 0
    while begin < total.size:
        block = (first + begin) // block_elements
        end = min(total.size, (block + 1) * block_elements - first)
        half_step = half_steps[block]
        bounds, magnitudes, totals = bound[begin:end], magnitude[begin:end], total[begin:end]
        for i in range(bounds.size):
            off_by = half_step + 2.0**-24 * magnitudes[i] + 2.0**-23 * abs(totals[i])
            bounds[i] = off_by * (1 + 2.0**-20) + 2.0**-149
        begin = end


@dataclass(frozen=True)
class RoundingBound:
    """Bound of a true sum that is rounded once: half the distance of float32 numbers there.

    Plus the error of the float64 sum that it is compared with: n · v · Σ|x|.
    """

    workers: int

    def of(self, sums: Sums) -> Doubles:
        """Half the float32 spacing at the largest possible sum."""
        off_by = sums.magnitude * (self.workers * _V * _SECOND_ORDER)
        largest = np.minimum(np.abs(sums.total) + off_by, np.nextafter(np.float32(FLOAT_MAX), np.float32(0)))
        return np.spacing(largest.astype(np.float32)).astype(np.float64) / 2 + off_by


@dataclass(frozen=True)
class LargestBound:
    bounds: tuple[ErrorBound, ...]

    def of(self, sums: Sums) -> Doubles:
        return np.asarray(np.maximum.reduce([bound.of(sums) for bound in self.bounds]))


# Promises beyond a bound: true sums of gradients, rounded once, and totals that are right on average.


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
    for part, count in with_counts(parts):
        if count == 1:
            _add_with_loss(np.ascontiguousarray(part), totals, lost)
            continue
        before, addend = totals.copy(), np.multiply(part, count, dtype=np.float64)
        totals += addend
        taken = totals - before
        lost += np.abs((before - (totals - taken)) + (addend - taken))
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
    remainder = math.fsum([*values, -total])
    if remainder and not np.float64(total).view(np.int64) & 1:
        total = math.nextafter(total, math.copysign(math.inf, remainder))
    with np.errstate(over="ignore"):
        return np.float32(total)


FALSE_ALARMS_MAX = 1e-7  # probability that an unbiased codec fails in a run
_STATISTICS = 2
"""Sums of each stretch: of the errors, and of their part along the ideal."""


def count_inexact(total: Gradient, contributions: Sequence[Gradient]) -> int:
    """How many elements are not the exact sum of the contributions, rounded once; −0.0 equals 0.0."""
    if not all(np.isfinite(contribution).all() for contribution, _ in with_counts(contributions)):
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
