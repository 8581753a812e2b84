"""Flows spread over equal paths as independent choices at every switch do.

Numbers to compare with come from binomial and χ² distributions, and from plain Python with random choices.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest

from netfold.topologies.graph import LinkSpec, add_link, add_server, add_switch, new_graph
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import Network, compile_network, flow_key_plain, path, planned_key
from netfold.topologies.routing.flows import flow_key, way_of_plain
from tests.topologies.fabrics import fat_tree
from tests.topologies.graphs import LINK

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


@pytest.mark.parametrize("k", [4, 8])
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
