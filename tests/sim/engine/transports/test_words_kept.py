"""What the compiled engine does with words that only some workers have, or that are gone when they arrive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Fate, Job, Overflow, Rule, Segment
from netfold.switch.programs.timed import TIMED
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import Network, compile_network
from tests.sim.engine.small import DELAY_PS, FAST, FRAME, atp_job, job, run, run_dry

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


def atp() -> tuple[Network, Job]:
    network = compile_network(star(ATP_WORKERS + 1, FAST))
    return network, atp_job(network, UNITS, overflow=Overflow.STICKY)


def with_floats() -> Segment:
    words = np.arange(UNITS * ELEMENTS, dtype=np.int32)
    is_float = np.zeros(UNITS, np.uint8)
    return Segment(words, np.zeros_like(words), Merge.ADD, floats=words.astype(np.float32), is_float=is_float)


def test_floats_that_only_some_workers_have_are_refused() -> None:
    """A worker without them could not answer the server that asks for them."""
    network, plan = atp()
    for first in (True, False):
        engine = Engine(network, 1)
        number = engine.add_job(plan)
        without = replace(with_floats(), floats=None, is_float=None)
        engine.open_stream(number, 0, [with_floats() if first else without])
        with pytest.raises(ValueError, match="another worker") as caught:
            engine.open_stream(number, 1, [without if first else with_floats()])
        own, other = ("without", "with") if first else ("with", "without")
        assert str(caught.value) == (
            f"worker 1 of job 0 streams 16 words by ADD {own} floats to fall back to, "
            f"another worker 16 words by ADD {other} floats to fall back to"
        )


def test_floats_that_only_some_segments_have_are_refused() -> None:
    network, plan = atp()
    engine = Engine(network, 1)
    number = engine.add_job(plan)
    whole = with_floats()
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
