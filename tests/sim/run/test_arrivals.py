"""Jobs that come and go: who waits, who is placed where, and what is recorded of each."""

from __future__ import annotations

import itertools
import json
import random
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from netfold.sim.report.compare import compare, results_table
from netfold.sim.report.html_report import build_report
from netfold.sim.results.folder import load
from netfold.sim.run.run import summary_of_scenario
from netfold.sim.run.variant import Outcome
from netfold.sim.scenario.yaml_tree import ScenarioText
from tests.registry import registered
from tests.sim import scenes
from tests.sim.report.test_report import FIGURES
from tests.sim.run.test_failures import Broken

BASE = """\
name: coming
seed: 1
topology: {{kind: star, hosts: {hosts}, rate: 100Gbps, delay: 1us, switch: {switch}}}
workers: 2
workload: {{kind: synthetic, elements: {elements}}}
codec: {{kind: fixed_point}}
collective: {{kind: in_network, program: switchml, frame: udp-256, slots: 64}}
admission: fifo
"""


class Asked(NamedTuple):
    """A job in the oracle: what it asks for, and how long it ran in the simulation."""

    arrival_us: float
    workers: int
    slots: int
    running_us: float


class Held(NamedTuple):
    """What a running job holds in the oracle."""

    end_us: float
    workers: int
    first: int
    end: int


def summary(text: str, **more: Any) -> dict[str, Any]:
    """The summary of one variant; `text` goes on after `BASE`."""
    given = {"hosts": 4, "switch": "tofino1", "elements": 2000} | more
    return summary_of_scenario(ScenarioText(BASE.format(**given) + text, "coming.yaml"))


def run(folder: Path, text: str, base: str = BASE) -> Outcome:
    """Run the same scenario, and write its run folder."""
    return scenes.run(folder, text=base.format(hosts=4, switch="tofino1", elements=2000) + text)


def running_us(job: dict[str, Any]) -> float:
    """How long a job of a summary ran."""
    return float(job["stay"]["end_us"] - job["stay"]["admitted_us"])


def admissions_us(jobs: list[Asked], hosts: int, slots: int) -> list[float]:
    """When each job is admitted: first in, first out, by free hosts and by the lowest free range of slots.

    Written from that sentence alone: whenever a job arrives or ends, the head of the queue is admitted
    while it fits.
    """
    order = sorted(range(len(jobs)), key=lambda index: (jobs[index].arrival_us, index))
    instants = sorted(job.arrival_us for job in jobs)
    running: list[Held] = []
    found = [-1.0] * len(jobs)
    while order:
        now_us = instants.pop(0)
        running = [one for one in running if one.end_us > now_us]
        while order and jobs[order[0]].arrival_us <= now_us:
            job = jobs[order[0]]
            if sum(one.workers for one in running) + job.workers > hosts:
                break
            starts = [0, *sorted(one.end for one in running)]
            fitting = [
                first
                for first in starts
                if first + job.slots <= slots
                and all(first + job.slots <= one.first or first >= one.end for one in running)
            ]
            if not fitting:
                break
            end_us = now_us + job.running_us
            running.append(Held(end_us, job.workers, fitting[0], fitting[0] + job.slots))
            instants = sorted([*instants, end_us])
            found[order.pop(0)] = now_us
    return found


SLOTS_MAX = 11264  # of SwitchML on a Tofino 1: registers of 22528 pairs, two versions; the next test holds it


def test_a_switch_has_as_many_slots_as_the_oracle_says() -> None:
    job = "jobs: [{{name: a, workers: 1, collective: {{slots: {slots}}}}}]\n"
    assert summary(job.format(slots=SLOTS_MAX))["verdict"] == "pass"
    with pytest.raises(Exception, match="slots"):
        summary(job.format(slots=SLOTS_MAX + 1))


