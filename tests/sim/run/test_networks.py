"""Runs over networks: jobs that share links, host profiles, collectives between hosts, every topology."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import networkx as nx
import pytest

import netfold
from netfold.kinds import registered
from netfold.sim.network.stall import LinkOutcomes, why_undelivered
from netfold.sim.plan.host_profiles import host_profiles
from netfold.sim.plan.idle_network import vain_warnings
from netfold.sim.plan.plan import JobPlan, VariantPlan, frames
from netfold.sim.results.summary import summarize
from netfold.sim.run.run import VariantResult
from netfold.sim.studies.topology_study import measure_network, networks_of
from netfold.topologies.graph import LinkSpec, add_link, add_server, add_switch, new_graph
from netfold.topologies.kind import Topology
from netfold.topologies.network import path
from netfold.topologies.topology_files import to_json
from tests.examples import nightly
from tests.pairs.scenario import small_network
from tests.sim.checks.test_bottleneck import bounds_of, helps
from tests.sim.scenes import (
    RING,
    TINY,
    job_plan,
    measure,
    metrics_of,
    only,
    refused,
    simulate,
    simulated,
    write,
)

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


def metrics_by_job(result: VariantResult) -> dict[str, dict[str, float]]:
    found = summarize(result.facts, result.records)
    return {variant["name"]: variant["metrics"] for variant in found["variants"]}


@pytest.mark.parametrize("sets", [(), (RING_B,), ("faults=[{kind: loss, rate: 2%}]",)])
def test_all_jobs_end_with_right_sums_and_checks_of_their_own(tmp_path: Path, sets: tuple[str, ...]) -> None:
    result = simulate(tmp_path, *sets, text=TWO)

    assert {(check.variant, check.verdict) for check in result.checks} == {
        ("tiny/a", "pass"),
        ("tiny/b", "pass"),
    }
    assert {link.variant for link in result.links} == {"tiny"}
    assert {record.variant for record in result.rounds} == {"tiny/a", "tiny/b"}
    passes = [metrics["passes_per_result"] for metrics in metrics_by_job(result).values()]
    assert passes[1] is None if RING_B in sets else passes[1] >= 5  # a ring takes none


def test_jobs_apart_in_time_are_as_alone(tmp_path: Path) -> None:
    alone = simulate(tmp_path, "workers=4", text=WIDE)
    together = simulate(tmp_path, "jobs.b.start=1ms", text=TWO)

    (step,) = [record for record in together.steps if record.variant == "tiny/b"]
    assert step.start_ps == 10**9
    assert step.end_ps - step.start_ps == alone.steps[0].end_ps


def test_packets_are_those_of_a_jobs_own_hosts(tmp_path: Path) -> None:
    found = metrics_by_job(simulate(tmp_path, text=TWO))

    # 16 blocks and as many exponents ahead of them.
    assert (found["tiny/a"]["packets"], found["tiny/b"]["packets"]) == (32 * 3, 32 * 4)
    assert found["tiny/a"]["packet_hops"] == 32 * (2 * 3 + 1) + 32 * (2 * 4 + 1)


def test_jobs_on_an_ideal_switch_do_not_meet(tmp_path: Path) -> None:
    alone = simulate(tmp_path, IDEAL, text=WIDE).steps[0]
    first, second = simulate(tmp_path, IDEAL, "jobs.b.workers=3", text=TWO).steps

    assert alone.end_ps == first.end_ps == second.end_ps


def test_jobs_on_one_chip_share_its_loopback_port(tmp_path: Path) -> None:
    """Every result passes the one loopback port: two jobs at line rate take twice as long."""
    long = "workload.elements=200000"
    alone = simulate(tmp_path, long, text=WIDE).steps[0].end_ps
    together = max(step.end_ps for step in simulate(tmp_path, long, text=TWO).steps)

    assert 1.95 * alone < together < 2.05 * alone


@pytest.mark.parametrize(
    ("frame", "workers", "passes"), [("udp-256", 3, 4), ("udp-1024", 3, 19), ("roce-1024", 2, 15)]
)
def test_passes_per_slot_round(tmp_path: Path, frame: str, workers: int, passes: int) -> None:
    """n + 1 with 64 words, 4 n + 7 with 256."""
    result = simulate(tmp_path, f"collective.frame={frame}", f"workers={workers}")
    found = metrics_by_job(result)["tiny"]

    assert found["passes_per_result"] == passes
    units = found["packets"] / workers
    assert found["passes"] == units * passes
    (loopback,) = [link for link in result.links if link.link == "s0->s0"]
    assert found["loopback_busy"] == loopback.busy_ps / result.steps[-1].end_ps


LONG = """\
name: long
seed: 7
topology: {kind: star, hosts: 4, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 4
workload: {kind: synthetic, elements: 300000}
codec: {kind: none}
collective: {kind: in_network, frame: udp-1024, slots: 4096}
"""
PROFILES = [name for name, profile in host_profiles().items() if profile.takes_time]


def way_ps(variant: Any, source: int, target: int, size_bytes: int, own: tuple[int, int]) -> int:
    """A packet's way from a host over the switch to a host: both hosts, both wires, all delays."""
    network = variant.network
    wires = [source, int(network.tables.fabric.down_link[target])]
    inside = [network.first_link(source), network.last_link(target)]
    delays = sum(int(network.delay_ps[link]) for link in (*wires, *inside))
    return sum(own) + 2 * size_bytes * 80 + delays


@pytest.mark.parametrize(("kind", "shares"), [("ring", [4] * 6), ("halving_doubling", [2, 4, 4, 2])])
def test_steps_of_hosts_one_after_the_other(tmp_path: Path, kind: str, shares: list[int]) -> None:
    """Every step is one packet, and so one message, of a share of 160 words at each of four workers.

    A host needs 3 us for a packet that it sends, 2 us for a message, 10 ps a byte; 5 us to receive one. From
    the second step on, the acknowledgement of what has come goes before what is sent.
    """
    own = "hosts={per_packet_send: 3us, message: 2us, per_byte_send: 10ps, per_packet_receive: 5us}"
    sets = ("workers=4", "workload.elements=160", "codec={kind: none}", f"collective={{kind: {kind}}}", own)
    variant = only(tmp_path, *sets)
    frame = job_plan(variant).collective.sender.frame
    sizes = [frame.wire_bytes(160 // share, first=True, last=True) for share in shares]
    steps = [
        way_ps(variant, 0, 1, size, (5 * 10**6 + 10 * size, 5 * 10**6 + -(-size * 8 // 1000)))
        for size in sizes
    ]

    acks_ps = (len(steps) - 1) * (3 * 10**6 + 10 * frame.ack_bytes)

    time_us = measure(tmp_path, *sets)["aggregation_time_us"]
    assert time_us == pytest.approx((sum(steps) + acks_ps) * 1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("hosts", "packet_ns"),
    [
        ("{kind: dpdk, cores: 2}", 50 + 213e-3 * 1100 / 2),
        ("{kind: dpdk, cores: 8}", 1100 * 0.08),  # the wire is slower
        ("kernel_udp", 2860 + 93e-3 * 1100),
        ("{kind: rdma, cores: 1}", 5 + 70e-3 * 1100 + 100),  # each packet of UDP is a message
    ],
)
def test_aggregation_is_as_fast_as_the_slower_of_host_and_wire(
    tmp_path: Path, hosts: str, packet_ns: float
) -> None:
    sets = ("collective.frame=udp-1024", f"hosts={hosts}")
    assert frames()["udp-1024"].wire_bytes(256, first=False, last=False) == 1100
    time_us = measure(tmp_path, *sets, text=LONG)["aggregation_time_us"]
    packets = -(-300_000 // 256)
    assert time_us == pytest.approx(packets * packet_ns / 1000, rel=0.06)
    assert time_us >= (packets - 1) * packet_ns / 1000


def test_switchml_over_rdma_reaches_what_its_authors_measured(tmp_path: Path) -> None:
    """p4lang/p4app-switchML, docs/img/benchmark.png: 2.83 G elements/s at 100 Gbps with RDMA, of 2.89."""
    sets = ("hosts=rdma", "collective={kind: in_network, frame: roce-1024, message_packets: 4, slots: 512}")
    bounds = {one.label: one.elements_per_s for one in job_plan(only(tmp_path, *sets, text=LONG)).references}
    assert 2.83e9 < min(bounds.values()) < 2.90e9


@pytest.mark.parametrize(
    ("rate", "frame", "cores", "line"),
    [
        ("10Gbps", "udp-256", 1, 1.0),  # small packets: one core is enough
        ("100Gbps", "udp-1024", 1, 0.263),
        ("100Gbps", "udp-1024", 4, 1.0),  # the released configuration
        ("100Gbps", "udp-256", 4, 0.62),
    ],
)
def test_cores_that_a_line_needs(tmp_path: Path, rate: str, frame: str, cores: int, line: float) -> None:
    """What of the line's rate hosts can do, by the profile's numbers: 100 ns a packet and 213 ps a byte."""
    sets = (f"topology.rate={rate}", f"collective.frame={frame}", f"hosts={{kind: dpdk, cores: {cores}}}")
    bounds = [one.elements_per_s for one in job_plan(only(tmp_path, *sets, text=LONG)).references]
    assert min(1.0, bounds[1] / bounds[0]) == pytest.approx(line, abs=0.006)
    assert (
        len(job_plan(only(tmp_path, *sets[:2], text=LONG)).references) == 1
    )  # without hosts, of wires alone


@pytest.mark.parametrize(
    ("hosts", "collective"),
    [
        (hosts, ("{kind: in_network, frame: udp-1024}", "{kind: ring}")[number % 2])
        for number, hosts in enumerate(PROFILES)
    ],
)
def test_hosts_change_times_and_nothing_else(tmp_path: Path, hosts: str, collective: str) -> None:
    """The same bytes on the wires, nothing sent again: default timeouts know what hosts take."""
    plain = measure(tmp_path, f"collective={collective}", text=LONG)
    slower = measure(tmp_path, f"collective={collective}", f"hosts={hosts}", text=LONG)
    for name in ("wire_bytes_up", "wire_bytes_down", "packets", "packets_retransmitted", "bit_exact"):
        assert slower[name] == plain[name], name
    assert slower["packets_retransmitted"] == 0
    assert slower["aggregation_time_us"] > plain["aggregation_time_us"]
    assert slower["loopback_busy"] == plain["loopback_busy"]


def test_faults_strike_wires(tmp_path: Path) -> None:
    result = simulate(tmp_path, "hosts=dpdk", "faults=[{kind: loss, links: ['h0->s0'], rate: 5%}]", text=LONG)
    lost = {link.link: link.lost_packets for link in result.links if link.lost_packets}
    assert list(lost) == ["h0->s0"]
    assert {link.link for link in result.links if link.source == link.target == "h0"} == {
        "h0 CPU, sending",
        "h0 CPU, receiving",
    }
    assert all(check.verdict == "pass" for check in result.checks)


def test_what_bounds_a_job_is_its_hosts(tmp_path: Path) -> None:
    one_core = "hosts={per_packet_send: 400ns, latency_send: 1us}"
    found = bounds_of(tmp_path, one_core)

    assert (found.first["cause"], found.first["where"], found.first["alike"]) == (
        "host",
        "h0 CPU, sending",
        3,
    )
    assert found.first["share"] > 0.9
    faster = "hosts={per_packet_send: 200ns, latency_send: 1us}"
    helps(found, bounds_of(tmp_path, faster), found.first["faster"], 0.05)


def test_best_times_know_hosts(tmp_path: Path) -> None:
    """The ring: 2 (n − 1) / n of the words, at what a host does for packets of 1024 B."""
    words, workers = 25_000_000, 4
    best = {}
    for hosts in ("none", "{kind: dpdk, cores: 1}"):
        path = write(tmp_path, TINY + f"hosts: {hosts}\n")
        (network,) = networks_of(path)
        best[hosts] = measure_network(network, 4 * words, workers).estimates
    ring = best["{kind: dpdk, cores: 1}"]["ring"]
    packet_s = 100e-9 + 213e-12 * 1024

    assert ring.busy_s == pytest.approx(2 * (workers - 1) / workers * words / 256 * packet_s, rel=1e-4)
    assert ring.latency_s == pytest.approx(best["none"]["ring"].latency_s + 6 * 1e-6)
    switch = best["{kind: dpdk, cores: 1}"]["in_network"]
    assert switch.busy_s == pytest.approx(words / 256 * packet_s, rel=1e-4)
    assert switch.latency_s == pytest.approx(best["none"]["in_network"].latency_s + 1e-6)
    assert {ring.link, switch.link} <= {
        f"h{host} CPU, {way}" for host in range(4) for way in ("sending", "receiving")
    }


def test_every_packet_of_steered_flows_passes_its_hosts(tmp_path: Path) -> None:
    fat = "topology={kind: fat_tree, k: 4}"
    result = simulate(tmp_path, fat, "routing=spray", RING, "hosts=dpdk", "workers=4", text=LONG)
    packets = {link.link: (link.packets, link.delivered_packets) for link in result.links}
    for host in range(4):
        sent, came = (packets[f"h{host} CPU, {way}"] for way in ("sending", "receiving"))
        access = next(
            link for link in result.links if link.target == f"h{host}" and link.source != link.target
        )
        assert sent[1] == next(link.packets for link in result.links if link.source == f"h{host}")
        assert came == (access.delivered_packets, access.delivered_packets)
    assert all(check.verdict == "pass" for check in result.checks)


def test_a_host_that_is_too_slow_is_told_from_a_link(tmp_path: Path) -> None:
    network = only(tmp_path, "hosts=dpdk").network
    idle = LinkOutcomes(10, 0, 0)
    outcomes = [idle] * len(network.link_names)
    outcomes[network.last_link(2)] = LinkOutcomes(10, 0, 0, waiting=8, grown=8)
    cause = why_undelivered(network, outcomes, path(network, 0, 2, 0), 100)
    assert cause is not None
    assert cause.why.startswith("host h2 CPU, receiving is too slow for its packets: 8 wait for it")
    assert why_undelivered(network, outcomes, path(network, 0, 1, 0), 100) is None


def test_small_packets_may_be_slower_than_a_ring_of_large_ones(tmp_path: Path) -> None:
    """On kernel sockets; the warning says that hosts are the reason."""
    sets = ("collective={kind: in_network, frame: udp-256, slots: 4096}", "hosts=kernel_udp")
    (warning,) = job_plan(only(tmp_path, *sets, "workload.elements=300000", text=LONG)).warnings
    assert "host h0 CPU, sending takes longest, for packets of this size" in warning
    assert job_plan(only(tmp_path, sets[0], text=LONG)).warnings == ()


def test_the_result_of_a_server_leaves_it_once_for_every_worker(tmp_path: Path) -> None:
    """On an idle star: n messages into its host, n results out of it; a worker sends and receives one."""
    server = "collective={kind: parameter_server, placement: [h5]}"
    sets = ("topology.hosts=6", "topology.switch=plain", "workload={kind: synthetic, elements: 12000}")
    result = simulate(tmp_path, server, *sets, text=LONG)

    data = {(link.source, link.target): link.bytes for link in result.records.links}
    up, down = data["h0", "s0"], data["s0", "h0"]
    assert data["s0", "h5"] == pytest.approx(4 * up, rel=0.05)  # besides ACKs
    assert data["h5", "s0"] == pytest.approx(4 * down, rel=0.05)
    payload = 4 * 12_000
    assert payload < up < 1.25 * payload
    assert payload < down < 1.25 * payload


PAUSED = """\
name: paused
topology: {kind: star, hosts: 4}
workers: 4
workload: {kind: synthetic, elements: 100000}
codec: {kind: none}
collective: {kind: ring}
faults: [{kind: worker_pause, worker: 1, at: 1us, for: 20ms}]
"""


def test_packets_that_are_sent_again_in_vain_are_told(tmp_path: Path) -> None:
    """What a paused worker does not acknowledge in time is sent again; a longer timeout ends that."""

    def warnings(*sets: str) -> tuple[str, ...]:
        (found,) = simulate(tmp_path, *sets, text=PAUSED).facts.values()
        return found.warnings

    assert warnings() == ()  # by default: nothing was lost
    (told,) = warnings("collective.timeout=1ms")
    assert "were sent again, and 0 were lost: others were acknowledged later than the timeout of 1ms" in told
    assert warnings("collective.timeout=1s") == ()
    assert warnings("collective.timeout=1ms", "faults=[{kind: loss, rate: 10%}]") == ()  # these were lost


SLOW_LINK = """\
name: slow-link
topology: {kind: star, hosts: 8, links: [{match: h3-s0, rate: 10Gbps}]}
workers: 8
workload: {kind: synthetic, elements: 1000000}
codec: {kind: none}
"""


@pytest.mark.parametrize("collective", ["{kind: ring}", pytest.param("{kind: torus_2d}", marks=nightly)])
def test_a_host_has_one_window_to_another_where_a_link_is_slow(tmp_path: Path, collective: str) -> None:
    """Else messages to h3 wait for each other longer than the timeout, and are sent again in vain."""
    found = measure(tmp_path, f"collective={collective}", text=SLOW_LINK)

    words_us = 2 * 7 / 8 * 4e6 * 8 / 10e9 * 1e6  # of h3's link, each way
    headers = 1106 / 1024
    assert found["packets_retransmitted"] == 0
    assert words_us * headers < found["aggregation_time_us"] < 1.2 * words_us * headers


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [11, pytest.param(16, marks=nightly)])
def test_a_host_may_wait_behind_its_windows_to_several_partners(tmp_path: Path, hosts: int) -> None:
    """A host goes on to its next partner before all that it sent is acknowledged, and h3's link is slow."""
    sets = ("workload.elements=2000000", "collective={kind: halving_doubling}")
    wide = (f"topology.hosts={hosts}", f"workers={hosts}")
    default, long, short = (
        measure(tmp_path, *sets, *wide, *timeout, text=SLOW_LINK)
        for timeout in ((), ("collective.timeout=1s",), ("collective.timeout=1ms",))
    )

    assert default["packets_retransmitted"] == 0
    assert default["aggregation_time_us"] == long["aggregation_time_us"]
    assert short["packets_retransmitted"] > 0


def test_packets_sent_again_in_vain_are_told_from_1_percent_on() -> None:
    """Not if some of them were lost, which timers are there for."""
    job = cast(
        Any,
        SimpleNamespace(
            collective=SimpleNamespace(aggregation=None, sender=SimpleNamespace(timeout_ps=10**9))
        ),
    )

    assert vain_warnings(job, 1000, 9, 0) == ()
    (told,) = vain_warnings(job, 1000, 10, 0)
    assert told.startswith("10 packets, 1 % of all, were sent again, and 0 were lost")
    assert vain_warnings(job, 1000, 10, 1) == ()


# Ports of a server to switches that are not linked: channels take them in turn.

HOSTS, GBPS = 8, 10**9
PLANES = """\
name: planes
topology: {kind: file, path: planes.json}
workers: 8
workload: {kind: synthetic, elements: 2000000}
codec: {kind: none}
"""


def step_ps(folder: Path, planes: int, channels: int) -> int:
    """The time of one all-reduce by a ring over so many ports, 400G together."""
    graph = new_graph("planes")
    for host in range(HOSTS):
        add_server(graph, f"h{host}", f"port{host}")
    for plane in range(planes):
        add_switch(graph, f"plane{plane}", tier=2, profile="plain")
        for host in range(HOSTS):
            add_link(graph, f"port{host}", f"plane{plane}", LinkSpec(400 // planes * GBPS, 200_000, 1 << 26))
    (folder / "planes.json").write_text(to_json(graph), encoding="utf-8")
    result = simulate(folder, f"collective={{kind: ring, channels: {channels}}}", text=PLANES)
    (step,) = result.records.steps
    return step.aggregation_end_ps - step.aggregation_start_ps


@pytest.mark.parametrize(("planes", "channels"), [(2, 2), (2, 4), (4, 4)])
def test_so_many_channels_as_ports_are_as_fast_as_one_link(
    tmp_path: Path, planes: int, channels: int
) -> None:
    one = step_ps(tmp_path, 1, channels)

    assert step_ps(tmp_path, planes, channels) == pytest.approx(one, rel=0.05)
    assert step_ps(tmp_path, planes, 1) > 0.9 * planes * one  # a single flow has one port


WORKERS = 8


@pytest.mark.parametrize(
    "collective",
    [{"kind": "ring", "channels": 12}, {"kind": "in_network", "aggregators": "tree", "trees": 12}],
)
def test_without_a_spine_of_four_a_step_is_as_much_slower_as_the_maximum_flow(
    collective: dict[str, Any],
) -> None:
    """The racks' uplinks are the bottleneck; sprayed rings and many trees use all that are left."""
    times, flows, costs = [], [], set()
    for absent in ([], ["spine0"]):
        topology = {"leaves": 2, "spines": 4, "hosts_per_leaf": 4, "uplink_rate": "10Gbps", "without": absent}
        result = simulated(
            {
                "name": "lost",
                "topology": {"kind": "leaf_spine", "switch": "ideal", **topology},
                "routing": "spray",
                "workers": WORKERS,
                "workload": {"kind": "synthetic", "elements": 200_000},
                "codec": {"kind": "fixed_point", "factor": 1e6},
                "collective": collective,
            }
        )
        (step,) = result.records.steps
        times.append(step.aggregation_end_ps - step.aggregation_start_ps)
        costs.add(metrics_of(result)["cost_usd"])
        graph = netfold.topology.graph("leaf_spine", set=topology)
        flows.append(nx.maximum_flow_value(graph, "leaf0", "leaf1", capacity="rate_bps"))

        assert {check.verdict for check in result.checks} == {"pass"}
    assert flows == [4 * 10**10, 3 * 10**10]
    assert times[1] / times[0] == pytest.approx(flows[0] / flows[1], rel=0.05)
    assert len(costs) == 1  # what is lost was paid for


CHANNELS, FRAME_WORDS, FRAME_OVERHEAD = 4, 256, 82  # of a ring; of roce-1024


def ring_over_planes(planes: int, elements: int, **keys: Any) -> float:
    """Microseconds of a ring of 8 workers on planes of 400 Gbps together, without words in packets."""
    result = simulated(
        {
            "name": "planes",
            "topology": {
                **{"kind": "star", "hosts": WORKERS, "planes": planes, "switch": "ideal"},
                **{"rate": f"{400 // planes}Gbps", "delay": "1us"},
            },
            "workers": WORKERS,
            "workload": {"kind": "synthetic", "elements": elements, "payload": "none"},
            "codec": {"kind": "none"},
            "collective": {"kind": "ring", "channels": CHANNELS, **keys},
        }
    )
    return float(metrics_of(result)["aggregation_time_us"])


@pytest.mark.parametrize("elements", [250_000, 1_000_000, 4_000_000])
@pytest.mark.parametrize("planes", [1, 2, 4])
def test_a_channel_with_a_port_of_its_own_waits_for_the_delay_of_every_step(
    planes: int, elements: int
) -> None:
    """A port sends the segments of its channels in turn. It is always busy, or the next segment of a channel
    comes after the one before has been sent and has crossed two links, and the last channel ends last."""
    packets = elements // (CHANNELS * WORKERS) / FRAME_WORDS
    packet_us = 8e-3 * (4 * FRAME_WORDS + FRAME_OVERHEAD) / (400 / planes)
    segment_us, trip_us = packets * packet_us, 2 * 1.0 + packet_us
    steps, each = 2 * (WORKERS - 1), CHANNELS // planes
    busy_us = steps * each * segment_us + trip_us
    waiting_us = steps * (segment_us + trip_us) + (each - 1) * segment_us

    assert ring_over_planes(planes, elements) == pytest.approx(max(busy_us, waiting_us), rel=0.01)


@pytest.mark.parametrize(("elements", "keys"), [(1_000_000, {"chunk": "16KiB"}), (4_000_000, {})])
def test_one_two_and_four_planes_are_equally_fast(elements: int, keys: dict[str, Any]) -> None:
    """Chunks of segments hide that delay, and large segments make it small."""
    one, two, four = (ring_over_planes(planes, elements, **keys) for planes in (1, 2, 4))

    assert two == pytest.approx(one, rel=0.01)
    assert four == pytest.approx(one, rel=0.01 if keys else 0.06)


@pytest.mark.parametrize(("k", "seeds"), [(4, 2), pytest.param(8, 3, marks=nightly)])
def test_flows_between_all_workers_are_nearly_as_fast_by_hashes_as_sprayed(k: int, seeds: int) -> None:
    """Servers beside all workers, which are placed at random: reduce-scatter and all-gather, directly."""
    for seed in range(1, seeds + 1):
        times = {}
        for routing in ("ecmp", "spray"):
            result = simulated(
                {
                    **{"name": "direct", "seed": seed, "routing": routing},
                    "topology": {"kind": "fat_tree", "k": k, "switch": "plain"},
                    "workers": {"count": k**3 // 4, "placement": "random"},
                    "workload": {"kind": "synthetic", "elements": 250_000, "payload": "none"},
                    "codec": {"kind": "none"},
                    "collective": {
                        **{"kind": "parameter_server", "servers": k**3 // 4},
                        "placement": "beside_workers",
                    },
                }
            )
            found = metrics_of(result)
            times[routing] = found["aggregation_time_us"]

            assert found["packets_retransmitted"] == 0
            assert {(use["used"], use["links"]) for use in found["links_used"].values()} == {(k**3 // 4,) * 2}
        assert 1 < times["ecmp"] / times["spray"] < 1.5


@pytest.mark.parametrize("kind", registered(Topology))
def test_a_tree_of_switches_adds_up_despite_losses(kind: str, tmp_path: Path) -> None:
    """The array leaves it to netfold whether one switch aggregates or a tree."""
    settings = {
        "name": "trees",
        "seed": 5,
        "topology": {"kind": kind, **small_network(kind, WORKERS)},
        "workers": WORKERS,
        "workload": {"kind": "synthetic", "elements": 3000},
        "codec": {"kind": "fixed_point", "factor": 1e6},
        "collective": {"kind": "in_network", "aggregators": "tree", "slots": 8},
        "faults": [{"kind": "loss", "rate": 0.01}],
    }
    result = simulate(tmp_path, text=json.dumps(settings))  # JSON is YAML

    verdicts = {check.name: check.verdict for check in result.checks}
    assert set(verdicts.values()) == {"pass"}, verdicts
    assert sum(link.lost_packets for link in result.links) > 0


def test_a_result_out_of_sequence_is_asked_for_again(tmp_path: Path) -> None:
    """A switch completes part 2 of a unit last: another worker's was lost before the last worker sent."""
    settings = {
        "name": "sequence",
        "seed": 14,
        "topology": {"kind": "leaf_spine", "leaves": 3, "spines": 3, "hosts_per_leaf": 2, "switch": "ideal"},
        "workers": 6,
        "workload": {"kind": "synthetic", "elements": 30_000, "steps": 3, "bucket": "40KB"},
        "codec": {"kind": "packed"},
        "collective": {
            **{"kind": "in_network", "program": "switchml", "switch": "spine0"},
            **{"slots": 64, "aggregators": "tree"},
        },
        "faults": [{"kind": "loss", "rate": 0.005}],
    }
    result = simulate(tmp_path, text=json.dumps(settings))

    assert {check.verdict for check in result.checks} == {"pass"}


def test_a_unit_that_new_routes_bring_out_of_sequence_is_sent_again(tmp_path: Path) -> None:
    """Packets on a shorter path overtake others; the switch discards the rest of a unit. Nothing is lost."""
    failed = {"kind": "link_down", "links": ["leaf0-spine0"], "at": "51us", "for": "51us", "reroute": "1us"}
    settings = {
        "name": "overtaken",
        "seed": 98,
        "topology": {"kind": "leaf_spine", "leaves": 2, "spines": 3, "hosts_per_leaf": 2, "switch": "ideal"},
        "workers": {"count": 4, "placement": "random"},
        "workload": {"kind": "synthetic", "elements": 20_000, "steps": 4},
        "codec": {"kind": "block_sparse"},
        "collective": {"kind": "in_network", "switch": "spine0", "aggregators": "one", "multicast": "off"},
        "faults": [failed],
    }
    result = simulate(tmp_path, text=json.dumps(settings))

    assert {check.verdict for check in result.checks} == {"pass"}


@pytest.mark.parametrize(("channels", "is_told"), [(1, True), (2, False)])
def test_hosts_of_two_planes_send_on_both_with_two_channels(
    tmp_path: Path, channels: int, is_told: bool
) -> None:
    """With as many channels as ports every port carries its share; one channel takes one, and is told so."""
    plain = TINY.replace("tofino1", "ideal")
    text = plain.replace("hosts: 4, rate: 100Gbps", "hosts: 4, planes: 2, rate: 100Gbps")
    fast = plain.replace("rate: 100Gbps", "rate: 200Gbps")
    sets = (
        f"collective={{kind: ring, channels: {channels}}}",
        "codec={kind: none}",
        "workload.elements=400000",
        "workers=4",
        "topology.delay=10ns",  # else channels that share a link hide each other's latency
    )
    halves, whole = (measure(tmp_path, *sets, text=each)["aggregation_time_us"] for each in (text, fast))

    assert (halves < 1.05 * whole) is not is_told
    assert [told for told in job_plan(only(tmp_path, *sets, text=text)).warnings if "ports" in told] == [
        "hosts send on 1 of their 2 ports, as the channels of a collective take ports in turn: "
        "use 2 channels (of trees in switches: trees)"
    ] * is_told
