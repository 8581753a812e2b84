"""The compiled engine under stress: results are exact under loss, drops and reuse of slots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.codec import Merge
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Flow, Frame, Scaled, Segment
from netfold.sim.engine.setup import allocate as tables
from netfold.sim.plan.frames import frame_of
from netfold.topologies.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network
from netfold.topologies.star import star
from tests.reference.codecs.quantise import scale_of
from tests.sim.engine.compiled import (
    LINK,
    Words,
    aggregate,
    engine,
    flow,
    gradients,
    job,
    run,
    run_dry,
    with_loopback,
    wrapping_sum,
)

SHORT_PS = 50_000_000
TIMEOUTS = {"timeout_ps": SHORT_PS, "first_timeout_ps": SHORT_PS, "timeout_max_ps": 4 * SHORT_PS}
UDP = replace(frame_of("udp-256"), elements=8, overhead_bytes=frame_of("udp-256").overhead_bytes + 4 * 56)
ROCE = replace(
    frame_of("roce-1024"), elements=8, overhead_bytes=frame_of("roce-1024").overhead_bytes + 4 * 248
)


def check_results(results: list[Words], words: list[Words]) -> None:
    """Every worker has the sum."""
    expected = wrapping_sum(words)
    assert all(np.array_equal(result, expected) for result in results)


def check_received(flows: list[Flow]) -> None:
    """Every target has what was sent to it."""
    for each in flows:
        assert each.words is not None
        assert each.received is not None
        assert np.array_equal(each.words, each.received)


def links_total(sim: Engine, counter: str) -> int:
    return sum(counters[counter] for counters in sim.link_counters())


def retransmitted(sim: Engine, number: int, workers: int) -> int:
    return sum(sim.worker_counters(number, rank)["retransmitted_packets"] for rank in range(workers))


@pytest.mark.parametrize("loss", [0.0, 0.001, 0.01, 0.05])
@pytest.mark.parametrize(("frame", "unit_packets"), [(UDP, 1), (ROCE, 4)], ids=["udp", "roce"])
def test_sums_are_exact_under_loss(frame: Frame, unit_packets: int, loss: float) -> None:
    """4 workers, 16 units of window, 400 packets, two exchanges in a row, 30 fates."""
    network = compile_network(star(4, LINK))
    for seed in range(30):
        sim = engine(network, loss, seed)
        number = sim.add_job(job(network, 16 * unit_packets, frame, unit_packets, **TIMEOUTS))
        for size in (8 * 400, 8 * 37 + 3):
            words = gradients(4, size, seed)
            check_results(aggregate(sim, number, words).results, words)
        run_dry(sim)
        assert (links_total(sim, "lost_packets") > 0) == (retransmitted(sim, number, 4) > 0)
        if loss == 0:
            assert sim.switch_counters(number)["packets"] == 4 * (400 + 38 + 2 * (unit_packets > 1))


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize("unit_packets", [1, 2])
@pytest.mark.parametrize("blocks", [1, 3, 8, 9, 30])
def test_scaled_sums_are_exact_under_loss(blocks: int, unit_packets: int, loss: float) -> None:
    """Windows of 8 units; blocks + min(W, blocks) units are sent, two exchanges in a row, ten fates."""
    network = compile_network(star(3, LINK))
    unit_words = 8 * unit_packets
    for seed in range(10):
        sim = engine(network, loss, seed)
        number = sim.add_job(job(network, 8 * unit_packets, UDP, unit_packets, **TIMEOUTS))
        for _ in range(2):
            random = np.random.default_rng(seed)
            exponents = [random.integers(-20, 20, blocks).astype(np.int8) for _ in range(3)]
            words = [
                np.ldexp(random.uniform(-1, 1, blocks * unit_words), own.repeat(unit_words)).astype(
                    np.float32
                )[:-3]
                for own in exponents
            ]
            scaled = [Scaled(own, np.zeros(blocks, np.int8)) for own in exponents]
            outcome = aggregate(sim, number, words, scaled)
            largest = np.max(exponents, axis=0)
            assert all(np.array_equal(each.agreed, largest) for each in scaled)
            check_results(outcome.results, [quantised(own, largest, unit_words) for own in words])
        run_dry(sim)
        if loss == 0:
            units = blocks + min(8, blocks)
            assert sim.switch_counters(number)["packets"] == 2 * 3 * units * unit_packets


def quantised(words: NDArray[np.float32], exponents: NDArray[np.int8], unit_words: int) -> Words:
    """What three workers' words become with these agreed exponents, by array arithmetic."""
    scales = np.array([scale_of(int(exponent), 3) for exponent in exponents])
    scaled: NDArray[np.float32] = words * scales.repeat(unit_words)[: words.size]
    return np.rint(scaled).astype(np.int32)


