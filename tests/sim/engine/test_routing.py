"""Packets take the paths that `path` and `shares` say, under every policy; flows stand the reordering."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from netfold.sim.engine.engine_data import Fate, Frame, Rule
from netfold.topologies.ecmp import flow_key_plain, planned_key
from netfold.topologies.graph import add_link, add_server, add_switch, hosts, new_graph
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.network import Network, compile_network, path, shares
from netfold.topologies.routing import POLICIES
from tests.reference.engine.fabric import ARRIVAL
from tests.sim.engine.small import (
    FAST,
    FRAME,
    LINK,
    Make,
    aggregate,
    check_received,
    check_sums,
    flow,
    gradients,
    job,
    link_between,
    logged,
    run,
    run_dry,
)
from tests.sim.engine.test_schedules import operation
from tests.sim.exchanges import ring_schedule
from tests.topologies.graphs import KINDS, fat_tree, torus

BIG = Frame("big", elements=250, overhead_bytes=0, ack_bytes=20)


def words(packets: int, frame: Frame = FRAME) -> np.ndarray:
    return np.arange(packets * frame.elements, dtype=np.int32)


def data_links(log: list[tuple[int, ...]], number: int) -> dict[tuple[int, int], list[int]]:
    """Links that each copy of each packet of a flow has passed, in order."""
    found: dict[tuple[int, int], list[int]] = {}
    for _, _, what, where, owner, unit, part, attempt in log:
        if what == ARRIVAL and owner == number and part == 0:
            found.setdefault((unit, attempt), []).append(where)
    return found


@pytest.mark.parametrize("policy", ["ecmp", "valiant", "dimension_order"])
@pytest.mark.parametrize("route", [0, 5, 2**31 - 1])
def test_a_flow_takes_the_path_that_path_says(policy: str, route: int) -> None:
    network = compile_network(torus((4, 4)), policy=POLICIES[policy])
    for target in (1, 5, 10):
        sim = logged(network)
        sim.open_flow(flow(0, target, words(3), route=route))
        run_dry(sim)

        assert set(map(tuple, data_links(sim.log, 0).values())) == {tuple(path(network, 0, target, route))}


def test_transfers_and_their_acknowledgements_have_paths_of_their_own_tuples(engine: Make) -> None:
    """A ring of 4 workers with 4 channels: each flow's key is that of (source, target, channel), each ACK's
    that of (target, source, channel)."""
    network, ring, seed = compile_network(fat_tree(4, LINK)), ring_schedule(4, 4), 5
    hosts_of, ranks = (0, 5, 10, 15), (7, 3, 9, 1)
    assert ring.channel is not None
    sim = engine(network)
    opened = sim.open_schedule(operation(ring, 64, hosts=hosts_of, seed=seed, ranks=ranks, job=0))
    for worker in range(4):
        sim.begin(opened, worker)
    run_dry(sim)
    taken: dict[tuple[int, int], list[int]] = {}
    for _, _, what, where, owner, _, part, _ in sim.log:
        if what == ARRIVAL:
            taken.setdefault((owner, part), []).append(where)
    expected = [Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()]
    flows = zip(ring.source.tolist(), ring.target.tolist(), ring.channel.tolist(), strict=True)
    for *pair, channel in flows:
        for part, (a, b) in enumerate((pair, pair[::-1])):
            key = flow_key_plain(seed, 0, ranks[a], ranks[b], channel)
            expected[part][tuple(path(network, hosts_of[a], hosts_of[b], key))] += 1

    for part in (0, 1):
        found = [tuple(dict.fromkeys(links)) for (_, of), links in taken.items() if of == part]
        assert Counter(found) == expected[part]


@pytest.mark.parametrize("policy", ["ecmp", "spray"])
@pytest.mark.parametrize("route", [0, 5, -1])
def test_a_server_sends_on_its_ports_in_turn_and_forwards_by_hash(
    engine: Make, policy: str, route: int
) -> None:
    """Servers in a row, each linked to the next over two switches, so those between forward."""
    graph = new_graph("row")
    for number in range(4):
        add_server(graph, f"h{number}", f"port{number}")
    for number in range(3):
        for side in "ab":
            add_switch(graph, f"{side}{number}", tier=2, profile="plain")
            add_link(graph, f"port{number}", f"{side}{number}", LINK)
            add_link(graph, f"port{number + 1}", f"{side}{number}", LINK)
    network = compile_network(graph, policy=POLICIES[policy])
    sim = engine(network)
    sim.open_flow(flow(0, 3, words(1), route=route))
    run_dry(sim)
    links = data_links(sim.log, 0)[0, 0]

    assert len(links) == 8
    if policy == "ecmp":
        assert links == path(network, 0, 3, route)
        first = network.nodes[network.link_target[links[1]]]
        assert first == ("a0", "b0")[(-1 - route if route < 0 else route) % 2]


@pytest.mark.parametrize("kind", ["fat_tree", "torus", "hypercube", "complete", "jellyfish"])
def test_sprayed_packets_load_links_as_shares_say(kind: str) -> None:
    """1,500 packets of one flow; five standard deviations."""
    graph = KINDS[kind]()
    network = compile_network(graph, policy=POLICIES["spray"])
    target, count = len(hosts(graph)) - 1, 1500
    sim = logged(network)
    sim.open_flow(flow(0, target, words(count), window=64, ack_every=64, timeout_ps=10**15))
    run_dry(sim)
    taken = data_links(sim.log, 0)
    used = Counter(link for links in taken.values() for link in links)
    expected = shares(network, 0, target, 0)

    assert len(taken) == count
    assert set(used) <= set(expected)
    for link, share in expected.items():
        assert abs(used[link] - count * share) <= 5 * (count * share * (1 - share)) ** 0.5


def test_the_way_of_a_sprayed_packet_does_not_depend_on_what_else_happens() -> None:
    """The same packet of the same flow, alone and beside others that start earlier."""
    network = compile_network(fat_tree(4, LINK), policy=POLICIES["spray"])
    sent = flow(0, 15, words(40), key=99)
    alone, beside = logged(network), logged(network)
    alone.open_flow(sent)
    for other in range(1, 6):
        beside.open_flow(flow(other, 15 - other, words(20), key=other))
    beside.run(3_000_000)
    beside.open_flow(replace(sent, received=np.zeros_like(sent.words)))
    run_dry(alone)
    run_dry(beside)
    with_others = data_links(beside.log, 5)

    assert all(with_others[packet] == links for packet, links in data_links(alone.log, 0).items())


def uneven(policy: str) -> Network:
    """Two leaves and two spines, one of which is far away: packets over the other overtake."""
    graph = leaf_spine(2, 2, 1, FAST, FAST)
    graph.edges["leaf0", "spine1"].update(delay_ps=4_000_000)
    return compile_network(graph, policy=POLICIES[policy])


@pytest.mark.parametrize(("packets", "window"), [(400, 400), (600, 64)])
def test_overtaken_packets_are_not_taken_for_lost(engine: Make, packets: int, window: int) -> None:
    """3 us are 37 packets, more than half of a window of 64."""
    sim = engine(uneven("spray"))
    sent = flow(0, 1, words(packets, BIG), BIG, window=window, ack_every=16, timeout_ps=10**12)
    sim.open_flow(sent)
    run_dry(sim)
    counters = sim.flow_counters(0)

    check_received([sent])
    assert counters["reordered_packets"] > 100
    assert counters["timeouts"] == counters["retransmitted_packets"] == 0


@pytest.mark.parametrize(("packets", "place"), [(100, 0), (100, 40), (100, 99), (1, 0)])
def test_a_loss_is_made_good_with_the_next_acknowledgement(engine: Make, packets: int, place: int) -> None:
    """Packets in one window, one of them lost: where it is the only one, no acknowledgement follows."""
    network = compile_network(leaf_spine(2, 2, 1, FAST, FAST), policy=POLICIES["spray"])
    start_ps = place * 80_000  # each packet is put on the first link at 0, and leaves it in turn
    up = link_between(network, 2, 1), link_between(network, 2, 1) + 1
    arrives = 10**6 + start_ps + 80_000
    rule = Rule(Fate.LOSS, 1.0, up, from_ps=arrives, until_ps=arrives + 1)
    sim = engine(network, rules=[rule])
    sent = flow(0, 1, words(packets, BIG), BIG, ack_every=1, timeout_ps=10**9)
    sim.open_flow(sent)
    run_dry(sim)
    counters = sim.flow_counters(0)

    check_received([sent])
    assert counters["retransmitted_packets"] == 1
    assert counters["spurious_retransmissions"] == 0
    assert counters["timeouts"] == int(packets == 1)


@pytest.mark.parametrize("policy", ["spray", "valiant"])
def test_streams_are_the_same_under_every_policy(policy: str) -> None:
    """Messages of several packets need their order: packets of streams keep to one shortest path."""
    logs = []
    for kind in ("ecmp", policy):
        network = compile_network(fat_tree(4, LINK), policy=POLICIES[kind])
        sim = logged(network)
        places = {"switch": network.nodes.index("core3"), "routes": tuple(range(16))}
        number = sim.add_job(job(network, 4, unit_packets=2, **places))
        sent = gradients(16, 60)
        check_sums(aggregate(sim, number, sent).results, sent)
        logs.append(sim.log)

    assert logs[0] == logs[1]


def lost_packets(network: Network, loss: float, packets: int) -> set[tuple[int, int, int]]:
    """(packet, attempt, hop) of all copies of a flow's data packets that were lost, by what did not
    arrive."""
    sim = logged(network, loss)
    sim.open_flow(flow(0, 1, words(packets), key=7, window=packets, ack_every=1, timeout_ps=10**12))
    run(sim, 1)
    taken = data_links(sim.log, 0)
    hops = len(path(network, 0, 1, 0))
    return {(*copy, len(links)) for copy, links in taken.items() if len(links) < hops}


def test_the_same_chunk_meets_the_same_loss_in_two_topologies_and_under_two_policies() -> None:
    """On the hops that both have: host to switch, and one more. The draw is of the packet and the hop
    alone."""
    rack = compile_network(star(2, LINK))
    fabrics = [
        compile_network(leaf_spine(2, 3, 1, LINK, LINK), policy=POLICIES[policy])
        for policy in ("ecmp", "spray", "valiant")
    ]
    in_rack = {found for found in lost_packets(rack, 0.1, 300) if found[1] == 0}
    assert len(in_rack) > 15
    for network in fabrics:
        first_hops = {found for found in lost_packets(network, 0.1, 300) if found[1] == 0 and found[2] < 2}

        assert first_hops == in_rack


def test_a_cut_link_is_not_routed_around(engine: Make) -> None:
    """Routes are static: what is routed over a link that is down waits for it."""
    network = compile_network(leaf_spine(2, 2, 1, LINK, LINK))
    sim = engine(network)
    sim.cut(path(network, 0, 1, planned_key(0))[1])
    sim.open_flow(flow(0, 1, words(5), route=planned_key(0), key=1))
    sim.open_flow(flow(0, 1, words(5), route=planned_key(1), key=2))
    done = run(sim, 1)

    assert [completion.worker for completion in done] == [1]
    assert sim.run(10**11) == []
