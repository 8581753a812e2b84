"""Collectives between hosts in their shapes, with loss, packets out of order, a device and several buckets.

That they carry every codec is in `tests/pairs`.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netfold.sim.plan.warnings import vain_warnings
from netfold.topologies.files.node_link import to_json
from netfold.topologies.graph import LinkSpec, add_link, add_server, add_switch, new_graph
from tests.examples import nightly
from tests.sim.scenes import measure, simulate

TEXT = """\
name: hosts
seed: 7
topology: {kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 4, rate: 100Gbps, delay: 1us}
workers: 4
workload: {kind: synthetic, elements: 6000, density: 0.1, steps: 2, bucket: 10KB}
codec: {kind: fixed_point}
device: {kind: fixed, forward: 5us, backward: 10us, memory_rate: 800Gbps}
collective: {kind: ring}
faults: [{kind: loss, rate: 1%}, {kind: reorder, rate: 1%, delay: 2us}]
"""
COLLECTIVES = (
    "{kind: torus_2d, rows: 3}",
    "{kind: all_gather, chunk: 1KiB}",
    "{kind: parameter_server}",
    "{kind: parameter_server, servers: 3, placement: spread, chunk: 1KiB}",
    "{kind: parameter_server, servers: 4, placement: beside_workers}",
)


@pytest.mark.parametrize(
    ("collective", "codec"),
    [(one, ("none", "lossless")[number % 2]) for number, one in enumerate(COLLECTIVES)],
)
def test_every_shape_passes_its_checks(tmp_path: Path, collective: str, codec: str) -> None:
    """Floats, whose order counts; and all merges of integers, in several operations."""
    result = simulate(tmp_path, f"codec={{kind: {codec}}}", f"collective={collective}", text=TEXT)

    verdicts = {(check.name, check.verdict) for check in result.records.checks}
    assert {verdict for _, verdict in verdicts} == {"pass"}
    assert len(result.records.rounds) == 2 * 3
    assert "hosts_merge_right" not in {name for name, _ in verdicts}
    assert all(one.packets_retransmitted > 0 for one in result.facts.values())


def test_the_result_of_a_server_leaves_it_once_for_every_worker(tmp_path: Path) -> None:
    """On an idle star: n messages into its host, n results out of it; a worker sends and receives one."""
    star = TEXT[: TEXT.index("topology")] + TEXT[TEXT.index("workers") : TEXT.index("faults")]
    star += "topology: {kind: star, hosts: 6, rate: 100Gbps, delay: 1us, switch: plain}\n"
    sets = ("collective={kind: parameter_server, placement: [h5]}", "codec={kind: none}")
    result = simulate(tmp_path, *sets, text=star)

    data = {(link.source, link.target): link.bytes for link in result.records.links}
    up, down = data["h0", "s0"], data["s0", "h0"]
    assert data["s0", "h5"] == pytest.approx(4 * up, rel=0.05)  # besides ACKs
    assert data["h5", "s0"] == pytest.approx(4 * down, rel=0.05)
    payload = 2 * 4 * 6000  # two steps, 4 bytes an element
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
    """Not if some of them were lost, which timers are there for, nor as late if others overtook them."""
    job = cast(Any, SimpleNamespace(collective=SimpleNamespace(aggregation=None, timeout_ps=10**9)))

    assert vain_warnings(job, 1000, 9, 0) == ()
    (told,) = vain_warnings(job, 1000, 10, 0)
    assert told.startswith("10 packets, 1 % of all, were sent again, and 0 were lost")
    assert vain_warnings(job, 1000, 10, 1) == ()
    (told,) = vain_warnings(job, 1000, 100, 0, (70, 100))
    assert "others arrived out of order, 70 of them, and were taken for lost" in told
    assert "timeout" not in told


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
