"""Hosts that take time for packets, in both engines, against a plain account of queues in a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from netfold.sim.engine.interface import Completion
from netfold.topologies.routing import Network, Work, path, with_host_links
from tests.sim.engine.small import (
    FRAME,
    D,
    Make,
    X,
    aggregate,
    check_received,
    check_sums,
    compiled,
    flow,
    gradients,
    job,
    message,
    run,
    run_dry,
    star_of,
)

NS, US = 10**3, 10**6
NO_BYTES = 10**15  # bit/s: a packet of 50 B takes 1 ps, rounded up
PACKET_BYTES = FRAME.wire_bytes(FRAME.elements, first=False, last=False)


class Stage(NamedTuple):
    """A queue and a server, first in, first out: what a packet takes, and how long it travels afterwards."""

    service_ps: int
    delay_ps: int = 0
    message_ps: int = 0  # more for the first packet of a message


def last_out_ps(stages: Sequence[Stage], packets: int, message_packets: int) -> int:
    """When the last of packets that all come at 0 has left a row of queues."""
    free_ps = [0] * len(stages)
    now_ps = 0
    for number in range(packets):
        now_ps = 0
        for place, stage in enumerate(stages):
            more_ps = stage.message_ps if number % message_packets == 0 else 0
            free_ps[place] = max(now_ps, free_ps[place]) + stage.service_ps + more_ps
            now_ps = free_ps[place] + stage.delay_ps
    return now_ps


def hosts(network: Network, sending: Work, receiving: Work) -> Network:
    """All hosts take the same time."""
    found = np.flatnonzero(network.is_host).tolist()
    return with_host_links(network, dict.fromkeys(found, (sending, receiving)))


def bytes_ps(rate_bps: int, size_bytes: int = PACKET_BYTES) -> int:
    return -(-size_bytes * 8 * 10**12 // rate_bps)


def stages_of(sending: Work, receiving: Work) -> list[Stage]:
    """From a host over a switch to a host."""
    return [
        Stage(bytes_ps(sending.rate_bps) + sending.packet_ps, sending.delay_ps, sending.message_ps),
        Stage(X, D),
        Stage(X, D),
        Stage(bytes_ps(receiving.rate_bps) + receiving.packet_ps, receiving.delay_ps),
    ]


CASES = {
    "the wire is slowest": (Work("out", 10**10, 100 * NS), Work("in", 10**10, 50 * NS)),
    "sending is slowest": (Work("out", 10**10, 900 * NS, 0, 3 * US), Work("in", 10**10, 50 * NS, 0, US)),
    "receiving is slowest": (Work("out", NO_BYTES, 1), Work("in", 3 * 10**8)),
    "a message takes longest": (Work("out", NO_BYTES, 100 * NS, 20 * US), Work("in", NO_BYTES, 450 * NS)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("packets", [1, 2, 40])
def test_a_flow_passes_two_hosts_and_two_wires(engine: Make, name: str, packets: int) -> None:
    sending, receiving = CASES[name]
    sim = engine(hosts(star_of(2), sending, receiving))
    sent = message(packets * FRAME.elements)
    sim.open_flow(sent)

    (done,) = run(sim, 1)

    assert done == Completion(last_out_ps(stages_of(sending, receiving), packets, packets), "flow", -1, 0)
    check_received([sent])
    run_dry(sim)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("units", "unit_packets", "workers"), [(1, 1, 2), (30, 1, 3), (6, 4, 2)])
def test_an_exchange_over_a_switch(
    engine: Make, name: str, units: int, unit_packets: int, workers: int
) -> None:
    """All units are in the window: packets follow each other through host, wires and host."""
    sending, receiving = CASES[name]
    network = hosts(star_of(workers), sending, receiving)
    sim = engine(network)
    packets = units * unit_packets
    number = sim.add_job(job(network, packets, unit_packets=unit_packets))
    words = gradients(workers, packets * FRAME.elements)

    found = aggregate(sim, number, words)

    assert found.finished_ps == [last_out_ps(stages_of(sending, receiving), packets, unit_packets)] * workers
    check_sums(found.results, words)
    run_dry(sim)


def test_acknowledgements_take_time_and_go_first(engine: Make) -> None:
    """Host 1 sends 20 packets and acknowledges one: that is the first to leave it after what has begun.

    It takes a packet's time, and none of a message's.
    """
    work_ps = 5 * US
    network = with_host_links(star_of(2), {1: (Work("out", NO_BYTES, work_ps, US), Work("in", NO_BYTES))})
    sim = engine(network)
    sim.open_flow(message(4, window=1))
    sim.open_flow(flow(1, 0, np.arange(20 * FRAME.elements, dtype=np.int32)))
    run_dry(sim)
    came_ps = 2 * (X + D) + 1
    # 5 us each after the first, which takes 6 us and 1 ps; these begin before the acknowledgement comes.
    begun = 1 + -(-(came_ps - (work_ps + US + 1)) // (work_ps + 1))
    left_ps = work_ps + US + 1 + (begun - 1) * (work_ps + 1)

    send = network.first_link(1)
    assert [row[0] for row in sim.log if row[3] == send and row[6] == 1] == [left_ps + work_ps + 1]


def test_a_card_goes_on_while_its_host_is_paused(engine: Make) -> None:
    """What a host has handed on leaves it; what arrives is worked on, and taken in when the host is back."""
    sending, receiving = Work("out", NO_BYTES, US), Work("in", NO_BYTES, US)
    sim = engine(hosts(star_of(2), sending, receiving))
    sim.open_flow(message(4))
    sim.pause(0, 100 * US)
    sim.pause(1, 50 * US)

    assert run(sim, 1)[0].time_ps == 50 * US
    run_dry(sim)


def test_paths_begin_and_end_inside_hosts() -> None:
    network = hosts(star_of(3), Work("out", NO_BYTES), Work("in", NO_BYTES))
    names = [network.link_names[link] for link in path(network, 0, 1, 0)]
    assert names == ["out", "h0->s0", "s0->h1", "in"]
    assert [network.link_names[link] for link in path(network, 0, 3, 0)] == ["out", "h0->s0"]
    assert [network.link_names[link] for link in path(network, 3, 2, 0)] == ["s0->h2", "in"]


def test_work_that_no_network_has() -> None:
    network = hosts(star_of(2), Work("out", 10**9, 1), Work("in", NO_BYTES))
    with pytest.raises(ValueError, match="link out is inside a host: its rate does not change"):
        compiled(network).set_rate(network.first_link(0), 10**9)
    for work, error in (
        ({3: (Work("out", 1), Work("in", 1))}, "must be hosts"),
        ({0: (Work("out", 1), Work("in", 1, 0, 5))}, "where it is sent"),
    ):
        with pytest.raises(ValueError, match=error):
            with_host_links(star_of(3), work)
    with pytest.raises(ValueError, match="already"):
        hosts(network, Work("out", 1), Work("in", 1))
