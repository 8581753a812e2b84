"""What the compiled engine does with words that only some workers have, or that are gone when they arrive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.codec import Merge
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Fate, Job, Overflow, Rule, Segment, Server, losses
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.timed import TIMED
from netfold.topologies.routing import Network, compile_network
from netfold.topologies.star import star
from tests.sim.engine.small import DELAY_PS, FAST, FRAME, job, run, run_dry

ELEMENTS = FRAME.elements
SLOW_BPS = FAST.rate_bps // 10_000
TIMER_PS = 2 * DELAY_PS


def two_workers() -> tuple[Network, Job]:
    """Slots with timers, and one packet at a time."""
    network = compile_network(star(2, FAST))
    return network, job(network, 1, FRAME, program=TIMED, slot_timer_ps=TIMER_PS)


def timed_segment(words: NDArray[np.int32]) -> Segment:
    units = -(-words.size // ELEMENTS)
    return Segment(words, np.zeros_like(words), Merge.ADD, holders=np.zeros(units, np.uint32))


def test_words_of_a_late_packet_are_those_it_was_sent_with() -> None:
    """Its stream has ended with the partial result, its sender's buffer holds something else by then."""
    network, plan = two_workers()
    engine = Engine(network, 1)
    number = engine.add_job(plan)
    own = [np.full(ELEMENTS, 7, np.int32), np.full(ELEMENTS, 100, np.int32)]
    segments = [timed_segment(words) for words in own]
    uplink = network.link_names.index("h1->s0")
    engine.set_rate(uplink, SLOW_BPS)
    for worker, segment in enumerate(segments):
        engine.open_stream(number, worker, [segment])

    run(engine, 2)
    assert engine.link_counters()[uplink]["in_flight_packets"] == 1
    assert [segment.result.tolist() for segment in segments] == [[7] * ELEMENTS] * 2
    own[1][:] = -1
    engine.clear(plan.switch)  # or it would be too late for the slot, and its words not looked at
    run_dry(engine)

    assert engine.world.registers.values[0, :ELEMENTS].tolist() == [100] * ELEMENTS


ATP_WORKERS, UNITS = 3, 4
STICKS = 2**31 - 1


def atp() -> tuple[Network, Job]:
    network = compile_network(star(ATP_WORKERS + 1, FAST))
    plan = job(network, UNITS, FRAME, program=ATP, overflow=Overflow.STICKY)
    return network, replace(
        plan,
        hosts=tuple(range(ATP_WORKERS)),
        routes=(0,) * ATP_WORKERS,
        timeout_ps=10**9,
        first_timeout_ps=10**9,
        server=Server(ATP_WORKERS, 1000, UNITS, 1 << 20, is_adaptive=False),
    )


def atp_segment(worker: int, are_floats: list[int]) -> Segment:
    """Words of which worker 0's third unit, at the limit, makes every sum of it stick."""
    words = np.arange(UNITS * ELEMENTS, dtype=np.int32) + 1000 * worker
    if worker == 0:
        words[2 * ELEMENTS] = STICKS
    floats = np.arange(words.size, dtype=np.float32) / 4 + worker
    is_float = np.zeros(UNITS, np.uint8)
    is_float[are_floats] = 1
    return Segment(words, np.zeros_like(words), Merge.ADD, floats=floats, is_float=is_float)


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("minority", range(ATP_WORKERS))
def test_units_that_one_worker_sends_as_floats_are_floats_at_all(minority: int, loss: float) -> None:
    """Others have sent their integers by then. Unit 2 sticks at the switch, units 0 and 3 stay integers."""
    network, plan = atp()
    for seed in range(10):
        engine = Engine(network, seed, losses([loss] * len(network.link_names)))
        number = engine.add_job(plan)
        segments = [atp_segment(worker, [1] if worker == minority else []) for worker in range(ATP_WORKERS)]
        for worker, segment in enumerate(segments):
            engine.open_stream(number, worker, [segment])
        run(engine, ATP_WORKERS)
        run_dry(engine)

        total = np.sum([segment.words for segment in segments], axis=0, dtype=np.int64)
        floats = np.sum(
            [segment.floats for segment in segments], axis=0, dtype=np.float64
        )  # exact in float32
        for segment in segments:
            assert segment.is_float is not None
            assert segment.is_float.tolist() == [0, 1, 1, 0]
            is_float = np.repeat(segment.is_float, ELEMENTS) != 0
            assert np.array_equal(segment.result[~is_float], total[~is_float])
            assert np.array_equal(segment.result[is_float].view(np.float32), floats[is_float])
        assert engine.leaks(number) == []


