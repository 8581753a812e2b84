"""Policies that choose paths by queues and pauses, beside a simulator of their own."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from netfold.sim.engine.engine_data import Fate, Rule
from netfold.topologies.ecmp import flow_key_plain
from netfold.topologies.graph import hosts
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.network import compile_network, path
from netfold.topologies.routing import POLICIES
from tests.sim.engine.small import FAST, Make, check_received, compiled, flow, logged, run_dry
from tests.sim.engine.test_routing import BIG, data_links, words
from tests.topologies.graphs import dragonfly, fat_tree

PACKET_PS = 80_000  # 1000 B at 100 Gbps
GRADE_PS = 327_680  # 4096 B
REORDERING = [kind for kind, policy in POLICIES.items() if policy.reorders]


def permutation(count: int, seed: int) -> list[int]:
    """A partner for everybody, not in its own pod of 16."""
    numbers = random.Random(seed)
    partners = numbers.sample(range(count), count)
    while near := [source for source, target in enumerate(partners) if source // 16 == target // 16]:
        other = numbers.randrange(count)
        partners[near[0]], partners[other] = partners[other], partners[near[0]]
    return partners


def starts_ps(count: int) -> list[int]:
    """When each host begins, within the time of a packet: in lockstep, all would find equal queues."""
    return sorted(random.Random(count).sample(range(PACKET_PS), count))


def last_arrival_ps(graph: nx.Graph, partners: list[int], packets: int, *, is_adaptive: bool) -> int:
    """When the last packet of a permutation arrives: output queues, store and forward, every packet 80 ns.

    At each switch a flow or, if adaptive, a packet takes one of the shortest paths: at random, or with the
    shortest queue.
    """
    numbers, names = random.Random(1), hosts(graph)
    hops = {name: nx.single_source_shortest_path_length(graph, name) for name in names}
    free_ps: defaultdict[tuple[str, str], int] = defaultdict(int)
    chosen: dict[tuple[int, str], str] = {}
    events: list[tuple[int, int, int, str]] = []  # time, number, flow, node

    def put(now_ps: int, number: int, source: int, node: str) -> None:
        target = names[partners[source]]
        nearer = [other for other in graph.adj[node] if hops[target][other] < hops[target][node]]
        numbers.shuffle(nearer)
        following = min(nearer, key=lambda other: max(0, free_ps[node, other] - now_ps) // GRADE_PS)
        if not is_adaptive:
            following = chosen.setdefault((source, node), following if len(nearer) == 1 else nearer[0])
        free_ps[node, following] = max(now_ps, free_ps[node, following]) + PACKET_PS
        heapq.heappush(events, (free_ps[node, following] + FAST.delay_ps, number, source, following))

    for source, start_ps in enumerate(starts_ps(len(names))):
        for number in range(packets):
            put(start_ps, number * len(names) + source, source, names[source])
    now_ps = 0
    while events:
        now_ps, number, source, node = heapq.heappop(events)
        if node != names[partners[source]]:
            put(now_ps, number, source, node)
    return now_ps


def makespan_ps(policy: str, graph: nx.Graph, partners: list[int], packets: int) -> int:
    """The same in the engine; nothing is lost, and nothing is sent again."""
    sim = compiled(compile_network(graph, policy=POLICIES[policy]))
    for source, start_ps in enumerate(starts_ps(len(partners))):
        sim.run(start_ps)
        route = flow_key_plain(1, 0, source, partners[source])
        sim.open_flow(flow(source, partners[source], words(packets, BIG), BIG, route=route))
    last_ps = max(done.time_ps for done in run_dry(sim))

    assert all(sim.flow_counters(number)["retransmitted_packets"] == 0 for number in range(len(partners)))
    return last_ps


def test_adaptive_paths_are_as_much_faster_than_ecmp_as_a_simulator_says() -> None:
    """Permutations of 128 hosts between the pods of a k = 8 fat tree, two of them, 80 packets each."""
    graph = fat_tree(8, FAST)
    ours, theirs = np.zeros(2), np.zeros(2)
    for seed in range(2):
        partners = permutation(128, seed)
        ours += [makespan_ps(policy, graph, partners, 80) for policy in ("adaptive", "ecmp")]
        theirs += [last_arrival_ps(graph, partners, 80, is_adaptive=way) for way in (True, False)]

    assert ours[0] == pytest.approx(theirs[0], rel=0.1)
    assert ours[1] == pytest.approx(theirs[1], rel=0.25)  # hashes of its own
    assert ours[1] > 1.8 * ours[0]


@pytest.mark.parametrize("policy", REORDERING)
def test_without_a_loss_nothing_is_sent_again(engine: Make, policy: str) -> None:
    """An incast beside other flows: queues differ, so packets overtake each other."""
    network = compile_network(fat_tree(4, FAST), policy=replace(POLICIES[policy], gap_ps=10**6))
    sim = engine(network)
    flows = [flow(source, 15 if source < 4 else source - 4, words(40, BIG), BIG, window=16, ack_every=4)
             for source in range(12)]  # fmt: skip
    for sent in flows:
        sim.open_flow(sent)
    run_dry(sim)

    check_received(flows)
    assert sum(sim.flow_counters(number)["retransmitted_packets"] for number in range(12)) == 0


@pytest.mark.parametrize("policy", REORDERING)
def test_a_lost_packet_is_sent_again_once(engine: Make, policy: str) -> None:
    network = compile_network(fat_tree(4, FAST), policy=POLICIES[policy])
    sim = engine(network, rules=[Rule(Fate.LOSS, 1.0, (0,), from_ps=0, until_ps=1)])
    sent = flow(0, 15, words(1, BIG), BIG, timeout_ps=10**8)
    sim.open_flow(sent)
    sim.run(1)
    sim.open_flow(flow(0, 14, words(3, BIG), BIG, key=2))
    run_dry(sim)

    check_received([sent])
    assert sim.flow_counters(0)["retransmitted_packets"] == 1


@pytest.mark.parametrize(("gap_ps", "is_moved"), [(5 * 10**6, True), (10**7, False)])
def test_a_flow_takes_another_path_after_a_pause(engine: Make, gap_ps: int, is_moved: bool) -> None:
    """Four packets, and four more 8.1 us later, once the first are acknowledged: a window is a flowlet."""
    policy = replace(POLICIES["flowlet"], gap_ps=gap_ps)
    network = compile_network(leaf_spine(2, 64, 1, FAST, FAST), policy=policy)
    sim = engine(network)
    sim.open_flow(flow(0, 1, words(16, BIG), BIG, window=4, ack_every=4, route=9, key=3))
    run_dry(sim)
    taken = [tuple(links) for _, links in sorted(data_links(sim.log, 0).items())]
    flowlets = [taken[start : start + 4] for start in range(0, 16, 4)]

    assert flowlets[0] == [tuple(path(network, 0, 1, 9))] * 4
    assert all(len(set(links)) == 1 for links in flowlets)
    assert len({links[0] for links in flowlets}) == (4 if is_moved else 1)


def test_ugal_goes_minimally_where_nobody_waits_and_around_where_all_do() -> None:
    """A dragonfly of 9 groups with 4 routers each: a neighbour in the next group, or all of group 1."""
    graph = dragonfly(4, 2, 2, FAST)
    network = {kind: compile_network(graph, policy=POLICIES[kind]) for kind in ("ecmp", "ugal")}
    sim = logged(network["ugal"])
    sim.open_flow(flow(0, 70, words(1, BIG), BIG))
    run_dry(sim)

    assert len(data_links(sim.log, 0)[0, 0]) == len(path(network["ecmp"], 0, 70, 0))

    adverse = [(host + 8) % 72 for host in range(72)]  # everybody to the next group, over one link
    times_ps = {kind: makespan_ps(kind, graph, adverse, 100) for kind in ("ecmp", "valiant", "ugal")}
    assert times_ps["ugal"] < 0.5 * times_ps["ecmp"]
    assert times_ps["ugal"] < 1.2 * times_ps["valiant"]

    near = [host ^ 2 for host in range(72)]  # everybody to another switch of its group or the next
    assert makespan_ps("ugal", graph, near, 100) < 1.1 * makespan_ps("ecmp", graph, near, 100)


def test_adaptive_packets_avoid_a_link_that_is_slow(engine: Make) -> None:
    """One of two spines has a tenth of the rate: it gets a tenth of the packets, or a grade more."""
    graph = leaf_spine(2, 2, 1, FAST, FAST)
    graph.edges["leaf0", "spine1"].update(rate_bps=10**10)
    sim = engine(compile_network(graph, policy=POLICIES["adaptive"]))
    sim.open_flow(flow(0, 1, words(400, BIG), BIG))
    run_dry(sim)
    used = Counter(links[1] for links in data_links(sim.log, 0).values())

    assert sorted(used.values())[0] == pytest.approx(400 / 11, abs=12)
