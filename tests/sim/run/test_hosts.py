"""Runs whose hosts take time: against closed forms, published figures, and runs whose hosts take none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netfold.sim.diagnosis.links import LinkOutcomes, why_undelivered
from netfold.sim.hosts.profile import host_profiles
from netfold.sim.plan.frames import frames
from netfold.sim.topology.given import networks_of
from netfold.sim.topology.measured import measured
from netfold.topologies.routing import path
from tests.sim.bounds.known import bounds_of
from tests.sim.bounds.test_known import helps
from tests.sim.scenes import TINY, job_plan, measure, only, simulate, write

PS_US = 1e-6
LONG = """\
name: long
seed: 7
topology: {kind: star, hosts: 4, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 4
workload: {kind: synthetic, elements: 300000}
codec: {kind: none}
collective: {kind: in_network, frame: udp-1024, slots: 4096}
"""
RING = "collective={kind: ring}"
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
    frame = job_plan(variant).collective.frame
    sizes = [frame.wire_bytes(160 // share, first=True, last=True) for share in shares]
    steps = [
        way_ps(variant, 0, 1, size, (5 * 10**6 + 10 * size, 5 * 10**6 + -(-size * 8 // 1000)))
        for size in sizes
    ]

    acks_ps = (len(steps) - 1) * (3 * 10**6 + 10 * frame.ack_bytes)

    time_us = measure(tmp_path, *sets)["aggregation_time_us"]
    assert time_us == pytest.approx((sum(steps) + acks_ps) * PS_US, abs=1e-6)


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
        best[hosts] = measured(network, 4 * words, workers).estimates
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
        assert sent == packets[f"h{host} CPU, sending"]
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
