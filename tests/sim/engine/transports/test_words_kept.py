"""Words that workers share, that only some of them have, that come twice, or that are gone on arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.in_network.results import Results
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Fate, Job, Overflow, Rule, Scaled, Segment
from netfold.switch.programs.timed import TIMED
from netfold.topologies.routing import Network
from tests.reference.switch.merging import Operand, Register
from tests.sim.engine.small import DELAY_PS, FAST, FRAME, atp_job, job, run, run_dry, segment, star_of, start

ELEMENTS = FRAME.elements
SLOW_BPS = FAST.rate_bps // 10_000


# A packet that comes late.


@pytest.mark.parametrize("is_copy", [False, True])
def test_words_of_a_late_packet_are_those_it_was_sent_with(is_copy: bool) -> None:
    """Its stream has ended, without it or with the packet that it is a copy of; its sender's buffer holds
    something else by then."""
    network = star_of(2, FAST)
    uplink = network.link_names.index("h1->s0")
    copies = [Rule(Fate.DUPLICATE, 1.0, (uplink,), delay_ps=10**9)] if is_copy else []
    timed: dict[str, Any] = {} if is_copy else {"program": TIMED, "slot_timer_ps": 2 * DELAY_PS}
    engine = Engine(network, 1, copies)
    number = engine.add_job(job(network, 1, **timed))
    own = [np.full(ELEMENTS, 7, np.int32), np.full(ELEMENTS, 100, np.int32)]
    segments = [segment(words, holders=None if is_copy else np.zeros(1, np.uint32)) for words in own]
    if not is_copy:
        engine.set_rate(uplink, SLOW_BPS)
    start(engine, number, [[each] for each in segments])

    run(engine, 2)
    assert engine.link_counters()[uplink]["in_flight_packets"] == 1
    assert [each.result.tolist() for each in segments] == [[107 if is_copy else 7] * ELEMENTS] * 2
    own[1][:] = -1
    engine.clear(2)  # or it would be too late for the slot, or known to it, and its words not looked at
    run_dry(engine)

    assert engine.world.registers.values[0, :ELEMENTS].tolist() == [100] * ELEMENTS


# Floats that only some have, and marks.

ATP_WORKERS, UNITS = 3, 4


def atp() -> tuple[Network, Job]:
    network = star_of(ATP_WORKERS + 1, FAST)
    return network, atp_job(network, UNITS, overflow=Overflow.STICKY)


def with_floats() -> Segment:
    words = np.arange(UNITS * ELEMENTS, dtype=np.int32)
    return segment(words, floats=words.astype(np.float32), is_float=np.zeros(UNITS, np.uint8))


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

    told = {
        "either all segments of a stream have floats to fall back to, or none has": [
            *(whole, replace(whole, floats=None, is_float=None))
        ],
        "floats and is_float go together": [replace(whole, is_float=None)],
    }
    for message, segments in told.items():
        with pytest.raises(ValueError, match=f"^{message}$"):
            engine.open_stream(number, 0, segments)
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


# Results that workers share are stored once, and all workers read the same words.

MESSAGE = OperationPlace(0, 0, 0), 0
SHARERS, PACKETS, UNIT_PACKETS = 3, 40, 2
SIZE = PACKETS * ELEMENTS - 3  # the last packet is not full
UNIT_WORDS = UNIT_PACKETS * ELEMENTS
STAR = star_of(SHARERS, FAST)
TIMEOUTS = dict.fromkeys(("timeout_ps", "first_timeout_ps", "timeout_max_ps"), 20 * DELAY_PS)
LINKS = tuple(range(len(STAR.link_names)))
DOWN = tuple(link for link in LINKS if STAR.is_host[STAR.link_target[link]])
# Words that flip unseen and packets that are lost: late copies can keep SwitchML from ever ending.
FAULTS = (Rule(Fate.FLIP, 0.2, LINKS), Rule(Fate.LOSS, 0.05, LINKS))
FLIPS_DOWN = (Rule(Fate.FLIP, 0.2, DOWN),)


def ramp(worker: int) -> NDArray[np.int32]:
    return np.arange(SIZE, dtype=np.int32) * (worker + 1) - 7


def received(seed: int, rules: Sequence[Rule], *, is_shared: bool) -> list[NDArray[Any]]:
    """Every worker's result, in memory of its own or in common."""
    engine = Engine(STAR, seed, rules)
    number = engine.add_job(job(STAR, 4 * UNIT_PACKETS, FRAME, UNIT_PACKETS, **TIMEOUTS))
    results = Results(SHARERS, UNIT_WORDS, UNIT_PACKETS)
    segments = []
    for worker in range(SHARERS):
        own = segment(ramp(worker))
        if is_shared:
            buffer = results.allocate(MESSAGE, -(-SIZE // UNIT_WORDS), SIZE, np.int32)
            own = replace(own, result=buffer.result, shared=buffer.shared, own=buffer.own)
        segments.append(own)
    start(engine, number, [[each] for each in segments])
    run(engine, SHARERS)
    if not is_shared:
        return [each.result for each in segments]
    return [results.take(worker, MESSAGE, each) for worker, each in enumerate(segments)]


def total() -> NDArray[np.int64]:
    return np.sum([ramp(worker) for worker in range(SHARERS)], axis=0, dtype=np.int64)


def test_without_faults_all_workers_have_one_object() -> None:
    found = received(1, (), is_shared=True)

    assert found[0] is found[1] is found[2]
    assert found[0].tolist() == total().tolist()


@pytest.mark.parametrize("seed", range(1, 5))
def test_with_faults_every_worker_has_what_came_to_it(seed: int) -> None:
    wanted, found = (received(seed, FAULTS, is_shared=is_shared) for is_shared in (False, True))

    assert [own.tolist() for own in found] == [right.tolist() for right in wanted]


def test_a_worker_whose_words_were_flipped_has_its_own() -> None:
    """Flips on the way down only: every worker's words differ from the sum, at other places."""
    wanted, found = (received(1, FLIPS_DOWN, is_shared=is_shared) for is_shared in (False, True))

    wrong = [frozenset(np.flatnonzero(own != total()).tolist()) for own in found]
    assert all(wrong)
    assert len(set(wrong)) == SHARERS
    assert [own.tolist() for own in found] == [right.tolist() for right in wanted]


def test_what_is_shared_must_fit() -> None:
    engine = Engine(STAR, 1)
    number = engine.add_job(job(STAR, 4 * UNIT_PACKETS, FRAME, UNIT_PACKETS))
    buffer = Results(SHARERS, UNIT_WORDS, UNIT_PACKETS).allocate(
        MESSAGE, PACKETS // UNIT_PACKETS, SIZE, np.int32
    )
    alone = Segment(ramp(0), buffer.result, Merge.ADD, shared=buffer.shared)
    with pytest.raises(ValueError, match="shared and own go together"):
        engine.open_stream(number, 0, [alone])
    with pytest.raises(ValueError, match=r"seen and own must be uint8 of shape \(40,\)"):
        engine.open_stream(number, 0, [replace(alone, own=np.zeros(1, np.uint8))])


def test_agreed_exponents_stay_each_workers_own() -> None:
    units = -(-SIZE // UNIT_WORDS)
    engine = Engine(STAR, 1)
    number = engine.add_job(job(STAR, 4 * UNIT_PACKETS, FRAME, UNIT_PACKETS, **TIMEOUTS))
    results = Results(SHARERS, UNIT_WORDS, UNIT_PACKETS)
    kept = []
    for worker in range(SHARERS):
        buffer = results.allocate(MESSAGE, units, SIZE, np.int32)
        values = ramp(worker).astype(np.float32)
        own = Segment(values, buffer.result, Merge.ADD, shared=buffer.shared, own=buffer.own)
        scaled = Scaled(np.full(units, 10 + worker, np.int8), np.zeros(units, np.int8))
        engine.open_stream(number, worker, [own], scaled)
        kept.append((own, scaled))
    run(engine, SHARERS)

    words = [results.take(worker, MESSAGE, own) for worker, (own, _) in enumerate(kept)]
    assert words[0] is words[1] is words[2]
    assert all(scaled.agreed.tolist() == [10 + SHARERS - 1] * units for _, scaled in kept)


# A copy of a packet leaves a slot's sign bits and its count of workers as they are: merged twice, it would
# give its worker two lots, and every later one a weight too small.

VOTERS = 4
State = tuple[int, int, tuple[int, ...]]  # workers, their bitmap, words


def votes_of(worker: int) -> NDArray[np.uint32]:
    return np.random.default_rng(worker).integers(0, 2**32, ELEMENTS, dtype=np.uint32)


def played(copied: set[int]) -> tuple[list[State], list[list[int]], int]:
    """The states that a slot goes through, the results, and the copies; worker r starts at r delays.

    A copy comes a quarter of a delay after its packet: before the next worker's arrives.
    """
    network = star_of(VOTERS, FAST)
    uplinks = tuple(network.link_names.index(f"h{worker}->s0") for worker in copied)
    rules = [Rule(Fate.DUPLICATE, 1.0, uplinks, delay_ps=DELAY_PS // 4)] if copied else []
    engine = Engine(network, 1, rules)
    number = engine.add_job(job(network, 1, timeout_ps=10**12, timeout_max_ps=10**12))
    results = [np.zeros(ELEMENTS, np.uint32) for _ in range(VOTERS)]
    states: list[State] = []
    for tick in range(40 * VOTERS):
        engine.run(tick * DELAY_PS // 16)
        worker, rest = divmod(tick, 16)
        if rest == 0 and worker < VOTERS:
            engine.open_stream(number, worker, [Segment(votes_of(worker), results[worker], Merge.SIGN)])
        slot = engine.world.registers.slots[0]
        held = engine.world.registers.values[0, :ELEMENTS].view(np.uint32)
        state = int(slot.workers), int(slot.bitmap), tuple(held.tolist())
        if not states or states[-1] != state:
            states.append(state)
    return states, [one.tolist() for one in results], sum(engine.rule_counters())


@pytest.mark.parametrize("copied", [{1, 2}, {VOTERS - 1}, set(range(VOTERS))], ids=str)
def test_copies_change_neither_sign_bits_nor_counts(copied: set[int]) -> None:
    plain, results, none = played(set())
    states, with_copies, copies = played(copied)

    assert (none, copies) == (0, len(copied))
    assert (states, with_copies) == (plain, results)
    assert [workers for workers, *_ in states if workers] == list(range(1, VOTERS + 1))
    # Merged bits are some worker's, and differ from a plain union.
    own = np.array([votes_of(worker) for worker in range(VOTERS)])
    merged = np.array(results[0], np.uint32)
    union, common = np.bitwise_or.reduce(own), np.bitwise_and.reduce(own)
    assert not (merged & ~union).any()
    assert not (~merged & common).any()
    assert (merged != union).any()
    assert (merged != common).any()


def test_the_control_a_register_that_merges_a_copy() -> None:
    """It counts its worker twice: the state after it differs in what the test above compares."""
    register = Register()
    register.overwrite(Operand([5], Merge.SIGN))
    once = register.workers
    register.merge(Operand([5], Merge.SIGN, key=1), 0)
    assert register.workers == once + 1
