"""Workers on hosts and the aggregator on a switch: policies, oracles and every error."""

from __future__ import annotations

import re
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.topologies.graph import TopologyError, hosts, racks, switches
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.placement import place_aggregators, place_workers
from tests.topologies.graphs import LINK, UPLINK, topologies


def leaves() -> nx.Graph:
    """h0 h1 h2 on leaf0, h3 h4 h5 on leaf1; two spines."""
    return leaf_spine(2, 2, 3, LINK, UPLINK)


def refused(text: str, graph: nx.Graph, count: Any, policy: Any) -> None:
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        place_workers(graph, count, policy)


def test_pack_fills_racks() -> None:
    assert place_workers(leaves(), 4, "pack") == ["h0", "h1", "h2", "h3"]


def test_spread_takes_racks_in_turn() -> None:
    assert place_workers(leaves(), 4, "spread") == ["h0", "h3", "h1", "h4"]


def test_names_select_exactly_these_hosts() -> None:
    assert place_workers(leaves(), 2, ["h5", "h0"]) == ["h5", "h0"]


@given(topologies(), st.data())
def test_policies_balance_or_fill(graph: nx.Graph, data: st.DataObject) -> None:
    """Pack goes rack by rack; spread uses no rack two times more than another that still has room."""
    count = data.draw(st.integers(1, len(hosts(graph))))
    packed, spread = place_workers(graph, count, "pack"), place_workers(graph, count, "spread")

    assert len(set(packed)) == len(set(spread)) == count
    in_rack_order = [host for members in racks(graph).values() for host in members]
    assert packed == in_rack_order[:count]
    used = [(len(set(members) & set(spread)), len(members)) for members in racks(graph).values()]
    most = max(uses for uses, _ in used)
    assert all(uses >= min(most - 1, room) for uses, room in used)


def test_more_workers_than_hosts() -> None:
    text = (
        "topology 'leaf_spine': cannot place 7 workers on 6 hosts, one a host; "
        "use at most 6 workers or a larger topology"
    )
    for policy in ("pack", "spread"):
        refused(text, leaves(), 7, policy)


@pytest.mark.parametrize("count", [0, -1, 1.0, True])
def test_count_is_an_int_of_at_least_one(count: Any) -> None:
    refused(f"place_workers: count is {count!r}, must be an int of at least 1", leaves(), count, "pack")


@pytest.mark.parametrize(("policy", "nearest"), [("spreed", " (did you mean 'spread'?)"), ("random", "")])
def test_unknown_policy(policy: str, nearest: str) -> None:
    text = (
        f"topology 'leaf_spine': there is no placement policy {policy!r}{nearest}; "
        "use 'pack', 'spread' or a list of host names"
    )
    refused(text, leaves(), 2, policy)


@pytest.mark.parametrize(("name", "nearest"), [("h55", " (did you mean 'h5'?)"), ("gpu", ""), ("leaf0", "")])
def test_unknown_host(name: str, nearest: str) -> None:
    text = f"topology 'leaf_spine': there is no host {name!r}{nearest}; there are 6 hosts, from 'h0' to 'h5'"
    refused(text, leaves(), 2, ["h0", name])
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        place_aggregators(leaves(), ["h0", name], lambda profile: True)


def test_host_named_twice() -> None:
    text = "topology 'leaf_spine': host 'h1' is named for 2 workers; a host takes one, so name another"
    refused(text, leaves(), 3, ["h1", "h0", "h1"])


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_names_as_workers(count: int) -> None:
    text = (
        f"topology 'leaf_spine': {count} workers need as many host names, found 2; name exactly one a worker"
    )
    refused(text, leaves(), count, ["h0", "h1"])


@given(topologies(), st.data())
def test_aggregator_has_the_fewest_hops_in_total(graph: nx.Graph, data: st.DataObject) -> None:
    workers = data.draw(st.lists(st.sampled_from(hosts(graph)), min_size=1, unique=True))
    profiles = {graph.nodes[name]["profile"] for name in switches(graph)}
    wanted = data.draw(st.sampled_from(sorted(profiles)))
    capable = [name for name in switches(graph) if graph.nodes[name]["profile"] == wanted]
    hops = [sum(nx.shortest_path_length(graph, name, worker) for worker in workers) for name in capable]

    placed = place_aggregators(graph, workers, lambda profile: profile == wanted)

    assert placed == [name for _, _, name in sorted(zip(hops, range(len(capable)), capable, strict=True))]


def test_aggregator_of_a_rack_is_its_switch() -> None:
    assert place_aggregators(leaves(), ["h3", "h4"], lambda profile: True)[0] == "leaf1"
    assert place_aggregators(leaves(), ["h0", "h3"], lambda profile: True)[0] == "leaf0"


def test_no_switch_is_capable() -> None:
    graph = leaves()
    graph.nodes["spine1"]["profile"] = "tofino1"
    text = (
        "topology 'leaf_spine': no switch can aggregate: profiles found are 'plain' on 3, 'tofino1' on 1; "
        "give one a programmable profile"
    )
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        place_aggregators(graph, ["h0"], lambda profile: False)


def test_star_aggregates_at_its_switch() -> None:
    graph = star(4, LINK, "tofino1")

    assert place_aggregators(graph, ["h0", "h3"], lambda profile: profile == "tofino1")[0] == "s0"
