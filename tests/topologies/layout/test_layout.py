"""Places of nodes: what every drawing promises, and which rule draws what."""

from __future__ import annotations

import math
from itertools import combinations

import networkx as nx
from hypothesis import given

from netfold.topologies.graph import HOST, LinkSpec, add_link, add_switch, switches
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.rail_optimized import RailOptimized
from netfold.topologies.kinds.star import star
from netfold.topologies.layout import layout, tiers_of
from tests.examples import examples
from tests.topologies.fabrics import on_switches
from tests.topologies.graphs import GBPS, LINK, UPLINK, topologies
from tests.topologies.measures.known import fat_tree, torus


def nearest(graph: nx.Graph) -> float:
    """Least distance of two nodes in a drawing."""
    places = layout(graph).places.values()
    return min(math.dist(a, b) for a, b in combinations(places, 2))


@examples(60)
@given(topologies())
def test_every_node_has_a_place_of_its_own(graph: nx.Graph) -> None:
    drawn = layout(graph)

    assert drawn.places.keys() == drawn.asides.keys() == set(graph)
    assert drawn.graph is graph
    assert layout(graph) == drawn
    assert len(graph) < 2 or nearest(graph) > 0.05


def test_tiers_are_rows_with_hosts_at_the_bottom() -> None:
    for graph, height in ((star(5, LINK), 1), (leaf_spine(3, 2, 4, LINK, UPLINK), 2), (fat_tree(4), 3)):
        places = layout(graph).places

        assert {name: places[name][1] for name in graph} == dict(graph.nodes(data="tier"))
        assert max(y for _, y in places.values()) == height
        assert nearest(graph) >= 0.5


def test_hosts_stand_below_their_switch() -> None:
    graph = leaf_spine(3, 2, 4, LINK, UPLINK)
    places = layout(graph).places

    for leaf in ("leaf0", "leaf1", "leaf2"):
        own = [places[name][0] for name in graph.adj[leaf] if name.startswith("h")]
        assert math.isclose(places[leaf][0], sum(own) / 4)
        assert max(own) - min(own) == 3


def test_a_grid_has_its_coordinates_and_bends_links_that_pass_others() -> None:
    graph = torus((4, 3))
    drawn = layout(graph)

    for name in switches(graph):
        assert drawn.places[name] == graph.nodes[name]["coordinates"]
    bent = {
        frozenset(edge)
        for edge in graph.subgraph(switches(graph)).edges
        if math.dist(drawn.places[edge[0]], drawn.places[edge[1]]) > 1
    }
    assert drawn.curved == bent
    assert len(bent) == 3 + 4


def test_groups_are_on_a_circle() -> None:
    graph = on_switches(nx.random_regular_graph(3, 12, seed=1), hosts_per_switch=1)
    for index, name in enumerate(switches(graph)):
        graph.nodes[name]["group"] = index // 4
    drawn = layout(graph)

    assert {name: len(members) for name, members in drawn.boxes.items()} == {
        "group 0": 4,
        "group 1": 4,
        "group 2": 4,
    }
    middles = [
        tuple(sum(drawn.places[name][axis] for name in members) / 4 for axis in (0, 1))
        for members in drawn.boxes.values()
    ]
    within = max(
        math.dist(drawn.places[name], middle)
        for members, middle in zip(drawn.boxes.values(), middles, strict=True)
        for name in members
    )
    assert min(math.dist(a, b) for a, b in combinations(middles, 2)) > 2 * within


RAILS = RailOptimized(islands_per_pod=2, gpus_per_island=2, spines=0).graph()


def test_servers_are_in_one_piece_and_islands_in_boxes() -> None:
    drawn = layout(RAILS)

    assert set(drawn.graph) == {"pod0rail0", "pod0rail1", "nvlink0", "nvlink1", "h0", "h1", "h2", "h3"}
    assert drawn.graph.edges["h0", "pod0rail0"]["ends"] == {"h0": "gpu0", "pod0rail0": "pod0rail0"}
    assert drawn.boxes == {"island 0": ("h0", "h1"), "island 1": ("h2", "h3")}
    heights = [drawn.places[name][1] for name in ("h0", "nvlink0", "nvlink1", "pod0rail0", "pod0rail1")]
    assert heights[0] < heights[1] == heights[2] < heights[3] == heights[4]


def test_tiers_count_classes_and_links() -> None:
    tiers = tiers_of(leaf_spine(32, 4, 16, LINK, UPLINK))

    assert [(one.tier, one.name, one.nodes_count, one.hosts_each) for one in tiers.classes] == [
        (0, "h", 512, ()),
        (1, "leaf", 32, (16,)),
        (2, "spine", 4, (0,)),
    ]
    assert [(one.lower, one.upper, one.rates_bps) for one in tiers.bundles] == [
        (0, 1, {100 * GBPS: 512}),
        (1, 2, {400 * GBPS: 128}),
    ]
    assert all(a.startswith("h") and b.startswith("leaf") for a, b in tiers.bundles[0].edges)


def test_tiers_have_servers_in_one_piece() -> None:
    tiers = tiers_of(RAILS)

    assert [one.name for one in tiers.classes] == ["h", "nvlink", "pod rail"]
    assert [(one.lower, one.upper, len(one.edges)) for one in tiers.bundles] == [(0, 1, 4), (0, 2, 4)]
    assert set(tiers.bundles[1].edges) == {(f"gpu{server}", f"pod0rail{server % 2}") for server in range(4)}


def test_many_names_in_a_tier_are_one_class() -> None:
    graph = star(2, LINK)
    cities = ("Amsterdam", "Berlin", "Cairo", "Delhi", "Essen")
    for city in cities:
        add_switch(graph, city, tier=1, profile="plain")
        add_link(graph, city, "s0", LINK)
    classes = tiers_of(graph).classes

    assert [(one.name, one.nodes_count, one.profiles) for one in classes] == [
        ("h", 2, ()),
        ("switch", 6, ("plain",)),
    ]
    assert all(graph.nodes[name]["kind"] == HOST for name in ("h0", "h1"))


def test_links_of_the_highest_rate_are_no_ports_of_servers() -> None:
    """1000Tbps and no delay are allowed everywhere: only `add_server` makes a server."""
    graph = star(4, LinkSpec(rate_bps=10**15, delay_ps=0, buffer_bytes=1))
    drawn = layout(graph)

    assert set(drawn.places) == {"h0", "h1", "h2", "h3", "s0"}
    assert [one.name for one in tiers_of(graph).classes] == ["h", "s"]
