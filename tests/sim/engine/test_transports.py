"""Senders and receivers: flows between hosts, words that are kept until they are needed, host times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.merge import Merge
from netfold.sim.collectives.collective import OperationId
from netfold.sim.collectives.in_network.in_network_run import Results
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import (
    Completion,
    Fate,
    Flow,
    Frame,
    Overflow,
    Rule,
    Scaled,
    Segment,
    Sender,
)
from netfold.switch.programs.timed import TIMED
from netfold.topologies.graph import LinkSpec
from netfold.topologies.network import HostWork, Network, path, with_host_links
from tests.examples import examples
from tests.reference.engine.fabric import ARRIVAL, FLOW_TIMER
from tests.reference.switch.merging import Operand, Register
from tests.sim.engine.small import (
    DELAY_PS,
    FAST,
    FOREVER_PS,
    FRAME,
    LINK,
    A,
    D,
    Make,
    X,
    aggregate,
    atp_job,
    chain,
    check_received,
    check_sums,
    compiled,
    flow,
    gradients,
    job,
    link_between,
    links_total,
    message,
    run,
    run_dry,
    segment,
    star_of,
    start,
    transmit_ps,
)

LINE = chain([LINK] * 2)


def last_out_ps(packets: Iterable[Sequence[int]], delays_ps: Sequence[int]) -> int:
    """When the last of packets that all come at 0 has left a row of queues, each with a wire behind it.

    A packet is the time that it takes of each queue.
    """
    free_ps, now_ps = [0] * len(delays_ps), 0
    for takes_ps in packets:
        now_ps = 0
        for place, (take_ps, delay_ps) in enumerate(zip(takes_ps, delays_ps, strict=True)):
            free_ps[place] = max(now_ps, free_ps[place]) + take_ps
            now_ps = free_ps[place] + delay_ps
    return now_ps


@examples(40)
@given(
    st.lists(st.tuples(st.integers(10**9, 4 * 10**11), st.integers(0, 10**7)), min_size=2, max_size=5),
    st.integers(0, 50),
)
def test_a_flow_pipelines_through_its_links(engine: Make, links: list[tuple[int, int]], words: int) -> None:
    """34 B of headers and 16 B of words each, or less; a message without words is a header."""
    sizes = [34 + 4 * min(4, words - first) for first in range(0, max(1, words), 4)]
    sim = engine(chain([LinkSpec(*link, 1 << 30) for link in links]))
    sent = message(words)
    sim.open_flow(sent)

    takes_ps = [[transmit_ps(size_bytes, rate_bps) for rate_bps, _ in links] for size_bytes in sizes]
    end_ps = last_out_ps(takes_ps, [delay_ps for _, delay_ps in links])
    assert run_dry(sim) == [Completion(end_ps, "flow", -1, 0)]
    assert links_total(sim, "sent_bytes") == len(links) * (sum(sizes) + len(sizes) * FRAME.ack_bytes)
    check_received([sent])


def test_a_window_of_one_waits_a_round_trip_per_packet(engine: Make) -> None:
    sim = engine(chain([LINK] * 3))
    sim.open_flow(message(4 * 6, window=1))

    round_trip = 3 * (X + D) + 3 * (A + D)
    assert run_dry(sim) == [Completion(5 * round_trip + 3 * (X + D), "flow", -1, 0)]


def test_log_of_one_packet_and_its_ack(engine: Make) -> None:
    """Order 1 is the timer's, which the ACK voids."""
    sim = engine(LINE)
    sim.run(D)
    sim.open_flow(message(4))
    run_dry(sim)

    up, down, back_up, back_down = (
        link_between(LINE, node, target) for node, target in [(0, 1), (2, 1), (1, 0), (2, 0)]
    )
    there = D + 2 * (X + D)
    assert sim.log == [
        (D + X + D, 0, ARRIVAL, up, 0, 0, 0, 0),
        (there, 2, ARRIVAL, down, 0, 0, 0, 0),
        (there + A + D, 3, ARRIVAL, back_up, 0, 0, 1, 0),
        (there + 2 * (A + D), 4, ARRIVAL, back_down, 0, 0, 1, 0),
    ]
    assert sim.now_ps == FOREVER_PS


def test_a_timer_backs_off(engine: Make) -> None:
    sim = engine(LINE, loss=1.0)
    sim.open_flow(message(1, timeout_ps=1000))
    assert sim.run(300_000) == []

    pauses = [1000 * min(2**k, 64) for k in range(11)]
    fired = [row[0] for row in sim.log if row[2] == FLOW_TIMER]
    assert fired == [time for time in accumulate(pauses) if time <= 300_000]
    counts = dict.fromkeys(("timeouts", "retransmitted_packets"), len(fired))
    assert sim.flow_counters(0) == {**counts, "reordered_packets": 0, "spurious_retransmissions": 0}
    assert sim.now_ps == 300_000


