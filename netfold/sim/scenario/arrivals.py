"""When the jobs of a template arrive: at given times, evenly, or at random."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, field_validator

from netfold.kernels import purposes
from netfold.kernels.keyed import mix_plain
from netfold.sim.keys.fields import Time
from netfold.sim.keys.section import Section
from netfold.units import TIME

_BITS = 53  # of a uniform number


class _Arrivals(Section):
    """How the jobs of a template arrive; `kind` comes first."""

    @abstractmethod
    def times_ps(self, count: int, seed: int, template: int) -> tuple[int, ...]:
        """(count,) times after the template's `start`, in order, in ps; `template` is its place in `jobs`."""


class FixedArrivals(_Arrivals):
    """Jobs arrive at given times after `start`, one job for each."""

    kind: Literal["fixed"]
    at: tuple[Time, ...]
    """Times after `start`, in order; `count` is their number."""

    @field_validator("at")
    @classmethod
    def _in_order(cls, at: tuple[int, ...]) -> tuple[int, ...]:
        if not at:
            raise ValueError("must have at least one time, found none\nuse at: [0us, 100us]")
        for before, after in itertools.pairwise(at):
            if after < before:
                raise ValueError(
                    f"times must be in order, found {TIME.format(after)} after {TIME.format(before)}"
                )
        return at

    def times_ps(self, count: int, seed: int, template: int) -> tuple[int, ...]:
        """As given."""
        return self.at


class EvenArrivals(_Arrivals):
    """The first job arrives at `start`, each other one a gap after the one before it."""

    kind: Literal["even"]
    gap: Annotated[Time, Field(gt=0)]
    """Time between two arrivals."""

    def times_ps(self, count: int, seed: int, template: int) -> tuple[int, ...]:
        """Multiples of the gap."""
        return tuple(number * self.gap for number in range(count))


class PoissonArrivals(_Arrivals):
    """A Poisson process from `start` on: independent exponential gaps, one also before the first job.

    They are drawn by the scenario's seed and the place of the job in `jobs`: all variants have the same ones.
    """

    kind: Literal["poisson"]
    mean_gap: Annotated[Time, Field(gt=0)]
    """Mean time between two arrivals: 1 / rate."""

    def times_ps(self, count: int, seed: int, template: int) -> tuple[int, ...]:
        """Sums of gaps −ln(1 − u) · mean, each rounded to whole ps; u is uniform in [0, 1)."""
        times, now_ps = [], 0
        for number in range(count):
            drawn = int(mix_plain(seed, purposes.JOB_ARRIVALS, template, number)) >> (64 - _BITS)
            now_ps += round(-math.log1p(-drawn / 2**_BITS) * self.mean_gap)
            times.append(now_ps)
        return tuple(times)


Arrivals = Annotated[FixedArrivals | EvenArrivals | PoissonArrivals, Field(discriminator="kind")]
