"""Faults: their plan, when they come and go, what they do to a job."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from netfold.errors import ScenarioError
from netfold.sim.engine.engine_data import NEVER_PS, Condition, Fate, Rule
from netfold.sim.network.fabric import HostTimes
from netfold.sim.plan.plan import (
    Effect,
    Failure,
    FaultPlan,
    HostSlowdown,
    LateStart,
    LinksDown,
    LinksSlower,
    PlannedFault,
    Reboot,
    Stop,
)
from netfold.sim.results.records import FaultRecord, LinkRecord
from netfold.sim.run.simulation import FaultDriver
from netfold.sim.run.variant import VariantResult
from netfold.sim.scenario.faults import FaultSite, JobWorkers, StartSkew, WorkerCrash, plan_faults
from netfold.topologies.kinds.star import star
from netfold.topologies.network import compile_network
from tests.examples import examples
from tests.sim.scenes import BYTE_PS, LINK, RING, TINY, only, refused, simulate, small_star

US, MS = 10**6, 10**9
TIMED = TINY + "device: {kind: fixed, forward: 1ms, backward: 2ms, memory_rate: 1Gbps}\n"
UP, DOWN = (0, 1, 2, 3), (4, 5, 6, 7)  # link rows of a star of four


EFFECTS: dict[str, tuple[Effect, str]] = {  # and how far and how long it reaches, in words
    "kind: loss, rate: 1%": (Rule(Fate.LOSS, 0.01, UP + DOWN), ""),
    "kind: loss, rate: 1%, links: ['h*->s0', 's0->h1'], from: 1ms, until: 2ms": (
        Rule(Fate.LOSS, 0.01, (*UP, 5), from_ps=MS, until_ps=2 * MS),
        "",
    ),
    "kind: corruption, rate: 0.5": (Rule(Fate.CORRUPTION, 0.5, UP + DOWN), ""),
    "kind: corruption, rate: 0.1%, detected: false": (Rule(Fate.FLIP, 0.001, UP + DOWN), ""),
    "kind: duplicate, rate: 1%": (Rule(Fate.DUPLICATE, 0.01, UP + DOWN), ""),
    "kind: duplicate, rate: 1%, delay: 100us": (Rule(Fate.DUPLICATE, 0.01, UP + DOWN, delay_ps=MS // 10), ""),
    "kind: reorder, rate: 1%, delay: 50us": (Rule(Fate.REORDER, 0.01, UP + DOWN, delay_ps=MS // 20), ""),
    "kind: link_down, links: [h0->s0], at: 1ms, for: 2ms": (LinksDown((0,), MS, 3 * MS), "for 2ms"),
    "kind: link_down, links: [s0-h2, h1-*], at: 1ms": (LinksDown((1, 2, 5, 6), MS, NEVER_PS), "to the end"),
    "kind: link_down, links: ['h[0-1]*'], at: 1ms": (LinksDown((0, 1), MS, NEVER_PS), "to the end"),
    "kind: link_down, at: 1ms": (LinksDown(UP + DOWN, MS, NEVER_PS), "to the end"),
    "kind: switch_down, switch: s0, at: 1ms, for: 5ms": (
        Failure((*UP, *DOWN, 8), 50 * MS, MS, 6 * MS, 4),
        "for 5ms, not rerouted",
    ),
    "kind: switch_down, switch: s0, at: 1ms, reroute: never": (
        Failure((*UP, *DOWN, 8), NEVER_PS, MS, NEVER_PS, 4),
        "to the end, not rerouted",
    ),
    "kind: link_rate, links: ['s0->*'], rate: 12.5Gbps, at: 1ms, for: 2.5ms": (
        LinksSlower(DOWN, 125 * 10**8, MS, 35 * MS // 10),
        "12.5Gbps for 2.5ms",
    ),
    "kind: link_rate, rate: 100Gbps, at: 0s": (
        LinksSlower(UP + DOWN, 10**11, 0, NEVER_PS),
        "100Gbps to the end",
    ),
    "kind: switch_reboot, switch: s0, at: 1ms, for: 5ms": (
        Reboot(4, True, (*UP, *DOWN, 8), (*DOWN, 8), MS, 6 * MS),
        "for 5ms",
    ),
    "kind: switch_reboot, switch: s0, at: 1ms, clears: tables": (
        Reboot(4, False, (*UP, *DOWN, 8), (*DOWN, 8), MS, MS),
        "",
    ),
    "kind: switch_reboot, switch: s0, at: 1ms, clears: registers": (Reboot(4, True, (), (), MS, MS), ""),
    "kind: worker_crash, worker: 2, at: 1ms": (Stop(0, 2, 2, MS), ""),
    "kind: worker_pause, worker: 1, at: 1ms, for: 2ms": (Stop(0, 1, 1, MS, 3 * MS), "for 2ms"),
    "kind: start_skew, worker: 0, delay: 5ms": (LateStart(0, 0, 0, 5 * MS), "for 5ms"),
    "kind: slow_host, worker: 2, factor: 4": (HostSlowdown(0, 2, Fraction(4), 0), "4 times as slow"),
    "kind: slow_host, worker: 2, factor: 1.25": (HostSlowdown(0, 2, Fraction(5, 4), 0), "1.25 times as slow"),
}


@pytest.mark.parametrize("fault", EFFECTS)
def test_effects(tmp_path: Path, fault: str) -> None:
    (planned,) = only(tmp_path, f"faults=[{{{fault}}}]", text=TIMED).faults.faults

    assert (planned.effect, planned.extent) == EFFECTS[fault]


@pytest.mark.parametrize("pattern", ["my-host->s-0", "my-*->s-0", "my-host-s-0"])
def test_names_of_nodes_may_have_hyphens(pattern: str) -> None:
    graph = nx.relabel_nodes(star(2, LINK), {"h0": "my-host", "s0": "s-0"})
    network = compile_network(graph)
    site = FaultSite(network, (), 0, lambda *told: ScenarioError("FILE", 1, *told))
    both = {"my-host->s-0", "s-0->my-host"}

    links = {network.link_names[link] for link in site.links([pattern])}
    assert links == (both if "->" not in pattern else {"my-host->s-0"})


def test_faults_keep_their_order_and_say_where_they_are(tmp_path: Path) -> None:
    plan = only(
        tmp_path,
        "faults=[{kind: loss, rate: 0%, links: ['h1->*', 's0->h2']}, {kind: loss, rate: 1%}, "
        "{kind: switch_reboot, switch: s0, at: 0s}, {kind: worker_crash, worker: 1, at: 1ms}]",
    ).faults

    assert [(fault.kind, fault.where) for fault in plan.faults] == [
        ("loss", "h1->*, s0->h2"),
        ("loss", "*"),
        ("switch_reboot", "s0"),
        ("worker_crash", "worker 1"),
    ]
    assert plan.rules == (Rule(Fate.LOSS, 0.0, (1, 6)), Rule(Fate.LOSS, 0.01, UP + DOWN))


def test_a_worker_is_a_host_wherever_it_was_placed(tmp_path: Path) -> None:
    workers, crash = "workers={count: 2, placement: [h3, h1]}", "{kind: worker_crash, worker: 0, at: 1ms}"
    plan = only(tmp_path, workers, f"faults=[{crash}]").faults

    assert plan.faults[0].effect == Stop(0, 0, 3, MS)


MISTAKES = {
    "kind: loss, rate: 1%, links: ['h*->s0', 'h9->s0']": (
        "links: no link matches 'h9->s0'\n  did you mean 'h3->s0'? links are named like 'h0->s0'"
    ),
    "kind: link_down, at: 1ms, links: [zz]": ("links: no link matches 'zz'\n  links are named like 'h0->s0'"),
    "kind: link_down, at: 1ms, links: [s0->s0]": (
        "links: no link matches 's0->s0'\n  did you mean 's0->h0'? links are named like 'h0->s0'"
    ),
    "kind: link_down, at: 1ms, links: [h2-s0], reroute: 1ms": (
        "links: link h2->s0 is the only link of its host, so there is no other path\n"
        "  use links between switches, or reroute: never"
    ),
    "kind: link_rate, at: 1ms, rate: 200Gbps, links: ['s0->*']": (
        "rate: 200Gbps is more than the 100Gbps that link s0->h0 was built with\n"
        "  a fault only slows links down: use at most 100Gbps, or a faster topology"
    ),
    "kind: switch_reboot, switch: s00, at: 1ms": (
        "switch: there is no switch 's00'\n  did you mean 's0'? switches: s0"
    ),
    "kind: switch_down, switch: h0, at: 1ms": "switch: there is no switch 'h0'\n  switches: s0",
    "kind: switch_reboot, switch: h0, at: 1ms": "switch: there is no switch 'h0'\n  switches: s0",
    "kind: worker_crash, worker: 3, at: 1ms": "worker: there is no worker 3\n  workers are 0 to 2",
    "kind: start_skew, worker: 0, delay: 1ms, job: big": (
        "job: there is no job 'big'\n  there is only one job: remove this key"
    ),
    "kind: slow_host, worker: 0, factor: 2": (
        "kind: computing takes no time here, so a slow host changes nothing\n"
        "  give the variant a device that takes time, fixed or roofline"
    ),
}


@pytest.mark.parametrize("fault", MISTAKES)
def test_faults_that_cannot_be(tmp_path: Path, fault: str) -> None:
    text = TINY + f"faults:\n  - {{kind: loss, rate: 1%}}\n  - {{{fault}}}\n"

    assert refused(tmp_path, text=text) == f"tiny.yaml:14: faults.1.{MISTAKES[fault]}"


def test_too_many_faults_on_packets(tmp_path: Path) -> None:
    loss = "{kind: loss, rate: 1%}"

    assert len(only(tmp_path, f"faults=[{', '.join([loss] * 64)}]").faults.rules) == 64
    assert refused(tmp_path, f"faults=[{', '.join([loss] * 65)}]") == (
        "--set: faults: 65 faults on packets are too many\n"
        "  use 64 at most; a pattern such as 'h*->s0' names many links at once"
    )


def test_only_one_worker(tmp_path: Path) -> None:
    error = refused(tmp_path, "workers=1", "faults=[{kind: worker_crash, worker: 1, at: 1ms}]")

    assert error == "--set: faults.0.worker: there is no worker 1\n  the only worker is 0"


def two_teams(fault: WorkerCrash | StartSkew) -> tuple[str, Effect]:
    """Where, and what, a fault is with two jobs."""
    jobs = [JobWorkers("small", (0, 1)), JobWorkers("large", (2, 3), start_ps=7)]
    plan = plan_faults([fault], small_star(4), jobs, lambda *told: ScenarioError("FILE", 1, *told))
    return plan.faults[0].where, plan.faults[0].effect


def test_a_worker_of_another_job() -> None:
    crash = WorkerCrash(worker=1, at_ps=5)
    skew = StartSkew(worker=0, delay_ps=3, job="large")

    assert two_teams(crash) == ("worker 1 of small", Stop(0, 1, 1, 5))
    assert two_teams(skew) == ("worker 0 of large", LateStart(1, 0, 7, 10))
    with pytest.raises(ScenarioError) as caught:
        two_teams(replace(crash, job="lage"))
    assert str(caught.value) == (
        "FILE:1: faults.0.job: there is no job 'lage'\n  did you mean 'large'? jobs: small, large"
    )


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
    driver = FaultDriver(
        environment, engine, plan, np.array(BUILT), reroute=lambda failed: engine.reroute(*failed)
    )
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
        pytest.param(
            [Failure((0, 1), 2, 3, 9, 7)],
            [
                *((3, "cut", 0), (3, "cut", 1), (3, "kill", 0), (3, "kill", 1), (3, "clear", 7)),
                *((5, "reroute", 0, 1), (9, "restore", 0), (9, "restore", 1), (11, "reroute")),
            ],
            id="a failed switch",
        ),
        pytest.param(  # the second failure ends before routes would leave it out
            [Failure((0,), 0, 2, NEVER_PS), Failure((0, 1), 4, 1, 5)],
            [
                *((1, "cut", 0), (1, "cut", 1), (1, "kill", 0), (1, "kill", 1), (2, "kill", 0)),
                *((2, "reroute", 0), (5, "restore", 1)),
            ],
            id="failures that overlap",
        ),
        pytest.param([Reboot(7, True, (), (), 3, 3)], [(3, "clear", 7)], id="of registers"),
        pytest.param([Reboot(7, False, (0,), (), 3, 3)], [(3, "cut", 0), (3, "restore", 0)], id="no time"),
        pytest.param([Reboot(7, False, (0, 1), (), 3, 5), LinksDown((0,), 1, 8)], DOWN_AND_UP, id="and down"),
        pytest.param(
            [Stop(0, 1, 4, 7), Stop(0, 0, 3, 2, 9)], [(2, "pause", 3, 9), (7, "crash", 4)], id="hosts"
        ),
        pytest.param(
            [Stop(0, 1, 4, 0), Reboot(7, True, (), (), 0, 0)],
            [(0, "crash", 4), (0, "clear", 7)],
            id="what happens at once follows the scenario",
        ),
    ],
)
def test_what_an_engine_is_told(effects: list[Effect], told: list[tuple[int | str, ...]]) -> None:
    assert calls(*effects) == told


def test_what_comes_after_the_end_is_not_applied() -> None:
    engine, driver = driven([Stop(0, 1, 4, 50), Stop(0, 0, 3, 20, 90)], until_ps=30)

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
    assert last_ps(LinksDown((0,), 5, 8), Stop(0, 0, 0, 6)) == 8
    assert last_ps(LinksDown((0,), 5, NEVER_PS)) == 5
    assert last_ps(Failure((0,), 3, 5, 9)) == 12
    assert last_ps(Failure((0,), 3, 5, NEVER_PS)) == 8
    assert last_ps(Failure((0,), 4, 5, 9)) == 9


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
        Stop(0, 1, 9, 30, 40),
        LateStart(0, 1, 0, 10),
        HostSlowdown(0, 1, Fraction(2), 0),
        HostSlowdown(0, 1, Fraction(3), 0),
        Stop(0, 1, 9, 70),
        Stop(0, 1, 9, 50),
        Stop(1, 0, 8, 5),
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


PASS_AND_WIRE_PS = 1_600_000  # of a link into the switch: 1 us, and 0.6 us of a pass
SETS = ("workload.elements=100000", "collective.timeout=1ms")
EITHER = pytest.mark.parametrize("collective", [(), (RING,)], ids=["switch", "ring"])
FINE = {
    *("finishes", "sum_is_right", "merges_are_exact", "replicas_agree", "nothing_lost", "nothing_leaked"),
    *("conservation", "switches_add_up", "decodes", "merges_are_right"),
}


def faulty(folder: Path, *faults: str, collective: tuple[str, ...] = ()) -> VariantResult:
    """Run with some faults; a ring after its own collective is set, so that its timeout is."""
    return simulate(folder, *collective, *SETS, f"faults=[{', '.join('{' + one + '}' for one in faults)}]")


def passed(result: VariantResult) -> set[str]:
    return {check.name for check in result.checks if check.verdict == "pass"}


def end_ps(result: VariantResult) -> int:
    return result.steps[-1].end_ps


def total(result: VariantResult, column: str, name: str = "") -> int:
    """Of all links, or of one."""
    links: list[LinkRecord] = [link for link in result.links if name in ("", link.link)]
    return sum(getattr(link, column) for link in links)


def only_fault(result: VariantResult) -> FaultRecord:
    (record,) = result.faults
    return record


STRUCK = [  # a fault, of what collective, and whether what it strikes is lost
    ("kind: loss, rate: 1%", (), True),
    ("kind: corruption, rate: 1%", (), True),
    ("kind: burst_loss, good_to_bad: 0.5%, bad_to_good: 20%, links: ['h*->s0']", (), True),
    ("kind: duplicate, rate: 5%", (), False),
    # Between hosts a checksum sees all corruption, and overtaken packets are waited for.
    ("kind: corruption, rate: 1%, detected: false", (RING,), True),
    ("kind: reorder, rate: 3%, delay: 20us", (RING,), False),
]


@pytest.mark.parametrize(("fault", "collective", "is_lost"), STRUCK)
def test_what_is_struck_is_counted_and_overcome(
    tmp_path: Path, fault: str, collective: tuple[str, ...], is_lost: bool
) -> None:
    result = faulty(tmp_path, fault, collective=collective)

    assert passed(result) == FINE
    assert only_fault(result).count > 0
    assert total(result, "lost_packets") == only_fault(result).count * is_lost
    assert only_fault(result).kind in fault
    assert (only_fault(result).counted, only_fault(result).first_ps) == ("packets", 0)


def test_an_earlier_fault_spares_links_and_counts_nothing(tmp_path: Path) -> None:
    result = faulty(tmp_path, "kind: loss, rate: 0%, links: ['h0->*']", "kind: loss, rate: 3%")

    assert total(result, "lost_packets", "h0->s0") == 0 < total(result, "lost_packets", "h1->s0")
    assert [record.count for record in result.faults] == [0, total(result, "lost_packets")]
    assert [record.first_ps for record in result.faults] == [None, 0]


def test_packets_are_struck_in_their_stretch_of_time_alone(tmp_path: Path) -> None:
    result = faulty(
        tmp_path, "kind: loss, rate: 100%, links: ['h1->s0'], until: 10us", "kind: loss, rate: 100%, from: 1s"
    )
    first, late = result.faults

    assert passed(result) == FINE
    assert first.count == total(result, "lost_packets", "h1->s0") == total(result, "lost_packets") > 0
    assert (late.count, late.first_ps) == (0, None)
    assert end_ps(result) > MS  # only a timeout brings back what was lost


def test_corruption_that_is_not_seen_makes_wrong_sums(tmp_path: Path) -> None:
    result = faulty(tmp_path, "kind: corruption, rate: 1%, detected: false, links: ['h*->s0']")

    assert "merges_are_exact" not in passed(result)
    assert {"conservation", "nothing_lost", "switches_add_up"} <= passed(result)
    assert total(result, "lost_packets") < only_fault(result).count  # what carries no words is lost instead


@EITHER
def test_a_link_that_is_down_for_a_while_costs_time(tmp_path: Path, collective: tuple[str, ...]) -> None:
    result = faulty(
        tmp_path, "kind: link_down, links: ['h1->s0'], at: 10us, for: 500us", collective=collective
    )

    assert passed(result) == FINE
    assert (only_fault(result).count, only_fault(result).first_ps) == (1, 10 * US)
    link = next(link for link in result.links if link.link == "h1->s0")
    packet_ps = link.bytes * BYTE_PS // link.packets
    assert total(result, "lost_packets") == link.lost_packets <= 1 + PASS_AND_WIRE_PS // packet_ps
    assert total(result, "dropped_packets") == 0  # what comes meanwhile waits at its host
    assert end_ps(result) > 510 * US


@EITHER
def test_a_slow_link_sets_the_pace(tmp_path: Path, collective: tuple[str, ...]) -> None:
    result = faulty(
        tmp_path, "kind: link_rate, links: ['h1->s0'], rate: 10Gbps, at: 0s", collective=collective
    )
    sent_bytes = total(result, "bytes", "h1->s0")

    assert passed(result) == FINE
    assert end_ps(result) >= sent_bytes * 800 > 2 * end_ps(faulty(tmp_path, collective=collective))
    assert total(result, "busy_ps", "h1->s0") == sent_bytes * 800  # picoseconds of a byte at 10 Gbps


@pytest.mark.parametrize("clears", ["clears: registers", "clears: tables, for: 300us", "for: 300us"])
def test_switchml_gets_over_a_reboot_where_no_result_was_lost(tmp_path: Path, clears: str) -> None:
    """A worker that is late leaves slots half full, so that there is something to forget."""
    late = "kind: start_skew, worker: 1, delay: 5us"
    result = faulty(tmp_path, f"kind: switch_reboot, switch: s0, at: 20us, {clears}", late)

    assert passed(result) == FINE
    extent = "for 300us" if "for" in clears else ""
    assert result.faults[0] == FaultRecord("tiny", 0, "switch_reboot", "s0", extent, 1, "times", 20 * US)
    assert end_ps(result) > MS > end_ps(faulty(tmp_path, late))


def test_a_pause_delays_what_arrives_at_the_worker(tmp_path: Path) -> None:
    result = faulty(tmp_path, "kind: worker_pause, worker: 1, at: 20us, for: 5ms")

    assert passed(result) == FINE
    assert 5020 * US < end_ps(result) < 7 * MS


def test_the_longest_queue_is_told_in_bytes(tmp_path: Path) -> None:
    """A window of 16 packets of 332 B joins the queue of a host at once."""
    result = simulate(tmp_path, "codec={kind: fixed_point, factor: 1e6}", "workload.elements=1024")

    assert [link.backlog_bytes_max for link in result.links if link.link == "h0->s0"] == [16 * 332]


def spans_ps(result: VariantResult, worker: int, phase: str) -> list[tuple[int, int]]:
    """When a worker was busy with a phase."""
    return [
        (record.start_ps, record.end_ps)
        for record in result.phases
        if (record.worker, record.phase) == (worker, phase)
    ]


def timed(folder: Path, fault: str, *sets: str) -> VariantResult:
    return simulate(folder, f"faults=[{{{fault}}}]", *sets, text=TIMED)


@pytest.mark.parametrize("collective", [(), (RING,)])
def test_a_worker_that_starts_late_holds_up_the_first_step_alone(
    tmp_path: Path, collective: tuple[str, ...]
) -> None:
    steps = "workload.steps=2"
    sound = simulate(tmp_path, steps, *collective, text=TIMED)
    late = timed(tmp_path, "kind: start_skew, worker: 2, delay: 5ms", steps, *collective)

    assert spans_ps(late, 2, "forward")[0] == (5 * MS, 6 * MS)
    assert spans_ps(late, 1, "forward")[0] == (0, MS)
    (sound_1, sound_2), (late_1, late_2) = (
        [step.end_ps - step.start_ps for step in result.steps] for result in (sound, late)
    )
    assert late_1 - sound_1 == pytest.approx(5 * MS, rel=0.01)
    assert late_2 == pytest.approx(sound_2, rel=0.01)
    assert all(check.verdict == "pass" for check in late.checks)


@pytest.mark.parametrize("collective", [(), (RING,)])
def test_a_slow_host_takes_longer_for_all_it_computes(tmp_path: Path, collective: tuple[str, ...]) -> None:
    slow = timed(tmp_path, "kind: slow_host, worker: 1, factor: 4", *collective)

    for phase in ("forward", "backward", "encode", "decode"):
        usual, longer = ([end - start for start, end in spans_ps(slow, worker, phase)] for worker in (0, 1))
        assert [4 * length for length in usual] == longer
    (step,) = slow.steps
    assert (step.forward_end_ps, step.backward_end_ps) == (4 * MS, 12 * MS)
    assert step.aggregation_start_ps == 3 * MS
    assert all(check.verdict == "pass" for check in slow.checks)


def test_a_pause_stretches_what_it_falls_into(tmp_path: Path) -> None:
    paused = timed(tmp_path, "kind: worker_pause, worker: 1, at: 1500us, for: 10ms")

    assert spans_ps(paused, 1, "forward") == [(0, MS)]
    assert spans_ps(paused, 1, "backward") == [(MS, 13 * MS)]
    assert spans_ps(paused, 0, "backward") == [(MS, 3 * MS)]
    assert all(check.verdict == "pass" for check in paused.checks)
    assert [(record.count, record.first_ps) for record in paused.faults] == [(1, 1_500_000_000)]


QUICK = ("workload.elements=3000", "workload.steps=2", "collective.timeout=1ms")
FEW_SLOTS = ("collective.slots=8", "collective.first_timeout=200us")

RATES = st.sampled_from(["0%", "1%", "5%"])
PATTERNS = st.sampled_from(["'*'", "'h*->s0'", "'s0->h1'", "'h2->s0', 's0->*'"])
BEGINS = st.sampled_from(["0s", "3us", "5us", "20us", "210us"])
LENGTHS = st.sampled_from(["1us", "30us", "700us"])
WORKERS = st.integers(0, 2)
FAULTS = st.one_of(
    st.builds("kind: loss, rate: {}, links: [{}], from: {}".format, RATES, PATTERNS, BEGINS),
    st.builds("kind: corruption, rate: {}, links: [{}]".format, RATES, PATTERNS),
    st.builds("kind: duplicate, rate: {}, links: [{}]".format, RATES, PATTERNS),
    st.builds("kind: link_down, links: [{}], at: {}, for: {}".format, PATTERNS, BEGINS, LENGTHS),
    st.builds("kind: link_rate, links: [{}], at: {}, for: {}, rate: 5Gbps".format, PATTERNS, BEGINS, LENGTHS),
    st.builds("kind: switch_reboot, switch: s0, at: {}, clears: tables, for: {}".format, BEGINS, LENGTHS),
    st.builds("kind: worker_pause, worker: {}, at: {}, for: {}".format, WORKERS, BEGINS, LENGTHS),
    st.builds("kind: start_skew, worker: {}, delay: {}".format, WORKERS, LENGTHS),
)


@examples(25)
@given(st.lists(FAULTS, max_size=5), st.sampled_from([(), FEW_SLOTS, (RING,)]))
def test_sums_are_right_and_every_packet_is_accounted_for(
    faults: list[str], collective: tuple[str, ...]
) -> None:
    written = f"faults=[{', '.join('{' + fault + '}' for fault in faults)}]"
    with tempfile.TemporaryDirectory() as folder:
        result = simulate(Path(folder), *collective, *QUICK, written)

    assert [check for check in result.checks if check.verdict != "pass"] == []
    struck = sum(record.count for record in result.faults if record.kind in ("loss", "corruption"))
    lost = sum(link.lost_packets for link in result.links)
    assert struck == lost or (struck < lost and re.search("link_down|switch_reboot", written))