@pytest.mark.parametrize("end", ["source", "target"])
@pytest.mark.parametrize("node", [-1, 3, 4])
def test_flows_end_at_hosts(end: str, node: int) -> None:
    """Node 3 is the switch of a star of three hosts, and node 4 is none."""
    sim = compiled(star_of(3))
    with pytest.raises(ValueError, match=rf"{end} is node {node}: must be a host, of \[0, 1, 2\]"):
        sim.open_flow(replace(message(8), **{end: node}))


def test_neighbours_on_a_star_send_at_line_rate() -> None:
    """8 hosts send 100 MB each in packets of 1000 B: 8.00208 ms, as ns.py 0.5.0 and csg-htsim measure too."""
    sim = compiled(star_of(8, FAST))
    for host in range(8):
        ends = (host, (host + 1) % 8)
        sender = Sender(SMALL, 100_000, FOREVER_PS, 100_000)
        sim.open_flow(Flow(*ends, 25 * 10**6, None, None, sender, 0, host))
    done = run(sim, 8)

    assert {8_002_080_000} == {completion.time_ps for completion in done}
    assert sim.packet_hops == 2 * 800_000


FAR_PS = 10**12
SMALL = Frame("small", elements=250, overhead_bytes=0, ack_bytes=64)
SECOND_PS = 10_000_000  # when the second flow opens; the first one is done long before


def two_hosts(loss_until_ps: int = 0) -> Engine:
    """What host 0 sends from the second flow on is lost until a time."""
    network = star_of(2, FAST)
    return Engine(network, 1, [Rule(Fate.LOSS, 1.0, (0,), from_ps=SECOND_PS, until_ps=loss_until_ps)])


def ended_ps(sim: Engine, timeout_ps: int) -> int:
    sim.open_flow(Flow(0, 1, 2500, None, None, Sender(SMALL, 8, timeout_ps, 4), 0, 7))
    (done,) = sim.run(FAR_PS)
    return done.time_ps


@pytest.mark.parametrize("first_ps", [1_000_000_000, 12_000_000, 36_000_000])
@pytest.mark.parametrize("timeout_ps", [5_000_000, 25_000_000, 26_000_000])
def test_a_flow_in_a_used_row_times_out_as_one_in_a_new_row(first_ps: int, timeout_ps: int) -> None:
    """Entries that the first flow left are before, at and after the deadlines of the second."""
    fresh, used = two_hosts(SECOND_PS + 30_000_000), two_hosts(SECOND_PS + 30_000_000)
    assert ended_ps(used, first_ps) < SECOND_PS
    for sim in (fresh, used):
        assert sim.run(SECOND_PS) == []

    ends_ps = [ended_ps(sim, timeout_ps) for sim in (fresh, used)]

    assert ends_ps[0] == ends_ps[1] > SECOND_PS + 30_000_000
    assert fresh.world.flows[0].timeouts == used.world.flows[0].timeouts > 0


def test_closed_flows_do_not_fill_the_heap() -> None:
    """300 flows, one after the other, in whose time no timer ends."""
    sim = two_hosts()
    for _ in range(300):
        ended_ps(sim, FAR_PS)
        sim.run(sim.now_ps + 10_000_000)

    assert sim.world.clock[0].heap_count == 1


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
BESIDE_SERVER = star_of(ATP_WORKERS + 1, FAST)
ATP_PLAN = atp_job(BESIDE_SERVER, UNITS, overflow=Overflow.STICKY)


def with_floats() -> Segment:
    words = np.arange(UNITS * ELEMENTS, dtype=np.int32)
    return segment(words, floats=words.astype(np.float32), is_float=np.zeros(UNITS, np.uint8))


def test_floats_that_only_some_workers_have_are_refused() -> None:
    """A worker without them could not answer the server that asks for them."""
    for first in (True, False):
        engine = Engine(BESIDE_SERVER, 1)
        number = engine.add_job(ATP_PLAN)
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
    engine = Engine(BESIDE_SERVER, 1)
    number = engine.add_job(ATP_PLAN)
    whole = with_floats()

    some = "either all segments of a stream have floats to fall back to, or none has"
    for told, segments in (
        (some, [whole, replace(whole, floats=None, is_float=None)]),
        ("floats and is_float go together", [replace(whole, is_float=None)]),
    ):
        with pytest.raises(ValueError, match=f"^{told}$"):
            engine.open_stream(number, 0, segments)
    engine.open_stream(number, 0, [whole])  # what was refused has left no trace


