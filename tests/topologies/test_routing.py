"""Routes: shortest paths, policies, and flows, which spread as independent choices at every switch do.

Numbers to compare with come from binomial and χ² distributions, and from plain Python with random choices.
"""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from itertools import pairwise, product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.kernels.keyed_random import splitmix64_plain
from netfold.topologies.ecmp import flow_key, flow_key_plain, planned_key, way_of_plain
from netfold.topologies.graph import (
    LinkSpec,
    TopologyError,
    add_link,
    add_server,
    add_switch,
    hosts,
    new_graph,
    switches,
)
from netfold.topologies.kinds.hyperx import HyperX
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.slim_fly import SlimFly
from netfold.topologies.kinds.torus import Torus
from netfold.topologies.network import Network, compile_network, detour_of, next_links, path, shares
from netfold.topologies.planes import Planes
from netfold.topologies.routing import POLICIES, room_needed
from tests.examples import examples
from tests.topologies.graphs import (
    KINDS,
    LINK,
    UPLINK,
    cost,
    dragonfly,
    fat_tree,
    on_switches,
    topologies,
    torus,
)


@examples(30)
@given(topologies())
def test_arrays_equal_the_graph(graph: nx.Graph) -> None:
    network = compile_network(graph)

    assert network.nodes == (*hosts(graph), *switches(graph))
    assert list(network.profiles) == [graph.nodes[name]["profile"] for name in network.nodes]
    assert network.is_host.tolist() == [graph.nodes[name]["kind"] == "host" for name in network.nodes]
    ends = list(zip(network.link_source.tolist(), network.link_target.tolist(), strict=True))
    assert ends == sorted(set(ends))
    assert len(ends) == 2 * graph.number_of_edges()
    for link, (source, target) in enumerate(ends):
        edge = graph.edges[network.nodes[source], network.nodes[target]]
        assert network.link_names[link] == f"{network.nodes[source]}->{network.nodes[target]}"
        assert network.rate_bps[link] == edge["rate_bps"]
        assert network.delay_ps[link] == edge["delay_ps"]
        assert network.buffer_bytes[link] == edge["buffer_bytes"]
    int32 = (network.link_source, network.link_target, network.tables.sets, network.tables.first_set)
    int64 = (network.rate_bps, network.delay_ps, network.buffer_bytes)
    uint16 = (network.tables.choice, network.tables.ports)
    assert {array.dtype for array in int32} == {np.dtype(np.int32)}
    assert {array.dtype for array in int64} == {np.dtype(np.int64)}
    assert {array.dtype for array in uint16} == {np.dtype(np.uint16)}
    assert all(array.flags.c_contiguous for array in int32 + int64 + uint16)


@examples(30)
@given(topologies())
def test_choices_are_exactly_the_first_links_of_shortest_paths(graph: nx.Graph) -> None:
    check_next_links(graph)


@pytest.mark.parametrize("kind", KINDS)
def test_choices_of_every_kind(kind: str) -> None:
    check_next_links(KINDS[kind]())


def check_next_links(graph: nx.Graph) -> None:
    """What networkx says of the neighbours that are nearer to the target."""
    network = compile_network(graph)
    number = {name: link for link, name in enumerate(network.link_names)}
    weigh = cost(graph)
    costs = dict(nx.all_pairs_dijkstra_path_length(graph, weight=weigh))
    for node, source in enumerate(network.nodes):
        for other, target in enumerate(network.nodes):
            left = {name: costs[source][target] - weigh(source, name, {}) for name in graph[source]}
            nearer = [name for name in graph[source] if costs[name][target] == left[name]]

            assert next_links(network, node, other) == sorted(number[f"{source}->{name}"] for name in nearer)


