"""Fixed point with a constant factor, as ATP's workers use it (in-ATP/ATP, quantize.h).

A value becomes `round(x · factor)`, and nothing is agreed on beforehand (Lao et al., NSDI 2021). The range is
small and fixed: what leaves it is an error, or is added as float32 by a network that can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netfold.homomorphic.bounds import FactorBound, largest_magnitudes
from netfold.homomorphic.codec import WORD_MAX, EncodeError, Exchange, Gradient, Merge, Message, Round, Work

FACTOR_MIN = 2.0**-128  # half of it makes 0 of every float32; far smaller ones have infinite bounds


def factor_error_bound(gradients: Sequence[Gradient], factor: float) -> FactorBound:
    """Largest `|decoded − Σ gradients|` with a constant factor, for any finite gradients."""
    workers = len(gradients)
    largest = sum(float(largest_magnitudes([one], max(1, one.size)).max(initial=0)) for one in gradients)
    return FactorBound(workers, factor, may_be_float=largest * factor + workers / 2 >= WORD_MAX)


def not_finite(gradient: Gradient) -> str:
    """Error text for the first element that is NaN or infinite."""
    index = int(np.flatnonzero(~np.isfinite(gradient))[0])
    return (
        f"gradient[{index}] is {gradient[index]}: fixed point carries finite values only; "
        "lower the learning rate, or skip such steps"
    )


@dataclass(frozen=True)
class FactorEncoder:
    """One worker's side with a constant factor: a single message of integers."""

    factor: float

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send the gradient as integers, and as it is to a network that adds floats where those overflow."""
        scaled = np.rint(gradient.astype(np.float64) * self.factor)
        # All workers' words may add up to this without leaving int32.
        limit = WORD_MAX if round.takes_floats else WORD_MAX // round.workers
        is_carried = np.isfinite(gradient) if round.takes_floats else np.abs(scaled) <= limit
        if not is_carried.all():
            raise EncodeError(self._too_large(gradient, int(np.argmin(is_carried)), round.workers))
        (merged,) = yield (
            Message(
                np.clip(scaled, -limit, limit).astype(np.int32),
                Merge.ADD,
                "values",
                Work(gradient.nbytes, gradient.nbytes),
                decode_work=Work(gradient.nbytes, gradient.nbytes),
                floats=gradient if round.takes_floats else None,
            ),
        )
        decoded: Gradient = (merged.words / self.factor).astype(np.float32)
        if merged.is_float is not None:
            decoded[merged.is_float] = merged.words.view(np.float32)[merged.is_float]
        return decoded

    def _too_large(self, gradient: Gradient, index: int, workers: int) -> str:
        """Error text for an element that the factor takes out of range."""
        if not np.isfinite(gradient[index]):
            return not_finite(gradient)
        largest = WORD_MAX // workers / self.factor
        return (
            f"gradient[{index}] is {gradient[index]:g}: with {workers} workers factor {self.factor:g} "
            f"carries magnitudes up to {largest:g}; use a smaller factor, or program atp"
        )