@pytest.mark.parametrize(
    ("frame", "unit_packets", "buffer_packets"), [(UDP, 1, 4), (UDP, 1, 10), (ROCE, 4, 16), (ROCE, 4, 40)]
)
def test_sums_are_exact_when_buffers_overflow(frame: Frame, unit_packets: int, buffer_packets: int) -> None:
    """Four hosts a leaf burst into an uplink no faster than theirs, aggregation behind it.

    The buffer holds one unit of each or more: with less, equal timers let them collide alike for ever.
    """
    wire_bytes = frame.wire_bytes(frame.elements, first=unit_packets > 1, last=unit_packets > 1)
    uplink = replace(LINK, buffer_bytes=buffer_packets * wire_bytes)
    network = compile_network(leaf_spine(2, 1, 4, LINK, uplink))
    spine = network.nodes.index("spine0")
    sim = engine(network)
    number = sim.add_job(job(network, 8 * unit_packets, frame, unit_packets, switch=spine, **TIMEOUTS))
    words = gradients(8, 8 * 100)
    check_results(aggregate(sim, number, words).results, words)

    assert links_total(sim, "dropped_packets") > 0
    assert retransmitted(sim, number, 8) > 0
    run_dry(sim)
    up = sim.link_counters()[network.link_names.index("leaf0->spine0")]
    assert buffer_packets * wire_bytes >= up["backlog_bytes_max"] > 0


def test_flows_are_exact_when_a_buffer_overflows() -> None:
    """Seven hosts send to one whose port holds five packets."""
    network = compile_network(star(8, replace(LINK, buffer_bytes=5 * 400)))
    sim = engine(network)
    frame = Frame("test", elements=8, overhead_bytes=368)
    flows = [
        flow(host, 7, words, frame, timeout_ps=SHORT_PS, window=16, ack_every=4)
        for host, words in enumerate(gradients(7, 8 * 60 - 5))
    ]
    for each in flows:
        sim.open_flow(each)
    run(sim, 7)

    assert links_total(sim, "dropped_packets") > 0
    check_received(flows)
    run_dry(sim)


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_jobs_that_share_hosts_and_a_switch_keep_apart(loss: float) -> None:
    """Two jobs with adjacent slots, one over a loopback link; each starts its next round when one is done."""
    plain = compile_network(star(4, LINK))
    sim = engine(with_loopback(plain, 4, replace(LINK, delay_ps=600_000)), loss, seed=3)
    first = job(plain, 16, UDP, **TIMEOUTS)
    second = job(
        plain, 12, ROCE, 4, slot_base=16, hosts=(3, 1, 0), routes=(0,) * 3, loopback_link=8, **TIMEOUTS
    )
    workers = {sim.add_job(each): len(each.hosts) for each in (first, second)}
    exchanges: dict[int, list[Segment]] = {}

    def start(number: int, round_: int) -> None:
        words = gradients(workers[number], 8 * 70 + round_, seed=round_)
        exchanges[number] = [Segment(own, np.zeros_like(own), Merge.ADD) for own in words]
        for rank, segment in enumerate(exchanges[number]):
            sim.open_stream(number, rank, [segment])

    done = dict.fromkeys(workers, 0)
    for number in workers:
        start(number, 0)
    while any(done[number] < 4 * workers[number] for number in workers):
        (completion,) = run(sim, 1)
        number = completion.job
        done[number] += 1
        round_, rest = divmod(done[number], workers[number])
        if rest == 0:
            segments = exchanges[number]
            check_results([segment.result for segment in segments], [segment.words for segment in segments])
            if round_ < 4:
                start(number, round_)
    run_dry(sim)
    assert (links_total(sim, "lost_packets") > 0) == (loss > 0)


def busy_run(sim: Engine, *, is_ample: bool) -> tuple[list[int], list[int]]:
    """An exchange of 16 workers and 13 flows; returns sizes of tables at the start and at the end.

    So much is sent at once that fewer packets are left free than an event may need: the run has to grow.
    """
    words = gradients(16, 8 * 110)
    spine = sim.network.nodes.index("spine0")
    number = sim.add_job(job(sim.network, 40, UDP, switch=spine, routes=tuple(range(16)), **TIMEOUTS))
    if is_ample:
        sim.world = tables.add_packets(sim.world, 20_000)
        sim.world = tables.add_payloads(sim.world, 20_000)
        sim.world = tables.add_flows(sim.world, 100, 100)
        heap, log = (tables.enlarged(table, 100_000) for table in (sim.world.heap, sim.world.log))
        sim.world = sim.world._replace(heap=heap, log=log)
    changes = {"timeout_ps": SHORT_PS, "window": 96, "ack_every": 2}
    flows = [
        flow(source, (3 * source + 1) % 16, words[source], UDP, route=source, **changes)
        for source in range(13)
    ]
    sim.start_log()
    segments = [Segment(own, np.zeros_like(own), Merge.ADD) for own in words]
    for rank, segment in enumerate(segments):
        sim.open_stream(number, rank, [segment])
    for each in flows:
        sim.open_flow(each)
    start = table_sizes(sim)
    run(sim, 16 + len(flows))
    run_dry(sim)
    check_results([segment.result for segment in segments], words)
    check_received(flows)
    return start, table_sizes(sim)


