"""Every topology has the nodes, links and distances that its paper says."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations, product
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.kinds import registered
from netfold.topologies.graph import (
    NODES_MAX,
    TopologyError,
    hosts,
    racks,
    server_ports,
    switches,
    validate,
)
from netfold.topologies.kind import ParameterError, Topology
from netfold.topologies.kinds.bcube import BCube
from netfold.topologies.kinds.clos import Clos
from netfold.topologies.kinds.dragonfly import Dragonfly
from netfold.topologies.kinds.dumbbell import Dumbbell
from netfold.topologies.kinds.fat_tree import FatTree
from netfold.topologies.kinds.hypercube import Hypercube
from netfold.topologies.kinds.hyperx import HyperX
from netfold.topologies.kinds.jellyfish import Jellyfish
from netfold.topologies.kinds.leaf_spine import LeafSpine, leaf_spine
from netfold.topologies.kinds.rail_optimized import RailOptimized
from netfold.topologies.kinds.ring import Ring
from netfold.topologies.kinds.slim_fly import SlimFly
from netfold.topologies.kinds.star import Star
from netfold.topologies.kinds.topohub import TopoHub
from netfold.topologies.kinds.torus import Torus
from netfold.topologies.measures import DIVISIONS_MAX, by_divisions
from netfold.topologies.network import compile_network, next_links
from netfold.topologies.planes import Planes
from tests.examples import examples
from tests.topologies.graphs import GBPS, LINK, UPLINK, bisection_by_splits, diameter_and_paths, flow_bps

rates = st.sampled_from([10, 25, 30, 50, 100, 170, 400]).map(lambda number: number * GBPS)
delays = st.none() | st.integers(0, 10**6)
few = st.integers(1, 3)


@st.composite
def fat_trees(draw: st.DrawFn) -> FatTree:
    k = draw(st.sampled_from([2, 4, 6]))
    aggregations = draw(st.none() | st.integers(1, k - 1))
    most = k - (k // 2 if aggregations is None else aggregations)
    hosts_per_edge = draw(st.integers(1, most)) if most < k // 2 else draw(st.none() | st.integers(1, most))
    return FatTree(
        k=k,
        hosts_per_edge=hosts_per_edge,
        aggregations=aggregations,
        core_links=draw(st.none() | st.integers(1, k // 2)),
        rate_bps=draw(rates),
        uplink_rate_bps=draw(rates),
        core_rate_bps=draw(rates),
        uplink_delay_ps=draw(delays),
        core_delay_ps=draw(delays),
    )


@st.composite
def dragonflies(draw: st.DrawFn) -> Dragonfly:
    routers, links = draw(st.integers(1, 4)), draw(few)
    return Dragonfly(
        groups=draw(st.integers(links + 1, routers * links + 1)),
        routers_per_group=routers,
        global_links=links,
        hosts_per_router=draw(st.integers(1, 2)),
        rate_bps=draw(rates),
        local_rate_bps=draw(rates),
        global_rate_bps=draw(rates),
        global_delay_ps=draw(delays),
    )


@st.composite
def jellyfish(draw: st.DrawFn) -> Jellyfish:
    count = draw(st.integers(3, 12))
    degrees = [degree for degree in range(2, count) if count * degree % 2 == 0]
    seed = draw(st.integers(0, 99))
    return Jellyfish(
        switches=count, degree=draw(st.sampled_from(degrees)), seed=seed, hosts_per_switch=draw(few)
    )


@st.composite
def rails(draw: st.DrawFn) -> RailOptimized:
    pods = draw(few)
    return RailOptimized(
        pods=pods,
        islands_per_pod=draw(st.integers(1, 4)),
        gpus_per_island=draw(st.integers(2, 4)),
        spines=draw(st.integers(0 if pods == 1 else 1, 3)),
        rate_bps=draw(rates),
        nvlink_rate_bps=draw(rates),
        uplink_rate_bps=draw(rates),
    )


@st.composite
def closes(draw: st.DrawFn) -> Clos:
    aggregations = draw(few)
    return Clos(
        pods=draw(st.integers(2, 5)),
        edges_per_pod=draw(few),
        hosts_per_edge=draw(few),
        aggregations=aggregations,
        cores=aggregations * draw(few),
        rate_bps=draw(rates),
        uplink_rate_bps=draw(rates),
        core_rate_bps=draw(rates),
        core_delay_ps=draw(delays),
    )


@st.composite
def lattices(draw: st.DrawFn) -> HyperX:
    dimensions = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3).map(tuple))
    widths = st.lists(few, min_size=len(dimensions), max_size=len(dimensions)).map(tuple)
    return HyperX(
        dimensions=dimensions,
        widths=draw(st.none() | widths),
        hosts_per_switch=draw(few),
        rate_bps=draw(rates),
        fabric_rate_bps=draw(rates),
    )


TOPOLOGIES: dict[type[Any], st.SearchStrategy[Any]] = {
    Star: st.builds(Star, hosts=st.integers(1, 40), rate_bps=rates),
    LeafSpine: st.builds(
        LeafSpine,
        leaves=st.integers(1, 6),
        spines=st.integers(1, 4),
        hosts_per_leaf=st.integers(1, 5),
        uplink_rate_bps=rates,
    ),
    FatTree: fat_trees(),
    Clos: closes(),
    HyperX: lattices(),
    SlimFly: st.builds(SlimFly, q=st.sampled_from([3, 4, 5]), hosts_per_switch=few, fabric_rate_bps=rates),
    Dumbbell: st.builds(
        Dumbbell, hosts_per_side=st.integers(1, 9), bottleneck_rate_bps=rates, rate_bps=rates
    ),
    Ring: st.builds(Ring, switches=st.integers(3, 12), hosts_per_switch=few, fabric_rate_bps=rates),
    Torus: st.builds(
        Torus,
        dimensions=st.lists(st.integers(2, 5), min_size=1, max_size=3).map(tuple),
        hosts_per_switch=st.integers(1, 2),
        fabric_rate_bps=rates,
        fabric_delay_ps=delays,
    ),
    Hypercube: st.builds(Hypercube, dimension=st.integers(1, 6), hosts_per_switch=few, fabric_rate_bps=rates),
    Dragonfly: dragonflies(),
    Jellyfish: jellyfish(),
    BCube: st.sampled_from([(n, k) for n in range(2, 6) for k in range(4) if n ** (k + 1) <= 64]).map(
        lambda counts: BCube(n=counts[0], k=counts[1])
    ),
    RailOptimized: rails(),
}


any_topology = st.one_of(*TOPOLOGIES.values())


def test_every_kind_is_drawn() -> None:
    assert set(registered(Topology).values()) == {*TOPOLOGIES, TopoHub}
    assert all(made.kind == kind for kind, made in registered(Topology).items())


@examples(80)
@given(any_topology)
def test_sizes_diameter_and_paths(topology: Topology) -> None:
    graph, facts, size = topology.graph(), topology.facts(), topology.size()
    validate(graph)
    diameter, paths = diameter_and_paths(graph)

    assert facts[:3] == (len(hosts(graph)), len(switches(graph)), 2 * graph.number_of_edges())
    assert (size.nodes, size.links) == (len(graph), facts.links)
    assert facts.diameter_hops in (None, diameter)
    assert facts.paths in (None, paths)


KNOWN: list[tuple[Topology, tuple[int | None, ...]]] = [  # in full, worked out by hand
    (Star(hosts=5), (5, 1, 10, 2, 200, 1)),
    (LeafSpine(leaves=2, spines=3, hosts_per_leaf=4), (8, 5, 28, 4, 300, 3)),
    (FatTree(k=4), (16, 20, 96, 6, 800, 4)),
    (FatTree(k=4, hosts_per_edge=3, aggregations=1, core_links=1), (24, 13, 72, 6, 200, 1)),
    (  # Jupiter's shape in small: 3 pods, 2:1 at the edge
        Clos(pods=3, edges_per_pod=4, hosts_per_edge=4, aggregations=2, cores=6),
        (48, 3 * 6 + 6, 2 * (48 + 24 + 18), 6, None, 6),
    ),
    (  # 256 hosts on three tiers, without the 16 pods of a fat tree
        Clos(pods=4, edges_per_pod=8, hosts_per_edge=8, aggregations=8, cores=64),
        (256, 4 * 16 + 64, 2 * 3 * 256, 6, 12800, 64),
    ),
    (HyperX(dimensions=(4, 4), hosts_per_switch=4), (64, 16, 2 * (64 + 48), 4, 1600, 2)),
    (HyperX(dimensions=(4, 6), widths=(2, 1), hosts_per_switch=9), (216, 24, 624, 4, 3600, 2)),
    (HyperX(dimensions=(5,)), (5, 5, 30, 3, None, 1)),
    (SlimFly(q=5, hosts_per_switch=4), (200, 50, 2 * (200 + 175), 4, None, None)),
    (Dumbbell(hosts_per_side=3), (6, 2, 14, 3, 100, 1)),
    (Ring(switches=6, hosts_per_switch=4), (24, 6, 60, 5, 200, 2)),
    (Torus(dimensions=(4, 4, 2)), (32, 32, 224, 7, 1600, 120)),  # 5!/(2!·2!·1!) · 2 · 2
    (Torus(dimensions=(8, 4), hosts_per_switch=4), (128, 32, 384, 8, 800, 60)),  # 6!/(4!·2!) · 2 · 2
    (Hypercube(dimension=4), (16, 16, 96, 6, 800, 24)),
    (
        Dragonfly(groups=9, routers_per_group=4, hosts_per_router=2, global_links=2),
        (72, 36, 2 * (72 + 54 + 36), 5, None, None),
    ),
    (BCube(n=4, k=1), (16, 24, 96, 6, None, 2)),
    (
        RailOptimized(islands_per_pod=4, gpus_per_island=8, spines=2),
        (32, 32 + 4 + 8 + 2, 2 * (96 + 16), 6, 1600, 4),
    ),
]


@pytest.mark.parametrize(("topology", "expected"), KNOWN, ids=lambda value: getattr(value, "kind", ""))
def test_closed_forms_in_full(topology: Topology, expected: tuple[int | None, ...]) -> None:
    found = topology.facts()
    bisection = None if found.bisection_bps is None else found.bisection_bps // GBPS

    assert (*found[:4], bisection, found.paths) == expected


@examples(40)
@given(any_topology, st.integers(2, 3))
def test_planes_share_hosts_and_nothing_else(topology: Topology, count: int) -> None:
    """Sizes, diameter and paths by networkx; without hosts and their ports the planes are apart."""
    planes = Planes(topology, count)
    if server_ports(topology.graph()):
        with pytest.raises(ParameterError, match="planes must be 1"):
            planes.graph()
        return
    graph, facts, size = planes.graph(), planes.facts(), planes.size()
    diameter, paths = diameter_and_paths(graph) if facts.hosts > 1 else (0, count)
    apart = graph.subgraph(name for name in graph if name.startswith("p"))

    assert facts[:3] == (len(hosts(graph)), len(switches(graph)), 2 * graph.number_of_edges())
    assert (size.nodes, size.links) == (len(graph), facts.links)
    assert facts.diameter_hops in (None, diameter)
    assert facts.paths in (None, paths)
    assert nx.number_connected_components(apart) == count
    assert {len(graph.adj[port]) for port in server_ports(graph)} == {1 + count}


@examples(100)
@given(any_topology)
def test_bisections_are_measured_the_same(topology: Topology) -> None:
    """The exact search over divisions of switches agrees, where it is not too long."""
    facts, measured = topology.facts(), None
    if facts.bisection_bps is not None and 2**facts.switches <= DIVISIONS_MAX:
        measured = by_divisions(topology.graph())

    assert measured in (None, facts.bisection_bps)


def test_large_bisections_between_named_halves() -> None:
    """The halves of the docstrings have as much between them as the formulas say."""
    cases: list[tuple[Topology, list[int]]] = [
        (FatTree(k=6, uplink_rate_bps=40 * GBPS), [*range(27)]),
        (Torus(dimensions=(6, 4)), [*range(12)]),
        (Torus(dimensions=(4, 4, 4)), [*range(32)]),
        (Hypercube(dimension=6), [*range(32)]),
        (RailOptimized(pods=2, islands_per_pod=4, spines=2), [*range(32)]),
        (BCube(n=4, k=2), [*range(32)]),
    ]
    for topology, half in cases:
        names = [f"h{index}" for index in half]
        forms = topology.facts()
        standard = forms.bisection_bps or forms.hosts // 2 * 100 * GBPS  # of BCube: N/2 · r
        assert flow_bps(topology.graph(), names) == standard


def test_dragonfly_bisection_needs_slow_global_links() -> None:
    """With fast ones there are halves with less than the g²/4 global links between halves of the groups."""
    shape = {"groups": 4, "routers_per_group": 3, "hosts_per_router": 1, "global_links": 1}
    slow = Dragonfly(**shape, rate_bps=400 * GBPS, local_rate_bps=70 * GBPS, global_rate_bps=90 * GBPS)
    fast = Dragonfly(**shape, rate_bps=400 * GBPS, local_rate_bps=69 * GBPS, global_rate_bps=90 * GBPS)

    assert slow.facts().bisection_bps == 4 * 90 * GBPS == bisection_by_splits(slow.graph())
    assert fast.facts().bisection_bps is None


@examples(20)
@given(jellyfish())
def test_jellyfish_is_regular_connected_and_within_moores_bound(topology: Jellyfish) -> None:
    graph = topology.graph()
    fabric = graph.subgraph(switches(graph))
    degree, hops = topology.degree, nx.diameter(fabric)

    assert set(dict(fabric.degree).values()) == {degree}
    assert topology.switches <= 1 + degree * sum((degree - 1) ** index for index in range(hops))
    assert dict(topology.graph().edges) == dict(graph.edges)


A_GROUP = {"routers_per_group": 4, "hosts_per_router": 1, "global_links": 2}


A_CLOS = {"pods": 2, "edges_per_pod": 1, "hosts_per_edge": 1, "aggregations": 2, "cores": 4}


WRONG: list[tuple[Any, str, str]] = [
    (Star(hosts=0), "hosts", "star: hosts is 0, must be an int of at least 1"),
    (Ring(switches=2), "switches", "ring: switches is 2, must be an int of at least 3"),
    (Ring(switches=4, hosts_per_switch=0), "hosts_per_switch", "must be an int of at least 1"),
    (
        Torus(dimensions=(4, 1)),
        "dimensions",
        "torus: dimensions is (4, 1), must be a list of ints of at least 2",
    ),
    (Torus(dimensions=()), "dimensions", "must be a list of ints of at least 2"),
    (Torus(dimensions=[4, 4]), "dimensions", "must be a list"),  # type: ignore[arg-type]
    (Hypercube(dimension=0), "dimension", "must be an int of at least 1"),
    (Hypercube(dimension=65), "dimension", "hypercube: dimension is 65, must be at most 64"),
    (BCube(n=1, k=1), "n", "must be an int of at least 2"),
    (BCube(n=2, k=-1), "k", "must be an int of at least 0"),
    (BCube(n=2, k=65), "k", "bcube: k is 65, must be at most 64"),
    (FatTree(k=1), "k", "must be an int of at least 2"),
    (FatTree(k=3), "k", "fat_tree: k is 3, must be even"),
    (FatTree(k=4, hosts_per_edge=3), "hosts_per_edge", "3 hosts_per_edge and 2 uplinks (aggregations), more"),
    (FatTree(k=4, aggregations=3), "aggregations", "2 hosts_per_edge and 3 uplinks (aggregations), more"),
    (FatTree(k=4, core_links=3), "core_links", "have 2 edge switches and 3 core_links, more"),
    (FatTree(k=4, hosts_per_edge=True), "hosts_per_edge", "must be an int of at least 1"),
    (Clos(**A_CLOS | {"pods": 1}), "pods", "must be an int of at least 2"),
    (Clos(**A_CLOS | {"cores": 5}), "cores", "cores is 5, must be a multiple of the 2 aggregations"),
    (HyperX(dimensions=(3, 1)), "dimensions", "must be a list of ints of at least 2"),
    (
        HyperX(dimensions=(3, 3), widths=(1,)),
        "widths",
        "widths has 1 numbers, must have one for each of the 2",
    ),
    (HyperX(dimensions=(3,), widths=(0,)), "widths", "must be a list of ints of at least 1"),
    (SlimFly(q=2), "q", "must be an int of at least 3"),
    (SlimFly(q=6), "q", "slim_fly: q is 6, must be a power of a prime; 2 divides it, not alone"),
    (Dragonfly(groups=2, **A_GROUP), "groups", "dragonfly: groups is 2, must be from 3 to 9"),
    (Dragonfly(groups=10, **A_GROUP), "groups", "dragonfly: groups is 10, must be from 3 to 9"),
    (Jellyfish(switches=5, degree=3), "degree", "5 switches of degree 3 have an odd number of ends"),
    (Jellyfish(switches=4, degree=4), "degree", "degree is 4, must be less than the 4 switches"),
    (Jellyfish(switches=4, degree=1), "degree", "4 switches of degree 1 are not connected"),
    (Jellyfish(switches=4, degree=2, seed=-1), "seed", "must be an int of at least 0"),
    (
        RailOptimized(pods=2, islands_per_pod=1, spines=0),
        "spines",
        "spines is 0, must be at least 1 with 2 pods",
    ),
    (RailOptimized(islands_per_pod=1, spines=-1), "spines", "must be an int of at least 0"),
    (RailOptimized(islands_per_pod=1, spines=0, gpus_per_island=1), "gpus_per_island", "at least 2"),
]


@pytest.mark.parametrize(("topology", "key", "text"), WRONG)
def test_wrong_counts_are_refused_with_their_field(topology: Any, key: str, text: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(text)) as caught:
        topology.size()

    assert caught.value.key == key


RIGHT: list[Any] = [
    Ring(switches=3),
    Torus(dimensions=(2,)),
    Hypercube(dimension=64),
    BCube(n=2, k=0),
    BCube(n=2, k=64),
    FatTree(k=2),
    FatTree(k=4, hosts_per_edge=3, aggregations=1),
    FatTree(k=4, hosts_per_edge=1, aggregations=3),
    Dragonfly(groups=3, **A_GROUP),
    Dragonfly(groups=9, **A_GROUP),
    Clos(**A_CLOS | {"cores": 2}),
    HyperX(dimensions=(2,), widths=(1,)),
    SlimFly(q=3),
    Jellyfish(switches=2, degree=1, seed=0),
    Jellyfish(switches=4, degree=3),
    RailOptimized(islands_per_pod=1, spines=0, gpus_per_island=2),
]


@pytest.mark.parametrize("topology", RIGHT)
def test_counts_at_their_limits_are_accepted(topology: Any) -> None:
    size = topology.size()
    if size.nodes < NODES_MAX:
        assert len(topology.graph()) == size.nodes


def test_a_random_graph_that_is_never_connected_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("networkx.is_connected", lambda graph: False)

    with pytest.raises(
        TopologyError, match="1000 random graphs of 6 switches and degree 2 were not connected"
    ):
        Jellyfish(switches=6, degree=2).graph()


TOO_LARGE: list[tuple[Any, str, str]] = [
    (Star(hosts=20000), "hosts", "use 16383 hosts at most"),
    (
        LeafSpine(leaves=50, spines=2, hosts_per_leaf=400),
        "hosts_per_leaf",
        "hosts_per_leaf can be 326 at most",
    ),
    (LeafSpine(leaves=20000, spines=2, hosts_per_leaf=4), "leaves", "use 3276 leaves at most"),
    (Dumbbell(hosts_per_side=10**30), "hosts_per_side", "hosts_per_side can be 8191 at most"),
    (Ring(switches=20000), "switches", "use 8192 switches at most"),
    (Torus(dimensions=(128, 128)), "dimensions", "use fewer or smaller dimensions"),
    (
        Torus(dimensions=(8, 8), hosts_per_switch=300),
        "hosts_per_switch",
        "hosts_per_switch can be 255 at most",
    ),
    (Hypercube(dimension=20), "dimension", "dimension can be 13 at most"),
    (FatTree(k=64), "k", "k can be 38 at most"),
    (BCube(n=24, k=2), "n", "n can be 19 at most"),
    (BCube(n=16, k=30), "k", "k can be 2 at most"),
    (Jellyfish(switches=10001, degree=4), "switches", "use 8192 switches at most"),
    (Jellyfish(switches=10000, degree=3, hosts_per_switch=2), "switches", "use 5460 switches at most"),
    (
        Dragonfly(groups=129, routers_per_group=16, hosts_per_router=8, global_links=8),
        "groups",
        "use 113 groups at most",
    ),
    (Clos(**A_CLOS | {"pods": 10000}), "pods", "use 4095 pods at most"),
    (
        HyperX(dimensions=(16, 16), hosts_per_switch=80),
        "hosts_per_switch",
        "hosts_per_switch can be 63 at most",
    ),
    (SlimFly(q=19, hosts_per_switch=30), "hosts_per_switch", "hosts_per_switch can be 21 at most"),
    (SlimFly(q=97), "q", "q can be 43 at most"),
    (RailOptimized(islands_per_pod=1000, spines=8), "islands_per_pod", "islands_per_pod can be 962 at most"),
]


@pytest.mark.parametrize(("topology", "key", "hint"), TOO_LARGE)
def test_a_graph_that_is_too_large_says_what_fits(topology: Any, key: str, hint: str) -> None:
    size = topology.size()

    assert size.nodes > NODES_MAX
    assert (size.key, size.hint) == (key, hint)


def test_the_largest_that_is_named_fits_and_the_next_does_not() -> None:
    """k of a fat tree is even."""
    for most, following, shape in ((38, 40, lambda k: FatTree(k=k)), (19, 20, lambda n: BCube(n=n, k=2))):
        assert shape(most).size().nodes <= NODES_MAX < shape(following).size().nodes


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


def test_clos_of_k_pods_is_a_fat_tree() -> None:
    tree, clos = FatTree(k=4), Clos(pods=4, edges_per_pod=2, hosts_per_edge=2, aggregations=2, cores=4)

    assert tree.graph().edges == clos.graph().edges
    assert tree.facts() == clos.facts()


def test_hyperx_is_a_product_of_complete_graphs() -> None:
    """Of networkx, with the widths of Ahn et al. as rates."""
    graph = HyperX(dimensions=(3, 4, 2), widths=(1, 2, 5), fabric_rate_bps=GBPS).graph()
    lattice = nx.cartesian_product(
        nx.cartesian_product(nx.complete_graph(3), nx.complete_graph(4)), nx.complete_graph(2)
    )
    at = nx.get_node_attributes(graph, "coordinates")

    assert {frozenset((at[a], at[b])) for a, b in fabric(graph).edges} == {
        frozenset((*near, far) for near, far in edge) for edge in lattice.edges
    }
    assert rate_and_delay(graph, "s0_0_0", "s0_3_0")[0] == 2
    assert rate_and_delay(graph, "s0_0_0", "s0_0_1")[0] == 5


@pytest.mark.parametrize(
    ("q", "switches_count", "degree"),
    [(3, 18, 5), (4, 32, 6), (5, 50, 7), (7, 98, 11), (8, 128, 12), (9, 162, 13), (17, 578, 25)],
)
def test_slim_fly_is_regular_with_diameter_2(q: int, switches_count: int, degree: int) -> None:
    """As many switches, and links of each, as Besta and Hoefler (SC 2014) and Hafner (2004) give."""
    topology = SlimFly(q=q)
    topology.size()
    inner = fabric(topology.graph())
    reached = {
        start: {start, *inner.adj[start], *(far for near in inner.adj[start] for far in inner.adj[near])}
        for start in [*inner][:: q * q - 1]
    }

    assert len(inner) == switches_count
    assert {*dict(inner.degree).values()} == {degree}
    assert {len(switches) for switches in reached.values()} == {switches_count}


def test_the_smallest_slim_fly_with_7_ports_is_hoffman_and_singletons() -> None:
    """Of degree 7, with 50 vertices and no cycle of less than 5: there is one such graph."""
    inner = fabric(SlimFly(q=5).graph())

    assert nx.diameter(inner) == 2
    assert nx.girth(inner) == 5


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