def tables_of(graph: nx.Graph, compiled: bool) -> list[object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netfold.topologies.routing._COMPILED_SWITCHES", 0 if compiled else 10**9)
        network = compile_network(graph)
    return [table.tolist() for table in network.tables[1:]]


@examples(30)
@given(topologies())
def test_compiled_tables_are_those_of_numpy(graph: nx.Graph) -> None:
    assert tables_of(graph, compiled=True) == tables_of(graph, compiled=False)


@pytest.mark.parametrize(
    "graph",
    [*(make() for make in KINDS.values()), SlimFly(q=7).graph(), on_switches(nx.complete_graph(140))],
    ids=[*KINDS, "over 64 targets", "over 128 ports"],
)
def test_compiled_tables_of_every_kind(graph: nx.Graph) -> None:
    assert tables_of(graph, compiled=True) == tables_of(graph, compiled=False)


@examples(30)
@given(topologies(), st.integers(0, 2**64 - 1))
def test_a_path_is_shortest_and_avoids_hosts(graph: nx.Graph, key: int) -> None:
    network = compile_network(graph)
    for source in range(len(network.nodes)):
        for target in range(len(network.nodes)):
            links = path(network, source, target, key)
            inner = network.link_target[links[:-1]]

            assert len(links) == nx.shortest_path_length(graph, network.nodes[source], network.nodes[target])
            assert not network.is_host[inner].any()
            assert all(network.link_target[a] == network.link_source[b] for a, b in pairwise(links))
            assert path(network, source, target, key) == links


@examples(30)
@given(topologies(), st.integers(-(2**31), 2**31 - 1))
def test_a_path_takes_the_link_that_its_key_names_at_every_node(graph: nx.Graph, key: int) -> None:
    """A planned key names it, any other one is hashed with the node."""
    network = compile_network(graph)
    for source in range(len(network.nodes)):
        for target in range(len(network.nodes)):
            for link in path(network, source, target, key):
                node = int(network.link_source[link])
                choices = next_links(network, node, target)
                number = splitmix64_plain(key * 2**32 + node) if key >= 0 else -1 - key

                assert link == choices[number % len(choices)]


def test_routes_do_not_depend_on_the_order_of_links() -> None:
    graph = leaf_spine(2, 2, 2, LINK, UPLINK)
    shuffled = nx.Graph(name=graph.name)
    shuffled.add_nodes_from(graph.nodes(data=True))
    shuffled.add_edges_from(reversed(list(graph.edges(data=True))))

    assert all_choices(compile_network(graph)) == all_choices(compile_network(shuffled))


def all_choices(network: Network) -> list[list[int]]:
    nodes = range(len(network.nodes))
    return [next_links(network, node, target) for node in nodes for target in nodes]


def test_memory_grows_with_the_square_of_the_switches_and_not_with_the_hosts() -> None:
    sizes = {
        (switches, hosts): compile_network(torus((switches // 8, 8), hosts)).tables.size_bytes
        for switches, hosts in ((64, 1), (64, 8), (512, 1))
    }

    assert sizes[64, 8] == sizes[64, 1]
    assert 2 * 512**2 < sizes[512, 1] < 3 * 512**2


def test_compiling_takes_no_more_than_was_estimated() -> None:
    """Peak of what NumPy allocates for the tables, of sparse and of dense sets."""
    for graph in (torus((16, 16)), on_switches(nx.random_regular_graph(12, 256, seed=1))):
        fabric = compile_network(graph).tables.fabric
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tables = compile_network(graph).policy.make_tables(graph, fabric)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()

        assert tables.size_bytes <= room_needed(fabric)
        assert peak < 3 * room_needed(fabric) + 2**20  # graph and names among it


def test_routes_that_exceed_the_memory_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """3 × 3 leaves and spines: 6 switches of 3 ports each, so up to 6 sets each (2³ − 1 = 7 subsets)."""
    graph = leaf_spine(3, 3, 2, LINK, UPLINK)
    needed = 2 * 36 + 6 * 6 * (8 + 2 * 3) + 6 * (2 * 18 + 4 * 6) // 8

    assert compile_network(graph, needed).tables.choice.shape == (6, 6)
    monkeypatch.setattr("netfold.topologies.routing.ports_nearer", lambda fabric: pytest.fail("it was made"))
    with pytest.raises(TopologyError, match=r"the routes between 6 switches take up to .* GiB"):
        compile_network(graph, needed - 1)


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


def test_dimension_order_on_hyperx_takes_one_hop_a_dimension() -> None:
    graph = HyperX(dimensions=(4, 2, 5)).graph()
    network = compile_network(graph, policy=ORDER)
    for source, target in host_pairs(network):
        found = nodes_on(network, source, path(network, source, target, 12345))
        places = [graph.nodes[name]["coordinates"] for name in found[1:-1]]
        first, last = places[0], places[-1]

        assert list(dict.fromkeys((*last[:axis], *first[axis:]) for axis in range(4))) == places


def test_dimension_order_loads_both_ways_of_an_even_ring_alike() -> None:
    """All pairs on a ring of 8: without the rule for ties one direction would carry 10 of 16 hops."""
    network = compile_network(torus((8,)), policy=ORDER)
    load = Counter(link for pair in host_pairs(network) for link in path(network, *pair, 0))
    up = sum(load[network.link_names.index(f"s{i}->s{(i + 1) % 8}")] for i in range(8))
    down = sum(load[network.link_names.index(f"s{i}->s{(i - 1) % 8}")] for i in range(8))

    assert up == down == 8 * (1 + 2 + 3 + 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda graph: graph.graph.pop("dimensions"),
            "the sizes of the dimensions, and this topology has none",
        ),
        (
            lambda graph: graph.nodes["s5"].pop("coordinates"),
            "needs 2 coordinates of every switch, switch 's5' has None",
        ),
        (
            lambda graph: graph.nodes["s5"].update(coordinates=(4, 0)),
            r"'s5' has coordinates \(4, 0\), must be within dimensions \(4, 3\)",
        ),
        (
            lambda graph: graph.nodes["s5"].update(coordinates=(1, 1)),  # those of s4
            r"two switches have coordinates \(1, 1\), one of them 's5'",
        ),
        (
            lambda graph: graph.add_edge("s0", "s4", **graph.edges["s0", "s1"]),
            "switches 's0' and 's4' are linked and are not next to each other",
        ),
        (
            lambda graph: graph.remove_edge("s0", "s1"),
            r"switch 's0' has 3 links to switches, dimensions \(4, 3\) need 4",
        ),
        (lambda graph: graph.graph.update(dimensions=(4, 4)), r"12 switches do not fill dimensions \(4, 4\)"),
    ],
)
def test_dimension_order_needs_coordinates_of_a_whole_torus(
    change: Callable[[nx.Graph], object], message: str
) -> None:
    graph = torus((4, 3))
    change(graph)
    with pytest.raises(
        TopologyError, match=f"{message}.*; use routing: ecmp, or a torus, hypercube or hyperx"
    ):
        compile_network(graph, policy=ORDER)
    compile_network(graph)  # which is no torus, but a network


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


@pytest.mark.parametrize("policy", ["valiant", "ugal", "dimension_order"])
def test_policies_that_are_for_hosts_with_one_port_say_so(policy: str) -> None:
    with pytest.raises(TopologyError, match=f"several ports cannot be used with routing .*{policy}.*; use "):
        compile_network(Planes(Torus(dimensions=(3, 4)), 2).graph(), policy=POLICIES[policy])


SEED, JOB = 3, 0


@cache
def tree(k: int) -> Network:
    return compile_network(fat_tree(k, LINK))


def way(network: Network, source: int, target: int, channel: int = 0, seed: int = SEED) -> list[int]:
    return path(network, source, target, flow_key_plain(seed, JOB, source, target, channel))


def standardised(counts: dict[int, Counter[int]], ways: int) -> float:
    """χ² of choices among so many ways at every node, in standard deviations from its mean."""
    total = freedom = 0.0
    for taken in counts.values():
        mean = sum(taken.values()) / ways
        total += sum((count - mean) ** 2 / mean for count in taken.values())
        total += (ways - len(taken)) * mean
        freedom += ways - 1
    return (total - freedom) / (2 * freedom) ** 0.5


@pytest.mark.parametrize("k", [4, 8, 16])
def test_random_pairs_use_all_cores_of_a_fat_tree_evenly(k: int) -> None:
    """4,000 pairs in different pods: (k/2)² cores, k/2 ways at each edge and each aggregation switch."""
    network, numbers = tree(k), random.Random(k)
    hosts = k**3 // 4
    first, second = defaultdict[int, Counter[int]](Counter), defaultdict[int, Counter[int]](Counter)
    cores = Counter[int]()
    while cores.total() < 4000:
        source, target = numbers.randrange(hosts), numbers.randrange(hosts)
        if source // (k * k // 4) == target // (k * k // 4):
            continue
        _, up, to_core, *_ = way(network, source, target, channel=cores.total())  # a flow of its own
        first[int(network.link_source[up])][up] += 1
        second[int(network.link_source[to_core])][to_core] += 1
        cores[int(network.link_target[to_core])] += 1

    assert len(cores) == (k // 2) ** 2
    assert abs(standardised({0: cores}, (k // 2) ** 2)) < 4
    assert abs(standardised(first, k // 2)) < 4
    assert abs(standardised(second, k // 2)) < 4


def test_permutations_load_links_as_independent_choices_do() -> None:
    """400 random permutations of 128 hosts on a k = 8 fat tree: how many flows the busiest link up from edge
    switches, up to cores, and down from these has, and the mean square of all loads, in plain Python."""
    k, network = 8, tree(8)
    half, hosts = k // 2, k**3 // 4
    ours, theirs = np.zeros((2, 3, 2))
    for seed in range(400):
        numbers = random.Random(seed)
        partners = numbers.sample(range(hosts), hosts)
        loads, drawn = [Counter[int]() for _ in range(3)], [Counter[tuple[int, ...]]() for _ in range(3)]
        for source, target in enumerate(partners):
            if source // half**2 == target // half**2:
                continue  # within a pod
            for tier, link in enumerate(way(network, source, target, seed=seed)[1:4]):
                loads[tier][link] += 1
            upper, core = numbers.randrange(half), numbers.randrange(half)
            drawn[0][source // half, upper] += 1
            drawn[1][source // half**2, upper, core] += 1
            drawn[2][target // half**2, upper, core] += 1
        for sums, counts in ((ours, loads), (theirs, drawn)):
            sums += [[max(load.values()), sum(count**2 for count in load.values())] for load in counts]

    assert ours == pytest.approx(theirs, rel=0.03)


def test_a_worker_reaches_its_peers_over_all_spines() -> None:
    """56 peers over 8 spines: 8 · (7/8)^56 = 0.5 % of the workers miss one of them."""
    network = compile_network(leaf_spine(8, 8, 8, LINK, LINK))
    missed = 0
    for worker in range(64):
        remote = [peer for peer in range(64) if peer // 8 != worker // 8]
        missed += 8 - len({way(network, worker, peer)[1] for peer in remote})
        assert len({way(network, peer, worker)[2] for peer in remote}) >= 7

    assert missed <= 3


def test_answers_have_a_path_of_their_own() -> None:
    """The core of the way back is that of the way there once in 16 times."""
    network = tree(8)
    same = 0
    for source in range(32):
        for target in range(64, 96):
            there, back = way(network, source, target), way(network, target, source)
            same += network.link_target[there[2]] == network.link_target[back[2]]

    assert abs(same - 64) < 4 * (1024 * 1 / 16 * 15 / 16) ** 0.5


def test_the_compiled_key_is_the_plain_one() -> None:
    for values in ((1, 0, 0, 1, 0), (2**63, 3, 7, -1, 5), (9, 1, -1, 200, 0)):
        seed, *others = values

        assert int(flow_key(np.uint64(seed), *others)) == flow_key_plain(*values)  # type: ignore[call-arg]
        assert 0 <= flow_key_plain(*values) < 2**31


def planes(count: int, hosts: int, rate_bps: int) -> Network:
    """Servers with a port to each of some switches, which are not linked to each other."""
    graph = new_graph("planes")
    for host in range(hosts):
        add_server(graph, f"h{host}", f"port{host}")
    for plane in range(count):
        add_switch(graph, f"plane{plane}", tier=2, profile="plain")
        for host in range(hosts):
            add_link(graph, f"port{host}", f"plane{plane}", LinkSpec(rate_bps, 500_000, 1 << 30))
    return compile_network(graph)


@pytest.mark.parametrize("count", [2, 4])
def test_channels_of_a_ring_take_the_ports_of_every_server_in_turn(count: int) -> None:
    """Even channels go to the next worker, odd ones to the one before; every port has as many."""
    network, hosts = planes(count, 16, 10**11), 16
    load = Counter[int]()
    for worker in range(hosts):
        for channel in range(4):
            target = (worker + (1 if channel % 2 == 0 else -1)) % hosts
            load.update(way(network, worker, target, channel)[1:-1])

    assert set(load.values()) == {4 // count}
    assert len(load) == 2 * count * hosts


def test_only_the_server_that_sends_takes_its_ports_in_turn() -> None:
    assert [way_of_plain(key, 9, -3) for key in range(5)] == [0, 1, 2, 0, 1]
    assert [way_of_plain(planned_key(number), 9, ways) for number in range(3) for ways in (2, -2)] == [
        0, 0, 1, 1, 0, 0,
    ]  # fmt: skip
    assert len({way_of_plain(key, 9, 3) for key in range(3, 300, 3)}) == 3
