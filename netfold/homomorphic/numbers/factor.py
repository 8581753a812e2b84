"""Fixed point with a constant factor, as in ATP's workers (in-ATP/ATP, quantize.h).

A value becomes `round(x · factor)`, without an agreement in advance (Lao et al., NSDI 2021). The range is
small and fixed. A value out of range is an error, or a network that can adds it as float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import FactorBound, largest_magnitudes
from netfold.homomorphic.codec import EncodeError
from netfold.homomorphic.message import WORD_MAX, Gradient, Merged
from netfold.homomorphic.numbers.refusals import not_finite
from netfold.homomorphic.round import Round

_FACTOR_MIN = 2.0**-128  # half of it turns every float32 into 0; far smaller ones have infinite bounds


def check_factor(factor: float) -> None:
    """Reject a factor that is not finite or too small to be useful.

    Raises
    ------
    ValueError
        It is not finite, or too small.
    """
    if not _FACTOR_MIN <= factor < math.inf:
        raise ValueError(
            f"factor is {factor}: must be finite and at least {_FACTOR_MIN:.3g}, for example 1e6"
        )


def factor_error_bound(gradients: Sequence[Gradient], factor: float) -> FactorBound:
    """Largest `|decoded − Σ gradients|` with a constant factor, for any finite gradients."""
    workers = len(gradients)
    largest = sum(float(largest_magnitudes([one], max(1, one.size)).max(initial=0)) for one in gradients)
    return FactorBound(workers, factor, may_be_float=largest * factor + workers / 2 >= WORD_MAX)


def factor_words(gradient: Gradient, factor: float, round: Round) -> NDArray[np.int32]:
    """One worker's integers; those that the network adds as floats instead are clipped to int32.

    Raises
    ------
    EncodeError
        An element is NaN or infinite, or is out of range and the network does not add floats.
    """
    scaled = np.rint(gradient.astype(np.float64) * factor)
    # With this limit the sum of all workers' words stays in int32.
    limit = WORD_MAX if round.takes_floats else WORD_MAX // round.workers
    is_carried = np.isfinite(gradient) if round.takes_floats else np.abs(scaled) <= limit
    if not is_carried.all():
        raise EncodeError(_too_large(gradient, factor, int(np.argmin(is_carried)), round.workers))
    return np.clip(scaled, -limit, limit).astype(np.int32)


def factor_sums(merged: Merged, factor: float) -> Gradient:
    """Values of merged integers and of float sums."""
    decoded: Gradient = (merged.words / factor).astype(np.float32)
    if merged.is_float is not None:
        decoded[merged.is_float] = merged.words.view(np.float32)[merged.is_float]
    return decoded


def _too_large(gradient: Gradient, factor: float, index: int, workers: int) -> str:
    """Error text for an element that is out of range with this factor."""
    if not np.isfinite(gradient[index]):
        return not_finite(gradient)
    largest = WORD_MAX // workers / factor
    return (
        f"gradient[{index}] is {gradient[index]:g}: with {workers} workers factor {factor:g} "
        f"carries magnitudes up to {largest:g}; use a smaller factor, or program atp"
    )
