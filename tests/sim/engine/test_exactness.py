"""Streams of both engines under stress: exact under loss, drops, reuse of slots, lost registers."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Frame, Job, Overflow, Scaled, Segment, Server
from netfold.sim.engine.setup import allocate as tables
from netfold.sim.engine.setup.jobs import first_entries
from netfold.sim.plan.frames import frame_of
from netfold.switch.programs.atp import ATP
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import Network, compile_network
from tests.reference.atp import atp_job as reference_atp
from tests.reference.codecs.quantise import scale_of
from tests.reference.engine.fabric import STREAM_TIMER, Fabric
from tests.reference.engine.worker import JobNumber
from tests.sim.engine.small import (
    FAST,
    Make,
    Sim,
    Words,
    aggregate,
    atp_job,
    check_received,
    check_sums,
    claimed,
    compiled,
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
)

SHORT_PS = 50_000_000
TIMEOUTS = {"timeout_ps": SHORT_PS, "first_timeout_ps": SHORT_PS, "timeout_max_ps": 4 * SHORT_PS}
UDP = replace(frame_of("udp-256"), elements=8, overhead_bytes=frame_of("udp-256").overhead_bytes + 4 * 56)
ROCE = replace(
    frame_of("roce-1024"), elements=8, overhead_bytes=frame_of("roce-1024").overhead_bytes + 4 * 248
)


@pytest.mark.parametrize("blocks", [1, 3, 6, 11])
def test_scaled_streams_send_exponents_ahead(engine: Make, blocks: int) -> None:
    """Windows of 8 units; blocks + min(8, blocks) units are sent, two exchanges in a row.

    With fewer blocks than window slots, words wait for their exponent; with five to seven, a unit can have
    its exponent before its window slot is free.
    """
    network = star_of(3, FAST)
    sim = engine(network)
    number = sim.add_job(job(network, 8, UDP, **TIMEOUTS))
    random = np.random.default_rng(blocks)
    for _ in range(2):
        exponents = [random.integers(-20, 20, blocks).astype(np.int8) for _ in range(3)]
        words = [
            np.ldexp(random.uniform(-1, 1, blocks * 8), own.repeat(8)).astype(np.float32)[:-3]
            for own in exponents
        ]
        scaled = [Scaled(own, np.zeros(blocks, np.int8)) for own in exponents]
        outcome = aggregate(sim, number, words, scaled)
        largest = np.max(exponents, axis=0)
        assert all(np.array_equal(each.agreed, largest) for each in scaled)
        check_sums(outcome.results, [quantised(own, largest, 8) for own in words])
    run_dry(sim)
    assert sim.switch_counters(number)["packets"] == 2 * 3 * (blocks + min(8, blocks))


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


SLOTS = 8
STAR = star_of(4)  # switch 4


def pair(first_host: int, slot_base: int = 0) -> Job:
    return job(STAR, SLOTS, hosts=(first_host, first_host + 1), routes=(0, 0), slot_base=slot_base)


@pytest.mark.parametrize("is_reserved", [False, True])
def test_a_job_may_come_while_another_sends_where_slots_are_reserved(is_reserved: bool) -> None:
    """At 3 us packets of the first are on their way, and none is back."""
    engine = Engine(STAR, 1)
    if is_reserved:
        engine.reserve_slots({4: 2 * SLOTS})
    words = [gradients(2, 1000, 1), gradients(2, 1500, 2)]
    own = [[segment(each) for each in of_job] for of_job in words]
    start(engine, engine.add_job(pair(0)), [[each] for each in own[0]])
    assert engine.run(3_000_000) == []
    if not is_reserved:
        with pytest.raises(RuntimeError, match="once packets have been sent"):
            engine.add_job(pair(2, SLOTS))
        with pytest.raises(RuntimeError, match="slots cannot be reserved"):
            engine.reserve_slots({4: 2 * SLOTS})
        return
    start(engine, engine.add_job(pair(2, SLOTS)), [[each] for each in own[1]])
    run(engine, 4)

    for of_job, sent in zip(own, words, strict=True):
        check_sums([each.result for each in of_job], sent)


def test_released_slots_are_as_new() -> None:
    """Each job's first packets are version 0 of its slots, whatever the last job left there."""
    engine = Engine(STAR, 1)
    engine.reserve_slots({4: SLOTS})
    for turn, first_host in enumerate((0, 2, 1)):
        words = gradients(2, 1000 + 64 * turn, turn)
        number = engine.add_job(pair(first_host))
        check_sums(aggregate(engine, number, words).results, words)
        engine.release_job(number)
        assert not engine.world.registers.slots["bitmap"].any()


WORKERS, WINDOW, PACKETS = 4, 16, 400
PAIR = Frame("test", elements=2, overhead_bytes=100)
STUCK_PS = 10**10  # a hundred times the longest timeout
MARGIN = 2**31 // WORKERS  # words whose sums stay in int32
LONG_TIMEOUTS = {"timeout_ps": 100_000_000, "first_timeout_ps": 100_000_000, "timeout_max_ps": 100_000_000}


