"""Timed faults: what an engine is told, and when, however they overlap; and the account of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.engine.interface import NEVER_PS, Fate, Rule
from netfold.sim.network.host_time import HostTimes
from netfold.sim.plan.faults import (
    Condition,
    Crash,
    Effect,
    FaultPlan,
    HostSlowdown,
    LateStart,
    LinksDown,
    LinksSlower,
    Pause,
    PlannedFault,
    Reboot,
)
from netfold.sim.results.records import FaultRecord
from netfold.sim.run.fault_driver import FaultDriver
from tests.examples import examples

BUILT = [100, 40]  # bits per second of the links


@dataclass
class Told:
    """Writes down what it is told, as (time, what, …)."""

    struck: list[int] = field(default_factory=list)
    calls: list[tuple[int | str, ...]] = field(default_factory=list)
    now_ps: int = 0

    def advance(self, time_ps: int) -> None:
        assert time_ps >= self.now_ps
        self.now_ps = time_ps

    def __getattr__(self, what: str) -> Callable[..., None]:
        """Whatever else it is told: `cut`, `restore`, `set_rate`, `pause` …"""
        return lambda *told: self.calls.append((self.now_ps, what, *map(int, told)))

    def rule_counters(self) -> list[int]:
        return self.struck


def driven(
    effects: list[Effect], until_ps: int = 1000, struck: tuple[int, ...] = ()
) -> tuple[Told, FaultDriver]:
    """An engine that was told some effects, up to a time."""
    environment, engine = simpy.Environment(), Told(list(struck))
    plan = FaultPlan(tuple(PlannedFault("kind", "where", effect) for effect in effects))
    driver = FaultDriver(environment, engine, plan, np.array(BUILT))
    environment.run(until_ps)
    return engine, driver


def calls(*effects: Effect) -> list[tuple[int | str, ...]]:
    return driven(list(effects))[0].calls


DOWN_AND_UP = [(1, "cut", 0), (3, "cut", 1), (5, "restore", 1), (8, "restore", 0)]
# What waits in the switch is lost, when it goes down and until it is up; what waits for it is not.
WITH_QUEUES = [
    *((3, "cut", 0), (3, "cut", 1), (3, "flush", 1), (3, "clear", 7)),
    *((6, "flush", 1), (6, "restore", 0), (6, "restore", 1)),
]


@pytest.mark.parametrize(
    ("effects", "told"),
    [
        pytest.param([LinksDown((0,), 5, NEVER_PS)], [(5, "cut", 0)], id="for ever"),
        pytest.param([LinksSlower((1,), 10, 5, NEVER_PS)], [(5, "set_rate", 1, 10)], id="slower for ever"),
        pytest.param([Reboot(7, True, (0, 1), (1,), 3, 6)], WITH_QUEUES, id="a reboot"),
        pytest.param([Reboot(7, False, (1,), (), 3, 6)], [(3, "cut", 1), (6, "restore", 1)], id="of tables"),
        pytest.param([Reboot(7, True, (), (), 3, 3)], [(3, "clear", 7)], id="of registers"),
        pytest.param([Reboot(7, False, (0,), (), 3, 3)], [(3, "cut", 0), (3, "restore", 0)], id="no time"),
        pytest.param([Reboot(7, False, (0, 1), (), 3, 5), LinksDown((0,), 1, 8)], DOWN_AND_UP, id="and down"),
        pytest.param(
            [Crash(0, 1, 4, 7), Pause(0, 0, 3, 2, 9)], [(2, "pause", 3, 9), (7, "crash", 4)], id="hosts"
        ),
        pytest.param(
            [Crash(0, 1, 4, 0), Reboot(7, True, (), (), 0, 0)],
            [(0, "crash", 4), (0, "clear", 7)],
            id="what happens at once follows the scenario",
        ),
    ],
)
def test_what_an_engine_is_told(effects: list[Effect], told: list[tuple[int | str, ...]]) -> None:
    assert calls(*effects) == told


def test_what_comes_after_the_end_is_not_applied() -> None:
    engine, driver = driven([Crash(0, 1, 4, 50), Pause(0, 0, 3, 20, 90)], until_ps=30)

    assert engine.calls == [(20, "pause", 3, 90)]
    assert [(record.count, record.first_ps) for record in driver.records("v")] == [(0, None), (1, 20)]


def test_the_account_is_in_the_order_of_the_scenario() -> None:
    rules = [Rule(Fate.LOSS, 0.5, (0,), from_ps=3), Rule(Fate.FLIP, 0.5, (0,))]
    effects: list[Effect] = [rules[0], LinksDown((0,), 5, 8), rules[1], LateStart(0, 1, 0, 40)]
    _, driver = driven(effects, struck=(17, 0))

    assert driver.records("v") == [
        FaultRecord("v", 0, "kind", "where", "", 17, "packets", 3),
        FaultRecord("v", 1, "kind", "where", "for 3ps", 1, "times", 5),
        FaultRecord("v", 2, "kind", "where", "", 0, "packets", None),
        FaultRecord("v", 3, "kind", "where", "for 40ps", 1, "times", 0),
    ]


def test_a_plan_knows_when_the_network_changes_for_the_last_time() -> None:
    def last_ps(*effects: Effect) -> int:
        return FaultPlan(tuple(PlannedFault("", "", effect) for effect in effects)).last_change_ps

    assert last_ps() == 0
    assert last_ps(LateStart(0, 0, 0, 99)) == 0
    assert last_ps(Rule(Fate.LOSS, 1.0, (0,), until_ps=99), Rule(Fate.LOSS, 0.1, (0,), from_ps=40)) == 99
    assert last_ps(LinksDown((0,), 5, 8), Crash(0, 0, 0, 6)) == 8
    assert last_ps(LinksDown((0,), 5, NEVER_PS)) == 5


TIMES = st.integers(0, 12)
STRETCHES = st.tuples(TIMES, st.integers(1, 6)).map(lambda pair: (pair[0], sum(pair)))
LINKS = st.sampled_from([(0,), (1,), (0, 1)])
LINK_EFFECTS = st.one_of(
    st.builds(lambda links, span: LinksDown(links, *span), LINKS, STRETCHES),
    st.builds(
        lambda links, rate, span: LinksSlower(links, rate, *span), LINKS, st.integers(1, 40), STRETCHES
    ),
)


@examples(200)
@given(st.lists(LINK_EFFECTS, max_size=6))
def test_at_any_time_links_are_as_the_faults_of_that_time_say(effects: list[LinksDown | LinksSlower]) -> None:
    told = calls(*effects)

    for time_ps in range(20):
        for link in (0, 1):
            here = [one for one in effects if link in one.links and one.from_ps <= time_ps < one.until_ps]
            begun = sorted((one for one in here if isinstance(one, LinksSlower)), key=lambda one: one.from_ps)
            so_far = [call for call in told if int(call[0]) <= time_ps and call[2] == link]
            rates = [call[3] for call in so_far if call[1] == "set_rate"]
            cuts = [call[1] for call in so_far if call[1] != "set_rate"]

            assert any(isinstance(one, LinksDown) for one in here) == (cuts[-1:] == ["cut"])
            assert (begun[-1].rate_bps if begun else BUILT[link]) == (rates[-1] if rates else BUILT[link])


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
