"""Paths under each policy, against paths worked out plainly with networkx and with coordinates."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product

import networkx as nx
import pytest

from netfold.topologies.graph import TopologyError, hosts, switches
from netfold.topologies.routing import POLICIES, Network, compile_network, detour_of, next_links, path, shares
from tests.topologies.fabrics import KINDS, cost, dragonfly, fat_tree, on_switches, torus

ECMP, SPRAY, VALIANT, ORDER = (POLICIES[kind] for kind in ("ecmp", "spray", "valiant", "dimension_order"))
TORI = [(4, 4), (5, 3), (2, 2, 2), (4, 3, 2), (2,), (1, 3)]


def nodes_on(network: Network, source: int, links: list[int]) -> list[str]:
    """Names of the nodes on a path, both ends among them."""
    assert [int(network.link_target[a]) for a in links[:-1]] == [
        int(network.link_source[b]) for b in links[1:]
    ]
    return [network.nodes[source], *(network.nodes[network.link_target[link]] for link in links)]


def host_pairs(network: Network) -> list[tuple[int, int]]:
    count = int(network.is_host.sum())
    return [(a, b) for a, b in product(range(count), repeat=2) if a != b]


def in_order(
    sizes: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """Places from one to another, plainly: hop by hop, the shorter way round each ring in turn."""
    places, at = [source], list(source)
    for axis, size in enumerate(sizes):
        up = (target[axis] - source[axis]) % size
        down = size - up
        step = 1 if up < down or (up == down and source[axis] % 2 == 0) else -1
        while at[axis] != target[axis]:
            at[axis] = (at[axis] + step) % size
            places.append(tuple(at))
    return places


@pytest.mark.parametrize("sizes", TORI)
def test_dimension_order(sizes: tuple[int, ...]) -> None:
    graph = torus(sizes)
    network = compile_network(graph, policy=ORDER)
    for source, target in host_pairs(network):
        found = nodes_on(network, source, path(network, source, target, 12345))
        places = [graph.nodes[name]["coordinates"] for name in found[1:-1]]

        assert places == in_order(sizes, places[0], places[-1])
        assert len(found) - 1 == nx.shortest_path_length(graph, found[0], found[-1])


def test_dimension_order_loads_both_ways_of_an_even_ring_alike() -> None:
    """All pairs on a ring of 8: without the rule for ties one direction would carry 10 of 16 hops."""
    network = compile_network(torus((8,)), policy=ORDER)
    load = Counter(link for pair in host_pairs(network) for link in path(network, *pair, 0))
    up = sum(load[network.link_names.index(f"s{i}->s{(i + 1) % 8}")] for i in range(8))
    down = sum(load[network.link_names.index(f"s{i}->s{(i - 1) % 8}")] for i in range(8))

    assert up == down == 8 * (1 + 2 + 3 + 2)


def broken(change: str) -> nx.Graph:
    graph = torus((4, 3))
    if change == "no dimensions":
        del graph.graph["dimensions"]
    elif change == "no coordinates":
        del graph.nodes["s5"]["coordinates"]
    elif change == "outside":
        graph.nodes["s5"]["coordinates"] = (4, 0)
    elif change == "twice":
        graph.nodes["s5"]["coordinates"] = graph.nodes["s4"]["coordinates"]
    elif change == "another link":
        graph.add_edge("s0", "s4", **graph.edges["s0", "s1"])
    elif change == "a link less":
        graph.remove_edge("s0", "s1")
    else:
        graph.graph["dimensions"] = (4, 4)
    return graph


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("no dimensions", "needs the sizes of the dimensions, and this topology has none"),
        ("no coordinates", "needs 2 coordinates of every switch, switch 's5' has None"),
        ("outside", r"'s5' has coordinates \(4, 0\), must be within dimensions \(4, 3\)"),
        ("twice", r"two switches have coordinates \(1, 1\), one of them 's5'"),
        ("another link", "switches 's0' and 's4' are linked and are not next to each other"),
        ("a link less", r"switch 's0' has 3 links to switches, dimensions \(4, 3\) need 4"),
        ("other sizes", r"12 switches do not fill dimensions \(4, 4\)"),
    ],
)
def test_dimension_order_needs_coordinates_of_a_whole_torus(change: str, message: str) -> None:
    with pytest.raises(TopologyError, match=f"{message}.*; use routing: ecmp, or a torus or a hypercube"):
        compile_network(broken(change), policy=ORDER)
    if change != "a link less":  # which is no torus, but a network
        compile_network(broken(change))


@pytest.mark.parametrize("kind", KINDS)
def test_shares_of_sprayed_packets(kind: str) -> None:
    """Expected load by adding up all shortest paths with the probability of each, and by many packets."""
    graph = KINDS[kind]()
    network = compile_network(graph, policy=SPRAY)
    source, target = 0, len(hosts(graph)) - 1
    expected: Counter[int] = Counter()
    for way in nx.all_shortest_paths(graph, network.nodes[source], network.nodes[target], weight=cost(graph)):
        links = [network.link_names.index(f"{a}->{b}") for a, b in pairwise(way)]
        chance = 1.0
        for link in links:
            chance /= len(next_links(network, int(network.link_source[link]), target))
        expected.update(dict.fromkeys(links, chance))
    count = 4000
    sent = Counter(link for key in range(count) for link in path(network, source, target, key))

    assert shares(network, source, target, 7) == pytest.approx(dict(expected))
    for link, share in expected.items():
        assert abs(sent[link] / count - share) < 5 * (share * (1 - share) / count) ** 0.5 + 1e-9


def test_sprayed_packets_use_all_cores_of_a_fat_tree_evenly() -> None:
    """One hash for all tiers would reach 4 of the 16 cores."""
    network = compile_network(fat_tree(8), policy=SPRAY)
    cores = Counter(
        network.nodes[network.link_target[path(network, 0, 127, key)[2]]] for key in range(16_000)
    )

    assert len(cores) == 16
    assert all(abs(count - 1000) < 160 for count in cores.values())


@pytest.mark.parametrize("policy", ["ecmp", "valiant", "dimension_order"])
def test_shares_of_one_path(policy: str) -> None:
    network = compile_network(torus((4, 4)), policy=POLICIES[policy])
    for key in (0, 5):
        counted = Counter(path(network, 0, 10, key))

        assert shares(network, 0, 10, key) == counted


def test_valiant_on_a_dragonfly_crosses_a_third_group() -> None:
    graph = dragonfly(4, 2)
    network = compile_network(graph, policy=VALIANT)
    group = nx.get_node_attributes(graph, "group")
    for source, target in host_pairs(network)[::7]:
        chosen = set()
        for key in range(60):
            inner = nodes_on(network, source, path(network, source, target, key))[1:-1]
            order = [group[inner[0]]] + [group[b] for a, b in pairwise(inner) if group[a] != group[b]]
            if group[inner[0]] == group[inner[-1]]:
                assert len(order) == 1
                continue
            chosen.add(order[1])
            entered = next(name for name in inner if group[name] == order[1])
            entry = network.nodes[detour_of(network, source, target, key)]

            assert len(order) == len(set(order)) == 3
            assert entered == entry
            assert len(inner) - 1 <= 5
        assert len(chosen) in (0, 7)


@pytest.mark.parametrize("kind", ["fat_tree", "torus", "jellyfish", "hypercube"])
def test_valiant_elsewhere_goes_over_any_other_switch(kind: str) -> None:
    graph = KINDS[kind]()
    network = compile_network(graph, policy=VALIANT)
    source, target = 0, len(hosts(graph)) - 1
    counts = Counter(detour_of(network, source, target, key) for key in range(4000))
    ends = {int(network.link_target[source]), int(network.link_target[target])}
    others = {network.nodes.index(name) for name in switches(graph)} - ends

    assert set(counts) == others
    assert max(counts.values()) < 1.5 * 4000 / len(others)
    for key in range(20):
        between = detour_of(network, source, target, key)
        names = nodes_on(network, source, path(network, source, target, key))
        halves = [
            (network.nodes[source], network.nodes[between]),
            (network.nodes[between], network.nodes[target]),
        ]

        assert network.nodes[between] in names
        assert len(names) - 1 == sum(nx.shortest_path_length(graph, *half) for half in halves)


def test_valiant_is_minimal_where_there_is_nothing_else() -> None:
    """Hosts of one switch, and two switches alone."""
    network = compile_network(on_switches(nx.path_graph(2), 2), policy=VALIANT)

    assert {detour_of(network, 0, target, key) for target in (1, 2, 3) for key in range(20)} == {-1}
    assert len(path(network, 0, 1, 3)) == 2
    assert len(path(network, 0, 2, 3)) == 3


@pytest.mark.parametrize("policy", ["spray", "valiant"])
def test_between_hosts_and_switches_every_policy_keeps_the_path_of_ecmp(policy: str) -> None:
    """Programs in switches need the order of their workers' packets."""
    graph = fat_tree(4)
    plain, steered = compile_network(graph), compile_network(graph, policy=POLICIES[policy])
    count = len(hosts(graph))
    for key in range(12):
        for host, switch in product(range(0, count, 5), range(count, len(plain.nodes))):
            assert path(steered, host, switch, key) == path(plain, host, switch, key)
            assert path(steered, switch, host, key) == path(plain, switch, host, key)


def test_groups_are_ints() -> None:
    graph = dragonfly(2, 1)
    graph.nodes["s1"]["group"] = "one"
    with pytest.raises(TopologyError, match="node 's1': group is 'one', must be an int"):
        compile_network(graph, policy=VALIANT)
