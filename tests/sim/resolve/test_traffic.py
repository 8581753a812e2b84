"""Trees of least traffic against all trees there are, and switches that relieve others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.collectives.in_network.placement.relief import relieved
from netfold.sim.collectives.in_network.placement.traffic import TrafficSearch
from netfold.sim.collectives.in_network.placement.tree import Tree, build_tree, numbered, one_switch
from netfold.topologies.graph import add_host, add_link, add_switch, new_graph
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import Network, compile_network, path
from tests.examples import examples
from tests.topologies.graphs import LINK, topologies


def nodes_of(network: Network) -> tuple[list[int], list[int]]:
    """Hosts and switches."""
    hosts = [node for node, is_host in enumerate(network.is_host) if is_host]
    return hosts, [node for node, is_host in enumerate(network.is_host) if not is_host]


def traffic(network: Network, hosts: list[int], tree: Tree) -> int:
    """Links that packets pass on the way up, one of each worker and one of each point below the root."""
    points = tree.switches
    pairs = [(host, points[home]) for host, home in zip(hosts, tree.homes, strict=True)]
    pairs += [(node, points[parent]) for node, parent in zip(points[1:], tree.parents[1:], strict=True)]
    return sum(len(path(network, source, target, 0)) for source, target in pairs)


def all_trees(hosts: list[int], able: list[int], points_max: int) -> Iterator[Tree]:
    """Every tree: any points, any parents that lead to the root, any homes; points without children too."""
    for count in range(1, points_max + 1):
        for points in combinations(able, count):
            for root in points:
                others = [node for node in points if node != root]
                for above in product(points, repeat=len(others)):
                    parents = dict(zip(others, above, strict=True))
                    if not leads_to(root, parents):
                        continue
                    for homes in product(points, repeat=len(hosts)):
                        yield numbered(root, parents, homes)


def leads_to(root: int, parents: dict[int, int]) -> bool:
    joined = nx.DiGraph(parents.items())
    joined.add_node(root)
    return nx.is_directed_acyclic_graph(joined)


@examples(40)
@given(graph=topologies(switches_max=4, hosts_max=4), points_max=st.integers(1, 3))
def test_no_tree_has_less_traffic(graph: nx.Graph, points_max: int) -> None:
    """All trees of up to three points, however their points hang together, on graphs of four switches."""
    network = compile_network(graph)
    hosts, switches = nodes_of(network)
    able = [node for node in switches if network.profiles[node] == "tofino1"]
    if not able:
        return

    tree = TrafficSearch(graph, network, hosts, able, points_max=points_max).best()

    least = min(traffic(network, hosts, one) for one in all_trees(hosts, able, min(points_max, len(able))))
    assert traffic(network, hosts, tree) == least
    assert len(tree.switches) <= points_max
    assert set(tree.switches) <= set(able)
    assert all(tree.children_count(point) for point in range(len(tree.switches)))


def least_by_points(network: Network, hosts: list[int], able: list[int]) -> int:
    """The least traffic of any set of points: workers at the nearest, points joined by a spanning tree."""
    hops = {(a, b): len(path(network, a, b, 0)) for a in able for b in (*able, *hosts)}
    least = 10**9
    for count in range(1, len(able) + 1):
        for points in combinations(able, count):
            joined = nx.Graph()
            joined.add_nodes_from(points)
            joined.add_weighted_edges_from((a, b, hops[a, b]) for a, b in combinations(points, 2))
            spanning = nx.minimum_spanning_tree(joined).size(weight="weight")
            least = min(least, int(spanning) + sum(min(hops[p, host] for p in points) for host in hosts))
    return least


def test_the_gap_of_the_search_on_random_graphs() -> None:
    """60 random graphs of 9 switches and 12 hosts: at most one tree is not the best of all sets of points."""
    random = np.random.default_rng(5)
    gaps = []
    for _ in range(60):
        graph = scattered(random, switches=9, hosts=12)
        network = compile_network(graph)
        hosts, switches = nodes_of(network)
        able = [node for node in switches if network.profiles[node] == "tofino1"]
        if not able:
            continue
        tree = TrafficSearch(graph, network, hosts, able).best()
        gaps.append(traffic(network, hosts, tree) - least_by_points(network, hosts, able))

    assert len(gaps) > 50
    assert min(gaps) >= 0
    assert sum(gap > 0 for gap in gaps) <= 1


def scattered(random: np.random.Generator, switches: int, hosts: int) -> nx.Graph:
    """A random connected graph of switches, most of them able to aggregate, with hosts anywhere."""
    graph = new_graph("scattered")
    for index in range(switches):
        profile = "tofino1" if random.random() < 0.7 else "plain"
        add_switch(graph, f"s{index}", tier=1, profile=profile)
        if index:
            add_link(graph, f"s{index}", f"s{random.integers(index)}", LINK)
    for _ in range(switches // 2):
        a, b = (f"s{number}" for number in random.choice(switches, 2, replace=False))
        if not graph.has_edge(a, b):
            add_link(graph, a, b, LINK)
    for index in range(hosts):
        add_host(graph, f"h{index}")
        add_link(graph, f"h{index}", f"s{random.integers(switches)}", LINK)
    return graph


def test_the_least_traffic_of_a_leaf_spine() -> None:
    """A spine joins the leaves, whichever switch is the root."""
    graph = leaf_spine(4, 2, 2, LINK, LINK, "tofino1")
    network = compile_network(graph)
    hosts, switches = nodes_of(network)
    tree = TrafficSearch(graph, network, hosts, switches).best()

    # 8 host links, and 4 uplinks to one spine.
    assert traffic(network, hosts, tree) == 8 + 4
    assert network.nodes[tree.switches[0]] == "spine0"
    fixed = TrafficSearch(graph, network, hosts, switches, fixed=switches[1]).best()
    assert fixed.switches[0] == switches[1]
    assert (
        traffic(network, hosts, fixed) == 8 + 4
    )  # leaf1 is the root, and the spine a point above the others


@examples(60)
@given(graph=topologies(hosts_max=8), data=st.data())
def test_relief_keeps_a_tree_and_its_limits(graph: nx.Graph, data: st.DataObject) -> None:
    network = compile_network(graph)
    hosts, switches = nodes_of(network)
    limit = data.draw(st.integers(2, 4))
    root = data.draw(st.sampled_from(switches))
    tree = data.draw(
        st.sampled_from(
            [one_switch(root, len(hosts)), build_tree(network, hosts, root, 0, set(switches).__contains__)]
        )
    )
    hops = lambda a, b: len(path(network, a, b, 0))  # noqa: E731
    found = relieved(tree, tuple(hosts), switches, lambda _: limit, hops)

    # n workers need ceil((n − 1) / (limit − 1)) points of `limit` children each.
    needed = max(1, -(-(len(hosts) - 1) // (limit - 1)))
    if found is None:
        assert len(switches) < needed + len(tree.switches) - 1
        return
    assert found.switches[0] == root
    assert len(set(found.switches)) == len(found.switches)
    assert all(1 <= found.children_count(point) <= limit for point in range(len(found.switches)))
    assert all(parent < point for point, parent in enumerate(found.parents[1:], start=1))
    if all(tree.children_count(point) <= limit for point in range(len(tree.switches))):
        assert set(found.switches) == set(tree.switches)


def beside(limits: dict[int, int], away: dict[int, int]) -> tuple[list[int], list[int]]:
    """Points, and children of each, of a switch 0 with 6 workers after others relieved it.

    The way from any worker, or from another switch, to switch n takes `away[n]` hops.
    """
    hosts = tuple(range(100, 106))
    hops = lambda _, target: away[target]  # noqa: E731
    found = relieved(one_switch(0, 6), hosts, sorted(away)[1:], limits.__getitem__, hops)
    assert found is not None
    return list(found.switches), [found.children_count(point) for point in range(len(found.switches))]


def test_no_more_children_move_than_needed() -> None:
    """Of 6 children a switch can have 4. The new one is a child too, so 3 move to it, and 3 stay."""
    assert beside({0: 4, 1: 4}, {0: 1, 1: 2}) == ([0, 1], [4, 3])
    assert beside({0: 5, 1: 5}, {0: 1, 1: 2}) == ([0, 1], [5, 2])


def test_a_switch_is_relieved_by_the_fewest_hops() -> None:
    """A near switch with room for 2 takes one off; a far one with room for all would do it alone."""
    switches, counts = beside({0: 4, 1: 2, 2: 2, 3: 6}, {0: 1, 1: 2, 2: 2, 3: 9})

    assert sorted(switches) == [0, 1, 2]
    assert counts == [4, 2, 2]
