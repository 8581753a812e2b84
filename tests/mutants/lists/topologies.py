"""Faults of graphs, routes and where workers go."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

T = "tests/topologies/"

MUTANTS: list[Mutant] = [
    *faults(
        "topologies/routing.py",
        [T + "test_routing.py"],
        [
            (
                "links of equal length count as shortest",
                "< distance[node]  # (links of node, targets)",
                "<= distance[node]  # (links of node, targets)",
            ),
            (
                "hosts are targets of the switch beside theirs",
                "next_link[hosts_count + node] = rows[home]",
                "next_link[hosts_count + node] = rows[home[::-1]]",
            ),
            (
                "a node has a link to itself",
                "next_link[same, same], next_count[same, same] = -1, 0",
                "next_link[same, same], next_count[same, same] = -1, 1",
            ),
            (
                "routes pick among all but the last way",
                "key % int(network.next_count[node, target])",
                "key % max(1, int(network.next_count[node, target]) - 1)",
            ),
        ],
    ),
    *faults(
        "topologies/placement.py",
        [T + "test_placement.py"],
        [
            (
                "a rack's workers count once in hops",
                "hops_total[name] += workers * (hops[name] + 1)",
                "hops_total[name] += hops[name] + 1",
            ),
            (
                "one worker more than there are hosts passes",
                "    if count > available:\n",
                "    if count > available + 1:\n",
            ),
            (
                "spread fills racks in turn from the back",
                "zip_longest(*_groups(graph)) for host in turn",
                "zip_longest(*_groups(graph)) for host in turn[::-1]",
            ),
        ],
    ),
    *faults(
        "topologies/measures.py",
        [T + "test_measures.py"],
        [
            (
                "links are counted once",
                "links_count=2 * graph.number_of_edges()",
                "links_count=graph.number_of_edges()",
            ),
            (
                "hosts change sides until they are equal in number",
                "(len(larger) - len(smaller)) // 2",
                "(len(larger) - len(smaller) + 1) // 2",
            ),
        ],
    ),
    *faults(
        "topologies/leaf_spine.py",
        [T + "test_generators.py"],
        [
            (
                "uplinks are as fast as the hosts' links",
                "add_link(graph, leaf, spine, uplink)",
                "add_link(graph, leaf, spine, link)",
            ),
            (
                "links are counted one way",
                "2 * leaves * (hosts + spines), key",
                "leaves * (hosts + spines), key",
            ),
        ],
    ),
    *faults(
        "topologies/graph.py",
        [T + "test_graph.py"],
        [
            (
                "the fastest rate is refused",
                "not lowest <= value <= highest",
                "not lowest <= value < highest",
            ),
        ],
    ),
]
