"""Several jobs on one network: their hosts and slots, and what they cost each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.sim.plan.plan import JobPlan, VariantPlan
from netfold.sim.results import summarize
from netfold.sim.run.run import VariantResult
from tests.sim.scenes import TINY, only, refused, simulate

WIDE = TINY.replace("hosts: 4", "hosts: 8")
TWO = f"{WIDE}jobs:\n  - name: a\n  - name: b\n    workers: 4\n"
IDEAL = "topology.switch=ideal"
RING_B = "jobs.b.collective={kind: ring}"


def names(variant: VariantPlan, job: JobPlan) -> list[str]:
    return [variant.network.nodes[host] for host in job.hosts]


def slots(variant: VariantPlan) -> list[tuple[int, int]]:
    """First slot and number of slots of each job on a switch."""
    return [
        (job.collective.aggregation.slot_base, job.collective.aggregation.slots_count)
        for job in variant.jobs
        if job.collective.aggregation
    ]


def test_later_jobs_take_the_hosts_that_are_free(tmp_path: Path) -> None:
    variant = only(tmp_path, text=TWO)
    assert [names(variant, job) for job in variant.jobs] == [["h0", "h1", "h2"], ["h3", "h4", "h5", "h6"]]

    racks = "topology={kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 4}"
    spread = only(tmp_path, racks, "jobs.b.workers.placement=spread", text=TWO)
    # Racks in turn: h0 h4 h1 h5 h2 h6 h3 h7, without those of the first job.
    assert names(spread, spread.jobs[1]) == ["h4", "h5", "h6", "h3"]


def test_slots_follow_each_other_in_order_of_jobs(tmp_path: Path) -> None:
    variant = only(tmp_path, "jobs.a.collective.slots=100", "jobs.b.collective.slots=64", text=TWO)
    assert slots(variant) == [(0, 100), (100, 64)]
    # A ring takes none.
    assert slots(only(tmp_path, "jobs.a.collective.slots=100", RING_B, text=TWO)) == [(0, 100)]


REFUSED = [
    (
        ("jobs.b.workers.count=6",),
        "--set: jobs.b.workers.count: cannot place 6 workers on the 5 hosts that earlier jobs leave free\n"
        "  use at most 5 workers or a larger topology",
    ),
    (
        ("jobs.b.workers={count: 2, placement: [h5, h2]}",),
        "--set: jobs.b.workers.placement: host 'h2' runs a worker of job 'a'\n"
        "  use another host; free: h3, h4, h5, h6, h7",
    ),
    (
        ("jobs.a.collective.slots=11000", "jobs.b.collective.slots=300"),
        "--set: jobs.b.collective.slots: 300 slots do not fit on switch s0: 11000 are taken by job 'a' "
        "(up to 11000), 264 are left\n  use 264 slots at most, fewer for the other jobs, or another switch",
    ),
    (
        ("jobs.b.collective.frame=roce-1024",),
        "--set: jobs.b.collective.frame: switch s0 takes packets of 64 words for job 'a', not of 256\n"
        "  use the same frame, or another switch",
    ),
    (
        ("jobs.b.collective={kind: in_network, program: tree, frame: roce-1024}",),
        "--set: jobs.b.collective.program: switch s0 runs switchml for job 'a', it cannot also run tree\n"
        "  use the same program, or another switch",
    ),
    (
        ("jobs.b.collective.timeout=1us",),
        "--set: jobs.b.collective.timeout: 1us is too short: a full window's round trip takes 6.58us "
        "on the idle network, so packets would be sent again without need\n"
        "  use more than 6.58us, or a smaller window (collective.slots)",
    ),
]


@pytest.mark.parametrize(("sets", "message"), REFUSED)
def test_what_jobs_cannot_have(tmp_path: Path, sets: tuple[str, ...], message: str) -> None:
    assert refused(tmp_path, *sets, text=TWO) == message


def test_the_slots_of_other_switches_are_not_counted(tmp_path: Path) -> None:
    racks = "topology={kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 4}"
    sets = ("jobs.a.collective.slots=11264", "jobs.b.collective.slots=11264", "jobs.a.workers=4")
    variant = only(tmp_path, racks, *sets, text=TWO)

    assert slots(variant) == [(0, 11264), (0, 11264)]
    assert variant.network.link_names[-2:] == ("leaf0->leaf0", "leaf1->leaf1")


def result_of(folder: Path, *sets: str) -> VariantResult:
    return simulate(folder, *sets, text=TWO)


def metrics_of(result: VariantResult) -> dict[str, dict[str, float]]:
    found = summarize(result.facts, result.records)
    return {variant["name"]: variant["metrics"] for variant in found["variants"]}


@pytest.mark.parametrize("sets", [(), (RING_B,), ("faults=[{kind: loss, rate: 2%}]",)])
def test_all_jobs_end_with_right_sums_and_checks_of_their_own(tmp_path: Path, sets: tuple[str, ...]) -> None:
    result = result_of(tmp_path, *sets)

    assert {(check.variant, check.verdict) for check in result.checks} == {
        ("tiny/a", "pass"),
        ("tiny/b", "pass"),
    }
    assert {link.variant for link in result.links} == {"tiny"}
    assert {record.variant for record in result.rounds} == {"tiny/a", "tiny/b"}
    passes = [metrics["passes_per_result"] for metrics in metrics_of(result).values()]
    assert passes[1] is None if RING_B in sets else passes[1] >= 5  # a ring takes none


def test_jobs_apart_in_time_are_as_alone(tmp_path: Path) -> None:
    alone = simulate(tmp_path, "workers=4", text=WIDE)
    together = result_of(tmp_path, "jobs.b.start=1ms")

    (step,) = [record for record in together.steps if record.variant == "tiny/b"]
    assert step.start_ps == 10**9
    assert step.end_ps - step.start_ps == alone.steps[0].end_ps


def test_packets_are_those_of_a_jobs_own_hosts(tmp_path: Path) -> None:
    found = metrics_of(result_of(tmp_path))

    # 16 blocks and as many exponents ahead of them.
    assert (found["tiny/a"]["packets"], found["tiny/b"]["packets"]) == (32 * 3, 32 * 4)
    assert found["tiny/a"]["packet_hops"] == 32 * (2 * 3 + 1) + 32 * (2 * 4 + 1)


def test_jobs_on_an_ideal_switch_do_not_meet(tmp_path: Path) -> None:
    alone = simulate(tmp_path, IDEAL, text=WIDE).steps[0]
    first, second = result_of(tmp_path, IDEAL, "jobs.b.workers=3").steps

    assert alone.end_ps == first.end_ps == second.end_ps


def test_jobs_on_one_chip_share_its_loopback_port(tmp_path: Path) -> None:
    """Every result passes the one loopback port: two jobs at line rate take twice as long."""
    long = "workload.elements=200000"
    alone = simulate(tmp_path, long, text=WIDE).steps[0].end_ps
    together = max(step.end_ps for step in result_of(tmp_path, long).steps)

    assert 1.95 * alone < together < 2.05 * alone


@pytest.mark.parametrize(
    ("frame", "workers", "passes"), [("udp-256", 3, 4), ("udp-1024", 3, 19), ("roce-1024", 2, 15)]
)
def test_passes_per_slot_round(tmp_path: Path, frame: str, workers: int, passes: int) -> None:
    """n + 1 with 64 words, 4 n + 7 with 256."""
    result = simulate(tmp_path, f"collective.frame={frame}", f"workers={workers}")
    found = metrics_of(result)["tiny"]

    assert found["passes_per_result"] == passes
    units = found["packets"] / workers
    assert found["passes"] == units * passes
    (loopback,) = [link for link in result.links if link.link == "s0->s0"]
    assert found["loopback_busy"] == loopback.busy_ps / result.steps[-1].end_ps
