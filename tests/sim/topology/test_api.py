"""The verbs of `netfold topology` from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import netfold
from netfold.sim.errors import NetfoldError, ScenarioError
from netfold.topologies.kind import topology_kinds
from tests.sim.scenario.files import GOOD, write


def test_kinds_have_their_keys() -> None:
    kinds = netfold.topology.kinds()

    assert [*kinds] == [*topology_kinds(), "file"]
    assert {key.name for key in kinds["star"].keys} >= {"hosts", "rate", "delay", "buffer", "switch"}
    assert next(key for key in kinds["star"].keys if key.name == "delay").default == "1us"


def test_measures_are_plain_data_and_print_tables() -> None:
    found = netfold.topology.measure("star", set={"hosts": 4, "rate": "10Gbps"}, bytes="1MB")

    assert found.networks["star"]["bisection_bps"] == 2 * 10**10
    assert json.loads(json.dumps(found.networks)) == found.networks
    text = str(found)
    assert "20Gbps" in text
    assert "an all-reduce of 1MB of float32" in text
    assert (
        found.networks
        == netfold.topology.measure("star", set={"hosts": 4, "rate": "10Gbps"}, bytes=10**6).networks
    )


@pytest.mark.parametrize("as_text", [True, False])
def test_variants_of_a_scenario(tmp_path: Path, as_text: bool) -> None:
    given = GOOD if as_text else write(tmp_path, GOOD)

    assert [*netfold.topology.measure(given).networks] == ["switch", "ring"]
    assert [*netfold.topology.measure(given, variants=["ring"]).networks] == ["ring"]
    assert netfold.topology.draw(given, variant="ring").startswith(b"<?xml")
    with pytest.raises(NetfoldError, match="there are 2 networks"):
        netfold.topology.graph(given)


def test_graph_and_export_agree() -> None:
    keys = {"leaves": 2, "spines": 1, "hosts_per_leaf": 2}
    graph = netfold.topology.graph("leaf_spine", set=keys)

    exported = json.loads(netfold.topology.export("leaf_spine", set=keys))
    assert [node["id"] for node in exported["nodes"]] == list(graph)
    with pytest.raises(NetfoldError, match="there is no format 'xml'"):
        netfold.topology.export("leaf_spine", "xml", set=keys)


def test_mistakes_are_scenario_errors() -> None:
    with pytest.raises(ScenarioError, match="the key 'hosts' is missing"):
        netfold.topology.measure("star")
    with pytest.raises(NetfoldError, match="cannot place 9 workers on 4 hosts"):
        netfold.topology.measure("star", set={"hosts": 4}, workers=9)
