"""Where trees and routes are placed: candidates, the traffic that they share, the paths of packets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.kernels.keyed_random import mix_plain, splitmix64_plain
from netfold.sim.collectives.in_network import aggregation_tree as candidates
from netfold.sim.collectives.in_network.aggregation_tree import (
    TrafficSearch,
    build_tree,
    number_points,
    one_switch,
    relieve,
)
from netfold.sim.collectives.in_network.switch_resources import AggregationTree
from netfold.sim.plan.idle_network import Pace, crowding_warnings, job_pace
from netfold.sim.run.run import VariantResult
from netfold.topologies.ecmp import planned_key
from netfold.topologies.graph import add_host, add_link, add_switch, new_graph
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.network import Network, compile_network, path
from netfold.topologies.topology_files import to_json
from tests.examples import examples
from tests.sim.scenario.test_sections import shape
from tests.sim.scenes import DENSE, RING, TINY, job_of, job_plan, measure, only, plan, refused, run, simulate
from tests.topologies.graphs import LINK, topologies

# The link between a leaf and the spine carries four streams as fast as its hosts send, and has eight.
RACKS = """\
name: racks
seed: 1
topology: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 8, rate: 25Gbps, uplink_rate: 100Gbps}
workers: 16
workload: {kind: synthetic, elements: 300000}
codec: {kind: fixed_point}
collective: {kind: in_network, frame: udp-256}
"""
ONE, TREE = "collective.aggregators=one", "collective.aggregators=tree"
LINE_25G = 25e9 / 8 * 64 / 332  # words per second of udp-256: 332 B for 64


def points(folder: Path, *sets: str) -> list[str]:
    """Names of the switches that add up, the root first."""
    (tree,) = shape(folder, *sets, text=RACKS)
    return tree


def test_a_tree_where_the_uplink_cannot_carry_all_streams(tmp_path: Path) -> None:
    assert points(tmp_path) == ["leaf0", "leaf1"]
    assert points(tmp_path, "collective.switch=spine0") == ["spine0", "leaf0", "leaf1"]
    assert points(tmp_path, ONE) == ["leaf0"]


@pytest.mark.parametrize(("hosts", "expected"), [(4, ["leaf0"]), (5, ["leaf0", "leaf1"])])
def test_one_switch_as_long_as_the_uplink_carries_all_streams(
    tmp_path: Path, hosts: int, expected: list[str]
) -> None:
    """Four streams of 25 Gbps fit on 100 Gbps, five do not."""
    sets = (f"topology.hosts_per_leaf={hosts}", f"workers={2 * hosts}")

    assert points(tmp_path, *sets) == expected


@pytest.mark.parametrize(
    ("sets", "elements_per_s"), [((), LINE_25G), ((ONE,), LINE_25G / 2)], ids=["auto", "one"]
)
def test_what_is_chosen_by_is_what_comes_out(
    tmp_path: Path, sets: tuple[str, ...], elements_per_s: float
) -> None:
    """The busiest link's share, but for round trips and exponents that go ahead."""
    metrics = measure(tmp_path, "workload.elements=1000000", *sets, text=RACKS)

    assert metrics["aggregation_elements_per_s"] == pytest.approx(elements_per_s, rel=0.04)


def test_a_root_in_the_middle_where_the_round_trip_decides(tmp_path: Path) -> None:
    """16 slots are less than a round trip at 100 Gbps: two hops to a spine, three to another leaf."""
    sharp = "collective={kind: in_network, program: tree, frame: roce-2048, slots: 16}"
    sets = ("topology={rate: 100Gbps, hosts_per_leaf: 4, switch: ideal}", "workers=8", sharp)

    assert points(tmp_path, *sets) == ["spine0", "leaf0", "leaf1"]
    times = {
        root: simulate(tmp_path, *sets, f"collective.switch={root}", TREE, text=RACKS).steps[0].end_ps
        for root in ("spine0", "leaf0")
    }
    assert times["spine0"] < times["leaf0"]


WIDE = ("topology.hosts_per_leaf=32", "workers=64")


def test_all_switches_are_tried_before_one_is_relieved(tmp_path: Path) -> None:
    """Leaf 0 would have 32 workers and a leaf below it; the spine has two leaves."""
    assert points(tmp_path, *WIDE) == ["spine0", "leaf0", "leaf1"]
    assert points(tmp_path, *WIDE, TREE) == ["spine0", "leaf0", "leaf1"]
    assert points(tmp_path, *WIDE, TREE, "collective.switch=leaf0") == ["leaf0", "spine0", "leaf1"]


