"""Workers on hosts and the aggregator on a switch: policies, oracles and every error."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, get_args

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.sim.keys.fields import Placement
from netfold.topologies.graph import (
    TopologyError,
    add_host,
    add_link,
    add_switch,
    hosts,
    new_graph,
    racks,
    switches,
)
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.placement import POLICIES, place_aggregators, place_workers
from tests.examples import examples
from tests.topologies.graphs import LINK, UPLINK, topologies


def leaves() -> nx.Graph:
    """h0 h1 h2 on leaf0, h3 h4 h5 on leaf1; two spines."""
    return leaf_spine(2, 2, 3, LINK, UPLINK)


def refused(text: str, graph: nx.Graph, count: Any, policy: Any) -> None:
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        place_workers(graph, count, policy)


@examples(30)
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


@pytest.mark.parametrize(
    ("policy", "nearest"),
    [("spreed", " (did you mean 'spread'?)"), ("rail", " (did you mean 'rails'?)"), ("beside", "")],
)
def test_unknown_policy(policy: str, nearest: str) -> None:
    text = (
        f"topology 'leaf_spine': there is no placement policy {policy!r}{nearest}; "
        "use 'pack', 'spread', 'random', 'rails' or a list of host names"
    )
    refused(text, leaves(), 2, policy)


def test_the_scenario_knows_the_policies() -> None:
    written = get_args(get_args(Placement)[0])

    assert get_args(written[0]) == POLICIES


@examples(30)
@given(topologies(), st.integers(0, 2**64 - 1))
def test_random_is_a_shuffle_by_the_seed(graph: nx.Graph, seed: int) -> None:
    """The order is that of independent keys; fewer workers take its beginning."""
    order = place_workers(graph, len(hosts(graph)), "random", seed=seed)

    keys = {host: mix_plain(seed, purposes.PLACEMENT, row) for row, host in enumerate(hosts(graph))}
    assert order == sorted(hosts(graph), key=lambda host: keys[host])
    assert place_workers(graph, 1, "random", seed=seed) == order[:1]


def test_random_treats_all_orders_alike() -> None:
    """Chi-square of 2400 shuffles of four hosts over the 24 orders: 99.99 % of all seeds are below 58.6."""
    counts = Counter(tuple(place_workers(star(4, LINK), 4, "random", seed=seed)) for seed in range(2400))

    assert len(counts) == 24
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 58.6


def pods(islands: int, rails: int, *, shuffled: bool = False) -> nx.Graph:
    """Host i·r is GPU r of server i; each has a port switch, as in a rail-optimized network."""
    graph = new_graph("pods")
    for rail in range(rails):
        add_switch(graph, f"rail{rail}", tier=2, profile="plain")
    places = [(island, rail) for island in range(islands) for rail in range(rails)]
    for island, rail in places[::-1] if shuffled else places:
        add_host(graph, f"g{island}.{rail}")
        graph.nodes[f"g{island}.{rail}"].update(island=island, rail=rail)
        add_switch(graph, f"p{island}.{rail}", tier=1, profile="plain")
        add_link(graph, f"g{island}.{rail}", f"p{island}.{rail}", LINK)
        add_link(graph, f"p{island}.{rail}", f"rail{rail}", LINK)
    add_switch(graph, "top", tier=3, profile="plain")
    for rail in range(rails):
        add_link(graph, f"rail{rail}", "top", LINK)
    return graph


@pytest.mark.parametrize("shuffled", [False, True])
def test_pack_fills_islands_and_rails_fill_rails(shuffled: bool) -> None:
    graph = pods(3, 2, shuffled=shuffled)
    islands = [2, 1, 0] if shuffled else [0, 1, 2]  # in the order of the graph

    packed = place_workers(graph, 6, "pack")
    assert packed == [f"g{island}.{rail}" for island in islands for rail in range(2)]
    assert place_workers(graph, 6, "rails") == [
        f"g{island}.{rail}" for rail in range(2) for island in range(3)
    ]
    assert place_workers(graph, 4, "rails") == ["g0.0", "g1.0", "g2.0", "g0.1"]
    assert place_workers(graph, 3, "spread") == [f"g{island}.0" for island in islands]


@pytest.mark.parametrize("missing", ["rail", "island"])
def test_rails_need_rails(missing: str) -> None:
    graph = pods(2, 2)
    del graph.nodes["g1.0"][missing]
    text = (
        "topology 'pods': cannot place by rails: host 'g1.0' has no rail and island, as hosts of topology "
        "rail_optimized have; use 'pack', 'spread', 'random' or a list of host names"
    )

    refused(text, graph, 2, "rails")
    refused(text.replace("pods", "leaf_spine").replace("g1.0", "h0"), leaves(), 2, "rails")


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


@examples(30)
@given(topologies(), st.data())
def test_aggregator_has_the_fewest_hops_in_total(graph: nx.Graph, data: st.DataObject) -> None:
    workers = data.draw(st.lists(st.sampled_from(hosts(graph)), min_size=1, unique=True))
    profiles = {graph.nodes[name]["profile"] for name in switches(graph)}
    wanted = data.draw(st.sampled_from(sorted(profiles)))
    capable = [name for name in switches(graph) if graph.nodes[name]["profile"] == wanted]
    hops = [sum(nx.shortest_path_length(graph, name, worker) for worker in workers) for name in capable]

    placed = place_aggregators(graph, workers, lambda profile: profile == wanted)

    assert placed == [name for _, _, name in sorted(zip(hops, range(len(capable)), capable, strict=True))]


def test_no_switch_is_capable() -> None:
    graph = leaves()
    graph.nodes["spine1"]["profile"] = "tofino1"
    text = (
        "topology 'leaf_spine': no switch can aggregate: profiles found are 'plain' on 3, 'tofino1' on 1; "
        "give one a programmable profile"
    )
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        place_aggregators(graph, ["h0"], lambda profile: False)
