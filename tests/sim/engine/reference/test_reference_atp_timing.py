"""The plain-Python ATP where every time can be worked out: pipeline, window, timer."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.reference.engine.fabric import ARRIVAL, STREAM_TIMER, Fabric
from tests.reference.engine.link import Packet
from tests.sim.engine.reference.atp import (
    ELEMENTS,
    Cluster,
    aggregate,
    atp_job,
    gradients,
    network,
    segment,
    with_server,
)
from tests.sim.engine.reference.small import D, X


class Silencing(Fabric):
    """Packets of unit 1 go nowhere."""

    def put(self, packet: Packet, link_index: int) -> None:
        if packet.label.unit != 1:
            super().put(packet, link_index)


class Marking(Fabric):
    """One node marks whatever it sends: worker 1 of two, if no other is named."""

    node = 1

    def put(self, packet: Packet, link_index: int) -> None:
        if self.network.link_source[link_index] == self.node:
            packet.is_marked = True
        super().put(packet, link_index)


class SwitchMarking(Marking):
    """The switch between two workers and their server marks."""

    node = 3


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_dense_aggregation_time_and_counts(workers: int) -> None:
    """With a window for everything: four links one after the other, and a packet of a unit on each."""
    units = 6
    cluster = Cluster([atp_job(workers, units)])
    aggregate(cluster, gradients(workers, units * ELEMENTS - 1))

    finished_ps = (units + 3) * X + 4 * D
    assert cluster.done == [(finished_ps, 0, worker) for worker in range(workers)]
    assert cluster.jobs[0].switch_counters() == {
        "packets": workers * units,
        "results": units,
        "evictions": 0,
        "answers": 0,
        "duplicates_dropped": 0,
        "collisions": 0,
        "overflowed_words": 0,
        "forwarded": units,
        "acknowledged": units,
        "server_packets": units,
        "requests": 0,
    }
    for worker in cluster.jobs[0].workers:
        assert worker.counters == {"timeouts": 0, "retransmitted_packets": 0, "stale_results": 0}


def test_log_of_one_unit() -> None:
    """Of the second worker's packet, that completes; then the acknowledgement, then its copies."""
    cluster = Cluster([atp_job(2, 1)] * 2)
    own = [[segment(each)] for each in gradients(2, ELEMENTS)]
    cluster.open(own, number=1)
    cluster.run()

    links = cluster.fabric.network.next_link
    switch, server = 3, 2
    step = X + D
    assert cluster.fabric.log == [
        (step, 0, ARRIVAL, links[0, switch, 0], 65536, 0, 0, 0),
        (step, 2, ARRIVAL, links[1, switch, 0], 65537, 0, 0, 0),
        (2 * step, 4, ARRIVAL, links[switch, server, 0], 65537, 0, 0, 0),
        (3 * step, 5, ARRIVAL, links[server, switch, 0], 65536, 0, 0, 0),
        (4 * step, 6, ARRIVAL, links[switch, 0, 0], 65536, 0, 0, 0),
        (4 * step, 7, ARRIVAL, links[switch, 1, 0], 65537, 0, 0, 0),
    ]


def test_small_window_limits_the_rate_to_one_window_a_round_trip() -> None:
    rounds, window = 7, 3
    cluster = Cluster([atp_job(2, window)])
    aggregate(cluster, gradients(2, rounds * window * ELEMENTS))

    assert cluster.done[-1][0] == rounds * 4 * (X + D) + (window - 1) * X


def test_loopback_link_adds_one_more_store_and_forward_to_what_completes() -> None:
    wires = network(2)
    switch = len(wires.nodes) - 1
    wires = replace(
        wires,
        link_source=np.append(wires.link_source, switch),
        link_target=np.append(wires.link_target, switch),
        rate_bps=np.append(wires.rate_bps, 10**9),
        delay_ps=np.append(wires.delay_ps, 5000),
        buffer_bytes=np.append(wires.buffer_bytes, 1000),
    )
    cluster = Cluster([atp_job(2, 8, loopback_link=6)], wires=wires)
    aggregate(cluster, gradients(2, 8 * ELEMENTS))

    assert cluster.done[-1][0] == 12 * X + 4 * D + 5000
    assert cluster.fabric.links[6].counters.delivered_packets == 8


