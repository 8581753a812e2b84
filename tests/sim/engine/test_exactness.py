"""Streams of both engines under stress: results are exact under loss, drops and reuse of slots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Frame, Job, Scaled
from netfold.sim.engine.setup import allocate as tables
from netfold.sim.plan.frames import frame_of
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network
from tests.reference.codecs.quantise import scale_of
from tests.reference.engine.fabric import STREAM_TIMER
from tests.sim.engine.small import (
    FAST,
    Make,
    Words,
    aggregate,
    atp_job,
    check_received,
    check_sums,
    flow,
    gradients,
    job,
    links_total,
    logged,
    retransmitted,
    run,
    run_dry,
    seeds,
    segment,
    star_of,
    start,
    wrapping_sum,
)

SHORT_PS = 50_000_000
TIMEOUTS = {"timeout_ps": SHORT_PS, "first_timeout_ps": SHORT_PS, "timeout_max_ps": 4 * SHORT_PS}
UDP = replace(frame_of("udp-256"), elements=8, overhead_bytes=frame_of("udp-256").overhead_bytes + 4 * 56)
ROCE = replace(
    frame_of("roce-1024"), elements=8, overhead_bytes=frame_of("roce-1024").overhead_bytes + 4 * 248
)


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize(("blocks", "unit_packets"), [(1, 1), (3, 2), (6, 1), (8, 2), (11, 1)])
def test_scaled_sums_are_exact_under_loss(engine: Make, blocks: int, unit_packets: int, loss: float) -> None:
    """Windows of 8 units; blocks + min(W, blocks) units are sent, two exchanges in a row, five fates.

    With fewer blocks than window slots, words wait for their exponent; with five to seven, a unit can have
    its exponent before its window slot is free.
    """
    network = star_of(3, FAST)
    unit_words = 8 * unit_packets
    for seed in seeds(engine, 5):
        sim = engine(network, loss, seed)
        number = sim.add_job(job(network, 8 * unit_packets, UDP, unit_packets, **TIMEOUTS))
        random = np.random.default_rng(seed)
        for _ in range(2):
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
            check_sums(outcome.results, [quantised(own, largest, unit_words) for own in words])
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
    ("frame", "unit_packets", "buffer_packets"),
    [(UDP, 1, 1), (UDP, 1, 10), (ROCE, 4, 10), (ROCE, 4, 40)],
)
def test_sums_are_exact_when_buffers_overflow(
    engine: Make, frame: Frame, unit_packets: int, buffer_packets: int
) -> None:
    """Four hosts a leaf burst into an uplink no faster than theirs, aggregation behind it.

    Where the buffer holds less than one unit of each, equal timers without jitter would let them collide
    alike for ever.
    """
    wire_bytes = frame.wire_bytes(frame.elements, first=unit_packets > 1, last=unit_packets > 1)
    uplink = replace(FAST, buffer_bytes=buffer_packets * wire_bytes)
    network = compile_network(leaf_spine(2, 1, 4, FAST, uplink))
    spine = network.nodes.index("spine0")
    sim = engine(network)
    number = sim.add_job(job(network, 8 * unit_packets, frame, unit_packets, switch=spine, **TIMEOUTS))
    words = gradients(8, 8 * 100)
    check_sums(aggregate(sim, number, words).results, words)

    assert links_total(sim, "dropped_packets") > 0
    assert retransmitted(sim, number, 8) > 0
    run_dry(sim)
    up = sim.link_counters()[network.link_names.index("leaf0->spine0")]
    assert buffer_packets * wire_bytes >= up["backlog_bytes_max"] > 0


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
    segments = [segment(own) for own in words]
    start(sim, number, [[each] for each in segments])
    for each in flows:
        sim.open_flow(each)
    before = table_sizes(sim)
    run(sim, 16 + len(flows))
    run_dry(sim)
    check_sums([each.result for each in segments], words)
    check_received(flows)
    return before, table_sizes(sim)


def table_sizes(sim: Engine) -> list[int]:
    return [len(table) for table in (sim.world.packets, sim.world.payloads, sim.world.log)]


def test_tables_that_grow_change_nothing() -> None:
    """The same traffic with tables that grow while packets are in flight and with ample ones."""
    network = compile_network(leaf_spine(4, 2, 4, FAST, FAST))
    small = logged(network, loss=0.01)
    ample = logged(network, loss=0.01)
    before, after = busy_run(ample, is_ample=True)
    assert before == after
    before, after = busy_run(small, is_ample=False)
    assert all(start < end for start, end in zip(before, after, strict=True))
    assert small.log == ample.log
    assert small.link_counters() == ample.link_counters()


def test_timeouts_double_every_hundred_up_to_a_bound(engine: Make) -> None:
    """A worker that hears nothing: the first timeout, then 1000, 2000 and at most 3500 ps, and a jitter."""
    network = star_of(1)
    sim = engine(network, loss=1.0)
    timeouts = {"timeout_ps": 1000, "first_timeout_ps": 100_000, "timeout_max_ps": 3500}
    number = sim.add_job(job(network, 1, **timeouts))
    start(sim, number, [[segment(each)] for each in gradients(1, 4)])
    assert sim.run(900_000) == []

    fired_ps = [row[0] for row in sim.log if row[2] == STREAM_TIMER]
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


@pytest.mark.parametrize("is_atp", [False, True])
def test_streams_that_would_never_end_are_refused(engine: Make, is_atp: bool) -> None:
    network = star_of(2)
    sim = engine(network)
    number = sim.add_job(atp_job(network, 4) if is_atp else job(network, 4, hosts=(0,), routes=(0,)))
    nothing = segment(np.zeros(0, np.int32))

    with pytest.raises(ValueError, match=r"at least one word$"):
        sim.open_stream(number, 0, [nothing, nothing])
    sim.open_stream(number, 0, [nothing, segment(np.ones(1, np.int32))])
    refusal = r"^worker 0 of job 0 (already has an open stream|has stream 0 open)"
    with pytest.raises((ValueError, RuntimeError), match=refusal):
        sim.open_stream(number, 0, [segment(np.ones(1, np.int32))])


HOSTS = 4
SLOTS = 8
SOON_PS = 3_000_000  # packets are on their way, none is back
NETWORK = star_of(HOSTS)


def pair(first_host: int, slot_base: int = 0) -> Job:
    return job(NETWORK, SLOTS, hosts=(first_host, first_host + 1), routes=(0, 0), slot_base=slot_base)


def opened(engine: Engine, number: int, words: list[Words]) -> list[Words]:
    """Start the streams of a job; returns what its workers will receive."""
    segments = [segment(own) for own in words]
    for worker, own in enumerate(segments):
        engine.open_stream(number, worker, [own])
    return [own.result for own in segments]


def finish(engine: Engine) -> None:
    """Run until streams are complete: timers never fire."""
    while engine.world.streams["is_open"].any():
        engine.run(10**12)


def test_a_job_cannot_come_later_without_room() -> None:
    engine = Engine(NETWORK, 1)
    opened(engine, engine.add_job(pair(0)), gradients(2, 1000))
    engine.run(SOON_PS)

    with pytest.raises(RuntimeError, match="once packets have been sent"):
        engine.add_job(pair(2, SLOTS))
    with pytest.raises(RuntimeError, match="slots cannot be reserved"):
        engine.reserve_slots({HOSTS: 2 * SLOTS})


def test_a_job_that_comes_while_another_sends_changes_nothing_of_it() -> None:
    engine = Engine(NETWORK, 1)
    engine.reserve_slots({HOSTS: 2 * SLOTS})
    words, others = gradients(2, 1000, 1), gradients(2, 1500, 2)
    received = opened(engine, engine.add_job(pair(0)), words)
    engine.run(SOON_PS)
    assert engine.next_event_ps() is not None  # it is not done
    later = opened(engine, engine.add_job(pair(2, SLOTS)), others)
    finish(engine)

    for found in received:
        np.testing.assert_array_equal(found, wrapping_sum(words))
    for found in later:
        np.testing.assert_array_equal(found, wrapping_sum(others))


def test_released_slots_are_as_new() -> None:
    """Each job's first packets are version 0 of its slots, whatever the last job left there."""
    engine = Engine(NETWORK, 1)
    engine.reserve_slots({HOSTS: SLOTS})
    for number, hosts in enumerate((0, 2, 1)):
        words = gradients(2, 1000 + 64 * number, number)
        received = opened(engine, engine.add_job(pair(hosts)), words)
        finish(engine)
        engine.release_job(number)
        for found in received:
            np.testing.assert_array_equal(found, wrapping_sum(words))
        assert not engine.world.registers.slots["bitmap"].any()
