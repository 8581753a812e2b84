"""The plain-Python engine's links and flows against closed forms."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest

from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.sim.engine.interface import Completion
from netfold.topologies.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network
from netfold.topologies.star import star
from tests.reference.engine.fabric import ARRIVAL, FLOW_TIMER
from tests.sim.engine.reference.small import (
    FOREVER,
    LINK,
    A,
    D,
    X,
    check_conservation,
    engine,
    flow,
    line,
    run_dry,
)


@pytest.mark.parametrize("links", [2, 3, 5])
@pytest.mark.parametrize("packets", [1, 2, 9])
def test_flow_pipelines_through_store_and_forward_links(links: int, packets: int) -> None:
    sim = engine(line(links))
    sent = flow(4 * packets - 3)  # one word in the last packet: 38 B
    sim.open_flow(sent)

    last = 304_000
    delivered = (packets + links - 2) * X + last + links * D
    if packets == 1:
        delivered = links * (last + D)
    assert sim.run(FOREVER) == [Completion(delivered, "flow", -1, 0)]
    assert sent.received is not None
    assert np.asarray(sent.words).tolist() == sent.received.tolist()


def test_flow_with_a_window_of_one_waits_a_round_trip_per_packet() -> None:
    sim = engine(line(3))
    sim.open_flow(flow(4 * 6, window=1))

    round_trip = 3 * (X + D) + 3 * (A + D)
    assert sim.run(FOREVER) == [Completion(5 * round_trip + 3 * (X + D), "flow", -1, 0)]


def test_ring_all_reduce_takes_its_closed_form() -> None:
    """Each of the 2(n−1) steps leaves right behind the ACK of the one before."""
    workers, packets, steps = 4, 5, 6
    sim = engine(compile_network(star(workers, LINK)))
    sources: list[int] = []

    def send(source: int) -> None:
        sources.append(source)
        sim.open_flow(flow(4 * packets, source=source, target=(source + 1) % workers, ack_every=packets))

    for source in range(workers):
        send(source)
    while completions := sim.run(FOREVER):
        finished_ps = completions[0].time_ps
        receiver = (sources[completions[0].worker] + 1) % workers
        if sources.count(receiver) < steps:
            send(receiver)

    assert finished_ps == steps * ((packets + 1) * X + 2 * D) + (steps - 1) * A
    assert len(sources) == steps * workers


def test_log_of_one_packet_and_its_ack() -> None:
    """Order 1 is the timer's, which the ACK voids."""
    network = line(2)
    sim = engine(network)
    sim.run(D)
    sim.open_flow(flow(4))
    run_dry(sim)

    up, down, back_up, back_down = (
        int(network.next_link[node, target, 0]) for node, target in [(0, 1), (2, 1), (1, 0), (2, 0)]
    )
    there = D + 2 * (X + D)
    assert sim.log == [
        (D + X + D, 0, ARRIVAL, up, 0, 0, 0, 0),
        (there, 2, ARRIVAL, down, 0, 0, 0, 0),
        (there + A + D, 3, ARRIVAL, back_up, 0, 0, 1, 0),
        (there + 2 * (A + D), 4, ARRIVAL, back_down, 0, 0, 1, 0),
    ]
    assert sim.now_ps == FOREVER


def test_full_buffer_drops_what_does_not_fit() -> None:
    """Packets come ten times faster than they leave: of the first ten, the buffer of three holds three."""
    network = line(2)
    rates = np.where(network.is_host[network.link_source], 10**10, 10**9)
    sim = engine(replace(network, rate_bps=rates, buffer_bytes=np.full(4, 150)))
    received = flow(40, timeout_ps=50_000_000)
    sim.open_flow(received)
    sim.run(D + X)

    out = int(network.next_link[2, 1, 0])
    counters = sim.link_counters()[out]
    assert (counters["sent_packets"], counters["dropped_packets"], counters["busy_ps"]) == (3, 7, 3 * X)
    assert sim.run(FOREVER)
    assert received.received is not None
    assert received.received.tolist() == (np.arange(40) * 77).tolist()
    check_conservation(sim)


def test_flow_timer_backs_off() -> None:
    sim = engine(line(2), loss=1.0)
    sim.open_flow(flow(1, timeout_ps=1000))
    assert sim.run(300_000) == []

    pauses = [1000 * min(2**k, 64) for k in range(11)]
    fired = [row[0] for row in sim.log if row[2] == FLOW_TIMER]
    assert fired == [time for time in accumulate(pauses) if time <= 300_000]
    assert sim.flow_counters(0) == {"timeouts": len(fired), "retransmitted_packets": len(fired)}
    assert sim.now_ps == 300_000


def test_losses_are_those_the_keys_name() -> None:
    sim = engine(line(2), loss=0.3, seed=9)
    sim.open_flow(flow(4 * 60))
    sim.run(60 * X)

    lost = [mix_plain(mix_plain(9, 3, 5, q, 0), 0) < int(0.3 * 2.0**64) for q in range(60)]
    first = int(line(2).next_link[0, 1, 0])
    assert lost.count(True) == sim.link_counters()[first]["lost_packets"] > 0


def test_route_picks_among_equal_paths() -> None:
    network = compile_network(leaf_spine(2, 2, 1, LINK, LINK))
    for route, spine in enumerate(["spine0", "spine1", "spine0"]):
        sim = engine(network)
        sim.open_flow(flow(8, route=route))
        run_dry(sim)
        visited = {network.nodes[network.link_target[row[3]]] for row in sim.log}
        assert visited == {"h0", "leaf0", spine, "leaf1", "h1"}


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05, 0.3])
@pytest.mark.parametrize(("window", "ack_every"), [(1, 1), (8, 1), (8, 3), (100, 16)])
def test_flows_deliver_under_loss(loss: float, window: int, ack_every: int) -> None:
    sim = engine(line(3), loss)
    sent = flow(4 * 50 - 1, window=window, ack_every=ack_every, timeout_ps=60_000_000)
    sim.open_flow(sent)
    run_dry(sim)

    assert sent.words is not None
    assert sent.received is not None
    assert sent.received.tolist() == sent.words.tolist()
    lost = sum(counters["lost_packets"] for counters in sim.link_counters())
    assert (sim.flow_counters(0)["retransmitted_packets"] > 0) == (lost > 0)
    check_conservation(sim)
