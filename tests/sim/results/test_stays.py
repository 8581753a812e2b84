"""What is said of jobs that come and go: Jain's index, percentiles, overlap, against their definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.results.stays import Stay, jain, overlapping, overview, spread


def stay(arrival_ps: int, admitted_ps: int | None, end_ps: int | None, alone_ps: int | None = 100) -> Stay:
    return Stay(arrival_ps, admitted_ps, end_ps, alone_ps, "fifo")


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=20), st.integers(1, 1000))
def test_fairness_is_between_1_over_n_and_1_and_does_not_depend_on_the_scale(
    values: list[int], factor: int
) -> None:
    exact = Fraction(sum(values) ** 2, len(values) * sum(value * value for value in values))
    found = jain([float(value) for value in values])

    assert found == pytest.approx(float(exact), rel=1e-12)
    assert found is not None
    assert 1 / len(values) - 1e-12 <= found <= 1 + 1e-12
    assert jain([float(factor * value) for value in values]) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize("values", [[], [1.0], [0.0, 0.0]])
def test_fewer_than_two_jobs_or_none_with_any_speed_have_no_fairness(values: list[float]) -> None:
    assert jain(values) is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_the_95th_percentile_is_the_smallest_value_that_95_percent_do_not_exceed(values: list[float]) -> None:
    found = spread(values)

    assert found is not None
    assert found["mean"] == pytest.approx(sum(values) / len(values), rel=1e-9, abs=1e-300)
    assert found["max"] == max(values)
    enough = [one for one in values if 100 * sum(value <= one for value in values) >= 95 * len(values)]
    assert found["p95"] == min(enough)


def test_values_that_are_missing_do_not_count() -> None:
    assert spread([None, 2.0, None, 4.0]) == {"mean": 3.0, "p95": 4.0, "max": 4.0}
    assert spread([None]) is None


def test_jobs_overlap_only_if_they_run_at_the_same_time_for_some_time() -> None:
    first, second = stay(0, 0, 100), stay(50, 100, 200)  # the second waits until the first ends

    assert overlapping([first, second]) == []
    assert overlapping([first, stay(50, 99, 200)]) == [first, stay(50, 99, 200)]


def test_a_job_that_never_ends_overlaps_with_others_but_has_no_speed() -> None:
    done, stuck, late = stay(0, 0, 100), stay(0, 50, None), stay(0, None, None)

    assert overlapping([done, stuck, late]) == [done]
    found = overview("v", [done, stuck, late])
    assert (found["jobs"], found["finished"], found["waited"]) == (3, 1, 2)
    assert found["makespan_us"] is None
    assert found["fairness"] is None


def test_times_of_a_job_are_from_its_arrival() -> None:
    one = stay(10_000_000, 15_000_000, 35_000_000, alone_ps=5_000_000)

    assert one.metrics() == {
        "arrival_us": 10.0,
        "waiting_us": 5.0,
        "completion_time_us": 25.0,
        "alone_us": 5.0,
        "slowdown": 5.0,
    }
    assert one.speed == 5 / 20  # while it ran


def test_an_overview_has_the_makespan_from_the_first_arrival_to_the_last_end() -> None:
    found = overview("v", [stay(20, 20, 220), stay(10, 120, 320), stay(400, 400, 500)])

    assert found["makespan_us"] == pytest.approx((500 - 10) / 1e6)
    assert found["waited"] == 1
    assert found["overlapping"] == 2
    assert found["fairness"] == pytest.approx(1.0)
    assert found["slowdown"]["max"] == pytest.approx(310 / 100)
    assert math.isclose(found["completion_time_us"]["mean"], (200 + 310 + 100) / 3 / 1e6)
