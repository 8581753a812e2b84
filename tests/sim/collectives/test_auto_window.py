"""`slots: auto` and `timeout: auto`: by hand from rates and delays; on an idle network no link rests."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.sim.errors import ScenarioError
from tests.sim.scenes import job_of, job_plan, measure, only, plan, simulate

STAR = """\
name: star
seed: 1
topology: {kind: star, hosts: 9, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 8
workload: {kind: synthetic, elements: 400000}
codec: {kind: fixed_point, factor: 1e6}
collective: {kind: in_network}
"""
UDP = "collective.frame=udp-256"
UDP_NS, TRIP_NS = 332 * 0.08, 2 * (1000 + 332 * 0.08)  # a packet of 332 B at 100 Gbps; up and down a link
LATE = "faults=[{kind: start_skew, worker: 1, delay: 3ms}]"
PAUSED = "faults=[{kind: worker_pause, worker: 1, at: 10us, for: 2ms}]"
SLOWER = "faults=[{kind: link_rate, links: ['h0->s0'], rate: 5Gbps, at: 10us, for: 300us}]"
PROGRAMS = (
    "collective={kind: in_network, frame: udp-256}",
    "collective={kind: in_network, frame: roce-1024}",
    "collective={kind: in_network, program: atp}",
    "collective={kind: in_network, program: timed, slot_timer: 1s}",
    "collective={kind: ring}",
    "collective={kind: parameter_server, servers: 1}",
)


def test_slots_are_the_packets_of_a_round_trip(tmp_path: Path) -> None:
    """2,053.12 ns up and down, 26.56 ns a packet: 77.3 packets, so 78, and one more."""
    assert 77 < TRIP_NS / UDP_NS < 78
    assert job_of(only(tmp_path, UDP, text=STAR)).slots_count == 79
    assert job_plan(only(tmp_path, UDP, text=STAR)).collective.settled["slots"] == 79


def test_slots_are_whole_messages(tmp_path: Path) -> None:
    """Four packets of 1126 B: 2 · 1090.08 + 3 · 90.08 ns are 6.9 messages of 4 · 1106 B: 7, and one more."""
    assert 6 < (2 * 1090.08 + 3 * 90.08) / (4 * 1106 * 0.08) < 7
    assert job_of(only(tmp_path, "collective.frame=roce-1024", text=STAR)).slots_count == 4 * 8


def test_each_of_parallel_trees_gets_a_window_of_what_it_may_send(tmp_path: Path) -> None:
    """Two trees share a worker's link: each sends at half of its rate, and a packet may wait for another."""
    trees = job_plan(only(tmp_path, UDP, "collective.trees=2", text=STAR)).collective.aggregations

    assert [tree.slots_count for tree in trees] == [-(-round(TRIP_NS + UDP_NS) // round(2 * UDP_NS)) + 1] * 2


@pytest.mark.parametrize(("frame", "delay"), [("udp-256", "0us"), ("udp-256", "10us"), ("roce-1024", "1us")])
def test_with_auto_no_link_rests(tmp_path: Path, frame: str, delay: str) -> None:
    """The workers' links carry packet after packet: no window is faster, and half of it is slower."""
    sets = (f"collective.frame={frame}", f"topology.delay={delay}")
    auto, large = (
        measure(tmp_path, *sets, *more, text=STAR)["aggregation_time_us"]
        for more in ((), ("collective.slots=4096",))
    )
    half = job_of(only(tmp_path, *sets, text=STAR)).slots_count // 8 * 4

    assert auto == pytest.approx(large, rel=1e-3)
    if delay != "0us":
        assert (
            measure(tmp_path, *sets, f"collective.slots={half}", text=STAR)["aggregation_time_us"]
            > 1.15 * auto
        )


@pytest.mark.parametrize(
    ("more", "words", "wire", "share"),
    [
        (("collective={kind: in_network, program: atp}", "topology.switch=tofino1"), 62, 332, 0.95),
        (
            ("collective={kind: in_network, program: tree}", "topology.switch=sharp", "topology.delay=300ns"),
            512,
            2130,
            0.95,
        ),
    ],
    ids=["atp", "sharp"],
)
def test_programs_reach_the_rate_of_their_packets(
    tmp_path: Path, more: tuple[str, ...], words: int, wire: int, share: float
) -> None:
    """Of 100 Gbps, the words of each packet on the wire; with ATP's 100 slots it is less than half."""
    time_us = measure(tmp_path, *more, "workload.elements=1000000", text=STAR)["aggregation_time_us"]

    assert 1e6 / time_us > share * 100e3 * words / (8 * wire)


def test_a_switch_that_holds_fewer_gives_what_it_has(tmp_path: Path) -> None:
    sets = ("collective={kind: in_network, program: tree}", "topology.switch=sharp", "topology.delay=10us")

    assert job_of(only(tmp_path, *sets, text=STAR)).slots_count == 23


def test_jobs_divide_a_switch_that_is_too_small_for_all(tmp_path: Path) -> None:
    """23 operations: 11 for each of two jobs, 5 for each of three or four."""
    sets = ("collective={kind: in_network, program: tree}", "topology.switch=sharp", "topology.delay=10us")
    for count, slots in ((2, 11), (3, 5)):
        names = ", ".join(f"{{name: j{number}, workers: 2}}" for number in range(count))
        variant = only(tmp_path, *sets, f"jobs=[{names}]", text=STAR)
        assert [job.collective.window for job in variant.jobs] == [slots] * count


def test_parts_of_a_hierarchy_divide_a_switch_that_is_too_small_for_all(tmp_path: Path) -> None:
    outer = "inner: {kind: ring}, outer: {kind: in_network, program: tree}"
    sets = (f"collective={{kind: hierarchical, group_size: 2, {outer}}}", "topology.switch=sharp")
    parts = job_plan(only(tmp_path, *sets, text=STAR)).collective.aggregations

    assert [part.slots_count for part in parts] == [11, 11]


def test_a_window_of_atp_is_no_larger_than_its_entries(tmp_path: Path) -> None:
    sets = ("collective={kind: in_network, program: atp, entries: 50}", "topology.switch=tofino1")

    assert job_of(only(tmp_path, *sets, text=STAR)).slots_count == 50


def test_the_timeout_is_four_round_trips_of_a_full_window(tmp_path: Path) -> None:
    """2,053.12 ns and 78 packets that wait, four times, is less than 20 us; delays of 10 us are more."""
    short, long = (
        job_of(only(tmp_path, UDP, text=STAR)),
        job_of(only(tmp_path, UDP, "topology.delay=10us", text=STAR)),
    )

    assert short.timeout_ps == 20_000_000
    trip_ps = 2 * (10_000_000 + 26_560)
    assert long.slots_count == -(-trip_ps // 26_560) + 1
    assert long.timeout_ps == long.first_timeout_ps == 4 * (trip_ps + (long.slots_count - 1) * 26_560)
    assert long.timeout_max_ps == 64 * long.timeout_ps


def test_released_timeouts_are_those_of_the_clients(tmp_path: Path) -> None:
    released = "collective={kind: in_network, program: PROGRAM, timeout: released}"
    plans = {
        name: job_of(only(tmp_path, released.replace("PROGRAM", name), "topology.switch=tofino1", text=STAR))
        for name in ("switchml", "atp")
    }

    assert {name: one.timeout_ps for name, one in plans.items()} == {"switchml": 10**10, "atp": 2 * 10**8}
    assert plans["atp"].first_timeout_ps == 5 * 10**10
    assert not any(one.waits_for_loss for one in plans.values())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("collective.timeout='-1us'", "or auto or released"),
        ("collective={kind: ring, timeout: released}", "cannot read 'released' as a time"),
    ],
)
def test_a_timeout_that_is_none_is_refused(tmp_path: Path, change: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        plan(tmp_path, change, text=STAR)


@pytest.mark.parametrize(
    ("collective", "fault"),
    list(zip(PROGRAMS, (LATE, PAUSED, SLOWER) * 2, strict=True)),
    ids=["udp", "roce", "atp", "timed", "ring", "server"],
)
def test_nothing_is_sent_again_without_loss(tmp_path: Path, collective: str, fault: str) -> None:
    """Whoever is late, and however slow a link becomes: more than a hundred timeouts."""
    found = measure(
        tmp_path,
        collective,
        fault,
        "topology.switch=trio" if "timed" in collective else "topology.switch=tofino1",
        "workload.elements=100000",
        text=STAR,
    )

    assert found["packets_retransmitted"] == found["packets_lost"] == 0


def test_jobs_that_share_links_and_hosts_that_take_time_send_nothing_again(tmp_path: Path) -> None:
    """Four jobs over one link of 10 Gbps between racks, each with an idle network in mind."""
    names = ", ".join(f"{{name: j{number}, workers: 4}}" for number in range(4))
    shape = "leaves: 2, spines: 1, hosts_per_leaf: 8, rate: 100Gbps, uplink_rate: 10Gbps, switch: ideal"
    sets = (
        f"topology={{kind: leaf_spine, {shape}}}",
        "workers={count: 4, placement: spread}",
        f"jobs=[{names}]",
    )
    sets = (*sets, "hosts={kind: kernel_tcp}", "collective.switch=spine0", "workload.elements=50000")
    facts = simulate(tmp_path, *sets, text=STAR).facts

    assert [one.packets_retransmitted for one in facts.values()] == [0] * 4


@pytest.mark.parametrize("collective", PROGRAMS[1:3], ids=["roce", "atp"])
def test_a_loss_costs_round_trips_not_milliseconds(tmp_path: Path, collective: str) -> None:
    sets = (collective, "topology.switch=tofino1", "workload.elements=100000")
    losses = "faults=[{kind: loss, rate: 0.1%}]"
    lossy = measure(tmp_path, *sets, losses, text=STAR)
    released = measure(tmp_path, *sets, losses, "collective.timeout=released", text=STAR)

    assert lossy["packets_retransmitted"] > 0
    assert lossy["aggregation_time_us"] < 800 < released["aggregation_time_us"] / 2