class Case(NamedTuple):
    """A protocol on its network."""

    network: Network
    job: Job


def switchml() -> Case:
    network = star_of(WORKERS, FAST)
    return Case(network, job(network, WINDOW, PAIR, **LONG_TIMEOUTS))


def atp() -> Case:
    network = star_of(WORKERS + 1, FAST)
    made = replace(
        switchml().job,
        switch=WORKERS + 1,
        program=ATP,
        overflow=Overflow.STICKY,
        timeout_ps=200_000_000,
        first_timeout_ps=1_000_000_000,
        server=Server(WORKERS, 20_000, WINDOW, 80_000, is_adaptive=False),
    )
    return Case(network, made)


PROTOCOLS = {"SwitchML": switchml, "ATP": atp}


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sums_are_exact_whatever_is_lost(engine: Make, protocol: str, loss: float) -> None:
    """Two exchanges in a row; all that is lost is sent again, and nothing else."""
    case = PROTOCOLS[protocol]()
    margin = MARGIN if case.job.program is ATP else 2**31
    elements = case.job.frame.elements
    evictions = 0
    for seed in seeds(engine, 8):
        sim = engine(case.network, loss, seed)
        number = sim.add_job(case.job)
        for size in (PACKETS * elements, 37 * elements + 1):
            words = gradients(WORKERS, size, seed, margin)
            check_sums(aggregate(sim, number, words).results, words)
        run_dry(sim)
        assert claimed(sim, number) == []
        assert (links_total(sim, "lost_packets") > 0) == (retransmitted(sim, number, WORKERS) > 0)
        counters = sim.switch_counters(number)
        assert counters["collisions"] == 0
        evictions += counters["evictions"]
        if loss == 0:
            assert counters["packets"] == WORKERS * (PACKETS + 38)
    assert (evictions > 0) == (case.job.program is ATP and loss > 0)


@pytest.mark.parametrize("protocol", ["SwitchML", "ATP"])
@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_lost_registers(engine: Make, protocol: str, loss: float) -> None:
    """SwitchML finishes where no result is lost, else some never do; ATP finishes; nothing is ever wrong."""
    case = PROTOCOLS[protocol]()
    finished = struck = 0
    for seed in seeds(engine, 12, 4):
        sim = engine(case.network, loss, seed)
        number = sim.add_job(case.job)
        words = gradients(WORKERS, PACKETS * PAIR.elements, seed, MARGIN)
        own = [segment(each) for each in words]
        start(sim, number, [[each] for each in own])
        assert run_until(sim, WORKERS, 5_000_000 + 1_200_000 * seed) == 0
        struck += claimed(sim, number) != []
        sim.clear(case.job.switch)
        assert claimed(sim, number) == []
        finished += run_until(sim, WORKERS, STUCK_PS) == WORKERS
        check_what_is_there(own)
    assert struck > 0 or protocol == "SwitchML"  # whose workers are in step
    if protocol == "ATP" or loss == 0:
        assert finished == len(seeds(engine, 12, 4))
    else:
        assert finished < len(seeds(engine, 12, 4)) / 2


def run_until(sim: Sim, completions: int, until_ps: int) -> int:
    """Run until so many streams are done, or a time; returns how many are."""
    done = 0
    while done < completions and sim.now_ps < until_ps:
        done += len(sim.run(until_ps))
    return done


def check_what_is_there(own: list[Segment]) -> None:
    """Every word that has come is the sum."""
    total = sum(each.words.astype(np.int64) for each in own)
    for each in own:
        is_there = each.result != 0
        assert np.array_equal(each.result[is_there], total[is_there])


def test_first_entries_are_the_reference_s() -> None:
    """Also where there are hardly more entries than places."""
    case = atp()
    assert case.job.server is not None
    for entries in (2000, 20):
        server = replace(case.job.server, entries=entries, window_max=20)
        for seed in range(20):
            fabric = Fabric(case.network, (), seed)
            theirs = reference_atp.first_entries(fabric, JobNumber(replace(case.job, server=server), seed))
            assert first_entries(seed, seed, entries, 20) == theirs


def test_goodput_of_atp_is_that_of_its_frame() -> None:
    """62 words in 332 B on the wire: at most 74.7 Gb/s of gradient at 100 Gb/s."""
    frame = Frame("atp", 62, 84)
    case = atp()
    assert case.job.server is not None
    server = replace(case.job.server, window_max=250)
    sim = compiled(case.network)
    number = sim.add_job(replace(case.job, frame=frame, slots_count=250, server=server))
    packets = 10_000
    aggregate(sim, number, gradients(WORKERS, packets * 62, 1, MARGIN))
    goodput_bps = packets * 62 * 32 * 10**12 / sim.now_ps
    assert 0.95 * 74.7e9 < goodput_bps < 74.7e9
