"""Topologies in scenarios: changes by pattern, graphs from foreign files, and where errors point."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

import netfold
from netfold.errors import ScenarioError
from netfold.homomorphic.codec import codec_kinds
from netfold.sim.scenario.load import load, schema
from netfold.sim.scenario.resolve import build_topology, resolve
from netfold.topologies.graph import NODES_MAX
from netfold.topologies.topology_files import from_json, to_json
from tests import ROOT
from tests.sim.scenario.files import GOOD, changed, write

LEAF_SPINE = "kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 4"
SCENARIO: dict[str, Any] = {
    "name": "networks",
    "workers": 8,
    "workload": {"kind": "synthetic", "elements": 2000},
    "codec": {"kind": "fixed_point"},
    "collective": {"kind": "ring"},
}


def graph_of(path: Path, *sets: str) -> nx.Graph:
    scenario = load(path, sets)
    return build_topology(scenario, scenario.variants[0])


def unbuilt(path: Path) -> str:
    """Why a scenario has no graph."""
    with pytest.raises(ScenarioError) as caught:
        graph_of(path)
    return str(caught.value).replace(str(path), "FILE")


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
        (
            {**STAR, "links": [{"match": "h1-*", "rate": "400Gbps"}]},
            "topology.links.0.rate: link h1–s0 has 400Gbps, a port of tofino1 100Gbps",
        ),
        (
            {**STAR, "without": ["h0-s0"]},
            "topology.without: topology 'star': these hosts have no path to the others: h0 (1 of s0)\n  a ",
        ),
        (
            {**STAR, "without": ["s1"]},
            "topology.without.0: topology 'star': no switch or link matches 's1'\n  switches and links ",
        ),
        (
            {"kind": "rail_optimized", "islands_per_pod": 4, "spines": 0, "nvlink_switch": "sharp"},
            "topology.nvlink_rate (default): link gpu0–nvlink0 has 3.6Tbps, a port of sharp 200Gbps",
        ),
        (
            {"kind": "bcube", "n": 10**9, "k": 60},
            f"topology.n: more than 10^549 nodes are too many: the packet engine takes up to {NODES_MAX}",
        ),
        ({"kind": "topohub", "name": "x"}, "topology.name: topohub: "),
        (
            {**STAR, "switch_profiles": [{"match": "s0", "profile": "tofino"}]},
            "topology.switch_profiles.0.profile: there is no switch profile 'tofino'\n  did you mean ",
        ),
    ],
)
def test_mistakes_point_to_their_key(topology: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(words)):
        netfold.validate({**SCENARIO, "topology": topology})


def test_routers_without_hosts_are_refused_with_the_key_that_adds_them(tmp_path: Path) -> None:
    (tmp_path / "net.gml").write_text('graph [ label "Zoo" node [ id 0 ] ]')

    assert unbuilt(write(tmp_path, FILE.replace("json", "gml"))) == (
        "FILE:5: topology.path: net.gml: topology 'Zoo': has no host, its 1 nodes are switches\n"
        "  add hosts_per_switch: 1"
    )


def test_changes_apply_to_the_whole_network_before_anything_is_absent(tmp_path: Path) -> None:
    topology = f"{{{LEAF_SPINE}, links: [{{match: '*-spine0', rate: 40Gbps}}], without: [spine0]}}"

    assert "spine0" not in graph_of(write(tmp_path, GOOD), f"topology={topology}")


def test_absence_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(to_json(graph_of(write(tmp_path, GOOD), f"topology={{{LEAF_SPINE}}}")))

    assert "spine1" not in graph_of(write(tmp_path, FILE), "topology.without=[spine1]")


def test_dimension_order_refuses_a_torus_that_is_not_whole() -> None:
    topology = {"kind": "torus", "dimensions": [3, 3], "without": ["s0_0-s0_1"]}
    with pytest.raises(ScenarioError, match="with neither `planes` nor `without`"):
        netfold.validate({**SCENARIO, "topology": topology, "routing": "dimension_order"})


def test_star_and_leaf_spine_carry_the_scenarios_numbers(tmp_path: Path) -> None:
    graph = graph_of(write(tmp_path, GOOD))
    assert graph.edges["h0", "s0"] == {"rate_bps": 10**11, "delay_ps": 500_000, "buffer_bytes": 2**24}
    assert graph.nodes["s0"]["profile"] == "tofino1"

    graph = graph_of(write(tmp_path, GOOD), f"topology={{{LEAF_SPINE}, uplink_rate: 40Gbps}}")
    assert graph.edges["h7", "leaf1"]["rate_bps"] == 10**11
    assert graph.edges["leaf1", "spine0"]["rate_bps"] == 40 * 10**9


FILE = changed("kind: star\n  hosts: 8\n  rate: 100Gbps\n  delay: 500ns", "kind: file\n  path: net.json")


def test_a_file_is_looked_for_beside_the_scenario(tmp_path: Path) -> None:
    graph = graph_of(write(tmp_path, GOOD))
    (tmp_path / "net.json").write_text(to_json(graph))

    assert dict(graph.edges) == dict(graph_of(write(tmp_path, FILE)).edges)


def test_a_file_that_is_missing_or_breaks_the_contract(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)

    assert unbuilt(path) == (
        "FILE:5: topology.path: cannot read 'net.json': there is no such file\n"
        "  give the path of a file of node-link JSON, GraphML or GML (.json, .graphml, .gml), "
        "relative to the scenario file"
    )
    (tmp_path / "net.json").write_text('{"nodes": [{"id": "s0", "kind": "switch", "tier": 1}], "edges": []}')
    assert unbuilt(path) == (
        "FILE:5: topology.path: net.json: topology: node 's0': "
        "profile is missing, must be the name of a switch profile, such as 'plain'"
    )


def test_the_example_file_is_as_exported_and_can_be_used() -> None:
    folder = ROOT / "scenarios"
    text = (folder / "graphs" / "two-racks.json").read_text()
    assert text == to_json(from_json(text))

    sets = ["topology={kind: file, path: graphs/two-racks.json}"]
    plan = resolve(load(folder / "01-quickstart.yaml", sets))
    assert {len(variant.network.nodes) for variant in plan.variants} == {10}


SCENARIOS = sorted((ROOT / "scenarios").rglob("*.yaml"))
VALIDATOR = Draft202012Validator(schema())


def read(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def test_it_is_a_schema_and_json() -> None:
    Draft202012Validator.check_schema(schema())

    assert schema() == json.loads(json.dumps(schema()))


@pytest.mark.parametrize(
    "text", [GOOD, *(path.read_text() for path in SCENARIOS)], ids=["good", *map(str, SCENARIOS)]
)
def test_scenarios_match(text: str) -> None:
    VALIDATOR.validate(read(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("topology:", "topolgy:"),
        ("100Gbps", "100gbps"),
        ("density: 5%", "density: 1.5"),
        ("udp-256", "udp-257"),
        ("      window: 64", "      slots: 64"),
        ("kind: fixed_point", "kind: fixed"),
        ("  - name: switch", "  - codec: {kind: none}"),
        ("name: quick", "nmae: quick"),
        ("topology:\n", "profiles: [{name: mine, stage: 3}]\ntopology:\n"),
        ("topology:\n", "profiles: [{name: mine, like: tofino1, pass_latency: 1}]\ntopology:\n"),
    ],
)
def test_mistakes_do_not_match(old: str, new: str) -> None:
    assert not VALIDATOR.is_valid(read(changed(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seed: 7", "profiles: [own.yaml, {name: mine, like: tofino1, pass_latency: 1us}]"),
        ("seed: 7", "x-seed: [7]"),
        ("  hosts: 8", "  hosts: 8\n  x-hosts: [9]"),
        ("kind: fixed_point", "kind: fixed_point\n  x-why: fast"),
        ("  - name: switch", "  - name: switch\n    x-why: fast"),
    ],
)
def test_own_profiles_and_keys_that_nobody_reads_match(old: str, new: str) -> None:
    VALIDATOR.validate(read(changed(old, new)))


def test_every_key_is_described_and_defaults_look_like_the_file() -> None:
    definitions = schema()["$defs"]
    undescribed = [
        f"{name}.{key}"
        for name, definition in definitions.items()
        for key, value in definition.get("properties", {}).items()
        if key != "kind" and "description" not in value
    ]

    assert undescribed == []
    assert definitions["Star"]["properties"]["rate"]["default"] == "100Gbps"
    assert definitions["InNetworkSection"]["properties"]["timeout_max"]["default"] == "100ms"


def test_every_codec_is_in_it() -> None:
    kinds = [member["properties"]["kind"]["const"] for member in schema()["properties"]["codec"]["anyOf"]]

    assert list(codec_kinds()) == kinds