def test_two_switches_are_those_that_relieve_the_fullest_link(tmp_path: Path) -> None:
    """Five streams of 25 Gbps from leaf 1 do not fit on 100 Gbps, two of each other leaf do."""
    workers = "workers={count: 9, placement: [h0, h1, h8, h9, h10, h11, h12, h16, h17]}"
    sets = ("topology.leaves=3", workers, "collective.switch=spine0", "collective.aggregators=2")

    assert points(tmp_path, *sets) == ["spine0", "leaf1"]


TREES_BELOW = [f"{root} with a tree below" for root in ("leaf1", *(f"spine{number}" for number in range(7)))]


@pytest.mark.parametrize(
    ("sets", "tried"),
    [
        ((), [*TREES_BELOW[:2], "leaf0", "leaf1", "spine0"]),
        (
            ("topology.spines=9", "collective.aggregators=2"),
            [*TREES_BELOW[:7], f"{TREES_BELOW[7]} and 2 more"],
        ),
    ],
    ids=["all", "eight"],
)
def test_a_refusal_lists_what_was_tried(tmp_path: Path, sets: tuple[str, ...], tried: list[str]) -> None:
    """The first eight of other places."""
    sets = ("topology.hosts_per_leaf=48", "workers=96", *sets)

    assert refused(tmp_path, *sets, text=RACKS) == (
        "--set: workers: leaf0 with a tree below: switch leaf0: SwitchML cannot tell 49 workers apart: its "
        f"bitmap is one 32-bit word\n  use 32 workers at most; also tried: {', '.join(tried)}"
    )


def test_a_second_job_goes_where_there_is_room(tmp_path: Path) -> None:
    """Each job spans both racks; SHARP holds 23 operations, so two of 16 cannot share a switch."""
    sets = (
        "topology={hosts_per_leaf: 2, spines: 2, switch: sharp}",
        "workers={count: 2, placement: spread}",
        "collective={kind: in_network, program: tree, frame: roce-2048, slots: 16}",
        "codec={kind: none}",
    )
    text = RACKS + "jobs: [{name: a}, {name: b}]\n"

    jobs = only(tmp_path, *sets, text=text).jobs
    trees = [job.collective.aggregation for job in jobs if job.collective.aggregation]
    assert len({tree.switch for tree in trees}) == 2
    assert [tree.slot_base for tree in trees] == [0, 0]
    assert "16 slots do not fit on switch spine0" in refused(
        tmp_path, *sets, "collective.switch=spine0", text=text
    )
    few = ("collective.switch=spine0", "collective.slots=8", "jobs.b.collective.frame=roce-1024")
    assert "spine0 takes packets of 512 words for job 'a', not of 256" in refused(
        tmp_path, *sets, *few, text=text
    )


@pytest.mark.parametrize("jobs", [2, 4])
def test_jobs_do_not_share_a_root_while_others_are_free(tmp_path: Path, jobs: int) -> None:
    """Four spines are equally near to all workers, and switches have room for all jobs."""
    named = ", ".join(f"{{name: {name}, workers: 4}}" for name in "abcd"[:jobs])
    roots = [
        [job.collective.aggregation for job in only(tmp_path, *SHARED, text=text).jobs]
        for text in (FOUR_SPINES, FOUR_SPINES + f"jobs: [{named}]\n")
    ]
    (alone,), together = [[tree.switch for tree in trees if tree] for trees in roots]

    assert together[0] == alone
    assert len(set(together)) == jobs


