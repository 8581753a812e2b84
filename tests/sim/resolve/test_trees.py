"""Aggregation trees: which switches add up, what they carry, and that it is a tree."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.collectives.in_network.placement.tree import Tree, build_tree, one_switch
from netfold.sim.engine.interface import Overflow
from netfold.sim.plan.idle_network import NO_LIMIT_BYTES, job_traffic
from netfold.topologies.files.node_link import to_json
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import Network, compile_network, next_links, planned_key
from tests.examples import examples
from tests.sim.scenes import LINK, TINY, job_of, job_plan, only, refused
from tests.topologies.graphs import topologies

RACKS = TINY.replace(
    "{kind: star, hosts: 4, rate: 100Gbps, delay: 1us, switch: tofino1}",
    "{kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 4, switch: tofino1}",
).replace("workers: 3", "workers: {count: 6, placement: spread}")
TREE = "collective.aggregators=tree"
ONE = "collective.aggregators=one"
SPINE = "collective.switch=spine0"
SHARP = "collective={kind: in_network, program: tree, frame: roce-2048}"


def node_names(network: Network, nodes: tuple[int, ...]) -> list[str]:
    return [network.nodes[node] for node in nodes]


def test_one_switch_is_a_tree_of_one_point() -> None:
    tree = one_switch(7, 3)

    assert tree == Tree((7,), (0,), (0, 0, 0))
    assert tree.children_count(0) == 3


def test_the_leaves_below_a_spine_add_up(tmp_path: Path) -> None:
    variant = only(tmp_path, TREE, SPINE, text=RACKS)
    job = job_of(variant)

    assert node_names(variant.network, (job.switch, *(one.switch for one in job.branches))) == [
        "spine0",
        "leaf0",
        "leaf1",
    ]
    assert [branch.parent for branch in job.branches] == [0, 0]
    assert job.homes == (1, 2, 1, 2, 1, 2)
    loopbacks = [job.loopback_link, *(branch.loopback_link for branch in job.branches)]
    assert [variant.network.link_names[link] for link in loopbacks] == [
        "spine0->spine0",
        "leaf0->leaf0",
        "leaf1->leaf1",
    ]


def test_a_leaf_as_the_root_is_reached_through_one_spine(tmp_path: Path) -> None:
    variant = only(tmp_path, TREE, "collective.switch=leaf1", text=RACKS)
    job = job_of(variant)

    assert node_names(variant.network, (job.switch, *(one.switch for one in job.branches))) == [
        "leaf1",
        "leaf0",
    ]
    assert job.homes == (1, 0, 1, 0, 1, 0)
    up = [variant.network.link_names[link] for link in job_traffic(variant.network, job).paths[0].there]
    assert up[0] == "h0->leaf0"
    assert up[1].split("->")[1] in ("spine0", "spine1")
    assert up[2].split("->")[1] == "leaf1"


def test_a_switch_that_only_forwards_passes_streams_on(tmp_path: Path) -> None:
    graph = leaf_spine(2, 1, 2, LINK, LINK, "tofino1")
    graph.nodes["leaf0"]["profile"] = "plain"
    (tmp_path / "net.json").write_text(to_json(graph))

    sets = ("topology={kind: file, path: net.json}", "workers.count=4", TREE, SPINE)
    variant = only(tmp_path, *sets, text=RACKS)
    job = job_of(variant)

    assert node_names(variant.network, tuple(one.switch for one in job.branches)) == ["leaf1"]
    assert job.homes == (0, 1, 0, 1)


def test_a_lonely_worker_in_a_rack_goes_to_the_root(tmp_path: Path) -> None:
    sets = (TREE, SPINE, "workers={count: 3, placement: [h0, h1, h4]}")
    job = job_of(only(tmp_path, *sets, text=RACKS))

    assert (len(job.branches), job.homes) == (1, (1, 1, 0))


def test_the_bound_of_the_wire_counts_streams(tmp_path: Path) -> None:
    """6 workers on two uplinks: three streams each to one switch, one each in a tree."""
    (one,) = job_plan(only(tmp_path, SPINE, ONE, text=RACKS)).references
    (tree,) = job_plan(only(tmp_path, SPINE, TREE, text=RACKS)).references

    line_rate = 64 / 332 * 12.5e9
    assert one.elements_per_s == pytest.approx(line_rate / 3)
    assert one.source.startswith("64 words per 332 B, 3 streams on ")
    assert tree.elements_per_s == pytest.approx(line_rate)


def test_a_trip_through_a_tree(tmp_path: Path) -> None:
    tree = "collective.aggregators=tree", "collective.slots=512"
    # Up: a window of 512 packets in a row, two links and passes, each point's loopback; and back.
    packet_ps = 332 * 80
    up_ps = 512 * packet_ps + 1_600_000 + packet_ps + 1_600_000
    inside_ps = 2 * (packet_ps + 600_000)
    down_ps = packet_ps + 1_600_000 + packet_ps + 1_000_000
    trip_ps = up_ps + inside_ps + down_ps

    assert only(tmp_path, SPINE, *tree, f"collective.timeout={trip_ps + 1}ps", text=RACKS)
    assert "is too short" in refused(tmp_path, SPINE, *tree, f"collective.timeout={trip_ps}ps", text=RACKS)


def test_sharp_needs_no_timers_and_nothing_is_dropped(tmp_path: Path) -> None:
    variant = only(
        tmp_path, SHARP, "collective.slots=16", "topology.switch=ideal", "codec={kind: none}", text=RACKS
    )
    job = job_of(variant)

    assert (job.program.name, job.overflow, job.unit_packets) == ("tree", Overflow.WRAP, 1)
    assert (job.timeout_ps, job.first_timeout_ps, job.timeout_max_ps) == (0, 0, 0)
    assert (job.frame.elements, job.frame.overhead_bytes, job.slots_count) == (512, 82, 16)
    assert set(variant.network.buffer_bytes.tolist()) == {NO_LIMIT_BYTES}
    assert variant.timeout_max_ps == 0


def test_a_tree_has_no_more_children_at_a_point_than_bits(tmp_path: Path) -> None:
    wide = RACKS.replace("hosts_per_leaf: 4", "hosts_per_leaf: 30").replace("count: 6", "count: 60")

    assert only(tmp_path, TREE, SPINE, text=wide)
    assert "SwitchML cannot tell 60 workers apart" in refused(tmp_path, SPINE, ONE, text=wide)


def walk(network: Network, node: int, root: int, number: int) -> list[int]:
    """Switches on the way to the root, it included, if every node takes link `number mod count`."""
    nodes = []
    while node != root:
        links = next_links(network, node, root)
        node = int(network.link_target[links[number % len(links)]])
        nodes.append(node)
    return nodes


@given(graph=topologies(), data=st.data())
@examples(100)
def test_a_tree_against_walks_along_its_ways(graph: nx.Graph, data: st.DataObject) -> None:
    network = compile_network(graph)
    hosts = [node for node, is_host in enumerate(network.is_host) if is_host]
    root = data.draw(st.sampled_from([node for node, is_host in enumerate(network.is_host) if not is_host]))
    route = data.draw(st.integers(0, 2**31 - 1))
    able = {node for node, kind in enumerate(network.profiles, start=len(hosts)) if kind == "tofino1"}

    tree = build_tree(network, hosts, root, planned_key(route), able.__contains__)

    points = tree.switches
    assert points[0] == root
    assert len(set(points)) == len(points)
    depths = [len(walk(network, node, root, route)) for node in points]
    assert depths == sorted(depths)
    senders = [(host, tree.homes[index]) for index, host in enumerate(hosts)]
    senders += [(node, tree.parents[number]) for number, node in enumerate(points) if number > 0]
    crossing: dict[int, set[int]] = {}
    for sender, receiver in senders:
        way = walk(network, sender, root, route)
        first = next(node for node in way if node in points)
        assert points[receiver] == first
        for node in way[: way.index(first)]:
            crossing.setdefault(node, set()).add(sender)
    for number, node in enumerate(points[1:], start=1):
        assert node in able
        assert tree.children_count(number) >= 2
    for node, streams in crossing.items():
        assert node not in able or len(streams) < 2
