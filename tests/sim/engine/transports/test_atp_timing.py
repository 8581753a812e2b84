"""ATP of both engines where every time can be worked out: pipeline, window, timer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from netfold.sim.engine.interface import Completion, Fate, Rule
from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph
from netfold.topologies.routing import Network, compile_network
from tests.reference.engine.fabric import ARRIVAL, STREAM_TIMER
from tests.sim.engine.small import (
    FRAME,
    LINK,
    D,
    Make,
    X,
    aggregate,
    atp_job,
    check_sums,
    flow,
    gradients,
    link_between,
    run,
    segment,
    star_of,
    start,
    windows,
    with_loopback,
)

ELEMENTS = FRAME.elements
MARGIN = 2**27


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_dense_aggregation_time_and_counts(engine: Make, workers: int) -> None:
    """With a window for everything: four links one after the other, and a packet of a unit on each."""
    units = 6
    network = star_of(workers + 1)
    sim = engine(network)
    number = sim.add_job(atp_job(network, units))
    own = [segment(each) for each in gradients(workers, units * ELEMENTS - 1, margin=MARGIN)]
    start(sim, number, [[each] for each in own])

    finished_ps = (units + 3) * X + 4 * D
    assert run(sim, workers) == [Completion(finished_ps, "stream", 0, worker) for worker in range(workers)]
    check_sums([each.result for each in own], [each.words for each in own])
    assert {name: count for name, count in sim.switch_counters(number).items() if count} == {
        "packets": workers * units,
        **dict.fromkeys(("results", "forwarded", "acknowledged", "server_packets"), units),
    }
    for rank in range(workers):
        counters = sim.worker_counters(number, rank)
        assert counters == {"timeouts": 0, "retransmitted_packets": 0, "stale_results": 0}


def test_log_of_one_unit(engine: Make) -> None:
    """Of the second worker's packet, that completes; then the acknowledgement, then its copies."""
    network = star_of(3)
    sim = engine(network)
    for _ in range(2):
        sim.add_job(atp_job(network, 1))
    aggregate(sim, 1, gradients(2, ELEMENTS, margin=MARGIN))

    links = partial(link_between, network)
    switch, server = 3, 2
    step = X + D
    assert sim.log == [
        (step, 0, ARRIVAL, links(0, switch), 65536, 0, 0, 0),
        (step, 2, ARRIVAL, links(1, switch), 65537, 0, 0, 0),
        (2 * step, 4, ARRIVAL, links(switch, server), 65537, 0, 0, 0),
        (3 * step, 5, ARRIVAL, links(server, switch), 65536, 0, 0, 0),
        (4 * step, 6, ARRIVAL, links(switch, 0), 65536, 0, 0, 0),
        (4 * step, 7, ARRIVAL, links(switch, 1), 65537, 0, 0, 0),
    ]


def test_a_small_window_limits_the_rate_to_one_window_a_round_trip(engine: Make) -> None:
    rounds, window = 7, 3
    network = star_of(3)
    sim = engine(network)
    outcome = aggregate(sim, sim.add_job(atp_job(network, window)), gradients(2, rounds * window * ELEMENTS))

    assert outcome.finished_ps == [rounds * 4 * (X + D) + (window - 1) * X] * 2


def test_a_loopback_link_is_one_more_hop_for_what_completes(engine: Make) -> None:
    network = with_loopback(star_of(3), 3, LinkSpec(10**9, 5000, 1000))
    sim = engine(network)
    outcome = aggregate(sim, sim.add_job(atp_job(network, 8, loopback_link=6)), gradients(2, 8 * ELEMENTS))

    assert outcome.finished_ps == [12 * X + 4 * D + 5000] * 2
    assert sim.link_counters()[6]["delivered_packets"] == 8


@pytest.mark.parametrize(("units", "window"), [(2, 2), (3, 32), (34, 32), (35, 40), (200, 40)])
def test_a_window_grows_by_1500_bytes_once_a_window(engine: Make, units: int, window: int) -> None:
    """From 2 packets of 50 bytes by 30, and not beyond 40."""
    network = star_of(3)
    sim = engine(network)
    number = sim.add_job(atp_job(network, 2, window_max=40, is_adaptive=True))
    aggregate(sim, number, gradients(2, units * ELEMENTS))

    assert windows(sim, number) == [window] * 2