SLOWER = (
    "a ring would be faster here, with about 0.386 G against 0.301 G dense elements/s: "
    "8 streams share leaf1->spine0; use collective.aggregators: auto (0.602 G)"
)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ((), ()),
        ((ONE,), (SLOWER,)),
        ((ONE, "workload.elements=1000"), ()),  # 30 steps of a ring, one after the other, take longer
        ((ONE, "topology.hosts_per_leaf=4", "workers=8"), ()),
    ],
    ids=["tree", "one", "short", "fat uplinks"],
)
def test_a_ring_that_is_faster_is_told(
    tmp_path: Path, sets: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """Ring: 25 Gbps · 256 words / 1106 B · 16/30; one switch: an eighth of 100 Gbps · 64 words / 332 B."""
    assert job_plan(only(tmp_path, *sets, text=RACKS)).warnings == expected


@pytest.mark.parametrize(
    ("sets", "remedy"),
    [
        (
            ("collective.slots=8",),
            "its slots are too few for a round trip of 7.32us; use more collective.slots",
        ),
        (
            ("collective.program=atp", "collective.frame=atp", "codec={kind: fixed_point, factor: 1e6}"),
            "use collective: {kind: ring}",
        ),
    ],
)
def test_what_else_helps(tmp_path: Path, sets: tuple[str, ...], remedy: str) -> None:
    text = RACKS.replace("hosts_per_leaf: 8", "hosts_per_leaf: 9")
    (warning,) = job_plan(only(tmp_path, *sets, text=text)).warnings

    assert warning.startswith("a ring would be faster here")
    assert warning.endswith(remedy)


@pytest.mark.parametrize("sets", [(), (ONE,)], ids=["auto", "one"])
def test_a_long_chain_is_not_measured_twice_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sets: tuple[str, ...]
) -> None:
    """The window is too small for so long a way: a ring is faster, and no switch helps."""
    calls = []

    def counted(*arguments: Any) -> Pace:
        calls.append(arguments)
        return job_pace(*arguments)

    monkeypatch.setattr(candidates, "job_pace", counted)
    (tmp_path / "net.json").write_text(to_json(_chain(200)))
    chain = ("topology={kind: file, path: net.json}", "workers=2", "collective.slots=512", *sets)

    (warning,) = job_plan(only(tmp_path, *chain, text=RACKS)).warnings
    assert warning.endswith("use more collective.slots")
    compared = 64 * (1 if sets else 2)  # switches, each alone and as a root
    assert len(calls) <= 2 * compared


def _chain(length: int) -> nx.Graph:
    """Two hosts, and switches in a row between them."""
    graph = new_graph("chain")
    nodes = ["h0", *(f"s{index}" for index in range(length)), "h1"]
    for name in nodes[1:-1]:
        add_switch(graph, name, 1, "ideal")
    for name in ("h0", "h1"):
        add_host(graph, name)
    for a, b in pairwise(nodes):
        add_link(graph, a, b, LINK)
    return graph


def test_many_switches_of_a_large_network_are_not_all_compared(tmp_path: Path) -> None:
    """100 spines alike: the first whose tree is as fast as hosts' links is taken at once."""
    sets = ("topology={spines: 100, leaves: 8}", "workers={count: 64, placement: spread}")

    assert points(tmp_path, *sets)[0] == "spine0"
    assert plan(tmp_path, *sets, "collective.slots=1", text=RACKS)


def nodes_of(network: Network) -> tuple[list[int], list[int]]:
    """Hosts and switches."""
    hosts = [node for node, is_host in enumerate(network.is_host) if is_host]
    return hosts, [node for node, is_host in enumerate(network.is_host) if not is_host]


def traffic(network: Network, hosts: list[int], tree: AggregationTree) -> int:
    """Links that packets pass on the way up, one of each worker and one of each point below the root."""
    points = tree.switches
    pairs = [(host, points[home]) for host, home in zip(hosts, tree.homes, strict=True)]
    pairs += [(node, points[parent]) for node, parent in zip(points[1:], tree.parents[1:], strict=True)]
    return sum(len(path(network, source, target, 0)) for source, target in pairs)


def all_trees(hosts: list[int], able: list[int], points_max: int) -> Iterator[AggregationTree]:
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
                        yield number_points(root, parents, homes)


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
    found = relieve(tree, tuple(hosts), switches, lambda _: limit, hops)

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
    found = relieve(one_switch(0, 6), hosts, sorted(away)[1:], limits.__getitem__, hops)
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


# Eight spines: that all of many ways go over one of them by chance is out of the question.
SPINES = """\
name: spines
seed: 7
topology: {kind: leaf_spine, leaves: 2, spines: 8, hosts_per_leaf: 8}
workers: {count: 16, placement: spread}
workload: {kind: synthetic, elements: 2000}
codec: {kind: fixed_point}
collective: {kind: in_network, frame: udp-256}
"""
FROM_LEAF = ("collective.aggregators=tree", "collective.switch=leaf0")


def used(result: VariantResult) -> set[str]:
    """Uplinks of leaf 1 that carried anything."""
    return {
        link.link
        for link in result.links
        if link.source == "leaf1" and link.packets and "spine" in link.target
    }


SLOW = "topology={kind: star, hosts: 16, links: [{match: h3-s0, rate: 10Gbps}]}"
SHARED = "topology={kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 8, uplink_rate: 40Gbps}"


