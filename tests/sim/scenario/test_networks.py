"""Topologies in scenarios: changes by pattern, graphs from foreign files, and where errors point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import netfold
from netfold.sim.scenario import load
from netfold.sim.scenario.topology import build_topology
from netfold.topologies.graph import NODES_MAX, hosts
from tests.sim.scenario.files import GOOD, changed, write

LEAF_SPINE = "kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 4"
SCENARIO: dict[str, Any] = {
    "name": "networks",
    "workers": 8,
    "workload": {"kind": "synthetic", "elements": 2000},
    "codec": {"kind": "fixed_point"},
    "collective": {"kind": "ring"},
}


def with_topology(topology: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**SCENARIO, "topology": topology, **more}


def refused(topology: dict[str, Any]) -> str:
    with pytest.raises(netfold.ScenarioError) as caught:
        netfold.validate(with_topology(topology))
    return str(caught.value)


def graph_of(path: Path, *sets: str) -> nx.Graph:
    scenario = load(path, sets)
    return build_topology(scenario, scenario.variants[0])


def test_links_and_profiles_change_by_pattern(tmp_path: Path) -> None:
    topology = (
        f"{{{LEAF_SPINE}, links: [{{match: 'leaf*-spine0', rate: 40Gbps, delay: 3us}}, "
        "{match: spine*-leaf1, buffer: 1MiB}], switch_profiles: [{match: 'spine*', profile: tofino2}]}"
    )
    graph = graph_of(write(tmp_path, GOOD), f"topology={topology}")

    assert graph.edges["leaf0", "spine0"] == {
        "rate_bps": 4 * 10**10,
        "delay_ps": 3 * 10**6,
        "buffer_bytes": 2**24,
    }
    assert graph.edges["leaf1", "spine0"]["buffer_bytes"] == 2**20
    assert graph.edges["leaf1", "spine1"]["rate_bps"] == 10**11
    assert [graph.nodes[name]["profile"] for name in ("leaf0", "spine1")] == ["tofino1", "tofino2"]


def test_a_files_links_change_too(tmp_path: Path) -> None:
    (tmp_path / "net.gml").write_text(
        'graph [ node [ id 0 label "a" ] node [ id 1 label "b" ] edge [ source 0 target 1 ] ]'
    )
    topology = (
        "{kind: file, path: net.gml, hosts_per_switch: 2, rate: 25Gbps, links: [{match: b-a, rate: 1Gbps}]}"
    )
    graph = graph_of(write(tmp_path, GOOD), f"topology={topology}")

    assert len(hosts(graph)) == 4
    assert graph.edges["a", "b"]["rate_bps"] == 10**9
    assert graph.edges["h3", "b"]["rate_bps"] == 25 * 10**9
    assert graph.nodes["a"]["profile"] == "tofino1"


def test_gml_runs_with_given_or_default_links(tmp_path: Path) -> None:
    (tmp_path / "net.gml").write_text(
        "graph [ node [ id 0 ] node [ id 1 ] node [ id 2 ]\n"
        "edge [ source 0 target 1 LinkSpeedRaw 1000000000.0 ] edge [ source 1 target 2 ] ]"
    )
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "name: gml\ntopology: {kind: file, path: net.gml, hosts_per_switch: 1, switch: tofino2, delay: 2us}\n"
        "workers: 3\nworkload: {kind: synthetic, elements: 2000}\ncodec: {kind: fixed_point}\n"
        "collective: {kind: ring}\n"
    )
    run = netfold.run(path, out=tmp_path / "runs")
    rates = dict(run.links.select("link", "rate_bps").iter_rows())

    assert run.verdict == "pass"
    assert (rates["0->1"], rates["1->2"], rates["h0->0"]) == (10**9, 10**11, 10**11)
    assert run.summary["variants"][0]["setup"]["topology"] == {
        "kind": "file",
        "path": "net.gml",
        "hosts_per_switch": 1,
        "switch": "tofino2",
        "delay": "2us",
    }


def test_setups_have_what_was_changed(tmp_path: Path) -> None:
    links = [{"match": "h0-*", "rate": "10Gbps"}]
    run = netfold.run(with_topology({"kind": "star", "hosts": 8, "links": links}), out=tmp_path)

    assert run.summary["variants"][0]["setup"]["topology"] == {
        "kind": "star",
        "hosts": 8,
        "rate": "100Gbps",
        "delay": "1us",
        "switch": "tofino1",
        "links": links,
    }


STAR = {"kind": "star", "hosts": 8}


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (
            {**STAR, "links": [{"match": "h*-s1", "rate": "1Gbps"}]},
            "topology.links.0.match: topology 'star': no link matches 'h*-s1'\n  did you mean 'h*-s*'?",
        ),
        (
            {**STAR, "links": [{"match": "*"}]},
            "topology.links.0: changes nothing\n  give rate, delay or buffer",
        ),
        ({**STAR, "links": [{"rate": "1Gbps"}]}, "topology.links.0: the key 'match' is missing"),
        ({**STAR, "links": [{"match": "*", "rate": "0Gbps"}]}, "topology.links.0.rate: must be more than 0"),
        ({**STAR, "links": [{"match": "*", "rte": "1Gbps"}]}, "did you mean 'rate'?"),
        (
            {**STAR, "links": [{"match": "h1-*", "rate": "400Gbps"}]},
            "topology.links.0.rate: link h1–s0 has 400Gbps, a port of tofino1 100Gbps",
        ),
        (
            {**STAR, "switch_profiles": [{"match": "s*", "profile": "shar"}]},
            "topology.switch_profiles.0.profile: there is no switch profile 'shar'\n  did you mean 'sharp'?",
        ),
        (
            {**STAR, "switch_profiles": [{"match": "h*", "profile": "sharp"}]},
            "topology.switch_profiles.0.match: topology 'star': no switch matches 'h*'",
        ),
        (
            {"kind": "rail_optimized", "islands_per_pod": 4, "spines": 0, "nvlink_switch": "tofin"},
            "topology.nvlink_switch: there is no switch profile 'tofin'",
        ),
        (
            {"kind": "rail_optimized", "islands_per_pod": 4, "spines": 0, "nvlink_switch": "sharp"},
            "topology.nvlink_rate (default): link gpu0–nvlink0 has 3.6Tbps, a port of sharp 200Gbps",
        ),
        ({"kind": "fat_tree", "k": 5}, "topology.k: fat_tree: k is 5, must be even"),
        ({"kind": "torus", "dimensions": [4, 1]}, "topology.dimensions.1: must be at least 2, found 1"),
        ({"kind": "torus", "dimensions": []}, "topology.dimensions: must be a list of at least 1"),
        ({"kind": "torus", "dimensions": [99, 99]}, "topology.dimensions: 19602 nodes are too many"),
        ({"kind": "bcube", "n": 2, "k": -1}, "topology.k: must be at least 0, found -1"),
        (
            {"kind": "bcube", "n": 10**9, "k": 60},
            f"topology.n: more than 10^549 nodes are too many: the packet engine takes up to {NODES_MAX}",
        ),
        ({"kind": "topohub", "name": "x"}, "topology.name: topohub: "),
    ],
)
def test_mistakes_point_to_their_key(topology: dict[str, Any], words: str) -> None:
    assert words in refused(topology)


def test_routers_without_hosts_are_refused_with_the_key_that_adds_them(tmp_path: Path) -> None:
    (tmp_path / "net.gml").write_text('graph [ label "Zoo" node [ id 0 ] ]')
    file = changed("kind: star\n  hosts: 8\n  rate: 100Gbps\n  delay: 500ns", "kind: file\n  path: net.gml")
    path = write(tmp_path, file)

    with pytest.raises(netfold.ScenarioError) as caught:
        graph_of(path)
    assert str(caught.value) == (
        f"{path}:5: topology.path: net.gml: topology 'Zoo': has no host, its 1 nodes are switches\n"
        "  add hosts_per_switch: 1"
    )