@pytest.mark.parametrize("seed", [1, 2])
def test_random_plans_are_admitted_as_by_the_oracle(seed: int) -> None:
    draw = random.Random(seed)
    asked = [
        (draw.randrange(0, 12), draw.randint(1, 4), draw.choice([SLOTS_MAX // 4, SLOTS_MAX // 2, SLOTS_MAX]))
        for _ in range(7)
    ]
    jobs = "".join(
        f"  - {{name: j{number}, start: {arrival}us, workers: {workers}, collective: {{slots: {slots}}}}}\n"
        for number, (arrival, workers, slots) in enumerate(asked)
    )
    found = summary(f"jobs:\n{jobs}", hosts=6)["variants"]

    wanted = [
        Asked(float(arrival), workers, slots, running_us(job))
        for (arrival, workers, slots), job in zip(asked, found, strict=True)
    ]
    admitted = [job["stay"]["admitted_us"] for job in found]
    assert admitted == pytest.approx(admissions_us(wanted, 6, SLOTS_MAX), abs=1e-6)
    assert all(job["verdict"] == "pass" for job in found)
    assert any(job["metrics"]["waiting_us"] > 0 for job in found)
    for one in found:  # nobody shares a host at the same time
        for other in found:
            if one is not other and one["stay"]["admitted_us"] <= other["stay"]["admitted_us"]:
                apart = one["stay"]["end_us"] <= other["stay"]["admitted_us"] + 1e-6
                assert apart or not set(one["stay"]["hosts"]) & set(other["stay"]["hosts"])


ATP = "codec: {kind: fixed_point, factor: 1e6}, "
ATP += "collective: {program: atp, frame: atp, entries: 256, slots: 128}"
TWO = "jobs: [{{name: a, {a}}}, {{name: b, {b}}}]\n"
ALL = f"collective: {{slots: {SLOTS_MAX}}}"


def test_slots_of_switchml_are_divided_and_entries_of_atp_are_shared() -> None:
    switchml = summary(TWO.format(a=ALL, b=f"{ALL}, start: 1us"))["variants"]
    assert switchml[1]["stay"]["admitted_us"] == switchml[0]["stay"]["end_us"]

    found = summary(TWO.format(a=ATP, b=f"{ATP}, start: 1us"), hosts=8, elements=20000)
    assert found["verdict"] == "pass"
    assert found["variants"][1]["stay"]["admitted_us"] == 1.0  # it finds no free entry, and waits for none
    assert sum(job["switches"][0]["collisions"] for job in found["variants"]) > 0


@pytest.mark.parametrize(("slots", "follows"), [(4000, "a"), (4001, "b")])
def test_a_range_between_others_is_used_if_it_is_long_enough(slots: int, follows: str) -> None:
    """The first job leaves 4000 slots below those of the second, which leaves fewer above."""
    found = summary(
        "jobs:\n"
        "  - {name: a, workers: 1, workload: {elements: 1000}, collective: {slots: 4000}}\n"
        "  - {name: b, workers: 1, workload: {elements: 20000}, collective: {slots: 4000}}\n"
        f"  - {{name: c, workers: 1, collective: {{slots: {slots}}}}}\n"
    )
    a, b, c = found["variants"]

    assert found["verdict"] == "pass"
    assert a["stay"]["end_us"] < b["stay"]["end_us"]
    assert c["stay"]["admitted_us"] == {"a": a, "b": b}[follows]["stay"]["end_us"]


def test_a_job_without_room_on_the_switch_falls_back_if_it_may() -> None:
    found = summary(TWO.format(a=ALL, b=f"{ALL}, start: 1us, fallback: {{kind: ring}}"))
    first, second = found["variants"]

    assert found["verdict"] == "pass"
    assert second["stay"]["fallback"]
    assert not first["stay"]["fallback"]
    assert second["metrics"]["waiting_us"] == 0
    assert second["metrics"]["passes"] is None  # no switch adds up
    assert found["jobs"][0]["fallbacks"] == 1


def test_a_job_that_gets_used_slots_has_the_results_of_a_job_that_gets_new_ones() -> None:
    found = summary(
        "jobs: [{name: a, workers: 4, count: 4, arrivals: {kind: even, gap: 1us}}]\n", elements=5001
    )
    assert found["verdict"] == "pass"
    keys = ("wire_bytes_up", "packets", "packets_retransmitted", "passes", "nmse", "aggregation_time_us")
    first, *others = [{key: job["metrics"][key] for key in keys} for job in found["variants"]]
    for other in others:
        assert other == pytest.approx(first, rel=1e-12)


def test_copies_on_their_way_do_not_get_into_the_slots_of_the_next_job() -> None:
    text = "jobs: [{name: a, workers: 4, count: 4, collective: {timeout: 100us, first_timeout: 100us}}]\n"
    faults = 'faults: [{kind: loss, rate: 2%, links: ["*"]}]\n'
    found = summary(faults + text, elements=4000)

    jobs = found["variants"]
    assert found["verdict"] == "pass"
    assert sum(job["metrics"]["packets_retransmitted"] for job in jobs) > 0
    for before, after in itertools.pairwise(jobs):
        # The next one has the hosts at once; slots are plenty, so it need not wait for the old ones.
        assert after["stay"]["admitted_us"] == pytest.approx(before["stay"]["end_us"], abs=1e-6)


def test_slots_are_kept_for_a_timeout_where_copies_may_be_on_their_way() -> None:
    more = f"workers: 4, collective: {{slots: {SLOTS_MAX}, timeout: 1ms, first_timeout: 1ms}}"
    faults = 'faults: [{kind: loss, rate: 0.1%, links: ["h0->s0"]}]\n'
    first, second = summary(faults + TWO.format(a=more, b=more))["variants"]

    assert second["stay"]["admitted_us"] == pytest.approx(first["stay"]["end_us"] + 1000, abs=1e-6)


@pytest.mark.slow
def test_slots_are_kept_while_copies_wait_on_a_slow_link() -> None:
    """Of one worker's link, which holds them for many timeouts. The jobs have different gradients."""
    more = f"workers: 2, collective: {{slots: {SLOTS_MAX}, timeout: 400us, first_timeout: 400us, "
    more += "timeout_max: 400us}, codec: {factor: 1e6}"
    faults = 'faults: [{kind: link_rate, links: ["h1->*"], at: 3us, for: 12ms, rate: 100Mbps}]\n'
    second = f"{more}, start: 1us, workload: {{distribution: integer}}"
    found = summary(faults + TWO.format(a=more, b=second), elements=10_000)
    first, waiting = found["variants"]

    assert found["verdict"] == "pass"
    assert first["stay"]["end_us"] + 800 < waiting["stay"]["admitted_us"] < 13_000


def test_what_a_job_leaves_in_its_slots_is_reported_and_not_left_to_the_next() -> None:
    """Delayed packets come when their slots are used again: these wait for others that nobody sends."""
    faults = 'faults: [{kind: reorder, rate: 1%, delay: 50ms, links: ["h*->s0"]}]\n'
    jobs = "jobs: [{name: a, workers: 4, arrivals: {kind: fixed, at: [0us, 1000ms]}}]\n"
    found = summary(faults + jobs, elements=40_000)

    assert found["verdict"] == "pass"
    for job in found["variants"]:
        (detail,) = [one["detail"] for one in job["checks"] if one["name"] == "nothing_leaked"]
        assert "left behind in switches: slot " in detail
        assert "injected faults explain it: reorder" in detail


def test_a_job_that_fails_keeps_the_slots_that_its_other_workers_send_into() -> None:
    """Worker 3 raises in step 1. The others have begun, and would send into the sums of the next job."""
    more = f"workers: 4, collective: {{slots: {SLOTS_MAX}}}, workload: {{steps: 2}}"
    failing = f"codec: {{kind: toy_broken, fault: raises at once}}, {more}"
    with registered(Broken):
        found = summary(TWO.format(a=failing, b=f"{more}, start: 1us"), switch="ideal")
    failed, waiting = found["variants"]

    assert (failed["verdict"], waiting["verdict"]) == ("fail", "stalled")
    assert waiting["stay"]["hosts"] == []


def test_entries_that_nobody_frees_stay_with_the_jobs_that_share_them() -> None:
    """ATP has no owner of an entry to reset it for: it is found at the end, at the job that claimed it."""
    faults = 'faults: [{kind: duplicate, rate: 5%, delay: 2ms, links: ["h*->s0"]}]\n'
    jobs = f"jobs: [{{name: a, {ATP}, arrivals: {{kind: fixed, at: [0us, 100ms]}}}}]\n"
    found = summary(faults + jobs, elements=20_000)

    details = [
        one["detail"] for job in found["variants"] for one in job["checks"] if one["name"] == "nothing_leaked"
    ]
    assert "left behind in switches: entry " in details[0]


def test_rings_over_one_link_share_it() -> None:
    """Of work T each: at once both take 2T; if the second arrives at T/2, they end at 3T/2 and 2T."""
    together, apart = rings(0), rings(10_000)
    for job, other in zip(together["variants"], apart["variants"], strict=True):
        assert job["metrics"]["slowdown"] == pytest.approx(2, rel=0.05)
        assert other["metrics"]["slowdown"] == pytest.approx(1, rel=1e-9)
    assert together["jobs"][0]["fairness"] == pytest.approx(1, abs=1e-3)

    alone_us = apart["variants"][0]["metrics"]["alone_us"]
    first, second = rings(round(alone_us / 2))["variants"]
    assert first["stay"]["end_us"] == pytest.approx(1.5 * alone_us, rel=0.05)
    assert second["stay"]["end_us"] == pytest.approx(2 * alone_us, rel=0.05)


def rings(start_us: int) -> dict[str, Any]:
    """Two rings, each from rack to rack over the one link between them."""
    ring = "collective: {kind: ring}, codec: {kind: none}, workload: {elements: 400000}"
    text = f"""\
name: rings
seed: 1
topology: {{kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 2, rate: 100Gbps, uplink_rate: 100Gbps}}
workers: 2
workload: {{kind: synthetic, elements: 10}}
admission: fifo
jobs:
  - {{name: a, workers: {{count: 2, placement: [h0, h2]}}, {ring}}}
  - {{name: b, start: {start_us}us, workers: {{count: 2, placement: [h1, h3]}}, {ring}}}
"""
    return summary_of_scenario(ScenarioText(text, "rings.yaml"))


JOBS = """\
jobs:
  - {name: early, workers: 3}
  - {name: late, workers: 3, count: 2, arrivals: {kind: fixed, at: [1us, 2us]}, fallback: {kind: ring}}
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("coming"), JOBS)


def shown(table: object) -> str:
    console = Console(file=StringIO(), width=220)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_folder_has_every_job_and_all_together(outcome: Outcome) -> None:
    summary = load(outcome.run_dir or Path()).summary
    early, first, second = summary["variants"]
    (together,) = summary["jobs"]

    assert [one["name"] for one in (early, first, second)] == [
        "coming/early",
        "coming/late-1",
        "coming/late-2",
    ]
    assert early["stay"] == {
        "admission": "fifo",
        "admitted_us": 0.0,
        "end_us": early["metrics"]["completion_time_us"],
        "hosts": ["h0", "h1", "h2"],
        "fallback": False,
    }
    assert first["metrics"]["waiting_us"] == pytest.approx(early["stay"]["end_us"] - 1)
    assert second["stay"]["admitted_us"] == first["stay"]["end_us"]
    assert together["makespan_us"] == second["stay"]["end_us"]
    assert (together["jobs"], together["finished"], together["waited"]) == (3, 3, 2)
    assert first["setup"]["collective"]["kind"] == "in_network"  # not its fallback
    assert "fallback" not in first["setup"]


@pytest.fixture
def jobs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports with the figure of jobs and no other: drawing takes long."""
    for name in {*FIGURES.split()} - {"job_chart"}:
        monkeypatch.setattr(f"netfold.sim.report.figures.{name}", lambda run, labels=(): None)


@pytest.mark.usefixtures("jobs_alone")
def test_the_report_has_a_time_line_and_a_table_of_jobs(outcome: Outcome) -> None:
    assert outcome.run_dir is not None
    page = build_report(outcome.run_dir).read_text("utf-8")
    figure = (outcome.run_dir / "figures" / "jobs.svg").read_text("utf-8")

    assert "<h2>Jobs</h2>" in page
    for words in ("early", "late-1", "late-2", "waits", "runs", "no two jobs overlap"):
        assert words in figure


def test_the_terminal_and_a_comparison_have_a_line_for_all_jobs(outcome: Outcome) -> None:
    assert outcome.run_dir is not None
    line = "jobs of coming: 3 of 3 done in "
    comparison = compare([outcome.run_dir])

    assert line in shown(results_table(outcome.as_dict()))
    assert line in shown(comparison.table())
    assert "slowdown" in shown(comparison.table())
    assert comparison.as_dict()["jobs"][0]["finished"] == 3


@pytest.mark.usefixtures("jobs_alone")
def test_other_variants_have_none_of_this(tmp_path: Path) -> None:
    done = run(tmp_path, "", BASE.replace("admission: fifo\n", ""))
    assert done.run_dir is not None
    summary = json.loads((done.run_dir / "summary.json").read_text())

    assert "jobs" not in summary
    assert not {"stay", "slowdown"} & {*summary["variants"][0], *summary["variants"][0]["metrics"]}
    assert not (build_report(done.run_dir).with_name("figures") / "jobs.svg").exists()
    assert "jobs" not in compare([done.run_dir]).as_dict()


def test_jobs_that_wait_for_one_that_is_stalled_are_stalled_too(tmp_path: Path) -> None:
    """The link goes down for good; the second job never gets a host."""
    text = 'faults: [{kind: link_down, links: ["h0->s0"], at: 1us}]\n'
    text += "jobs: [{name: a, workers: 4}, {name: b, workers: 4}]\n"
    found = run(tmp_path, text)
    first, second = found.summary["variants"]

    assert (first["verdict"], second["verdict"]) == ("stalled", "stalled")
    never = "it never got hosts and slots: other jobs are stalled, or failed and keep theirs"
    assert second["checks"][0]["detail"] == never
    assert second["stay"]["hosts"] == []
    assert found.summary["jobs"][0]["finished"] == 0
    assert load(found.run_dir or Path()).summary["verdict"] == "stalled"
