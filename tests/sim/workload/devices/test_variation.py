"""Jitter and stragglers against the moments of their distributions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from netfold.sim.workload.devices.variation import STEADY, Jitter, Variation, scaled_ps

DRAWS = 4000


@pytest.mark.parametrize("kind", ["lognormal", "gamma"])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_factors_have_mean_1_and_the_spread(kind: str, spread: float) -> None:
    variation = Variation(Jitter(kind, spread))  # type: ignore[arg-type]
    found = np.array(
        [float(variation.factor(7, worker, step)) for worker in range(4) for step in range(1000)]
    )

    assert found.min() > 0
    assert found.mean() == pytest.approx(1, abs=4 * spread / DRAWS**0.5)
    assert found.std() == pytest.approx(spread, rel=0.1)


def test_skewness_tells_the_kinds_apart() -> None:
    """Of a lognormal (e^{s²} + 2)·√(e^{s²} − 1), here 1.625; of a gamma twice the spread, 1.0."""

    def skewness(kind: str) -> float:
        found = np.array([float(Variation(Jitter(kind, 0.5)).factor(3, 0, n)) for n in range(20_000)])  # type: ignore[arg-type]
        return float((((found - found.mean()) / found.std()) ** 3).mean())

    assert skewness("gamma") == pytest.approx(1.0, abs=0.12)
    assert skewness("lognormal") == pytest.approx(1.625, abs=0.25)


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
