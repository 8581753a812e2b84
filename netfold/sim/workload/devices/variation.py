"""Jitter and stragglers: how many times as long as usual a worker's device takes in a step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from netfold.kernels import purposes
from netfold.kernels.keyed import mix_plain

_USUAL = Fraction(1)
_PARTS = 1 << 20  # factors are whole multiples of 1 / _PARTS, so that machines agree on them


@dataclass(frozen=True)
class Jitter:
    """A factor of mean 1 for each worker and step."""

    kind: Literal["lognormal", "gamma"]
    spread: float  # its standard deviation

    def draw(self, generator: np.random.Generator) -> float:
        """A factor.

        Lognormal: exp(s z - s²/2) with s² = ln(1 + spread²) and a normal z. Gamma: shape 1 / spread², scale
        spread².
        """
        if not self.spread:
            return 1.0
        variance = self.spread**2
        if self.kind == "gamma":
            return float(generator.gamma(1 / variance, variance))
        sigma = math.sqrt(math.log1p(variance))
        return math.exp(sigma * float(generator.standard_normal()) - sigma * sigma / 2)


@dataclass(frozen=True)
class Variation:
    """How the devices of a job's workers differ, and how they vary.

    A draw is keyed by seed, job, worker and step: variants that differ in codec or collective meet the same.
    """

    jitter: Jitter | None = None
    slow: tuple[tuple[int, float], ...] = ()  # worker and factor
    job: int = 0  # its number in the variant

    def factor(self, seed: int, worker: int, step: int) -> Fraction:
        """The factor of a worker's compute times in a step, exactly 1 where nothing varies."""
        if self.jitter is None and not self.slow:
            return _USUAL
        factor = next((own for slow, own in self.slow if slow == worker), 1.0)
        if self.jitter is not None:
            key = mix_plain(seed, purposes.DEVICE_JITTER, self.job, worker, step)
            factor *= self.jitter.draw(np.random.Generator(np.random.PCG64(key)))
        return Fraction(round(factor * _PARTS), _PARTS)


STEADY = Variation()


def scaled_ps(time_ps: int, factor: Fraction) -> int:
    """A time multiplied by a factor, rounded up."""
    return time_ps if factor == 1 else math.ceil(time_ps * factor)
