"""Errors of a decoded sum: NMSE, cosine, largest error; compiled passes, independent of other kernels.

They call no kernel of another module: this file is not among the sources that name the folder of compiled
code, so only Numba's own check of this file notices that the code is stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.error_bounds import Sums, addition_error, count_inexact
from netfold.homomorphic.message import Gradient
from netfold.kernels.compiled import kernel

Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

FLOAT_MAX = float(np.finfo(np.float32).max)


@kernel
def add_integers(words: NDArray[np.int32], total: Longs) -> None:
    """Add int32 words to 64-bit sums."""
    for i in range(words.size):
        total[i] += np.int64(words[i])


@kernel
def add_scaled(
    words: NDArray[np.float32],
    scales: NDArray[np.float32],
    first: int,
    block_elements: int,
    total: Longs,
) -> None:
    """Add the integers of float32 words to 64-bit sums; they begin with word `first` of the message.

    A word's integer is its float32 product with its block's scale, rounded half to even.
    """
    begin = 0
    while begin < words.size:
        block = (first + begin) // block_elements
        end = min(words.size, (block + 1) * block_elements - first)
        scale = scales[block]
        block_words, sums = words[begin:end], total[begin:end]
        for i in range(block_words.size):
            sums[i] += np.int64(np.rint(block_words[i] * scale))
        begin = end


@kernel
def count_beyond(decoded: NDArray[np.float32], total: Doubles, allowed: Doubles, magnitude: Doubles) -> int:
    """How many float32 sums are farther from `total` than allowed; `magnitude` is that of the finite words.

    A partial sum is at most the sum of the magnitudes and the error of the additions. Where that exceeds
    float32, a finite sum may arrive as an infinity or NaN, and an infinity that was sent may meet the
    opposite one. Otherwise an infinity must arrive as it was sent; a NaN always must.
    """
    count = 0
    for i in range(decoded.size):
        off_by = abs(np.float64(decoded[i]) - total[i])
        if not off_by <= allowed[i]:
            may_overflow = magnitude[i] + allowed[i] >= FLOAT_MAX
            if np.isnan(total[i]):
                is_right = np.isnan(decoded[i])
            elif np.isinf(total[i]):
                is_right = decoded[i] == total[i] or (may_overflow and np.isnan(decoded[i]))
            else:
                is_right = may_overflow and not np.isfinite(decoded[i])
            count += not is_right
    return count


@kernel
def measure_errors(
    decoded: NDArray[np.float32], total: Doubles, bound: Doubles, errors: Doubles, relative: Doubles
) -> None:
    # Where the bound is 0, relative errors are far more than 1. Nothing is within an infinite bound.
    for i in range(decoded.size):
        off_by = abs(np.float64(decoded[i]) - total[i])
        errors[i] = off_by
        relative[i] = off_by / (bound[i] + 5e-324) if bound[i] < np.inf else np.inf


@kernel
def count_nonzeros(values: NDArray[np.float32] | Doubles) -> int:
    """How many values are not zero; NaN counts as one."""
    count = 0
    for i in range(values.size):
        count += values[i] != 0
    return count


@kernel
def add_likeness(decoded: NDArray[np.float32], total: Doubles, likeness: Doubles) -> float:
    """Add Σ(decoded − total)², Σ total², Σ decoded² and Σ decoded · total to `likeness` (4,).

    Returns the largest |decoded − total|, infinite if one is NaN.
    """
    error, right, decoded_squares, product, largest = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(decoded.size):
        value = np.float64(decoded[i])
        off_by = abs(value - total[i])
        largest = max(largest, off_by if off_by == off_by else np.inf)
        error += off_by * off_by
        right += total[i] * total[i]
        decoded_squares += value * value
        product += value * total[i]
    likeness[0] += error
    likeness[1] += right
    likeness[2] += decoded_squares
    likeness[3] += product
    return largest


# How far a decoded total is from the sum of all gradients.


@dataclass
class Likeness:
    """Squares and products of totals and of what they should be."""

    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(4))  # see `add_likeness`

    @property
    def nmse(self) -> float | None:
        """‖total − Σ gradients‖² / ‖Σ gradients‖²; None if that is not finite."""
        error, right, _, _ = self.sums.tolist()
        return _finite(error / right) if right > 0 else (0.0 if error == 0 else None)

    @property
    def cosine(self) -> float | None:
        """Cosine of the angle between total and Σ gradients; None if one is zero or not finite."""
        _, right, decoded_squares, product = self.sums.tolist()
        if not (right > 0 and decoded_squares > 0 and np.isfinite(right) and np.isfinite(decoded_squares)):
            return None
        return _finite(max(-1.0, min(1.0, product / (np.sqrt(right) * np.sqrt(decoded_squares)))))


@dataclass
class ErrorMetrics(Likeness):
    """One round's loss, and the supports of its gradients; it grows part by part."""

    nonzeros: int = 0
    """Elements that are not zero at worker 0."""
    union_nonzeros: int = 0
    """Elements that are not zero at some worker."""
    largest: float = 0.0  # |total − Σ gradients|; infinite if either is not finite
    is_exact: bool = True  # the total is Σ gradients, rounded once; of float32 additions: within their errors

    def add(self, total: Gradient, gradients: Sequence[Gradient], sums: Sums) -> None:
        """Add a part of worker 0's total, the workers' gradients there, and their sums."""
        self.nonzeros += count_nonzeros(gradients[0])
        self.union_nonzeros += count_nonzeros(sums.magnitude)
        self.largest = max(self.largest, add_likeness(total, sums.total, self.sums))

    def judge(self, total: Gradient, gradients: Sequence[Gradient], sums: Sums, is_float: bool) -> None:
        """Find out whether a part of the total is exact, unless an earlier part was not.

        A codec that rounds is found out by its first element that differs from the float64 sum.
        """
        if not self.is_exact:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            if is_float:
                allowed = addition_error(len(gradients) - 1, sums.magnitude)
                is_off = np.isfinite(sums.total) & ~(np.abs(total - sums.total) <= allowed)
                self.is_exact = not is_off.any()
                return
            unlike = np.flatnonzero(total != sums.total.astype(np.float32))[:1]
        self.is_exact = not (
            count_inexact(total[unlike], [gradient[unlike] for gradient in gradients])
            or count_inexact(total, gradients)
        )


class Beyond(NamedTuple):
    """An infinite element of a total: contributions add up to more than float32 has."""

    element: int
    sum: float
    workers: int


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
