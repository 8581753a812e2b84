"""What faults do to the time that workers take, held against a clock that counts every picosecond."""

from __future__ import annotations

from fractions import Fraction

import simpy
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.network.host_time import HostTimes
from netfold.sim.plan.faults import Condition, Crash, FaultPlan, HostSlowdown, LateStart, Pause, PlannedFault
from tests.examples import examples

STOPS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 8)).map(lambda pair: (pair[0], sum(pair))), max_size=4
)


def counted_ps(stops: list[tuple[int, int]], start_ps: int, work_ps: int) -> int:
    """When work is done, picosecond by picosecond."""
    now_ps = start_ps
    while stands(stops, now_ps):
        now_ps += 1
    while work_ps > 0:
        work_ps -= not stands(stops, now_ps)
        now_ps += 1
    return now_ps


def stands(stops: list[tuple[int, int]], now_ps: int) -> bool:
    return any(from_ps <= now_ps < until_ps for from_ps, until_ps in stops)


@examples(300)
@given(STOPS, st.integers(0, 25), st.integers(0, 12))
def test_work_waits_while_its_host_stands_still(
    stops: list[tuple[int, int]], start_ps: int, work_ps: int
) -> None:
    condition = Condition(stops=tuple(sorted(stops)))

    assert condition.end_ps(start_ps, work_ps) == counted_ps(stops, start_ps, work_ps)


def test_a_sound_host_takes_as_long_as_it_takes() -> None:
    assert Condition().end_ps(7, 5) == 12


def test_a_slow_host_takes_longer_rounded_up() -> None:
    assert Condition(Fraction(4)).end_ps(7, 5) == 27
    assert Condition(Fraction(1.5)).end_ps(0, 3) == 5
    assert Condition(Fraction(4)).end_ps(7, 0) == 7


def test_a_plan_sums_up_what_befalls_a_worker() -> None:
    effects = [
        Pause(0, 1, 9, 30, 40),
        LateStart(0, 1, 0, 10),
        HostSlowdown(0, 1, Fraction(2), 0),
        HostSlowdown(0, 1, Fraction(3), 0),
        Crash(0, 1, 9, 70),
        Crash(0, 1, 9, 50),
        Crash(1, 0, 8, 5),
    ]
    plan = FaultPlan(tuple(PlannedFault("", "", effect) for effect in effects))

    assert plan.conditions(0, 2) == (Condition(), Condition(Fraction(6), ((0, 10), (30, 40)), 50))
    assert plan.conditions(1, 1) == (Condition(crash_ps=5),)


def fired_ps(condition: Condition, begin_ps: int, work_ps: int) -> float | None:
    """When an event of work fires."""
    environment = simpy.Environment(begin_ps)
    event = HostTimes(environment, [Condition(), condition]).work(1, work_ps)
    environment.run()
    return environment.now if event.processed else None


def test_work_before_a_crash_is_done_and_other_work_never() -> None:
    crash = Condition(crash_ps=20)

    assert fired_ps(crash, 5, 14) == 19
    assert fired_ps(crash, 5, 15) is None
    assert fired_ps(crash, 25, 0) is None


def test_a_pause_holds_up_work() -> None:
    assert fired_ps(Condition(stops=((10, 30),)), 5, 8) == 33
    assert fired_ps(Condition(stops=((10, 30),)), 12, 0) == 30


def test_a_time_that_is_past_is_now() -> None:
    environment = simpy.Environment(50)
    hosts = HostTimes(environment, [Condition()])
    event = hosts.until(0, 40)
    environment.run()

    assert (environment.now, event.processed) == (50, True)
    assert hosts.crash_ps(0) == Condition().crash_ps