def test_what_is_marked_goes_by_the_bytes_that_wait_whatever_the_rate() -> None:
    """Half as fast a link holds the same bytes for twice as long; back at its rate, it marks as at first."""
    engine = Engine(BESIDE_SERVER, 1)
    limit_bytes = 3 * FRAME.wire_bytes(ELEMENTS, first=True, last=True) + 1
    engine.add_job(atp_job(BESIDE_SERVER, UNITS, ecn_bytes=limit_bytes))
    link = BESIDE_SERVER.link_names.index(f"s0->h{ATP_WORKERS}")
    for rate_bps in (FAST.rate_bps, FAST.rate_bps // 2, FAST.rate_bps // 3, FAST.rate_bps):
        engine.set_rate(link, rate_bps)
        assert int(engine.world.links[link].ecn_ps) == limit_bytes * 8 * 10**12 // rate_bps


# Results that workers share are stored once, and all workers read the same words.

MESSAGE = OperationId(0, 0, 0), 0
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


def shared_segment(results: Results, words: NDArray[Any]) -> Segment:
    """A segment whose result is in common."""
    buffer = results.allocate(MESSAGE, -(-SIZE // UNIT_WORDS), SIZE, np.int32)
    return Segment(words, buffer.result, Merge.ADD, shared=buffer.shared, own=buffer.own)


TOTAL = np.sum([ramp(worker) for worker in range(SHARERS)], axis=0, dtype=np.int64)


def received(seed: int, rules: Sequence[Rule], *, is_shared: bool) -> list[NDArray[Any]]:
    """Every worker's result, in memory of its own or in common."""
    engine = Engine(STAR, seed, rules)
    number = engine.add_job(job(STAR, 4 * UNIT_PACKETS, FRAME, UNIT_PACKETS, **TIMEOUTS))
    results = Results(SHARERS, UNIT_WORDS, UNIT_PACKETS)
    ramps = map(ramp, range(SHARERS))
    segments = [shared_segment(results, words) if is_shared else segment(words) for words in ramps]
    start(engine, number, [[each] for each in segments])
    run(engine, SHARERS)
    if not is_shared:
        return [each.result for each in segments]
    return [results.take(worker, MESSAGE, each) for worker, each in enumerate(segments)]


def test_without_faults_all_workers_have_one_object() -> None:
    found = received(1, (), is_shared=True)

    assert found[0] is found[1] is found[2]
    assert found[0].tolist() == TOTAL.tolist()


@pytest.mark.parametrize(("seed", "rules"), [*((seed, FAULTS) for seed in range(1, 5)), (1, FLIPS_DOWN)])
def test_with_faults_every_worker_has_what_came_to_it(seed: int, rules: Sequence[Rule]) -> None:
    """Of flips on the way down alone, every worker has its own: its words differ at other places."""
    wanted, shared = (received(seed, rules, is_shared=is_shared) for is_shared in (False, True))

    assert [result.tolist() for result in shared] == [right.tolist() for right in wanted]
    if rules == FLIPS_DOWN:
        wrong = {frozenset(np.flatnonzero(result != TOTAL).tolist()) for result in shared}
        assert len(wrong - {frozenset()}) == SHARERS


NO_SHAPE = r"seen and own must be uint8 of shape \(40,\)"


def test_what_is_shared_must_fit() -> None:
    engine = Engine(STAR, 1)
    number = engine.add_job(job(STAR, 4 * UNIT_PACKETS, FRAME, UNIT_PACKETS))
    given = shared_segment(Results(SHARERS, UNIT_WORDS, UNIT_PACKETS), ramp(0))
    for flags, told in ((None, "shared and own go together"), (np.zeros(1, np.uint8), NO_SHAPE)):
        with pytest.raises(ValueError, match=told):
            engine.open_stream(number, 0, [replace(given, own=flags)])


def test_agreed_exponents_stay_each_workers_own() -> None:
    units = -(-SIZE // UNIT_WORDS)
    engine = Engine(STAR, 1)
    number = engine.add_job(job(STAR, 4 * UNIT_PACKETS, FRAME, UNIT_PACKETS, **TIMEOUTS))
    results = Results(SHARERS, UNIT_WORDS, UNIT_PACKETS)
    kept = []
    for worker in range(SHARERS):
        opened = shared_segment(results, ramp(worker).astype(np.float32))
        scaled = Scaled(np.full(units, 10 + worker, np.int8), np.zeros(units, np.int8))
        engine.open_stream(number, worker, [opened], scaled)
        kept.append((opened, scaled))
    run(engine, SHARERS)

    words = [results.take(worker, MESSAGE, opened) for worker, (opened, _) in enumerate(kept)]
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


NS, US = 10**3, 10**6
NO_BYTES = 10**15  # bit/s: a packet of 50 B takes 1 ps, rounded up
PACKET_BYTES = FRAME.wire_bytes(FRAME.elements, first=False, last=False)


def hosts(network: Network, sending: HostWork, receiving: HostWork) -> Network:
    """All hosts take the same time."""
    found = np.flatnonzero(network.is_host).tolist()
    return with_host_links(network, dict.fromkeys(found, (sending, receiving)))


def over_a_switch_ps(sending: HostWork, receiving: HostWork, packets: int, message_packets: int) -> int:
    """When the last of these packets has come from a host over a switch to a host."""
    send_ps, receive_ps = (
        transmit_ps(PACKET_BYTES, work.rate_bps) + work.packet_ps for work in (sending, receiving)
    )
    more_ps = [sending.message_ps * (number % message_packets == 0) for number in range(packets)]
    takes_ps = [(send_ps + first_ps, X, X, receive_ps) for first_ps in more_ps]
    return last_out_ps(takes_ps, [sending.delay_ps, D, D, receiving.delay_ps])


CASES = {
    "the wire is slowest": (HostWork("out", 10**10, 100 * NS), HostWork("in", 10**10, 50 * NS)),
    "sending is slowest": (
        HostWork("out", 10**10, 900 * NS, 0, 3 * US),
        HostWork("in", 10**10, 50 * NS, 0, US),
    ),
    "receiving is slowest": (HostWork("out", NO_BYTES, 1), HostWork("in", 3 * 10**8)),
    "a message takes longest": (
        HostWork("out", NO_BYTES, 100 * NS, 20 * US),
        HostWork("in", NO_BYTES, 450 * NS),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("packets", [1, 2, 40])
def test_a_flow_passes_two_hosts_and_two_wires(engine: Make, name: str, packets: int) -> None:
    sending, receiving = CASES[name]
    sim = engine(hosts(star_of(2), sending, receiving))
    sent = message(packets * FRAME.elements)
    sim.open_flow(sent)

    (done,) = run(sim, 1)

    assert done == Completion(over_a_switch_ps(sending, receiving, packets, packets), "flow", -1, 0)
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

    assert found.finished_ps == [over_a_switch_ps(sending, receiving, packets, unit_packets)] * workers
    check_sums(found.results, words)
    run_dry(sim)


def test_acknowledgements_take_time_and_go_first(engine: Make) -> None:
    """Host 1 sends 20 packets and acknowledges one: that is the first to leave it after what has begun.

    It takes a packet's time, and none of a message's.
    """
    work_ps = 5 * US
    network = with_host_links(
        star_of(2), {1: (HostWork("out", NO_BYTES, work_ps, US), HostWork("in", NO_BYTES))}
    )
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
    sending, receiving = HostWork("out", NO_BYTES, US), HostWork("in", NO_BYTES, US)
    sim = engine(hosts(star_of(2), sending, receiving))
    sim.open_flow(message(4))
    sim.pause(0, 100 * US)
    sim.pause(1, 50 * US)

    assert run(sim, 1)[0].time_ps == 50 * US
    run_dry(sim)


def test_paths_begin_and_end_inside_hosts() -> None:
    network = hosts(star_of(3), HostWork("out", NO_BYTES), HostWork("in", NO_BYTES))
    names = [network.link_names[link] for link in path(network, 0, 1, 0)]
    assert names == ["out", "h0->s0", "s0->h1", "in"]
    assert [network.link_names[link] for link in path(network, 0, 3, 0)] == ["out", "h0->s0"]
    assert [network.link_names[link] for link in path(network, 3, 2, 0)] == ["s0->h2", "in"]


def test_work_that_no_network_has() -> None:
    network = hosts(star_of(2), HostWork("out", 10**9, 1), HostWork("in", NO_BYTES))
    with pytest.raises(ValueError, match="link out is inside a host: its rate does not change"):
        compiled(network).set_rate(network.first_link(0), 10**9)
    for work, error in (
        ({3: (HostWork("out", 1), HostWork("in", 1))}, "must be hosts"),
        ({0: (HostWork("out", 1), HostWork("in", 1, 0, 5))}, "where it is sent"),
    ):
        with pytest.raises(ValueError, match=error):
            with_host_links(star_of(3), work)
    with pytest.raises(ValueError, match="already"):
        hosts(network, HostWork("out", 1), HostWork("in", 1))