@pytest.mark.parametrize(
    ("network", "keys", "windows"),
    [
        (SLOW, "kind: halving_doubling", 2 * 4),  # with each of 4 partners, to reduce and to gather
        (SLOW, "kind: ring", 1),
        (SLOW, "kind: torus_2d, rows: 4", 2),  # to the next of its row, and of its column
        (SLOW, "kind: hierarchical, group_size: 4, inner: {kind: ring}, outer: {kind: ring}", 2),
        (SLOW, "kind: hierarchical, group_size: 4, inner: {kind: halving_doubling}, outer: {kind: ring}", 3),
        (SHARED, "kind: halving_doubling", 2 * 8 / 4),  # of 8 pairs, on a link that is four times as fast
    ],
)
def test_a_timeout_counts_the_windows_of_all_pairs_on_a_link(
    tmp_path: Path, network: str, keys: str, windows: float
) -> None:
    """512 packets of 1126 B each at 10 Gbps, all before the last; several buckets have as many each."""
    window_ps = 512 * 1126 * 800
    sets = (network, "workers=16", DENSE)
    for buckets in (1, 3):
        more = f"overlap.buckets_in_flight={buckets}"
        found = job_plan(only(tmp_path, *sets, f"collective={{{keys}}}", more)).collective
        expected = 4 * (buckets * windows * window_ps + 4 * 10**6)

        assert found.sender.timeout_ps == pytest.approx(expected, rel=0.02)


def test_the_workers_of_a_tree_go_the_same_way(tmp_path: Path) -> None:
    """docs/explanation/what-is-not-modelled.md: one key picks among equal ways for all workers of a job."""
    job = job_of(only(tmp_path, *FROM_LEAF, text=SPINES))
    assert len({*job.routes, *(branch.route for branch in job.branches)}) == 1

    # A switch that only forwards leaves the streams of leaf 1 apart; they still share one way.
    alone = simulate(tmp_path, *FROM_LEAF, "workers={count: 2, placement: [h0, h8]}", text=SPINES)
    assert len(used(alone)) == 1
    assert len(used(simulate(tmp_path, *FROM_LEAF, text=SPINES))) == 1


def test_the_workers_of_one_switch_go_ways_of_their_own(tmp_path: Path) -> None:
    """docs/explanation/routing.md: equal-cost paths are chosen by a hash per worker and job."""
    one = simulate(tmp_path, "collective.aggregators=one", "collective.switch=leaf0", text=SPINES)

    assert len(used(one)) > 2


def test_rings_go_ways_of_their_own(tmp_path: Path) -> None:
    """Eight workers of each rack send to the other rack: by worker, by job, and by seed."""
    rings = ("collective={kind: ring}", "codec={kind: none}")
    found = used(simulate(tmp_path, *rings, text=SPINES))
    assert len(found) > 2

    assert found != used(simulate(tmp_path, *rings, "seed=8", text=SPINES))
    pairs = (
        "jobs=["
        + ", ".join(f"{{name: j{n}, workers: {{count: 2, placement: [h{n}, h{8 + n}]}}}}" for n in range(8))
        + "]"
    )
    assert len(used(simulate(tmp_path, *rings, pairs, text=SPINES))) > 2


LOSSY = """\
name: lossy
seed: 1
topology: {kind: star, hosts: 4}
workers: 3
workload: {kind: synthetic, elements: 1000}
codec: {kind: fixed_point}
collective: {kind: in_network, timeout: released}
faults: [{kind: loss, rate: 1%}]
variants:
  - name: switchml
  - name: ring
    collective: {kind: ring, timeout: 1ms}
"""
NOTE = (
    "switchml: packets are lost and timeouts differ, some as released: 1ms (ring), 10ms (switchml); "
    "timers decide such comparisons; to exclude them, use collective.timeout: auto, or give all jobs the same"
)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ((), [NOTE]),
        (("faults=[{kind: burst_loss, good_to_bad: 1%, bad_to_good: 20%}]",), [NOTE]),
        (("variants.switchml.collective.timeout=1ms",), []),  # the ring's by default is the same
        (
            ("variants.switchml.collective.timeout=2ms", "variants.ring.collective.timeout=3ms"),
            [],
        ),  # on purpose
    ],
)
def test_timers_that_decide_are_told_of(tmp_path: Path, sets: tuple[str, ...], expected: list[str]) -> None:
    assert run(tmp_path, *sets, text=LOSSY).summary["warnings"] == expected


FOUR_SPINES = TINY.replace(
    "{kind: star, hosts: 4,", "{kind: leaf_spine, leaves: 2, spines: 4, hosts_per_leaf: 2,"
)
PLACED = "workers={count: 4, placement: spread}"
SHARED = (PLACED, "collective.slots=16", "topology.hosts_per_leaf=8")


