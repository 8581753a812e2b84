"""Fixed point with a constant factor, as ATP's workers use it (in-ATP/ATP, quantize.h).

A value becomes `round(x · factor)`, and nothing is agreed on beforehand (Lao et al., NSDI 2021). The range is
small and fixed: what leaves it is an error, or is added as float32 by a network that can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import FactorBound, largest_magnitudes
from netfold.homomorphic.codec import WORD_MAX, EncodeError, Gradient, Merged, Round
from netfold.homomorphic.numbers.refusals import not_finite

_FACTOR_MIN = 2.0**-128  # half of it makes 0 of every float32; far smaller ones have infinite bounds


def check_factor(factor: float) -> None:
    """Refuse a factor with which no values or no sums are of use.

    Raises
    ------
    ValueError
        It is not finite, or too small.
    """
    if not _FACTOR_MIN <= factor < math.inf:
        raise ValueError(
            f"factor is {factor}: it must be finite and {_FACTOR_MIN:.3g} or more, for example 1e6"
        )


def factor_error_bound(gradients: Sequence[Gradient], factor: float) -> FactorBound:
    """Largest `|decoded − Σ gradients|` with a constant factor, for any finite gradients."""
    workers = len(gradients)
    largest = sum(float(largest_magnitudes([one], max(1, one.size)).max(initial=0)) for one in gradients)
    return FactorBound(workers, factor, may_be_float=largest * factor + workers / 2 >= WORD_MAX)


def factor_words(gradient: Gradient, factor: float, round: Round) -> NDArray[np.int32]:
    """One worker's integers; those that a network adds as floats instead are cut off at the largest word.

    Raises
    ------
    EncodeError
        An element is NaN or infinite, or leaves the range and the network adds no floats.
    """
    scaled = np.rint(gradient.astype(np.float64) * factor)
    # All workers' words may add up to this without leaving int32.
    limit = WORD_MAX if round.takes_floats else WORD_MAX // round.workers
    is_carried = np.isfinite(gradient) if round.takes_floats else np.abs(scaled) <= limit
    if not is_carried.all():
        raise EncodeError(_too_large(gradient, factor, int(np.argmin(is_carried)), round.workers))
    return np.clip(scaled, -limit, limit).astype(np.int32)


def factor_sums(merged: Merged, factor: float) -> Gradient:
    """Values of merged integers, and the sums of those that were added as floats."""
    decoded: Gradient = (merged.words / factor).astype(np.float32)
    if merged.is_float is not None:
        decoded[merged.is_float] = merged.words.view(np.float32)[merged.is_float]
    return decoded


def _too_large(gradient: Gradient, factor: float, index: int, workers: int) -> str:
    """Error text for an element that the factor takes out of range."""
    if not np.isfinite(gradient[index]):
        return not_finite(gradient)
    largest = WORD_MAX // workers / factor
    return (
        f"gradient[{index}] is {gradient[index]:g}: with {workers} workers factor {factor:g} "
        f"carries magnitudes up to {largest:g}; use a smaller factor, or program atp"
    )
