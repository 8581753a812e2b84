"""What a program brings to a switch's loopback ports, at the rate at which packets can come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.scenes import measure, only, refused

# 256 words are folded over four pipelines: n workers make 3 n further streams, and reading out takes 7 more.
RACKS = """\
name: racks
seed: 1
profiles: [{name: mine, like: tofino1, loopback_ports: 8}]
topology:
  {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 4, rate: 25Gbps, uplink_rate: 100Gbps,
   switch: mine}
workers: 8
workload: {kind: synthetic, elements: 300000}
codec: {kind: fixed_point}
collective: {kind: in_network, frame: roce-1024, switch: spine0, aggregators: one}
"""
STREAMS = 8 * 3 + 7
PORTS, PORT_RATE = "profiles.mine.loopback_ports={}", "profiles.mine.loopback_rate={}Gbps"


def needed(ports: int, rate_gbps: str, sent_gbps: str, workers: int = 8) -> str:
    return (
        f"{workers} workers send {sent_gbps} Gbps through loopback ports with SwitchML, "
        f"mine has {ports} of {rate_gbps} Gbps"
    )


@pytest.mark.parametrize(
    ("port_gbps", "ports", "fits"),
    [("25", STREAMS, True), ("25", STREAMS - 1, False), ("25.84", 30, True), ("25.83", 30, False)],
)
def test_just_at_the_limit(tmp_path: Path, port_gbps: str, ports: int, fits: bool) -> None:
    """31 streams of 25 Gbps; 30 ports carry them from 25.8334 Gbps on."""
    sets = (PORTS.format(ports), PORT_RATE.format(port_gbps))

    if fits:
        assert only(tmp_path, *sets, text=RACKS)
    else:
        assert needed(ports, port_gbps, "775") in refused(tmp_path, *sets, text=RACKS)


def test_an_uplink_that_streams_share_slows_them_all(tmp_path: Path) -> None:
    """Four streams on 50 Gbps have 12.5 each, 31 of them 387.5: four ports. In a tree each has 25."""
    slow = "topology.uplink_rate=50Gbps"

    assert only(tmp_path, slow, PORTS.format(4), text=RACKS)
    assert needed(3, "100", "387.5") in refused(tmp_path, slow, PORTS.format(3), text=RACKS)
    # A leaf has four workers: 4 · 3 + 7 = 19 streams.
    tree = ("collective.aggregators=tree", slow)
    assert only(tmp_path, *tree, PORTS.format(5), text=RACKS)
    assert needed(4, "100", "475", 4) in refused(tmp_path, *tree, PORTS.format(4), text=RACKS)


def test_a_slow_port_for_results_slows_what_comes(tmp_path: Path) -> None:
    """Every result passes one port of 10 Gbps, and no worker is ahead of results: 31 streams of 10."""
    slow = PORT_RATE.format(10)

    assert only(tmp_path, slow, PORTS.format(31), text=RACKS)
    assert needed(30, "10", "310") in refused(tmp_path, slow, PORTS.format(30), text=RACKS)


@pytest.mark.parametrize(
    ("sets", "stream_gbps", "port_gbps"),
    [
        (("topology.uplink_rate=50Gbps",), 12.5, 100),
        ((PORT_RATE.format(10), PORTS.format(31)), 10, 10),
    ],
)
def test_a_run_is_as_busy(
    tmp_path: Path, sets: tuple[str, ...], stream_gbps: float, port_gbps: float
) -> None:
    """The port that results pass carries one stream, at the rate that the check counts with."""
    metrics = measure(tmp_path, *sets, "workload.elements=1000000", text=RACKS)

    assert metrics["loopback_busy"] == pytest.approx(stream_gbps / port_gbps, rel=0.03)
    assert metrics["loopback_busy"] <= stream_gbps / port_gbps


STAR = """\
name: star
seed: 1
profiles: [{name: mine, like: tofino1, loopback_ports: 56}]
topology: {kind: star, hosts: 24, rate: 25Gbps, switch: mine}
workers: 8
workload: {kind: synthetic, elements: 1000}
codec: {kind: fixed_point}
collective: {kind: in_network, frame: roce-1024}
jobs: [{name: a}, {name: b}]
"""


def test_jobs_on_one_switch_add_up(tmp_path: Path) -> None:
    """Two jobs of eight workers: 62 streams of 25 Gbps, 1550 in all."""
    assert only(tmp_path, PORTS.format(16), text=STAR)
    assert refused(tmp_path, PORTS.format(15), text=STAR) == (
        "tiny.yaml:5: workers: 8 workers and those of other jobs send 1550 Gbps through loopback ports "
        "with SwitchML, mine has 15 of 100 Gbps\n  use 7 workers at most, "
        "or 64 words (256 B) a packet (collective.frame: udp-256)"
    )
