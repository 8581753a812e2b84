"""The plain-Python engine's aggregation streams against closed forms and sums."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Merge
from netfold.sim.engine.interface import Completion, Scaled, Segment
from netfold.topologies.routing import compile_network
from netfold.topologies.star import star
from tests.examples import examples
from tests.reference.codecs.quantise import quantise
from tests.reference.engine.fabric import ARRIVAL, STREAM_TIMER
from tests.sim.engine.reference.small import (
    LINK,
    D,
    X,
    aggregate,
    check_conservation,
    engine,
    gradients,
    job,
    segment,
)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("unit_packets", [1, 4])
def test_dense_aggregation_time_and_counts(workers: int, unit_packets: int) -> None:
    """With a window for everything: one packet time a packet, plus one for the way down, and the delays."""
    units = 6
    packets = units * unit_packets
    sim = engine(compile_network(star(workers, LINK)))
    number = sim.add_job(job(workers, packets, unit_packets))
    words = gradients(workers, packets * 4)
    own = [[segment(each)] for each in words]
    done = aggregate(sim, number, own)

    finished = (packets + 1) * X + 2 * D
    assert done == [Completion(finished, "stream", number, rank) for rank in range(workers)]
    assert all(np.array_equal(each[0].result, np.add.reduce(words, dtype=np.int32)) for each in own)
    counters = sim.switch_counters(number)
    assert counters["packets"] + counters["results"] == (workers + 1) * packets
    assert counters["answers"] + counters["duplicates_dropped"] + counters["discarded"] == 0
    assert sim.next_event_ps() is None


def test_log_of_one_stream() -> None:
    """Per worker: packet, then timer, then the result; owners are job · 65536 + worker."""
    network = compile_network(star(2, LINK))
    sim = engine(network)
    sim.add_job(job(1, 1))
    number = sim.add_job(job(2, 1))
    aggregate(sim, number, [[segment(each)] for each in gradients(2, 4)])

    up = [int(network.next_link[host, 2, 0]) for host in (0, 1)]
    down = [int(network.next_link[2, host, 0]) for host in (0, 1)]
    assert sim.log == [
        (X + D, 0, ARRIVAL, up[0], 65536, 0, 0, 0),
        (X + D, 2, ARRIVAL, up[1], 65537, 0, 0, 0),
        (2 * (X + D), 4, ARRIVAL, down[0], 65536, 0, 0, 0),
        (2 * (X + D), 5, ARRIVAL, down[1], 65537, 0, 0, 0),
    ]


def test_small_window_limits_the_rate_to_one_window_a_round_trip() -> None:
    sim = engine(compile_network(star(2, LINK)))
    rounds, window = 7, 3
    number = sim.add_job(job(2, window))
    done = aggregate(sim, number, [[segment(each)] for each in gradients(2, rounds * window * 4)])

    assert done[-1].time_ps == rounds * (2 * X + 2 * D) + (window - 1) * X


def test_loopback_link_adds_one_more_store_and_forward() -> None:
    network = compile_network(star(2, LINK))
    switch = len(network.nodes) - 1
    network = replace(
        network,
        link_source=np.append(network.link_source, switch),
        link_target=np.append(network.link_target, switch),
        rate_bps=np.append(network.rate_bps, 10**9),
        delay_ps=np.append(network.delay_ps, 5000),
        buffer_bytes=np.append(network.buffer_bytes, 1000),
    )
    sim = engine(network)
    number = sim.add_job(job(2, 8, loopback_link=4))
    done = aggregate(sim, number, [[segment(each)] for each in gradients(2, 32)])

    assert done[-1].time_ps == 10 * X + 2 * D + 5000
    assert sim.link_counters()[4]["delivered_packets"] == 8


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05, 0.3])
@pytest.mark.parametrize(("slots", "unit_packets"), [(5, 1), (8, 4), (2, 2)])
def test_results_are_exact_under_loss(loss: float, slots: int, unit_packets: int) -> None:
    """Two streams in a row, three merges side by side, lengths that fill neither packets nor units."""
    sim = engine(compile_network(star(3, LINK)), loss)
    timeouts = {"timeout_ps": 40_000_000, "first_timeout_ps": 50_000_000}
    number = sim.add_job(job(3, slots, unit_packets, **timeouts))
    for seed in range(2):
        words = gradients(3, 101, seed)
        own = [[segment(w[:50]), segment(w[50:53], Merge.OR), segment(w[53:], Merge.MAX)] for w in words]
        aggregate(sim, number, own)
        stacked = np.stack(words)
        for each in own:
            assert np.array_equal(each[0].result, np.add.reduce(stacked[:, :50], dtype=np.int32))
            assert np.array_equal(each[1].result, np.bitwise_or.reduce(stacked[:, 50:53]))
            assert np.array_equal(each[2].result, np.maximum.reduce(stacked[:, 53:]))
    retransmitted = sum(sim.worker_counters(number, rank)["retransmitted_packets"] for rank in range(3))
    lost = sum(counters["lost_packets"] for counters in sim.link_counters())
    assert (retransmitted > 0) == (lost > 0)
    check_conservation(sim)


@pytest.mark.parametrize("blocks", [1, 3, 4, 6, 8, 11])
@pytest.mark.parametrize("unit_packets", [1, 2])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_scaled_streams_agree_on_exponents_one_window_ahead(
    blocks: int, unit_packets: int, loss: float
) -> None:
    """Also where there are fewer blocks than the eight window slots: words wait for their exponent.

    With five to seven blocks, a unit can have its exponent before its window slot is free.
    """
    workers, window, block = 2, 8, 4 * unit_packets
    sim = engine(compile_network(star(workers, LINK)), loss)
    timeouts = {"timeout_ps": 40_000_000, "first_timeout_ps": 50_000_000}
    number = sim.add_job(job(workers, window * unit_packets, unit_packets, **timeouts))
    random = np.random.default_rng(blocks)
    for _ in range(2):
        words = [random.standard_normal(blocks * block - 1).astype(np.float32) for _ in range(workers)]
        exponents = [random.integers(3, 9, blocks).astype(np.int8) for _ in range(workers)]
        own = [[Segment(w, np.zeros(w.size, np.int32), Merge.ADD)] for w in words]
        scaled = [Scaled(each, np.zeros(blocks, np.int8)) for each in exponents]
        aggregate(sim, number, own, scaled)

        agreed = np.maximum.reduce(exponents)
        parts = [
            [quantise(w[b * block : (b + 1) * block], int(agreed[b]), workers) for b in range(blocks)]
            for w in words
        ]
        total = sum(np.concatenate(each).astype(np.int64) for each in parts)
        assert all(np.array_equal(each.agreed, agreed) for each in scaled)
        assert all(np.array_equal(each[0].result, total) for each in own)
    if loss == 0:
        units = 2 * (blocks + min(window, blocks))
        assert sim.switch_counters(number)["packets"] == units * unit_packets * workers


def test_stream_timer_fires_for_overdue_units_and_doubles_every_hundred_up_to_a_bound() -> None:
    sim = engine(compile_network(star(1, LINK)), loss=1.0)
    number = sim.add_job(job(1, 1, timeout_ps=1000, first_timeout_ps=100_000, timeout_max_ps=3500))
    sim.open_stream(number, 0, [segment(gradients(1, 4)[0])])
    assert sim.run(900_000) == []

    fired = [row[0] for row in sim.log if row[2] == STREAM_TIMER]
    gaps = [after - before for before, after in pairwise(fired)]
    timeouts = ([1000] * 100 + [2000] * 100 + [3500] * 300)[: len(gaps)]  # the hundredth waits as before
    assert fired[0] == 100_000
    assert all(time <= gap < time + time // 4 for time, gap in zip(timeouts, gaps, strict=True))


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 3), st.floats(0, 0.4), st.integers(0, 2**32))
@examples(20)
def test_sums_do_not_depend_on_loss_or_window(
    workers: int, window: int, unit_packets: int, loss: float, seed: int
) -> None:
    sim = engine(compile_network(star(workers, LINK)), loss, seed)
    timeouts = {"timeout_ps": 30_000_000, "first_timeout_ps": 30_000_000}
    number = sim.add_job(job(workers, window * unit_packets, unit_packets, **timeouts))
    words = gradients(workers, 61, seed)
    own = [[segment(each)] for each in words]
    aggregate(sim, number, own)

    assert all(np.array_equal(each[0].result, np.add.reduce(words, dtype=np.int32)) for each in own)


def test_same_seed_same_log() -> None:
    def log(seed: int) -> list[tuple[int, ...]]:
        sim = engine(compile_network(star(2, LINK)), 0.1, seed)
        number = sim.add_job(job(2, 4, timeout_ps=40_000_000))
        aggregate(sim, number, [[segment(each)] for each in gradients(2, 80)])
        return list(sim.log)

    assert log(1) == log(1)
    assert log(1) != log(2)


def test_open_stream_refuses_what_would_never_end() -> None:
    sim = engine(compile_network(star(1, LINK)))
    number = sim.add_job(job(1, 4))
    nothing = segment(np.zeros(0, np.int32))

    with pytest.raises(ValueError, match=r"^worker 0 of job 0: a stream needs at least one word$"):
        sim.open_stream(number, 0, [nothing, nothing])
    sim.open_stream(number, 0, [nothing, segment(np.ones(1, np.int32))])
    with pytest.raises(ValueError, match=r"^worker 0 of job 0 has stream 0 open already$"):
        sim.open_stream(number, 0, [segment(np.ones(1, np.int32))])
