"""From the topology section to a graph."""

from pathlib import Path

import pytest

from netfold.sim.errors import ScenarioError
from netfold.sim.resolve import resolve
from netfold.sim.scenario import load
from netfold.sim.scenario.topology import build_topology
from netfold.topologies.files.node_link import from_json, to_json
from tests import ROOT
from tests.sim.scenario.files import GOOD, changed, write

LEAF_SPINE = "kind: leaf_spine\n  leaves: 2\n  spines: 2\n  hosts_per_leaf: 3\n  uplink_rate: 40Gbps"


def test_star_and_leaf_spine_carry_the_scenarios_numbers(tmp_path: Path) -> None:
    star = load(write(tmp_path, GOOD))
    graph = build_topology(star, star.variants[0])
    assert graph.edges["h0", "s0"] == {"rate_bps": 10**11, "delay_ps": 500_000, "buffer_bytes": 2**24}
    assert graph.nodes["s0"]["profile"] == "tofino1"

    leaf_spine = load(write(tmp_path, changed("kind: star\n  hosts: 8", LEAF_SPINE)))
    graph = build_topology(leaf_spine, leaf_spine.variants[0])
    assert graph.edges["h5", "leaf1"]["rate_bps"] == 10**11
    assert graph.edges["leaf1", "spine0"]["rate_bps"] == 40 * 10**9


FILE = changed("kind: star\n  hosts: 8\n  rate: 100Gbps\n  delay: 500ns", "kind: file\n  path: net.json")


def test_a_file_is_looked_for_beside_the_scenario(tmp_path: Path) -> None:
    star = load(write(tmp_path, GOOD))
    graph = build_topology(star, star.variants[0])
    (tmp_path / "net.json").write_text(to_json(graph))

    scenario = load(write(tmp_path, FILE))

    assert dict(graph.edges) == dict(build_topology(scenario, scenario.variants[0]).edges)


def test_a_file_that_is_missing_or_breaks_the_contract(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    scenario = load(path)

    with pytest.raises(ScenarioError) as caught:
        build_topology(scenario, scenario.variants[0])
    assert str(caught.value) == (
        f"{path}:5: topology.path: cannot read 'net.json': there is no such file\n"
        "  give the path of a file of node-link JSON, GraphML or GML (.json, .graphml, .gml), "
        "relative to the scenario file"
    )

    (tmp_path / "net.json").write_text("{}")
    with pytest.raises(ScenarioError) as caught:
        build_topology(scenario, scenario.variants[0])
    assert str(caught.value) == (
        f"{path}:5: topology.path: net.json: "
        "not node-link JSON: 'nodes' is missing or not a list\n  it must have lists 'nodes' and 'edges'"
    )

    (tmp_path / "net.json").write_text('{"nodes": [{"id": "s0", "kind": "switch", "tier": 1}], "edges": []}')
    with pytest.raises(ScenarioError) as caught:
        build_topology(scenario, scenario.variants[0])
    assert str(caught.value) == (
        f"{path}:5: topology.path: net.json: topology: node 's0': "
        "profile is missing, must be the name of a switch profile, such as 'plain'"
    )


def test_the_example_file_is_as_exported_and_can_be_used() -> None:
    folder = ROOT / "scenarios"
    text = (folder / "graphs" / "two-racks.json").read_text()
    assert text == to_json(from_json(text))

    sets = ["topology={kind: file, path: graphs/two-racks.json}"]
    plan = resolve(load(folder / "01-quickstart.yaml", sets))
    assert {len(variant.network.nodes) for variant in plan.variants} == {10}
