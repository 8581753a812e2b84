"""Links: when packets leave and arrive, which are lost or damaged, and what faults do to them.

Two hosts and a switch as physics has it hold both engines to it: a transmitter is a rate over time and two
queues; what it has sent is the integral of the rate. Nothing there knows when a packet will leave before it
has, and nothing is shared with the engines or their rules. Times are whole picoseconds: a packet has left at
the first of them by which all of its bits are sent.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.kernels.keyed_random import mix_plain
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Burst, Fate, Flow, Frame, Rule, Sender
from netfold.topologies.graph import LinkSpec
from netfold.topologies.network import Network
from tests.reference.engine.engine import ReferenceEngine
from tests.reference.engine.fabric import ARRIVAL, FLOW_TIMER, HELD
from tests.sim.engine.small import (
    FOREVER_PS,
    LINK,
    A,
    D,
    Make,
    Sim,
    X,
    aggregate,
    changed,
    check_conservation,
    gradients,
    job,
    link_between,
    message,
    segment,
    star_of,
)
from tests.sim.engine.small import chain as line_of

BITS = 8
SECOND_PS = 10**12


class Packet(NamedTuple):
    """A message of one packet (`is_ack`: the answer to it), and what it weighs on the wire."""

    number: int
    size_bytes: int
    is_ack: bool


class Offer(NamedTuple):
    """A host (0 or 1) sends a packet to the other one."""

    time_ps: int
    host: int
    size_bytes: int


class Change(NamedTuple):
    """Something done to a link: `set_rate` with a rate, `cut`, `restore`, `flush`, `kill`."""

    time_ps: int
    name: str
    link: int
    rate_bps: int = 0


class Arrival(NamedTuple):
    """A packet has come to the end of a link."""

    time_ps: int
    link: int
    number: int
    is_ack: bool


@dataclass
class Transmitter:
    """Sends what is queued: acknowledgements first, but never instead of what it has begun."""

    rate_bps: int
    buffer_bytes: int | None
    urgent: deque[Packet] = field(default_factory=deque)
    ordinary: deque[Packet] = field(default_factory=deque)
    current: Packet | None = None
    left_bits: Fraction = Fraction(0)
    clock_ps: int = 0  # all is known up to here
    is_down: bool = False
    is_dead: bool = False
    dropped: int = 0
    lost: int = 0
    most_bytes: Fraction = Fraction(0)  # unsent at once

    def next_ps(self) -> int | None:
        """When the packet on the wire has left, if nothing changes."""
        if self.current is None:
            return None
        return self.clock_ps + ceil(self.left_bits * SECOND_PS / self.rate_bps)

    def pass_time(self, time_ps: int) -> None:
        """Send until a time by which nothing is done."""
        if self.current is not None:
            self.left_bits -= Fraction(self.rate_bps * (time_ps - self.clock_ps), SECOND_PS)
        self.clock_ps = time_ps

    def start(self) -> None:
        """Take the next packet, if there is one and the wire is free."""
        if self.is_down or self.current is not None:
            return
        queue = self.urgent or self.ordinary
        if queue:
            self.current = queue.popleft()
            self.left_bits = Fraction(BITS * self.current.size_bytes)

    def unsent_bytes(self) -> Fraction:
        left = self.left_bits / BITS if self.current is not None else Fraction(0)
        return left + sum(packet.size_bytes for packet in [*self.urgent, *self.ordinary])

    def offer(self, packet: Packet) -> None:
        """Queue a packet, or drop it where it finds no room."""
        is_limited = not packet.is_ack and self.buffer_bytes is not None
        if self.is_dead or (is_limited and not self.has_room(packet.size_bytes)):
            self.dropped += 1
            return
        (self.urgent if packet.is_ack else self.ordinary).append(packet)
        self.most_bytes = max(self.most_bytes, self.unsent_bytes())
        self.start()

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many bytes fit: each packet counts as whole picoseconds, as on the wire."""
        assert self.buffer_bytes is not None
        if self.is_down:
            return self.unsent_bytes() + size_bytes <= self.buffer_bytes
        byte_ps = Fraction(BITS * SECOND_PS, self.rate_bps)
        sizes = [packet.size_bytes for packet in [*self.urgent, *self.ordinary]] + [size_bytes]
        needed_ps = sum(ceil(size * byte_ps) for size in sizes)
        leaves_ps = self.next_ps()
        needed_ps += leaves_ps - self.clock_ps if leaves_ps is not None else 0
        return needed_ps <= self.buffer_bytes * byte_ps


