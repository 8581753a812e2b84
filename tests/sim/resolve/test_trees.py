"""Aggregation trees: which switches add up, what they carry, and that it is a tree."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.collectives.in_network.placement.tree import build_tree
from netfold.sim.engine.interface import Overflow
from netfold.sim.plan.idle_network import NO_LIMIT_BYTES
from netfold.topologies.routing import Network, compile_network, next_links, planned_key
from tests.examples import examples
from tests.sim.scenes import TINY, job_of, only, refused
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