@pytest.mark.parametrize(("units", "window"), [(2, 2), (3, 32), (34, 32), (35, 40), (200, 40)])
def test_window_grows_by_1500_bytes_once_a_window(units: int, window: int) -> None:
    """From 2 packets of 50 bytes by 30, and not beyond 40."""
    job = with_server(atp_job(2, 2), window_max=40, is_adaptive=True)
    cluster = Cluster([job])
    aggregate(cluster, gradients(2, units * ELEMENTS))

    assert [worker.window for worker in cluster.jobs[0].workers] == [window] * 2


@pytest.mark.parametrize(
    ("units", "window"), [(16, 16), (17, 8), (31, 8), (32, 4), (38, 4), (39, 2), (41, 2), (42, 1), (60, 1)]
)
@pytest.mark.parametrize("make", [Marking, SwitchMarking])
def test_marks_halve_the_window_once_a_window(units: int, window: int, make: type[Fabric]) -> None:
    """Units 15, 30, 37, 40, 41 … end windows. One worker's marks reach all, by way of entry and server."""
    job = with_server(atp_job(2, 16), is_adaptive=True)
    cluster = Cluster([job], make=make)
    aggregate(cluster, gradients(2, units * ELEMENTS))

    assert [worker.window for worker in cluster.jobs[0].workers] == [window] * 2


def test_timer_fires_while_nothing_is_heard() -> None:
    """Only the oldest unit is sent again, every timeout and up to a quarter more."""
    cluster = Cluster([atp_job(1, 4, timeout_ps=1_000_000, first_timeout_ps=5_000_000)], loss=1.0)
    cluster.open([[segment(each)] for each in gradients(1, 16)])
    cluster.run(until_ps=100_000_000)

    fired = [row[0] for row in cluster.fabric.log if row[2] == STREAM_TIMER]
    assert fired[0] == 5_000_000
    assert all(1_000_000 <= after - before < 1_250_000 for before, after in pairwise(fired))
    counters = cluster.jobs[0].workers[0].counters
    assert counters == {"timeouts": len(fired), "retransmitted_packets": len(fired), "stale_results": 0}


def test_timer_waits_from_the_last_result_on() -> None:
    """Armed for the first deadline, it finds it moved, and is armed for what it is now."""
    job = atp_job(2, 2, timeout_ps=300_000_000, first_timeout_ps=100_000_000)
    cluster = Cluster([job], make=Silencing)
    cluster.open([[segment(each)] for each in gradients(2, 2 * ELEMENTS)])
    cluster.run(until_ps=4 * (X + D) + 300_000_000)

    fired = [row[0] for row in cluster.fabric.log if row[2] == STREAM_TIMER and row[4] == 0]
    assert fired == [100_000_000, 4 * (X + D) + 300_000_000]
    assert [worker.counters["timeouts"] for worker in cluster.jobs[0].workers] == [1, 1]


def test_same_seed_same_log() -> None:
    def log(seed: int) -> list[tuple[int, ...]]:
        cluster = Cluster([atp_job(3, 4)], loss=0.1, seed=seed)
        aggregate(cluster, gradients(3, 80))
        return list(cluster.fabric.log)

    assert log(1) == log(1)
    assert log(1) != log(2)


def test_open_refuses_what_would_never_end() -> None:
    cluster = Cluster([atp_job(1, 4)])
    nothing = segment(np.zeros(0, np.int32))
    with pytest.raises(ValueError, match=r"^worker 0 of job 0: a stream needs at least one word$"):
        cluster.jobs[0].open(0, [nothing, nothing])
    cluster.jobs[0].open(0, [nothing, segment(np.ones(1, np.int32))])
    with pytest.raises(ValueError, match=r"^worker 0 of job 0 has stream 0 open already$"):
        cluster.jobs[0].open(0, [segment(np.ones(1, np.int32))])
