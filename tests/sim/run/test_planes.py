"""Ports of a server to switches that are not linked: channels take them in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.topologies.files.node_link import to_json
from netfold.topologies.graph import LinkSpec, add_link, add_server, add_switch, new_graph
from tests.sim.scenes import simulate

HOSTS, GBPS = 8, 10**9
SCENARIO = """\
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
    result = simulate(folder, f"collective={{kind: ring, channels: {channels}}}", text=SCENARIO)
    (step,) = result.records.steps
    return step.aggregation_end_ps - step.aggregation_start_ps


@pytest.mark.parametrize(("planes", "channels"), [(2, 2), (2, 4), (4, 4)])
def test_so_many_channels_as_ports_are_as_fast_as_one_link(
    tmp_path: Path, planes: int, channels: int
) -> None:
    one = step_ps(tmp_path, 1, channels)

    assert step_ps(tmp_path, planes, channels) == pytest.approx(one, rel=0.05)
    assert step_ps(tmp_path, planes, 1) > 0.9 * planes * one  # a single flow has one port
