"""Which nodes are where, and which links lead where: names, tiers, places, rates, delays."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations, product
from typing import Any

import networkx as nx
import pytest

from netfold.topologies.files.node_link import from_json, to_json
from netfold.topologies.graph import TopologyError, racks, switches
from netfold.topologies.kind import Topology
from netfold.topologies.kinds.bcube import BCube
from netfold.topologies.kinds.dragonfly import Dragonfly
from netfold.topologies.kinds.dumbbell import Dumbbell
from netfold.topologies.kinds.fat_tree import FatTree
from netfold.topologies.kinds.hypercube import Hypercube
from netfold.topologies.kinds.leaf_spine import LeafSpine, leaf_spine
from netfold.topologies.kinds.rail_optimized import RailOptimized
from netfold.topologies.kinds.ring import Ring
from netfold.topologies.kinds.star import star
from netfold.topologies.kinds.torus import Torus
from netfold.topologies.routing import compile_network, next_links
from tests.topologies.graphs import LINK, UPLINK

GBPS = 10**9


def rate_and_delay(graph: nx.Graph, one: str, other: str) -> tuple[int, int]:
    edge = graph.edges[one, other]
    return edge["rate_bps"] // GBPS, edge["delay_ps"]


def fabric(graph: nx.Graph) -> nx.Graph:
    return graph.subgraph(switches(graph))


def test_tori_are_those_of_networkx() -> None:
    """A grid whose ends are linked, with the same coordinates; no link twice where a dimension has two."""
    for dimensions in ((3, 4), (5,), (2, 3, 4), (2, 2)):
        graph = Torus(dimensions=dimensions).graph()
        grid = nx.grid_graph(dim=dimensions[::-1], periodic=True)
        at = {name: graph.nodes[name]["coordinates"] for name in switches(graph)}
        known = {
            frozenset(node if isinstance(node, tuple) else (node,) for node in edge) for edge in grid.edges
        }

        assert {frozenset((at[one], at[other])) for one, other in fabric(graph).edges} == known
        assert graph.graph["dimensions"] == dimensions


def test_hypercubes_are_those_of_networkx() -> None:
    graph = Hypercube(dimension=4).graph()
    at = {name: graph.nodes[name]["coordinates"] for name in switches(graph)}
    known = {frozenset(edge) for edge in nx.hypercube_graph(4).edges}

    assert {frozenset((at[one], at[other])) for one, other in fabric(graph).edges} == known
    assert at["s0110"] == (0, 1, 1, 0)
    assert graph.graph["dimensions"] == (2, 2, 2, 2)


def test_hosts_of_direct_networks_are_in_the_order_of_switches() -> None:
    graph = Ring(switches=3, hosts_per_switch=2, fabric_rate_bps=40 * GBPS, fabric_delay_ps=7).graph()

    assert racks(graph) == {"s0": ["h0", "h1"], "s1": ["h2", "h3"], "s2": ["h4", "h5"]}
    assert rate_and_delay(graph, "h0", "s0") == (100, 10**6)
    assert rate_and_delay(graph, "s2", "s0") == (40, 7)


def test_dumbbell_in_full() -> None:
    graph = Dumbbell(hosts_per_side=2, bottleneck_rate_bps=10 * GBPS, bottleneck_delay_ps=3).graph()

    assert racks(graph) == {"left": ["h0", "h1"], "right": ["h2", "h3"]}
    assert rate_and_delay(graph, "left", "right") == (10, 3)
    assert rate_and_delay(graph, "h3", "right") == (100, 10**6)


def test_fat_tree_in_full() -> None:
    """Al-Fares et al., figure 3: aggregation switches j of all pods have the same core switches."""
    rates = {"rate_bps": 10 * GBPS, "uplink_rate_bps": 20 * GBPS, "core_rate_bps": 30 * GBPS}
    graph = FatTree(k=4, **rates, uplink_delay_ps=2).graph()

    assert racks(graph)["pod1edge0"] == ["h4", "h5"]
    assert graph.nodes["h4"]["group"] == graph.nodes["pod1agg0"]["group"] == 1
    assert "group" not in graph.nodes["core0"]
    assert [graph.nodes[name]["tier"] for name in ("pod0edge0", "pod0agg0", "core0")] == [1, 2, 3]
    assert set(graph.adj["pod3agg1"]) == {"pod3edge0", "pod3edge1", "core2", "core3"}
    assert set(graph.adj["core1"]) == {f"pod{pod}agg0" for pod in range(4)}
    assert rate_and_delay(graph, "h0", "pod0edge0") == (10, 10**6)
    assert rate_and_delay(graph, "pod0edge0", "pod0agg1") == (20, 2)
    assert rate_and_delay(graph, "pod0agg0", "core0") == (30, 2)
    assert (
        rate_and_delay(FatTree(k=4, uplink_delay_ps=2, core_delay_ps=5).graph(), "pod0agg0", "core0")[1] == 5
    )


@pytest.mark.parametrize(
    ("routers", "links", "groups"), [(4, 2, 9), (4, 2, 6), (3, 1, 4), (3, 3, 5), (3, 1, 3), (2, 3, 7)]
)
def test_dragonfly_groups_are_linked_evenly(routers: int, links: int, groups: int) -> None:
    """Groups are cliques; every two groups have links, and numbers of links differ by one at most."""
    shape = {"routers_per_group": routers, "global_links": links, "hosts_per_router": 2}
    graph = Dragonfly(groups=groups, **shape).graph()
    of = nx.get_node_attributes(graph, "group")
    routers_only = fabric(graph)
    local = [edge for edge in routers_only.edges if of[edge[0]] == of[edge[1]]]
    between = Counter(frozenset((of[a], of[b])) for a, b in routers_only.edges if of[a] != of[b])
    ports = Counter({name: routers_only.degree[name] - (routers - 1) for name in routers_only})

    assert len(local) == groups * routers * (routers - 1) // 2
    assert set(between) == {frozenset(pair) for pair in combinations(range(groups), 2)}
    assert max(between.values()) - min(between.values()) <= 1
    assert max(ports.values()) == links
    unused = groups * routers * links - ports.total()
    assert unused == (groups if groups % 2 and routers * links % 2 else 0)


def test_dragonfly_has_the_relative_arrangement() -> None:
    """Hastings et al.: port j of group i leads to group i + j + 1."""
    shape = {"routers_per_group": 4, "hosts_per_router": 1, "global_links": 2}
    graph = Dragonfly(groups=9, **shape, local_rate_bps=1, global_rate_bps=2, global_delay_ps=3).graph()

    for group, port in product(range(9), range(8)):
        near, far = f"group{group}router{port // 2}", (group + port + 1) % 9
        reached = [name for name in graph.adj[near] if graph.nodes[name]["group"] == far]
        assert len(reached) == 1
        assert graph.edges[near, reached[0]]["rate_bps"] == 2
        assert graph.edges[near, reached[0]]["delay_ps"] == 3
    assert graph.edges["group0router0", "group0router1"]["rate_bps"] == 1


def test_bcube_servers_share_switches_where_one_digit_differs() -> None:
    """Guo et al., section 3.1, by addresses."""
    n, k = 3, 2
    graph = BCube(n=n, k=k).graph()
    digits = {server: [server // n**level % n for level in range(k + 1)] for server in range(n ** (k + 1))}

    for one, other in combinations(digits, 2):
        shared = set(graph.adj[f"port{one}"]) & set(graph.adj[f"port{other}"])
        differ = [level for level in range(k + 1) if digits[one][level] != digits[other][level]]
        assert [name.partition("s")[0] for name in shared] == (
            [f"level{differ[0]}"] if len(differ) == 1 else []
        )
    assert graph.nodes["port5"] == {"kind": "switch", "tier": 1, "profile": "plain", "server": 5}
    assert graph.nodes["level2s0"]["tier"] == 4
    assert {graph.degree[name] for name in switches(graph) if name.startswith("level")} == {n}


def test_rails_in_full() -> None:
    graph = RailOptimized(
        pods=2,
        islands_per_pod=2,
        gpus_per_island=4,
        spines=3,
        rate_bps=400 * GBPS,
        nvlink_rate_bps=1000 * GBPS,
        nvlink_delay_ps=1,
        nvlink_switch="ideal",
        uplink_rate_bps=800 * GBPS,
        uplink_delay_ps=2,
    ).graph()

    assert {key: graph.nodes["h13"][key] for key in ("island", "rail", "group")} == {
        "island": 3,
        "rail": 1,
        "group": 1,
    }
    assert set(graph.adj["gpu13"]) == {"h13", "nvlink3", "pod1rail1"}
    assert set(graph.adj["pod1rail1"]) == {"gpu9", "gpu13", "spine0", "spine1", "spine2"}
    assert set(graph.adj["nvlink3"]) == {"gpu12", "gpu13", "gpu14", "gpu15"}
    assert (graph.nodes["nvlink3"]["profile"], graph.nodes["pod1rail1"]["profile"]) == ("ideal", "tofino1")
    assert [graph.nodes[name]["tier"] for name in ("gpu0", "nvlink0", "pod0rail0", "spine0")] == [1, 2, 2, 3]
    assert graph.edges["h13", "gpu13"]["rate_bps"] == 10**15
    assert graph.edges["h13", "gpu13"]["delay_ps"] == 0
    assert rate_and_delay(graph, "gpu13", "nvlink3") == (1000, 1)
    assert rate_and_delay(graph, "gpu13", "pod1rail1") == (400, 10**6)
    assert rate_and_delay(graph, "pod1rail1", "spine2") == (800, 2)


@pytest.mark.parametrize(
    "topology",
    [
        Torus(dimensions=(3, 2)),
        Hypercube(dimension=3),
        Dragonfly(groups=3, routers_per_group=2, hosts_per_router=1, global_links=1),
        RailOptimized(islands_per_pod=2, spines=1),
    ],
    ids=lambda topology: topology.kind,
)
def test_places_survive_json(topology: Topology) -> None:
    graph = topology.graph()
    again = from_json(to_json(graph))

    assert dict(again.nodes(data=True)) == dict(graph.nodes(data=True))
    assert again.graph == graph.graph


def test_leaf_spines_carry_their_fields() -> None:
    fields = {"uplink_rate_bps": 20, "uplink_delay_ps": 9, "delay_ps": 5}
    graph = LeafSpine(leaves=2, spines=1, hosts_per_leaf=1, **fields).graph()

    assert graph.edges["h0", "leaf0"] == {"rate_bps": 10**11, "delay_ps": 5, "buffer_bytes": 2**24}
    assert graph.edges["leaf1", "spine0"] == {"rate_bps": 20, "delay_ps": 9, "buffer_bytes": 2**24}
    assert graph.nodes["spine0"]["profile"] == "tofino1"


def test_leaf_spine_in_full() -> None:
    """Hosts are on leaves in order, leaves have the uplinks, and every spine is a choice between leaves."""
    graph = leaf_spine(2, 3, 2, LINK, UPLINK)
    network = compile_network(graph)
    leaf0, h1, h2 = (network.nodes.index(name) for name in ("leaf0", "h1", "h2"))

    assert switches(graph) == ["leaf0", "leaf1", "spine0", "spine1", "spine2"]
    assert [graph.nodes[name]["tier"] for name in switches(graph)] == [1, 1, 2, 2, 2]
    assert racks(graph) == {"leaf0": ["h0", "h1"], "leaf1": ["h2", "h3"]}
    assert graph.edges["h3", "leaf1"]["rate_bps"] == LINK.rate_bps
    assert graph.edges["leaf1", "spine2"]["rate_bps"] == UPLINK.rate_bps
    assert len(next_links(network, leaf0, h2)) == 3
    assert len(next_links(network, leaf0, h1)) == 1


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "4"])
def test_counts_are_ints_of_at_least_one(count: Any) -> None:
    with pytest.raises(
        TopologyError, match=f"^star: hosts is {re.escape(repr(count))}, must be an int of at least 1$"
    ):
        star(count, LINK)
    arguments = {"leaves": 1, "spines": 1, "hosts_per_leaf": 1}
    for name in arguments:
        text = f"leaf_spine: {name} is {count!r}, must be an int of at least 1"
        with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
            leaf_spine(**(arguments | {name: count}), link=LINK, uplink=UPLINK)