def test_variants_share_the_routes_of_a_topology_and_a_policy(tmp_path: Path) -> None:
    text = (
        FOUR_SPINES + "variants:\n  - name: a\n  - {name: b, routing: spray}\n  - {name: c, routing: ecmp}\n"
    )
    a, b, c = plan(tmp_path, text=text).variants

    assert (a.network.policy.kind, b.network.policy.kind) == ("ecmp", "spray")
    assert a.network.tables is c.network.tables
    assert a.network.tables is not b.network.tables


def test_dimension_order_is_refused_where_there_are_no_dimensions(tmp_path: Path) -> None:
    assert refused(tmp_path, "routing=dimension_order") == (
        "--set: routing: routing dimension_order needs the sizes of the dimensions, "
        "and this topology has none\n"
        "  use routing: ecmp, or a torus, hypercube or hyperx with neither `planes` nor `without`"
    )


@pytest.mark.parametrize("routing", ["spray", "valiant"])
def test_jobs_on_switches_are_told_that_the_policy_is_not_for_them(tmp_path: Path, routing: str) -> None:
    told = job_plan(only(tmp_path, f"routing={routing}", text=FOUR_SPINES)).warnings
    between_hosts = job_plan(only(tmp_path, f"routing={routing}", RING, DENSE, text=FOUR_SPINES)).warnings

    assert [warning for warning in told if "routing" in warning] == [
        f"routing {routing} is for packets between hosts: packets between workers and switches that add "
        "them up keep one shortest path per worker, as the switches need them in order"
    ]
    assert not [warning for warning in between_hosts if "routing" in warning]
    assert not [
        warning for warning in job_plan(only(tmp_path, text=FOUR_SPINES)).warnings if "routing" in warning
    ]


def test_a_sprayed_ring_counts_reordering_and_others_do_not(tmp_path: Path) -> None:
    """Two flows leave each leaf, over links of the rate of the hosts': sprayed packets queue at spines."""
    sets = (RING, DENSE, PLACED, "workload.elements=200000")
    plain, sprayed = (
        measure(tmp_path, f"routing={one}", *sets, text=FOUR_SPINES) for one in ("ecmp", "spray")
    )

    assert "packets_reordered" not in plain
    assert sprayed["packets_reordered"] > 0
    assert sprayed["packets_retransmitted_in_vain"] <= sprayed["packets_retransmitted"]
    assert sprayed["bit_exact"] == plain["bit_exact"]
    assert sprayed["packets"] >= plain["packets"]


STREAMS = TINY.replace(
    "{kind: star, hosts: 4,", "{kind: leaf_spine, leaves: 2, spines: 4, hosts_per_leaf: 3,"
)
AT_LEAF = ("collective.switch=leaf1", "collective.aggregators=one")


@pytest.mark.parametrize(
    ("spines", "told"),
    [
        ([0] * 8, (8, 1)),
        ([0, 1, 2] * 3, (9, 3)),
        ([0, 1, 2, 3] * 2, None),  # half of 8
        ([5, 5, 5], (3, 1)),
        ([5, 5], None),
        ([5, 5, 1], None),
    ],
)
def test_flows_on_fewer_than_half_of_what_they_could_fill(
    spines: list[int], told: tuple[int, int] | None
) -> None:
    """9 hosts on each of two leaves, 8 spines: 8 links up from the leaf, and 8 down to the other."""
    network = compile_network(leaf_spine(2, 8, 9, LINK, LINK))
    ways = [path(network, host, 9 + host, planned_key(spine)) for host, spine in enumerate(spines)]
    found = crowding_warnings(network, ways)

    assert [sentence.split(":")[0] for sentence in found] == [
        f"hashes put {told[0]} flows on {told[1]} of the 8 links from tier {low} to tier {high} "
        "that their shortest paths have"
        for low, high in ((1, 2), (2, 1))
        if told
    ]


def test_streams_to_a_switch_are_told_when_they_share_a_spine(tmp_path: Path) -> None:
    """Three workers of leaf0 whose switch is leaf1, over four spines: one in 16 seeds puts them on one."""
    crowded = []
    for seed in range(1, 41):
        variant = only(tmp_path, f"seed={seed}", *AT_LEAF, text=STREAMS)
        leaf = variant.network.nodes.index("leaf0")
        spines = set()
        for worker in range(3):
            draw = mix_plain(seed, 7, 0, worker, -1, 0) >> 34
            key = draw - draw % 840 + (worker - 1) % 840
            spines.add(splitmix64_plain(key * 2**32 + leaf) % 4)
        told = [one for one in job_plan(variant).warnings if one.startswith("hashes put 3 flows on 1 of ")]

        assert bool(told) == (len(spines) == 1)
        crowded.append(bool(told))

    assert 0 < sum(crowded) < 10