def beside_traffic() -> Network:
    """Worker 0 and the server on s0; worker 1 on s1, whose link to s0 is also that of host 3 to host 4."""
    graph = new_graph("beside")
    for host in range(5):
        add_host(graph, f"h{host}")
    for switch in ("s0", "s1"):
        add_switch(graph, switch, tier=1, profile="plain")
    for host, switch in enumerate(["s0", "s1", "s0", "s1", "s0"]):
        add_link(graph, f"h{host}", switch, LINK)
    add_link(graph, "s1", "s0", LINK)
    return compile_network(graph)


@pytest.mark.parametrize(
    ("units", "window"), [(16, 16), (17, 8), (31, 8), (32, 4), (38, 4), (39, 2), (41, 2), (42, 1), (60, 1)]
)
@pytest.mark.parametrize("is_busy", [False, True])
def test_marks_halve_the_window_once_a_window(engine: Make, units: int, window: int, is_busy: bool) -> None:
    """Units 15, 30, 37, 40, 41 … end windows. Either every port marks what it sends, or only that of s1,
    where other traffic always waits: worker 1's marks reach all, by way of entry and server."""
    network = beside_traffic() if is_busy else star_of(3)
    sim = engine(network)
    changes = {"hosts": (0, 1), "routes": (0, 0), "host": 2, "switch": int(network.nodes.index("s0"))}
    made = atp_job(network, 16, is_adaptive=True, ecn_bytes=int(is_busy), **changes)
    number = sim.add_job(replace(made, first_timeout_ps=10**10, timeout_ps=10**10))
    if is_busy:
        sim.open_flow(flow(3, 4, np.zeros(100 * units * ELEMENTS, np.int32)))
        sim.run(X + D + 1)  # the first packet is being sent
    start(sim, number, [[segment(each)] for each in gradients(2, units * ELEMENTS, margin=MARGIN)])
    assert [one.kind for one in run(sim, 2)] == ["stream"] * 2

    assert windows(sim, number) == [window] * 2


def test_the_timer_fires_while_nothing_is_heard(engine: Make) -> None:
    """Only the oldest unit is sent again, every timeout and up to a quarter more."""
    network = star_of(2)
    sim = engine(network, loss=1.0)
    number = sim.add_job(atp_job(network, 4, timeout_ps=1_000_000, first_timeout_ps=5_000_000))
    start(sim, number, [[segment(each)] for each in gradients(1, 16)])
    assert sim.run(100_000_000) == []

    fired = [row[0] for row in sim.log if row[2] == STREAM_TIMER]
    assert fired[0] == 5_000_000
    assert all(1_000_000 <= after - before < 1_250_000 for before, after in pairwise(fired))
    counters = sim.worker_counters(number, 0)
    assert counters == {"timeouts": len(fired), "retransmitted_packets": len(fired), "stale_results": 0}


def test_the_timer_waits_from_the_last_result_on(engine: Make) -> None:
    """Armed for the first deadline, it finds it moved, and is armed for what it is now. Of two units only the
    first comes past the switch."""
    network = star_of(3)
    silenced = Rule(Fate.LOSS, 1.0, (link_between(network, 3, 2),), from_ps=X + D + 1)
    sim = engine(network, rules=[silenced])
    number = sim.add_job(atp_job(network, 2, timeout_ps=300_000_000, first_timeout_ps=100_000_000))
    start(sim, number, [[segment(each)] for each in gradients(2, 2 * ELEMENTS, margin=MARGIN)])
    assert sim.run(4 * (X + D) + 300_000_000) == []

    fired = [row[0] for row in sim.log if row[2] == STREAM_TIMER and row[4] == 0]
    assert fired == [100_000_000, 4 * (X + D) + 300_000_000]
    assert [sim.worker_counters(number, rank)["timeouts"] for rank in range(2)] == [1, 1]
