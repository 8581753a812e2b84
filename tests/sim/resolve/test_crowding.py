"""Warnings where hashes leave most of the links unused that flows could fill."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.homomorphic.kernels.keyed import mix_plain, splitmix64_plain
from netfold.sim.plan.crowding import crowding_warnings
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network, path, planned_key
from tests.sim.scenes import LINK, TINY, job_plan, only

STREAMS = TINY.replace(
    "{kind: star, hosts: 4,", "{kind: leaf_spine, leaves: 2, spines: 4, hosts_per_leaf: 3,"
)
ONE = ("collective.switch=leaf1", "collective.aggregators=one")


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


def test_flows_without_a_choice_crowd_on_nothing() -> None:
    network = compile_network(leaf_spine(8, 1, 4, LINK, LINK))

    assert crowding_warnings(network, [path(network, host, 31, 0) for host in range(28)]) == ()


def test_streams_to_a_switch_are_told_when_they_share_a_spine(tmp_path: Path) -> None:
    """Three workers of leaf0 whose switch is leaf1, over four spines: one in 16 seeds puts them on one."""
    crowded = []
    for seed in range(1, 41):
        variant = only(tmp_path, f"seed={seed}", *ONE, text=STREAMS)
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