UP, DOWN, BACK_UP, BACK_DOWN = range(4)  # host 0 → switch → host 1 → switch → host 0
NEXT = {UP: DOWN, BACK_UP: BACK_DOWN}
ANSWER = {DOWN: BACK_UP, BACK_DOWN: UP}  # where the target's acknowledgement goes


def in_order(offers: list[Offer], changes: list[Change]) -> list[tuple[int, int, int, Offer | Change]]:
    """What is done, with its time and its number; of one instant, changes come first."""
    return sorted(
        [(change.time_ps, 0, number, change) for number, change in enumerate(changes)]
        + [(offer.time_ps, 1, number, offer) for number, offer in enumerate(offers)]
    )


@dataclass
class World:
    """The four links of two hosts on a switch."""

    transmitters: list[Transmitter]
    delays_ps: list[int]
    ack_bytes: int
    arrivals: list[Arrival] = field(default_factory=list)
    flying: list[tuple[int, int, int, Packet]] = field(default_factory=list)  # time, serial, link, packet
    serial: int = 0

    def play(self, offers: list[Offer], changes: list[Change], end_ps: int) -> None:
        """Let it all happen. Of one instant: what leaves and arrives, then changes, then offers."""
        for time_ps, _, number, action in in_order(offers, changes):
            self.run(time_ps)
            if isinstance(action, Offer):
                link = UP if action.host == 0 else BACK_UP
                self.transmitters[link].offer(Packet(number, action.size_bytes, is_ack=False))
            else:
                self.change(action)
        self.run(end_ps)

    def run(self, until_ps: int) -> None:
        """Pass time up to and including an instant."""
        while True:
            leaving = [time for one in self.transmitters if (time := one.next_ps()) is not None]
            now_ps = min([*leaving, *(time for time, *_ in self.flying[:1]), until_ps])
            nothing = True
            for link, transmitter in enumerate(self.transmitters):
                is_leaving = transmitter.next_ps() == now_ps
                transmitter.pass_time(now_ps)
                if is_leaving:
                    nothing = False
                    self.launch(link)
            if nothing and self.flying and self.flying[0][0] == now_ps:
                nothing = False
                _, _, link, packet = heapq.heappop(self.flying)
                self.land(link, packet)
            if nothing and now_ps == until_ps:
                return

    def launch(self, link: int) -> None:
        """A packet has left a transmitter."""
        transmitter = self.transmitters[link]
        assert transmitter.current is not None
        self.serial += 1
        time_ps = transmitter.clock_ps + self.delays_ps[link]
        heapq.heappush(self.flying, (time_ps, self.serial, link, transmitter.current))
        transmitter.current = None
        transmitter.start()

    def land(self, link: int, packet: Packet) -> None:
        """A packet is at the end of a link: it goes on, or is acknowledged."""
        now_ps = self.transmitters[link].clock_ps
        self.arrivals.append(Arrival(now_ps, link, packet.number, packet.is_ack))
        if link in NEXT:
            self.transmitters[NEXT[link]].offer(packet)
        elif not packet.is_ack:
            self.transmitters[ANSWER[link]].offer(Packet(packet.number, self.ack_bytes, is_ack=True))

    def change(self, change: Change) -> None:
        transmitter = self.transmitters[change.link]
        match change.name:
            case "set_rate":
                transmitter.rate_bps = change.rate_bps
            case "cut":
                transmitter.is_down = True
                struck = [entry for entry in self.flying if entry[2] == change.link]
                transmitter.lost += len(struck) + (transmitter.current is not None)
                transmitter.current = None
                self.flying = [entry for entry in self.flying if entry[2] != change.link]
                heapq.heapify(self.flying)
            case "flush" | "kill" if transmitter.is_down:
                transmitter.is_dead |= change.name == "kill"
                transmitter.lost += len(transmitter.urgent) + len(transmitter.ordinary)
                transmitter.urgent.clear()
                transmitter.ordinary.clear()
            case "restore":
                transmitter.is_down = transmitter.is_dead = False
                transmitter.start()


