"""Jitter and stragglers against the moments of their distributions."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np
import pytest

from netfold.sim.workload.devices.variation import STEADY, Jitter, Variation, scaled_ps


@pytest.mark.parametrize(("kind", "skewness"), [("lognormal", 1.625), ("gamma", 1.0)])
def test_factors_have_the_moments_of_their_distribution(
    kind: Literal["lognormal", "gamma"], skewness: float
) -> None:
    """Skewness of a lognormal is (e^{s²} + 2)·√(e^{s²} − 1), of a gamma twice the spread."""
    variation = Variation(Jitter(kind, 0.5))
    found = np.array(
        [float(variation.factor(3, worker, step)) for worker in range(4) for step in range(2500)]
    )
    few = [float(Variation(Jitter(kind, 0.1)).factor(7, 0, step)) for step in range(1000)]

    assert found.min() > 0
    assert found.mean() == pytest.approx(1, abs=4 * 0.5 / 10_000**0.5)
    assert found.std() == pytest.approx(0.5, rel=0.05)
    assert ((found - found.mean()) ** 3).mean() / found.std() ** 3 == pytest.approx(skewness, rel=0.18)
    assert (np.mean(few), np.std(few)) == (pytest.approx(1, abs=0.015), pytest.approx(0.1, rel=0.1))


def test_draws_are_keyed_by_seed_job_worker_and_step() -> None:
    variation = Variation(Jitter("gamma", 0.3))
    keys = [(seed, worker, step) for seed in range(3) for worker in range(3) for step in range(3)]
    found = [variation.factor(*key) for key in keys]

    assert len(set(found)) == len(keys)
    assert found == [variation.factor(*key) for key in keys]
    assert variation.factor(1, 1, 1) != Variation(Jitter("gamma", 0.3), job=1).factor(1, 1, 1)
    small, large = (Variation(Jitter("lognormal", one)).factor(1, 1, 1) for one in (0.1, 0.2))
    assert (small > 1) == (large > 1) or abs(small - 1) < Fraction(1, 50)


def test_slow_workers_are_slower_in_every_step() -> None:
    variation = Variation(None, ((2, 1.5), (0, 4.0)))

    assert [variation.factor(1, worker, 5) for worker in range(4)] == [4, 1, Fraction(3, 2), 1]
    assert STEADY.factor(1, 2, 3) == 1
    assert Variation(Jitter("gamma", 0.0)).factor(1, 2, 3) == 1


def test_scaled_times_are_rounded_up() -> None:
    assert scaled_ps(10, Fraction(1)) == 10
    assert scaled_ps(10, Fraction(21, 20)) == 11
    assert scaled_ps(0, Fraction(5)) == 0
