"""Measures of any graph against networkx and definitions; those of published ones against closed forms."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import Any, get_args

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.kernels import rng_streams
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.keys import Placement
from netfold.topologies.graph import (
    LINK_RANGES,
    TopologyError,
    add_host,
    add_link,
    add_server,
    add_switch,
    hosts,
    new_graph,
    racks,
    switches,
)
from netfold.topologies.kind import Topology
from netfold.topologies.kinds.clos import Clos
from netfold.topologies.kinds.dragonfly import Dragonfly
from netfold.topologies.kinds.hypercube import Hypercube
from netfold.topologies.kinds.hyperx import HyperX
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.rail_optimized import RailOptimized
from netfold.topologies.kinds.slim_fly import SlimFly
from netfold.topologies.kinds.star import star
from netfold.topologies.kinds.torus import Torus
from netfold.topologies.measures import (
    ACROSS_HALL,
    BY_DELAY,
    BY_TIER,
    WITHIN_RACK,
    WITHIN_ROW,
    bisection,
    cheapest_cut_bps,
    cost,
    distances,
    fabric_of,
    measure,
    oversubscription,
    uniform_bound_bps,
    worst_bound_bps,
)
from netfold.topologies.placement import POLICIES, place_aggregators, place_workers
from tests.examples import examples, nightly
from tests.topologies.graphs import GBPS, LINK, UPLINK, bisection_by_splits, on_switches, topologies, torus
from tests.topologies.graphs import fat_tree_of_pods as fat_tree


@examples(30)
@given(topologies())
def test_counts_and_distances(graph: nx.Graph) -> None:
    found = measure(graph)
    hops = dict(nx.all_pairs_shortest_path_length(graph))
    names = hosts(graph)
    apart = [hops[a][b] for a, b in combinations(names, 2)]

    assert found.hosts_count == len(names)
    assert found.switches_count == len(graph) - len(names)
    assert found.links_count == sum(dict(graph.degree).values())
    assert found.diameter_hops == max(apart, default=0)
    assert found.mean_hops == (sum(apart) / len(apart) if apart else 0)


@examples(40)
@given(topologies(switches_max=8, hosts_max=6))
def test_path_diversity(graph: nx.Graph) -> None:
    found = measure(graph).diversity
    pairs = list(combinations(racks(graph), 2))
    fabric = graph.subgraph(switches(graph))
    if not pairs:
        assert found is None
        return
    shortest = sorted(len(list(nx.all_shortest_paths(fabric, a, b))) for a, b in pairs)
    middle = len(shortest) // 2

    assert found is not None
    assert found.shortest_min == shortest[0]
    assert found.shortest_median == (shortest[middle] + shortest[~middle]) / 2
    assert found.shortest_max == shortest[-1]
    assert found.disjoint_min == min(nx.edge_connectivity(fabric, a, b) for a, b in pairs)


@pytest.mark.parametrize("sides", [(16,), (4, 4), (6, 4), (4, 4, 4), (2, 2, 2, 2, 2)])
@pytest.mark.parametrize("with_coordinates", [True, False])
def test_torus_and_hypercube(sides: tuple[int, ...], with_coordinates: bool) -> None:
    """Along the longest side k, two rings of links (one if k is 2) are cut in every line (Dally, 1990)."""
    graph = torus(sides)
    if not with_coordinates:
        for _, data in graph.nodes(data=True):
            data.pop("coordinates", None)
    found = measure(graph)
    nodes = found.hosts_count
    longest = max(sides)

    assert found.diameter_hops == sum(side // 2 for side in sides) + 2
    assert found.bisection_bps == (2 if longest > 2 else 1) * nodes // longest * LINK.rate_bps
    assert found.diversity is not None
    assert found.diversity.disjoint_min == sum(2 if side > 2 else 1 for side in sides)


def test_oversubscription_is_by_tier() -> None:
    """Eight hosts of 100G on a leaf with one uplink of 400G; the spines have nothing above them."""
    assert measure(leaf_spine(2, 1, 8, LINK, UPLINK)).oversubscription == {1: 2.0}
    assert measure(star(4, LINK)).oversubscription == {}


@nightly
@pytest.mark.parametrize("make", [lambda: fat_tree(16), lambda: torus((2048,)), lambda: torus((16, 8, 8))])
def test_large_networks_take_seconds(make: type[nx.Graph]) -> None:
    graph = make()
    began = time.process_time()
    found = measure(graph)

    assert found.bisection_bps is not None
    assert time.process_time() - began < 15  # 1 to 3 s where nothing else runs


@nightly
def test_random_graph_of_4096_nodes_takes_seconds() -> None:
    """The bisection of a large random graph is known within bounds only."""
    graph = on_switches(nx.random_regular_graph(12, 1024, seed=1), hosts_per_switch=3)
    began = time.process_time()
    found = measure(graph)

    assert len(graph) == 4096
    assert found.bisection_bps is None
    assert 0 < found.bisection.low < found.bisection.high
    assert found.diversity is not None
    assert found.diversity.disjoint_min == 12
    assert time.process_time() - began < 15


@examples(30)
@given(topologies(switches_max=5, hosts_max=6))
def test_it_is_the_least_flow_over_all_splits(graph: nx.Graph) -> None:
    assert bisection(graph).exact == bisection_by_splits(graph)


@examples(25)
@given(topologies(switches_max=8, hosts_max=6))
def test_bounds_hold_the_least_flow(graph: nx.Graph) -> None:
    """Each bound alone, of graphs small enough for the definition."""
    fabric, true_bps = fabric_of(graph), bisection_by_splits(graph)

    assert cheapest_cut_bps(graph, fabric) >= true_bps
    if fabric.rate_bps.size:
        hops = distances(fabric)
        assert uniform_bound_bps(fabric, hops) <= true_bps * (1 + 1e-9)
        assert worst_bound_bps(fabric, hops) <= true_bps * (1 + 1e-9)


@examples(12)
@given(st.integers(0, 2**32 - 1))
def test_bounds_alone_hold_the_least_flow(seed: int) -> None:
    """Random regular graphs with nothing interchangeable, without the search of all divisions."""
    fabric = nx.random_regular_graph(3, 8, seed=seed)
    if not nx.is_connected(fabric):
        return
    graph = on_switches(fabric, hosts_per_switch=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netfold.topologies.measures.by_divisions", lambda graph: None)
        found = bisection(graph)

    assert found.low <= bisection_by_splits(graph) <= found.high


@pytest.mark.parametrize(
    ("graph", "expected_bps"),
    [
        (fat_tree(4), 800 * GBPS),
        (fat_tree(4, replace(LINK, rate_bps=25 * GBPS)), 200 * GBPS),
        (torus((4, 4)), 800 * GBPS),
        (leaf_spine(4, 3, 4, LINK, LINK), 600 * GBPS),
        (star(6, LINK), 300 * GBPS),
    ],
)
def test_bounds_meet_without_all_divisions(
    graph: nx.Graph, expected_bps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netfold.topologies.measures.by_divisions", lambda graph: None)

    assert bisection(graph) == (expected_bps, expected_bps)


def exact_by_program(graph: nx.Graph) -> int | None:
    """What the integer program says, without divisions, and with lower bounds that say nothing."""
    pytest.importorskip("scipy", reason="it is in the extra `exact`")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netfold.topologies.measures.by_divisions", lambda graph: None)
        patch.setattr("netfold.topologies.measures.uniform_bound_bps", lambda fabric, hops: 0.0)
        patch.setattr("netfold.topologies.measures.WORST_WORK_MAX", -1)
        return bisection(graph).exact


@examples(10)
@given(topologies(switches_max=6, hosts_max=6))
def test_the_integer_program_finds_the_least_flow(graph: nx.Graph) -> None:
    assert exact_by_program(graph) == bisection_by_splits(graph)


@pytest.mark.parametrize(
    "topology",
    [
        Clos(pods=2, edges_per_pod=3, hosts_per_edge=2, aggregations=2, cores=4),
        Dragonfly(groups=4, routers_per_group=3, hosts_per_router=1, global_links=1),
        HyperX(dimensions=(4, 3), hosts_per_switch=2, widths=(1, 2)),
        Hypercube(dimension=4, hosts_per_switch=3),
        RailOptimized(pods=2, islands_per_pod=2, gpus_per_island=2, spines=1),
        Torus(dimensions=(4, 3)),
    ],
    ids=lambda topology: topology.kind,
)
def test_the_integer_program_finds_closed_forms(topology: Topology) -> None:
    closed_form = topology.facts().bisection_bps

    assert closed_form is not None
    assert exact_by_program(topology.graph()) == closed_form


def test_a_large_network_has_no_integer_program() -> None:
    graph = on_switches(nx.random_regular_graph(13, 100, seed=1))  # 650 links between switches

    assert exact_by_program(graph) is None


def test_without_scipy_there_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netfold.topologies.exact_bisection.is_available", lambda: False)

    assert bisection(SlimFly(q=3, hosts_per_switch=3).graph()).exact is None


def test_fastest_links_do_not_overflow() -> None:
    """2^14 links of 10^15 bps are more than int64 holds."""
    fastest = replace(LINK, rate_bps=LINK_RANGES["rate_bps"][1])
    graph = leaf_spine(128, 128, 2, fastest, fastest)

    assert bisection(graph).exact == 128 * 10**15


def test_leaf_spine_by_tier() -> None:
    found = cost(leaf_spine(4, 2, 8, LINK, UPLINK))

    assert found.switches_by_tier == {1: 4, 2: 2}
    assert found.switch_ports_by_rate == {400 * GBPS: 16, 100 * GBPS: 32}
    assert found.host_ports_by_rate == {100 * GBPS: 32}
    assert found.cables == {WITHIN_RACK: {100 * GBPS: 32}, WITHIN_ROW: {400 * GBPS: 8}}
    assert found.length_rule == BY_TIER
    assert (found.switches_count, found.cables_count) == (6, 40)


def test_fat_tree_by_tier() -> None:
    """Inside of a pod are rows; the core is across the hall."""
    found = cost(fat_tree(4))

    assert {length: sum(rates.values()) for length, rates in found.cables.items()} == {
        WITHIN_RACK: 16,
        WITHIN_ROW: 16,
        ACROSS_HALL: 16,
    }


@pytest.mark.parametrize(
    ("delay_ps", "length"),
    [(15_000, WITHIN_RACK), (15_001, WITHIN_ROW), (150_000, WITHIN_ROW), (150_001, ACROSS_HALL)],
)
def test_delays_tell_lengths_apart(delay_ps: int, length: str) -> None:
    """Hosts are within 3 m, so delays count; uplinks just inside and just outside of each class."""
    link, uplink = replace(LINK, delay_ps=10_000), replace(UPLINK, delay_ps=delay_ps)
    found = cost(leaf_spine(2, 1, 2, link, uplink))

    expected = {WITHIN_RACK: {100 * GBPS: 4}}
    expected.setdefault(length, {})[400 * GBPS] = 2
    assert found.cables == expected
    assert found.length_rule == BY_DELAY


def test_long_delays_alone_say_nothing_of_cables() -> None:
    slow = replace(LINK, delay_ps=150_001)

    assert cost(leaf_spine(2, 1, 2, slow, slow)).length_rule == BY_TIER


def test_the_inside_of_a_server_costs_nothing() -> None:
    """Two servers with two ports each, to two switches."""
    graph = new_graph("ports")
    for rail in range(2):
        add_switch(graph, f"rail{rail}", tier=2, profile="tofino1")
    for server in range(2):
        add_server(graph, f"h{server}", f"port{server}")
        for rail in range(2):
            add_link(graph, f"port{server}", f"rail{rail}", LINK)
    found = cost(graph)

    assert found.switches_by_tier == {2: 2}
    assert found.switch_ports_by_rate == {100 * GBPS: 4}
    assert found.host_ports_by_rate == {100 * GBPS: 4}
    assert found.cables == {WITHIN_RACK: {100 * GBPS: 4}}
    assert oversubscription(graph) == {}
    assert measure(graph).bisection_bps == 200 * GBPS


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


TOO_MANY = "cannot place 7 workers on 6 hosts, one a host; use at most 6 workers or a larger topology"
NO_POLICY = "use 'pack', 'spread', 'random', 'rails' or a list of host names"
NAMES = "workers need as many host names, found 2; name exactly one a worker"


@pytest.mark.parametrize(
    ("count", "policy", "text"),
    [
        (7, "pack", TOO_MANY),
        (7, "spread", TOO_MANY),
        (2, "spreed", f"there is no placement policy 'spreed' (did you mean 'spread'?); {NO_POLICY}"),
        (2, "rail", f"there is no placement policy 'rail' (did you mean 'rails'?); {NO_POLICY}"),
        (2, "beside", f"there is no placement policy 'beside'; {NO_POLICY}"),
        (1, ["h0", "h1"], f"1 {NAMES}"),
        (3, ["h0", "h1"], f"3 {NAMES}"),
        (3, ["h1", "h0", "h1"], "host 'h1' is named for 2 workers; a host takes one, so name another"),
    ],
)
def test_workers_that_cannot_be_placed(count: int, policy: Any, text: str) -> None:
    refused(f"topology 'leaf_spine': {text}", leaves(), count, policy)


@pytest.mark.parametrize("count", [0, -1, 1.0, True])
def test_count_is_an_int_of_at_least_one(count: Any) -> None:
    refused(f"place_workers: count is {count!r}, must be an int of at least 1", leaves(), count, "pack")


def test_the_scenario_knows_the_policies() -> None:
    written = get_args(get_args(Placement)[0])

    assert get_args(written[0]) == POLICIES


@examples(30)
@given(topologies(), st.integers(0, 2**64 - 1))
def test_random_is_a_shuffle_by_the_seed(graph: nx.Graph, seed: int) -> None:
    """The order is that of independent keys; fewer workers take its beginning."""
    order = place_workers(graph, len(hosts(graph)), "random", seed=seed)

    keys = {host: mix_plain(seed, rng_streams.PLACEMENT, row) for row, host in enumerate(hosts(graph))}
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


@examples(30)
@given(topologies(), st.data())
def test_aggregator_has_the_fewest_hops_in_total(graph: nx.Graph, data: st.DataObject) -> None:
    workers = data.draw(st.lists(st.sampled_from(hosts(graph)), min_size=1, unique=True))
    profiles = {graph.nodes[name]["profile"] for name in switches(graph)}
    wanted = data.draw(st.sampled_from(sorted(profiles)))
    capable = [name for name in switches(graph) if graph.nodes[name]["profile"] == wanted]
    hops = [sum(nx.shortest_path_length(graph, name, worker) for worker in workers) for name in capable]

    trees = {name: data.draw(st.integers(0, 2)) for name in capable}

    placed = place_aggregators(graph, workers, lambda profile: profile == wanted, trees)
    order = zip(hops, [trees[name] for name in capable], range(len(capable)), capable, strict=True)

    assert placed == [name for *_, name in sorted(order)]


def test_no_switch_is_capable() -> None:
    graph = leaves()
    graph.nodes["spine1"]["profile"] = "tofino1"
    text = (
        "topology 'leaf_spine': no switch can aggregate: profiles found are 'plain' on 3, 'tofino1' on 1; "
        "give one a programmable profile"
    )
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        place_aggregators(graph, ["h0"], lambda profile: False)