def test_floats_that_only_some_workers_have_are_refused() -> None:
    """A worker without them could not answer the server that asks for them."""
    network, plan = atp()
    for first in (True, False):
        engine = Engine(network, 1)
        number = engine.add_job(plan)
        with_floats = atp_segment(0, [])
        without = replace(with_floats, floats=None, is_float=None)
        engine.open_stream(number, 0, [with_floats if first else without])
        with pytest.raises(ValueError, match="another worker") as caught:
            engine.open_stream(number, 1, [without if first else with_floats])
        own, other = ("without", "with") if first else ("with", "without")
        assert str(caught.value) == (
            f"worker 1 of job 0 streams 16 words by ADD {own} floats to fall back to, "
            f"another worker 16 words by ADD {other} floats to fall back to"
        )


def test_floats_that_only_some_segments_have_are_refused() -> None:
    network, plan = atp()
    engine = Engine(network, 1)
    number = engine.add_job(plan)
    whole = atp_segment(0, [])
    without = replace(whole, floats=None, is_float=None)

    told = {
        "either all segments of a stream have floats to fall back to, or none has": [whole, without],
        "floats and is_float go together": [replace(whole, is_float=None)],
    }
    for message, segments in told.items():
        with pytest.raises(ValueError, match=message) as caught:
            engine.open_stream(number, 0, segments)
        assert str(caught.value) == message
    engine.open_stream(number, 0, [whole])  # what was refused has left no trace


def test_what_is_marked_goes_by_the_bytes_that_wait_whatever_the_rate() -> None:
    """Half as fast a link holds the same bytes for twice as long; back at its rate, it marks as at first."""
    network, plan = atp()
    assert plan.server is not None
    engine = Engine(network, 1)
    limit_bytes = 3 * FRAME.wire_bytes(ELEMENTS, first=True, last=True) + 1
    engine.add_job(replace(plan, server=replace(plan.server, ecn_bytes=limit_bytes)))
    link = network.link_names.index(f"s0->h{ATP_WORKERS}")
    for rate_bps in (FAST.rate_bps, FAST.rate_bps // 2, FAST.rate_bps // 3, FAST.rate_bps):
        engine.set_rate(link, rate_bps)
        assert int(engine.world.links[link].ecn_ps) == limit_bytes * 8 * 10**12 // rate_bps


def test_words_of_a_late_copy_are_those_it_was_sent_with() -> None:
    """Its stream has ended with the packet itself, its sender's buffer holds something else by then."""
    network = compile_network(star(2, FAST))
    plan = job(network, 1, FRAME)
    uplink = network.link_names.index("h1->s0")
    engine = Engine(network, 1, [Rule(Fate.DUPLICATE, 1.0, (uplink,), delay_ps=10**9)])
    number = engine.add_job(plan)
    own = [np.full(ELEMENTS, 7, np.int32), np.full(ELEMENTS, 100, np.int32)]
    segments = [Segment(words, np.zeros_like(words), Merge.ADD) for words in own]
    for worker, segment in enumerate(segments):
        engine.open_stream(number, worker, [segment])

    run(engine, 2)
    assert engine.link_counters()[uplink]["in_flight_packets"] == 1
    assert [segment.result.tolist() for segment in segments] == [[107] * ELEMENTS] * 2
    own[1][:] = -1
    engine.clear(plan.switch)  # or it would be a packet of a worker that the slot has seen
    run_dry(engine)

    assert engine.world.registers.values[0, :ELEMENTS].tolist() == [100] * ELEMENTS
