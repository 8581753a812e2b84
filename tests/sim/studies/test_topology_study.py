"""The verbs of `netfold topology` from Python."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given

import netfold
from netfold.errors import NetfoldError, ScenarioError
from netfold.kinds import registered
from netfold.sim.studies.topology_study import measure_network, measurements, networks_of
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kind import Topology
from netfold.topologies.kinds.star import star
from netfold.topologies.topology_files import Defaults, export, from_gml, from_graphml
from tests.examples import examples
from tests.sim.scenario.files import GOOD, write
from tests.sim.scenes import measure
from tests.topologies.graphs import topologies, torus


def test_kinds_have_their_keys() -> None:
    kinds = netfold.topology.kinds()

    assert [*kinds] == [*registered(Topology), "file"]
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

    placed = netfold.topology.measure(given)
    packed = netfold.topology.measure(given, variants=["ring"], workers=2)
    assert [*placed.networks] == ["switch", "ring"]
    assert [*packed.networks] == ["ring"]
    assert "workers as the scenario places them" in str(placed)
    assert "workers rack by rack" in str(packed)
    assert netfold.topology.draw(given, variant="ring").startswith(b"<?xml")
    with pytest.raises(NetfoldError, match="there are 2 networks"):
        netfold.topology.graph(given)


SPINES: dict[str, object] = {"leaves": 2, "spines": 4, "hosts_per_leaf": 2, "uplink_rate": "10Gbps"}


def test_what_losing_any_spine_costs() -> None:
    measured = netfold.topology.measure("leaf_spine", set=SPINES, without_any="spine*")
    network = measured.networks["leaf_spine"]
    left = netfold.topology.measure("leaf_spine", set={**SPINES, "without": ["spine0"]}).networks[
        "leaf_spine"
    ]
    losses = network["without_any"]["losses"]
    figures = {row["figure"]: row for row in network["without_any"]["figures"]}

    assert [loss["without"] for loss in losses] == ["spine0", "spine1", "spine2", "spine3"]
    stem = netfold.topology.measure("leaf_spine", set=SPINES, without_any="spine").networks["leaf_spine"]
    assert stem["without_any"]["losses"] == losses
    assert [loss["bisection_bps"] for loss in losses] == [3 * 10**10] * 4
    assert {row["collective"]: row["seconds"] for row in left["estimates"]} == losses[0]["seconds"]
    assert figures["bisection"] == {
        "figure": "bisection",
        "unit": "bps",
        "as_it_is": 4 * 10**10,
        "median": 3 * 10**10,
        "worst": 3 * 10**10,
        "worst_loss": "spine0",
        "as_bad_count": 4,
    }
    assert "spine0 (3 more as bad)" in str(measured)
    assert json.loads(json.dumps(network)) == network


def test_what_losing_any_link_costs_and_whom_it_cuts_off() -> None:
    without_any = netfold.topology.measure("leaf_spine", set=SPINES, without_any="leaf0-*").networks[
        "leaf_spine"
    ]
    cut_off = netfold.topology.measure("leaf_spine", set=SPINES, without_any="leaf?")

    assert [loss["without"] for loss in without_any["without_any"]["losses"]] == [
        *("h0-leaf0", "h1-leaf0"),
        *("leaf0-spine0", "leaf0-spine1", "leaf0-spine2", "leaf0-spine3"),
    ]
    assert [loss["hosts_cut_off"] for loss in without_any["without_any"]["losses"]] == [1, 1, 0, 0, 0, 0]
    bisection, *_ = without_any["without_any"]["figures"]
    assert (bisection["median"], bisection["worst"], bisection["worst_loss"]) == (
        3 * 10**10,
        None,
        "h0-leaf0",
    )
    assert "2 hosts cut off" in str(cut_off)


def test_a_loss_that_the_routing_policy_cannot_take(tmp_path: Path) -> None:
    scenario = "topology={kind: torus, dimensions: [3, 3]}", "routing=dimension_order"
    (network,) = measurements(
        networks_of(write(tmp_path, GOOD), scenario, ["ring"]), without_any="s0_0-s0_1"
    ).measured

    assert network.losses is not None
    (loss,) = network.losses.losses
    assert "has 3 links to switches, dimensions (3, 3) need 4" in loss.why
    assert loss.value("ring") is None
    assert loss.bisection is not None


def test_without_marks_of_server_ports_there_is_no_price(tmp_path: Path) -> None:
    rails = {"islands_per_pod": 2, "gpus_per_island": 2, "spines": 1}
    exported = json.loads(netfold.topology.export("rail_optimized", set=rails))
    path = tmp_path / "rails.json"
    path.write_text(json.dumps(exported), encoding="utf-8")
    whole = netfold.topology.measure(path)
    for node in exported["nodes"]:
        node.pop("server", None)
    path.write_text(json.dumps(exported), encoding="utf-8")
    unmarked = netfold.topology.measure(path)

    assert whole.networks["rails"]["bill"]["cost_usd"] > 0
    assert whole.networks["rails"]["oversubscription"] == {"2": 2.0}
    assert unmarked.networks["rails"]["bill"] is None
    assert unmarked.networks["rails"]["oversubscription"] == {}
    assert "unknown: links such as h0–gpu0 have the rate and delay of the inside" in str(unmarked)
    assert "cost_usd" not in measure(tmp_path, "topology={kind: file, path: rails.json}")


def test_a_drawing_shows_what_is_absent() -> None:
    whole, left = (
        netfold.topology.draw("leaf_spine", set={**SPINES, "without": absent}).decode()
        for absent in ([], ["spine0", "leaf1-spine3"])
    )

    assert "stroke-dasharray" not in whole
    assert left.count("stroke-dasharray") == 4  # both links of spine0, another one, and the legend


def test_a_pattern_without_a_match() -> None:
    with pytest.raises(NetfoldError, match="no switch or link matches 'spin'\n  did you mean 'spine\\*'"):
        netfold.topology.measure("leaf_spine", set=SPINES, without_any="spin")


def test_graph_and_export_agree() -> None:
    keys = {"leaves": 2, "spines": 1, "hosts_per_leaf": 2}
    graph = netfold.topology.graph("leaf_spine", set=keys)

    exported = json.loads(netfold.topology.export("leaf_spine", set=keys))
    assert [node["id"] for node in exported["nodes"]] == list(graph)
    with pytest.raises(NetfoldError, match="there is no format 'xml'"):
        netfold.topology.export("leaf_spine", "xml", set=keys)


def test_profiles_are_checked_where_a_scenario_would_be_told(tmp_path: Path) -> None:
    """Of a kind of topology the profile is a key; a graph file may name one that only a scenario has."""
    with pytest.raises(ScenarioError, match="'mine'"):
        netfold.topology.measure("star", set={"hosts": 4, "switch": "mine"})

    file = tmp_path / "net.json"
    file.write_text(export(star(4, LinkSpec(10**9, 10**6, 1 << 20), profile="mine"), "json"))
    assert [*netfold.topology.measure(file).networks] == ["net"]


def test_tuples_become_text() -> None:
    graph = torus((3, 3))

    for form, read in (("graphml", nx.parse_graphml), ("gml", nx.parse_gml)):
        found = read(export(graph, form))
        assert found.nodes["s5"]["coordinates"] == "1,2"
        assert found.graph["dimensions"] == "3,3"


@examples(10)
@given(topologies())
def test_all_formats_keep_everything(graph: nx.Graph) -> None:
    """With rates above 32 bits, which GML has as text."""
    unused = Defaults(LinkSpec(rate_bps=1, delay_ps=1, buffer_bytes=1), "plain", None)

    assert nx.utils.graphs_equal(from_graphml(export(graph, "graphml"), unused), graph)
    assert nx.utils.graphs_equal(from_gml(export(graph, "gml"), unused), graph)
    written = json.loads(export(graph, "json"))
    assert nx.utils.graphs_equal(nx.node_link_graph(written, edges="edges"), graph)


def test_dot_has_every_node_and_link() -> None:
    graph = torus((3, 3))
    lines = export(graph, "dot").splitlines()

    assert sum(" -- " in line for line in lines) == graph.number_of_edges()
    assert sum('"shape"="box"' in line for line in lines) == 9
    assert (
        '  "h0" -- "s0" ["label"="100Gbps, 1us", "rate_bps"="100000000000", "delay_ps"="1000000", '
        '"buffer_bytes"="262144"];'
    ) in lines


def test_names_are_quoted_for_dot() -> None:
    graph = nx.relabel_nodes(torus((3, 3)), {"s0": 'a"b\\c'})

    assert r'  "a\"b\\c" [' in export(graph, "dot")


def test_an_estimate_is_a_share_of_the_least_time() -> None:
    sets = ["hosts=4", "rate=100Gbps", "delay=1us", "switch=ideal"]
    measured = measure_network(networks_of("star", sets)[0], 10**9)
    assert measured.bound_s == pytest.approx(0.08 + 2e-6)  # 1 GB at 12.5 GB/s, and two links
    (row,) = (row for row in measured.as_dict()["estimates"] if row["collective"] == "ring")
    assert row["of_bound"] == pytest.approx(measured.bound_s / row["seconds"])
    assert row["of_bound"] == pytest.approx(1 / 1.5, rel=1e-3)  # a ring of four sends 2 · 3/4 of it