END_PS = 10**13  # long after everything
NAMES = "h0->s0", "s0->h1", "h1->s0", "s0->h0"
OVERHEAD = 20
ENGINES = [Engine, ReferenceEngine]


@dataclass(frozen=True)
class Scene:
    """A network of two hosts, what they send, and what happens to their links."""

    rates_bps: list[int]  # by link, as in `physics`
    delays_ps: list[int]
    buffers_bytes: list[int]
    ack_bytes: int
    offers: list[Offer]
    changes: list[Change]


def scene_of(seed: int, packets: int, changes: int) -> Scene:
    """A random scene: bursts from both hosts, rates with and without whole picoseconds a byte."""
    random = np.random.default_rng(seed)
    rates = [10**8, 10**9, 3 * 10**9, 7 * 10**9, 10**10, 999_999_937]
    span_ps = int(random.choice([2_000_000, 30_000_000, 300_000_000]))
    times = np.sort(random.integers(0, span_ps, packets))
    if random.integers(2):
        times[: packets // 2] = times[0]  # all at once
    offers = [
        Offer(int(time), int(random.integers(2)), OVERHEAD + 4 * int(random.choice([1, 20, 375])))
        for time in times
    ]
    names = random.choice(["set_rate", "set_rate", "set_rate", "cut", "restore", "flush", "kill"], changes)
    made = [
        Change(int(time), str(name), int(random.integers(4)), int(random.choice(rates)))
        for time, name in zip(random.integers(0, 2 * span_ps, changes), names, strict=True)
    ]
    made += [Change(4 * span_ps, "restore", link) for link in range(4)]
    return Scene(
        rates_bps=[int(rate) for rate in random.choice(rates, 4)],
        delays_ps=[int(delay) for delay in random.choice([0, 1, 50_000, 1_000_000], 4)],
        buffers_bytes=[int(size) for size in random.choice([300, 3_000, 1 << 20], 4)],
        ack_bytes=int(random.choice([4, 84, 600])),
        offers=offers,
        changes=sorted(made),
    )


ROWS = [star_of(2).link_names.index(name) for name in NAMES]  # of the engines, by link


def network_of(scene: Scene) -> Network:
    order = np.argsort(ROWS)
    return replace(
        star_of(2),
        rate_bps=np.array(scene.rates_bps)[order],
        delay_ps=np.array(scene.delays_ps)[order],
        buffer_bytes=np.array(scene.buffers_bytes)[order],
    )


def physics(scene: Scene) -> World:
    buffers = [None, scene.buffers_bytes[DOWN], None, scene.buffers_bytes[BACK_DOWN]]
    transmitters = [Transmitter(rate, size) for rate, size in zip(scene.rates_bps, buffers, strict=True)]
    world = World(transmitters, scene.delays_ps, scene.ack_bytes)
    world.play(scene.offers, scene.changes, END_PS)
    return world


def played(make: Any, scene: Scene) -> tuple[Any, list[Arrival]]:
    """An engine, every offer a message of one packet that is acknowledged, and its arrivals."""
    sim = make(network_of(scene), 1)
    if isinstance(sim, Engine):
        sim.start_log()
    frame = Frame("one", elements=1000, overhead_bytes=OVERHEAD, ack_bytes=scene.ack_bytes)
    for time_ps, _, number, action in in_order(scene.offers, scene.changes):
        run_to(sim, time_ps)
        if isinstance(action, Offer):
            words = (action.size_bytes - OVERHEAD) // 4
            ends = (action.host, 1 - action.host)
            opened = sim.open_flow(Flow(*ends, words, None, None, Sender(frame, 1, 10**17), 0, number))
            assert opened == number
        elif action.name == "set_rate":
            sim.set_rate(ROWS[action.link], action.rate_bps)
        else:
            getattr(sim, action.name)(ROWS[action.link])
    run_to(sim, END_PS)
    return sim, [Arrival(row[0], ROWS.index(row[3]), row[4], bool(row[6])) for row in sim.log if row[2] == 0]


def run_to(sim: Any, time_ps: int) -> None:
    while sim.run(time_ps):
        pass


def check(scene: Scene) -> None:
    world = physics(scene)
    for make in ENGINES:
        sim, arrivals = played(make, scene)
        assert sorted(arrivals) == sorted(world.arrivals)
        for link, transmitter in enumerate(world.transmitters):
            counted = sim.link_counters()[ROWS[link]]
            assert counted["dropped_packets"] == transmitter.dropped
            assert counted["lost_packets"] == transmitter.lost
            assert counted["in_flight_packets"] == 0
            most_bytes = int(transmitter.most_bytes)  # each packet's time is rounded up, by less than a byte
            assert most_bytes <= counted["backlog_bytes_max"] <= most_bytes + 1


@given(st.integers(0, 2**40), st.integers(1, 40), st.integers(0, 12))
def test_both_engines_send_as_physics_does(seed: int, packets: int, changes: int) -> None:
    check(scene_of(seed, packets, changes))


def burst(changes: list[Change], packets: int = 20, back: int = 0) -> Scene:
    """1000 B packets from host 0 at once, and `back` from host 1; 8 us each; no delay but 1 us a link."""
    offers = [Offer(0, host, 1000) for host, count in ((0, packets), (1, back)) for _ in range(count)]
    return Scene([10**9] * 4, [10**6] * 4, [1 << 20] * 4, 84, offers, changes)


US = 10**6


class Example(NamedTuple):
    """A scene whose arrivals at the end of a link are known on paper, and some counters of that link."""

    scene: Scene
    link: int
    arrivals: list[tuple[int, bool]]  # the first ones: when, and whether they are acknowledgements
    counters: dict[str, int]


def packets_at(times_ps: Iterable[int]) -> list[tuple[int, bool]]:
    return [(time_ps, False) for time_ps in times_ps]


def told(name: str, link: int, from_us: int, until_us: int, *more: Change) -> list[Change]:
    """A link is slow, at a hundredth of its rate, or down for a while."""
    undo = Change(until_us * US, *(("set_rate", link, 10**9) if name == "set_rate" else ("restore", link)))
    return [Change(from_us * US, name, link, 10**7 if name == "set_rate" else 0), *more, undo]


ACK_PS = 672_000  # 84 B
EXAMPLES = {
    # At a hundredth of its rate for 100 us it sends 1 us' worth: all behind comes 99 us later. A model that
    # gives a packet the rate at which it began lets the one on the wire take longer.
    "slow": Example(
        burst(told("set_rate", UP, 20, 120)),
        UP,
        packets_at(8 * US * (n + 1) + US + (99 * US if n >= 2 else 0) for n in range(20)),
        {"backlog_bytes_max": 20_000, "busy_ps": 259 * US},
    ),
    # At 20 us the third packet is being sent, and the second has 4 us to go of 8 us of delay.
    "an outage loses what is on the wire": Example(
        replace(burst(told("cut", UP, 20, 50)), delays_ps=[8 * US] * 4),
        UP,
        packets_at([16 * US, *(50 * US + 8 * US * (n + 1) + 8 * US for n in range(17))]),
        {"lost_packets": 2},
    ),
    # The switch has room for five packets; nothing leaves it, so the other 15 are dropped.
    "down, with a buffer": Example(
        replace(burst(told("cut", DOWN, 0, 500)), buffers_bytes=[5000] * 4),
        DOWN,
        packets_at(500 * US + 8 * US * (n + 1) + US for n in range(5)),
        {"dropped_packets": 15, "delivered_packets": 5, "lost_packets": 0, "backlog_bytes_max": 5000},
    ),
    # Twelve packets wait on it when it is made half as fast: these and the rest take 16 us each.
    "slower while it is down": Example(
        burst(told("cut", DOWN, 0, 500, Change(100 * US, "set_rate", DOWN, 5 * 10**8))),
        DOWN,
        packets_at(500 * US + 16 * US * (n + 1) + US for n in range(20)),
        {"busy_ps": 20 * 16 * US},
    ),
    "flushed": Example(
        burst(told("cut", DOWN, 0, 500, Change(499 * US, "flush", DOWN))),
        DOWN,
        [],
        {"lost_packets": 20, "delivered_packets": 0},
    ),
    # It takes packets from 109 us on; the switch gets one every 8 us from 9 us on, and drops the first 13.
    "failed": Example(
        burst(told("cut", DOWN, 0, 109, Change(0, "kill", DOWN))),
        DOWN,
        packets_at(113 * US + 8 * US * n + 9 * US for n in range(7)),
        {"lost_packets": 0, "dropped_packets": 13, "delivered_packets": 7},
    ),
    # What waits in front of it is lost, too: of 20 packets two are delivered before.
    "failed in the middle of a burst": Example(
        burst(told("cut", UP, 20, 50, Change(20 * US, "kill", UP))),
        UP,
        packets_at([9 * US, 17 * US]),
        {"lost_packets": 18, "dropped_packets": 0},
    ),
    # Host 1's own packets fill its link from 0 on, 8 us each. Host 0's first packet is there at 18 us, while
    # the third is being sent until 24 us: its acknowledgement goes next.
    "an acknowledgement waits for the packet on the wire alone": Example(
        burst([], packets=1, back=10),
        BACK_UP,
        [
            *packets_at([9 * US, 17 * US, 25 * US]),
            (25 * US + ACK_PS, True),
            *packets_at(33 * US + ACK_PS + 8 * US * n for n in range(7)),
        ],
        {},
    ),
    # It is there at 24 us, when host 1's fourth begins: its acknowledgement goes at 32 us.
    "an acknowledgement waits for one that begins at once": Example(
        replace(burst([], packets=1, back=10), delays_ps=[4 * US, 4 * US, US, US]),
        BACK_UP,
        [
            *packets_at(9 * US + 8 * US * n for n in range(4)),
            (33 * US + ACK_PS, True),
            *packets_at(41 * US + ACK_PS + 8 * US * n for n in range(6)),
        ],
        {},
    ),
}


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_on_paper(make: Any, name: str) -> None:
    scene, link, expected, counters = EXAMPLES[name]
    sim, arrivals = played(make, scene)
    answers = link in (BACK_UP, BACK_DOWN)
    came = [(at.time_ps, at.is_ack) for at in arrivals if at.link == link and (answers or not at.is_ack)]

    assert came == expected
    counted = sim.link_counters()[ROWS[link]]
    assert {name: counted[name] for name in counters} == counters
    check(scene)


FRAME = Frame("one", elements=1, overhead_bytes=84)
NETWORK = star_of(2, LinkSpec(10**11, 10**6, 1 << 30))
FATES_UP, FATES_DOWN, *BACK = ROWS
NEVER_PS = 10**17
SINGLE = Flow(0, 1, 1, None, None, Sender(FRAME, 1, NEVER_PS), 0, 7)  # a message of one packet


def test_a_link_too_slow_for_the_clock_is_refused_in_words() -> None:
    """64 KiB take 6 days at 1 bps: a dozen of them overflow the clock in picoseconds."""
    sim, link = Engine(NETWORK, 1), FATES_UP
    sim.set_rate(link, 1)
    frame = Frame("long", elements=16_000, overhead_bytes=OVERHEAD)
    sim.open_flow(Flow(0, 1, 16_000 * 12, None, None, Sender(frame, 12, 10**17), 0, 1))

    with pytest.raises(RuntimeError) as caught:
        sim.run(10**18)
    assert str(caught.value) == (
        "the backlog of link h0->s0 takes longer than 576460752303423488 ps, the most that fits the "
        "engine's clock"
    )
    with pytest.raises(ValueError, match="a link's rate is 1 bps or more, found 0"):
        sim.set_rate(link, 0)


def test_a_packet_too_long_for_the_clock_is_refused() -> None:
    fits = Frame("long", elements=1 << 14, overhead_bytes=0)
    with pytest.raises(ValueError, match=r"^a packet of 65537B is too long: 65536B at most on the wire$"):
        Engine(NETWORK, 1).open_flow(changed(SINGLE, frame=replace(fits, overhead_bytes=1)))
    Engine(NETWORK, 1).open_flow(changed(SINGLE, frame=fits))


def test_one_packet_at_one_bit_a_second_is_right() -> None:
    sim = Engine(NETWORK, 1)
    sim.start_log()
    sim.set_rate(FATES_UP, 1)
    frame = Frame("one", elements=1000, overhead_bytes=OVERHEAD)
    sim.open_flow(changed(SINGLE, words_count=1000, frame=frame, timeout_ps=10**18))
    run_to(sim, 10**17)

    assert sim.log[0][0] == 4020 * 8 * 10**12 + 10**6  # and the delay


def sent_once(rules: list[Rule], packets: int, seed: int = 1, *, is_answered: bool = True) -> Engine:
    """One message of so many packets, all at once; nothing is sent again."""
    engine = Engine(NETWORK, seed, rules)
    engine.start_log()
    if not is_answered:
        engine.crash(1)
    engine.open_flow(changed(SINGLE, words_count=packets, window=packets))
    engine.run(10**15)
    return engine


def bursts(rule: Rule, packets: int, seed: int = 1) -> NDArray[np.bool_]:
    lost = np.ones(packets, bool)
    for row in sent_once([rule], packets, seed, is_answered=False).log:
        if row[2] == 0 and row[3] == FATES_UP and row[7] == 0:
            lost[row[5]] = False
    return lost


def chain(good_to_bad: float, bad_to_good: float, loss_bad: float = 1.0, loss_good: float = 0.0) -> Rule:
    return Rule(Fate.BURST_LOSS, loss_bad, (FATES_UP,), burst=Burst(good_to_bad, bad_to_good, loss_good))


PACKETS = 40_000


@pytest.mark.parametrize(
    ("p", "r", "bad", "good"),
    [(0.05, 0.5, 0.7, 0.01), (0.3, 0.3, 0.5, 0.5), (1.0, 1.0, 1.0, 0.0)],
)
def test_loss_and_its_autocorrelation_are_those_of_the_chain(
    p: float, r: float, bad: float, good: float
) -> None:
    """Gilbert-Elliott: stationary loss, and covariance (b (1 − b)) (loss_bad − loss_good)² (1 − p − r)^k."""
    found = bursts(chain(p, r, bad, good), PACKETS).astype(float)
    share = p / (p + r)
    mean = share * bad + (1 - share) * good
    memory = 1 - p - r
    # Variance of the mean of a correlated series, to first order; 5 standard deviations.
    spread = mean * (1 - mean)
    between = share * (1 - share) * (bad - good) ** 2
    deviation = math.sqrt((spread + 2 * between * memory / (1 - memory)) / PACKETS)

    assert abs(found.mean() - mean) < 5 * deviation + 1e-5
    for lag in (1, 2, 5):
        covariance = np.mean((found[:-lag] - mean) * (found[lag:] - mean))
        assert covariance == pytest.approx(between * memory**lag, abs=6 * math.sqrt(spread / PACKETS))


def test_the_first_packet_finds_the_stationary_state() -> None:
    """Over many seeds, a share of p / (p + r) of the first packets is lost."""
    first = [bursts(chain(0.02, 0.06), 1, seed)[0] for seed in range(200)]

    assert abs(np.mean(first) - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 200)


def test_a_link_goes_on_in_its_own_state_whatever_other_links_do(engine: Make) -> None:
    """Every packet finds the other state than the one before it on the link: of eight, sent one by one, the
    first link loses four, and the second two of the rest."""
    both = Rule(Fate.BURST_LOSS, 1.0, (FATES_UP, FATES_DOWN), burst=Burst(1.0, 1.0))
    sim = engine(NETWORK, rules=[both])
    sim.crash(1)
    for number in range(8):
        sim.open_flow(changed(SINGLE, key=number))
        sim.run((number + 1) * 10**8)

    first, second = (sim.link_counters()[link] for link in (FATES_UP, FATES_DOWN))
    assert (first["sent_packets"], first["lost_packets"]) == (8, 4)
    assert (second["sent_packets"], second["lost_packets"]) == (4, 2)


def test_copies_of_copies_have_fates_of_their_own() -> None:
    """Copied on both links, a packet comes four times; each of the four is acknowledged by itself."""
    packets = 5_000
    rules = [Rule(Fate.DUPLICATE, 1.0, (FATES_UP, FATES_DOWN)), Rule(Fate.LOSS, 0.5, (BACK[0],))]
    engine = sent_once(rules, packets)
    count = np.zeros(packets, int)
    for row in engine.log:
        if row[2] == 0 and row[3] == BACK[1] and row[6] == 1 and row[7] < packets:
            count[row[7]] += 1

    for n, expected in enumerate((1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)):
        assert abs(np.mean(count == n) - expected) < 5 * math.sqrt(expected / packets)


@pytest.mark.parametrize(("put_ps", "is_struck"), [(99, False), (100, True), (199, True), (200, False)])
def test_a_fault_strikes_from_its_beginning_up_to_its_end(engine: Make, put_ps: int, is_struck: bool) -> None:
    """The first instant is in it, and the last is not."""
    sim = engine(NETWORK, rules=[Rule(Fate.LOSS, 1.0, (FATES_UP,), from_ps=100, until_ps=200)])
    sim.run(put_ps)
    sim.open_flow(SINGLE)

    assert sim.rule_counters() == [int(is_struck)]
    assert sim.link_counters()[FATES_UP]["lost_packets"] == int(is_struck)


def test_what_flows_have_sent_again_is_counted_when_they_are_over_too() -> None:
    """Rows of flows that are over are used again: all that went up beyond a packet each was sent again."""
    engine = Engine(NETWORK, 1, [Rule(Fate.LOSS, 0.2, (FATES_UP, FATES_DOWN))])
    flows, packets = 30, 40
    for number in range(flows):
        job = number % 2
        engine.open_flow(Flow(0, 1, packets, None, None, Sender(FRAME, 8, 10**8, 2), 0, number, job))
        while not engine.run(10**15):
            pass
    while (time_ps := engine.next_event_ps()) is not None:
        engine.run(time_ps)

    again = engine.link_counters()[FATES_UP]["sent_packets"] - flows * packets
    assert engine.flow_retransmissions(0) + engine.flow_retransmissions(1) == again > 100
    assert engine.world.flows.size < flows
    assert 0.5 < engine.flow_retransmissions(0) / engine.flow_retransmissions(1) < 2


LINE = line_of([LINK] * 2)
FAULTS_UP, FAULTS_DOWN = link_between(LINE, 0, 1), link_between(LINE, 2, 1)


def arrivals(sim: Sim, link: int) -> list[tuple[int, int]]:
    """When packets arrived by a link, and which."""
    return [(row[0], row[5]) for row in sim.log if row[2] == ARRIVAL and row[3] == link]


@pytest.mark.parametrize("fate", [Fate.LOSS, Fate.CORRUPTION, Fate.FLIP])
def test_fates_that_lose_a_flow_packet(engine: Make, fate: Fate) -> None:
    """A flow's packets carry no words, so a flip loses them too; only what is put before 1 ps is struck."""
    sim = engine(LINE, rules=[Rule(fate, 1.0, (FAULTS_UP,), until_ps=1)])
    sim.open_flow(message(8))
    sim.run(5 * X + 2 * D)

    assert sim.rule_counters() == [2]
    assert sim.link_counters()[FAULTS_UP]["lost_packets"] == 2
    assert arrivals(sim, FAULTS_DOWN) == []
    check_conservation(sim)


def test_of_each_fate_the_first_rule_that_counts_is_tried_and_the_first_to_strike_decides(
    engine: Make,
) -> None:
    rules = [
        Rule(Fate.REORDER, 1.0, (FAULTS_DOWN,), delay_ps=9),  # another link
        Rule(Fate.LOSS, 1.0, (FAULTS_UP,), from_ps=1),  # not yet
        Rule(Fate.LOSS, 0.0, (FAULTS_UP,)),  # never, and shields from the next
        Rule(Fate.LOSS, 1.0, (FAULTS_UP,)),
        Rule(Fate.REORDER, 1.0, (FAULTS_UP,), delay_ps=5),
        Rule(Fate.CORRUPTION, 1.0, (FAULTS_UP,)),
    ]
    sim = engine(LINE, rules=rules)
    sim.open_flow(message(4))
    sim.run(X + D + 5)

    assert sim.rule_counters() == [1, 0, 0, 0, 1, 0]
    assert arrivals(sim, FAULTS_UP) == [(X + D + 5, 0)]


def test_duplicate_puts_a_copy_behind_the_packet(engine: Make) -> None:
    sim = engine(LINE, rules=[Rule(Fate.DUPLICATE, 1.0, (FAULTS_UP,), delay_ps=3)])
    sim.open_flow(message(8, ack_every=2))
    sim.run(4 * X + D + 3)

    assert arrivals(sim, FAULTS_UP) == [(X + D, 0), (2 * X + D + 3, 0), (3 * X + D, 1), (4 * X + D + 3, 1)]
    assert sim.rule_counters() == [2]  # the copies were not tried


def test_flip_inverts_one_bit_of_one_copy(engine: Make) -> None:
    network = star_of(2)
    sim = engine(network, rules=[Rule(Fate.FLIP, 1.0, (link_between(network, 2, 1),))])
    number = sim.add_job(job(network, 1))
    words = gradients(2, 3)
    results = aggregate(sim, number, words).results

    total = np.add.reduce(words, dtype=np.int32)
    key = mix_plain(1, 2, number, 65536 * 1 + 1, 0, 0, 0, 0)  # caused by worker 1, the last
    expected = total.copy()
    expected.view(np.uint32)[mix_plain(key, 0, 40) % 3] ^= np.uint32(1 << mix_plain(key, 0, 41) % 32)
    assert np.array_equal(results[0], total)
    assert np.array_equal(results[1], expected)
    assert not np.array_equal(total, expected)


def test_paused_host_holds_packets_and_timers(engine: Make) -> None:
    """The later of two pauses wins; what was held is processed in the order of arrival."""
    sim = engine(LINE)
    sim.open_flow(message(8, timeout_ps=X))
    until_ps = 50 * X + 2 * D
    sim.pause(1, until_ps)
    sim.pause(1, X)
    sim.pause(0, 40 * X)
    sim.run(until_ps + A + 2 * D)

    held = [(row[0], row[3], row[5]) for row in sim.log if row[2] == HELD]
    assert held == [(until_ps, FAULTS_DOWN, 0), (until_ps, FAULTS_DOWN, 1), *held[2:]]
    assert next(row[0] for row in sim.log if row[2] == FLOW_TIMER) == 40 * X
    assert not any(row[2] == ARRIVAL and row[6] == 1 and row[0] < until_ps for row in sim.log)


def test_crashed_host_ignores_packets_and_opens_nothing(engine: Make) -> None:
    network = star_of(2)
    sim = engine(network)
    number = sim.add_job(job(network, 4, timeout_ps=X, first_timeout_ps=X))
    first, second = (segment(each) for each in gradients(2, 16))
    sim.open_stream(number, 0, [first])
    sim.crash(0)
    sim.crash(1)
    sim.open_stream(number, 1, [second])
    sim.open_flow(message(4))

    assert sim.run(FOREVER_PS) == []
    assert [row[2] for row in sim.log] == [ARRIVAL] * 4  # what was under way arrives; no timer fires
    assert sim.worker_counters(number, 0)["timeouts"] == 0
    assert sim.switch_counters(number)["packets"] == 4
