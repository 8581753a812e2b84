"""Faults of graphs and where workers go."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

T = "tests/topologies/"

MUTANTS: list[Mutant] = [
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
        "topologies/kinds/leaf_spine.py",
        [T + "kinds/test_shapes.py", T + "kinds/test_facts.py"],
        [
            (
                "uplinks are as fast as the hosts' links",
                "add_link(graph, leaf, spine, uplink)",
                "add_link(graph, leaf, spine, link)",
            ),
            (
                "links are counted one way",
                "leaves + spines, 2 * leaves * (hosts + spines)",
                "leaves + spines, leaves * (hosts + spines)",
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
