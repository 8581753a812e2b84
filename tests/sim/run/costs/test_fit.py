"""Costs fitted to samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.run.costs.fit import fitted, fitted_cost
from netfold.sim.workload.fusion.costs import Cost, Costs, Sample, Stages

whole = st.integers(0, 10**6)


@given(whole, whole, st.lists(st.integers(1, 10**6), min_size=2, max_size=20, unique=True))
def test_a_line_is_found(start: int, slope: int, sizes: list[int]) -> None:
    found = fitted_cost(sizes, [start + slope * size for size in sizes])

    times = [start + slope * size for size in sizes]
    assert found.all_ps(sizes) == pytest.approx(times, rel=1e-6, abs=1e-3)


@given(st.lists(st.tuples(st.integers(1, 10**5), st.integers(0, 10**9)), min_size=3, max_size=30))
def test_no_other_line_without_negative_parts_is_closer(samples: list[tuple[int, int]]) -> None:
    """Against least squares with bounds, of SciPy's kind but by trying all four sets of columns."""
    sizes, times = (np.array(one, np.float64) for one in zip(*samples, strict=True))

    found = fitted_cost(*(list(map(int, one)) for one in (sizes, times)))

    assert found.start_ps >= 0
    assert found.element_ps >= 0
    ones = np.ones(sizes.size)
    closest = float((times**2).sum())
    for columns in ([ones], [sizes], [ones, sizes]):
        matrix = np.stack(columns, axis=1)
        scale = np.linalg.norm(matrix, axis=0)
        parts = np.linalg.lstsq(matrix / scale, times, rcond=None)[0] / scale
        if (parts >= 0).all():
            closest = min(closest, float(((matrix @ parts - times) ** 2).sum()))
    if np.unique(sizes).size > 1:
        squares = float(((found.all_ps(sizes) - times) ** 2).sum())
        assert squares <= closest * (1 + 1e-6) + 1e-3 * (1 + float(times.max()) ** 2) * 1e-6


def test_of_one_size_the_time_is_in_proportion() -> None:
    """One bucket does not tell a start from a rate."""
    assert fitted_cost([100], [500]) == Cost(0.0, pytest.approx(5.0))
    assert fitted_cost([100, 100], [400, 600]) == Cost(0.0, pytest.approx(5.0))


def test_times_that_fall_with_size_are_a_start_alone() -> None:
    assert fitted_cost([1, 2, 3], [30, 20, 10]) == Cost(pytest.approx(20.0), 0.0)


def test_no_time_costs_nothing() -> None:
    stages = fitted([Sample(size, 10 + size, 0, 3 * size) for size in (1, 5, 9)])

    assert stages.network == Cost(0.0, 0.0)
    assert stages.encode.ps(20) == pytest.approx(30)
    assert stages.decode.ps(20) == pytest.approx(60)


def test_how_far_samples_are_from_a_line() -> None:
    samples = (Sample(1, 10, 20, 30), Sample(2, 10, 20, 50))
    costs = Costs(0, 0, Stages(Cost(10), Cost(20), Cost(30)), samples)

    assert costs.fit_error == pytest.approx(20 / 140)
    assert Costs(0, 0, costs.stages).fit_error is None
