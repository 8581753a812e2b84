"""Faults resolved: patterns to links, names to nodes, and every reason why they cannot be."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from netfold.sim.engine.interface import NEVER_PS, Fate, Rule
from netfold.sim.errors import ScenarioError
from netfold.sim.plan.faults import (
    Crash,
    Effect,
    HostSlowdown,
    LateStart,
    LinksDown,
    LinksSlower,
    Pause,
    Reboot,
)
from netfold.sim.resolve.faults import JobWorkers, plan_faults
from netfold.sim.scenario.faults import StartSkew, WorkerCrash
from tests.sim.scenes import TINY, only, refused, small_star

MS = 10**9
TIMED = TINY + "device: {kind: fixed, forward: 1ms, backward: 2ms}\n"
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
    "kind: link_down, at: 1ms": (LinksDown(UP + DOWN, MS, NEVER_PS), "to the end"),
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
    "kind: worker_crash, worker: 2, at: 1ms": (Crash(0, 2, 2, MS), ""),
    "kind: worker_pause, worker: 1, at: 1ms, for: 2ms": (Pause(0, 1, 1, MS, 3 * MS), "for 2ms"),
    "kind: start_skew, worker: 0, delay: 5ms": (LateStart(0, 0, 0, 5 * MS), "for 5ms"),
    "kind: slow_host, worker: 2, factor: 4": (HostSlowdown(0, 2, Fraction(4), 0), "4 times as slow"),
    "kind: slow_host, worker: 2, factor: 1.25": (
        HostSlowdown(0, 2, Fraction(5, 4), 0),
        "1.25 times as slow",
    ),
}


@pytest.mark.parametrize("fault", EFFECTS)
def test_effects(tmp_path: Path, fault: str) -> None:
    (planned,) = only(tmp_path, f"faults=[{{{fault}}}]", text=TIMED).faults.faults

    assert (planned.effect, planned.extent) == EFFECTS[fault]


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
    plan = only(
        tmp_path,
        "workers={count: 2, placement: [h3, h1]}",
        "faults=[{kind: worker_crash, worker: 0, at: 1ms}]",
    ).faults

    assert plan.faults[0].effect == Crash(0, 0, 3, MS)


MISTAKES = {
    "kind: loss, rate: 1%, links: ['h*->s0', 'h9->s0']": (
        "links: no link matches 'h9->s0'\n  did you mean 'h3->s0'? links are named like 'h0->s0'"
    ),
    "kind: link_down, at: 1ms, links: [zz]": ("links: no link matches 'zz'\n  links are named like 'h0->s0'"),
    "kind: link_down, at: 1ms, links: [s0->s0]": (
        "links: no link matches 's0->s0'\n  did you mean 's0->h0'? links are named like 'h0->s0'"
    ),
    "kind: link_rate, at: 1ms, rate: 200Gbps, links: ['s0->*']": (
        "rate: 200Gbps is more than the 100Gbps that link s0->h0 was built with\n"
        "  a fault only slows links down: use at most 100Gbps, or a faster topology"
    ),
    "kind: switch_reboot, switch: s00, at: 1ms": (
        "switch: there is no switch 's00'\n  did you mean 's0'? switches: s0"
    ),
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
    crash = WorkerCrash(kind="worker_crash", worker=1, at="5ps")
    skew = StartSkew(kind="start_skew", worker=0, delay="3ps", job="large")

    assert two_teams(crash) == ("worker 1 of small", Crash(0, 1, 1, 5))
    assert two_teams(skew) == ("worker 0 of large", LateStart(1, 0, 7, 10))
    with pytest.raises(ScenarioError) as caught:
        two_teams(crash.model_copy(update={"job": "lage"}))
    assert str(caught.value) == (
        "FILE:1: faults.0.job: there is no job 'lage'\n  did you mean 'large'? jobs: small, large"
    )