def table_sizes(sim: Engine) -> list[int]:
    return [len(table) for table in (sim.world.packets, sim.world.payloads, sim.world.log)]


def test_tables_that_grow_change_nothing() -> None:
    """The same traffic with tables that grow while packets are in flight and with ample ones."""
    network = compile_network(leaf_spine(4, 2, 4, LINK, LINK))
    small = engine(network, loss=0.01)
    ample = engine(network, loss=0.01)
    start, end = busy_run(ample, is_ample=True)
    assert start == end
    start, end = busy_run(small, is_ample=False)
    assert all(before < after for before, after in zip(start, end, strict=True))
    assert small.log == ample.log
    assert small.link_counters() == ample.link_counters()


def test_the_seed_decides_what_is_lost_and_nothing_else_does() -> None:
    network = compile_network(star(3, LINK))

    def log(seed: int) -> list[tuple[int, ...]]:
        sim = engine(network, 0.1, seed)
        sim.start_log()
        aggregate(sim, sim.add_job(job(network, 4, UDP, **TIMEOUTS)), gradients(3, 400))
        run_dry(sim)
        return sim.log

    assert log(5) == log(5)
    assert log(5) != log(6)


def test_a_link_loses_its_share() -> None:
    """3 % of 40,000 packets, within four standard deviations."""
    sim = engine(compile_network(star(2, LINK)), loss=0.03)
    words = np.zeros(8 * 40_000, np.int32)
    sim.open_flow(flow(0, 1, words, UDP, window=64, ack_every=4, timeout_ps=SHORT_PS))
    run(sim, 1)
    link = sim.link_counters()[0]

    deviation = np.sqrt(0.03 * 0.97 * link["sent_packets"])
    assert abs(link["lost_packets"] - 0.03 * link["sent_packets"]) < 4 * deviation


def test_timeouts_double_every_hundred_up_to_a_bound() -> None:
    """A worker that hears nothing: the first timeout, then 1000, 2000 and at most 3500 ps, and a jitter."""
    network = compile_network(star(1, LINK))
    sim = engine(network, loss=1.0)
    sim.start_log()
    number = sim.add_job(job(network, 1, timeout_ps=1000, first_timeout_ps=100_000, timeout_max_ps=3500))
    words = gradients(1, 4)[0]
    sim.open_stream(number, 0, [Segment(words, words.copy(), Merge.ADD)])
    assert sim.run(900_000) == []

    fired_ps = [row[0] for row in sim.log if row[2] == 1]
    gaps_ps = np.diff(fired_ps)
    timeouts_ps = np.repeat([1000, 2000, 3500], [100, 100, 300])[
        : gaps_ps.size
    ]  # the hundredth waits as before
    assert fired_ps[0] == 100_000
    assert np.all((timeouts_ps <= gaps_ps) & (gaps_ps < timeouts_ps + timeouts_ps // 4))
    assert np.unique(gaps_ps[:100]).size > 50
    assert sim.worker_counters(number, 0) == {
        "timeouts": len(fired_ps),
        "retransmitted_packets": len(fired_ps),
        "stale_results": 0,
    }


@pytest.mark.parametrize(("unit_packets", "buffer_packets"), [(1, 1), (1, 4), (4, 10), (4, 16)])
def test_bursts_that_do_not_fit_a_buffer_are_not_repeated_for_ever(
    unit_packets: int, buffer_packets: int
) -> None:
    """Equal timers, less buffer than one unit of each host: without jitter copies would always meet."""
    uplink = replace(LINK, buffer_bytes=buffer_packets * 1200)
    network = compile_network(leaf_spine(2, 1, 4, LINK, uplink))
    sim = engine(network)
    frame = Frame("test", 8, 1168)
    timeouts = {"timeout_ps": 5 * 10**7, "first_timeout_ps": 5 * 10**7, "timeout_max_ps": 2 * 10**8}
    spine = network.nodes.index("spine0")
    number = sim.add_job(job(network, 8 * unit_packets, frame, unit_packets, switch=spine, **timeouts))
    words = gradients(8, 800)
    check_results(aggregate(sim, number, words).results, words)
