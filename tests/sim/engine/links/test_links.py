"""Links of both engines against physics (`physics.py`): departures, drops and losses, to the picosecond."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Flow, Frame
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import Network, compile_network
from tests.reference.engine.engine import ReferenceEngine
from tests.sim.engine.links.physics import (
    BACK_DOWN,
    BACK_UP,
    DOWN,
    UP,
    Arrival,
    Change,
    Offer,
    Transmitter,
    World,
)

END_PS = 10**13  # long after everything
NAMES = {UP: "h0->s0", DOWN: "s0->h1", BACK_UP: "h1->s0", BACK_DOWN: "s0->h0"}
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
    names = random.choice(["set_rate", "set_rate", "set_rate", "cut", "restore", "flush"], changes)
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


def network_of(scene: Scene) -> Network:
    network = compile_network(star(2, LinkSpec(10**9, 0, 1 << 20)))
    order = [next(row for row, link in NAMES.items() if link == name) for name in network.link_names]
    return replace(
        network,
        rate_bps=np.array([scene.rates_bps[link] for link in order]),
        delay_ps=np.array([scene.delays_ps[link] for link in order]),
        buffer_bytes=np.array([scene.buffers_bytes[link] for link in order]),
    )


def physics(scene: Scene) -> World:
    buffers = [None, scene.buffers_bytes[DOWN], None, scene.buffers_bytes[BACK_DOWN]]
    transmitters = [Transmitter(rate, size) for rate, size in zip(scene.rates_bps, buffers, strict=True)]
    world = World(transmitters, scene.delays_ps, scene.ack_bytes)
    world.play(scene.offers, scene.changes, END_PS)
    return world


def played(make: Any, scene: Scene) -> tuple[Any, list[Arrival]]:
    """An engine, every offer a message of one packet that is acknowledged, and its arrivals."""
    network = network_of(scene)
    sim = make(network, 1)
    if isinstance(sim, Engine):
        sim.start_log()
    rows = {link: network.link_names.index(name) for link, name in NAMES.items()}
    frame = Frame("one", elements=1000, overhead_bytes=OVERHEAD, ack_bytes=scene.ack_bytes)
    actions = sorted(
        [(change.time_ps, 0, number, change) for number, change in enumerate(scene.changes)]
        + [(offer.time_ps, 1, number, offer) for number, offer in enumerate(scene.offers)]
    )
    for time_ps, _, number, action in actions:
        run_to(sim, time_ps)
        if isinstance(action, Offer):
            words = (action.size_bytes - OVERHEAD) // 4
            ends = (action.host, 1 - action.host)
            opened = sim.open_flow(Flow(*ends, words, None, None, frame, 1, 10**17, 1, 0, number))
            assert opened == number
        elif action.name == "set_rate":
            sim.set_rate(rows[action.link], action.rate_bps)
        else:
            getattr(sim, action.name)(rows[action.link])
    run_to(sim, END_PS)
    links = {row: link for link, row in rows.items()}
    return sim, [Arrival(row[0], links[row[3]], row[4], bool(row[6])) for row in sim.log if row[2] == 0]


def run_to(sim: Any, time_ps: int) -> None:
    while sim.run(time_ps):
        pass


def check(scene: Scene) -> None:
    world = physics(scene)
    for make in ENGINES:
        sim, arrivals = played(make, scene)
        assert sorted(arrivals) == sorted(world.arrivals)
        counters = dict(zip(sim_names(scene), sim.link_counters(), strict=True))
        for link, transmitter in enumerate(world.transmitters):
            counted = counters[NAMES[link]]
            assert counted["dropped_packets"] == transmitter.dropped
            assert counted["lost_packets"] == transmitter.lost
            assert counted["in_flight_packets"] == 0
            most_bytes = int(transmitter.most_bytes)  # each packet's time is rounded up, by less than a byte
            assert most_bytes <= counted["backlog_bytes_max"] <= most_bytes + 1


def sim_names(scene: Scene) -> tuple[str, ...]:
    return tuple(network_of(scene).link_names)


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
    "flushed": Example(
        burst(told("cut", DOWN, 0, 500, Change(499 * US, "flush", DOWN))),
        DOWN,
        [],
        {"lost_packets": 20, "delivered_packets": 0},
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
    found = [
        (one.time_ps, one.is_ack) for one in arrivals if one.link == link and (answers or not one.is_ack)
    ]

    assert found == expected
    counted = dict(zip(sim_names(scene), sim.link_counters(), strict=True))[NAMES[link]]
    assert {name: counted[name] for name in counters} == counters
    check(scene)


def test_a_link_too_slow_for_the_clock_is_refused_in_words() -> None:
    """64 KiB take 6 days at 1 bps: a dozen of them overflow the clock in picoseconds."""
    network = compile_network(star(2, LinkSpec(10**9, 0, 1 << 30)))
    sim = Engine(network, 1)
    link = network.link_names.index("h0->s0")
    sim.set_rate(link, 1)
    frame = Frame("long", elements=16_000, overhead_bytes=OVERHEAD)
    sim.open_flow(Flow(0, 1, 16_000 * 12, None, None, frame, 12, 10**17, 1, 0, 1))

    with pytest.raises(RuntimeError) as caught:
        sim.run(10**18)
    assert str(caught.value) == (
        "the backlog of link h0->s0 takes longer than 576460752303423488 ps, the most that fits the "
        "engine's clock"
    )
    with pytest.raises(ValueError, match="a link's rate is 1 bps or more, found 0"):
        sim.set_rate(link, 0)


def test_a_packet_too_long_for_the_clock_is_refused() -> None:
    network = compile_network(star(2, LinkSpec(10**9, 0, 1 << 30)))
    frame = Frame("long", elements=1 << 14, overhead_bytes=1)
    with pytest.raises(ValueError, match="65537B is too long: 65536B at most") as caught:
        Engine(network, 1).open_flow(Flow(0, 1, 1, None, None, frame, 1, 10**9, 1, 0, 1))
    assert str(caught.value) == "a packet of 65537B is too long: 65536B at most on the wire"
    fits = replace(frame, overhead_bytes=0)
    Engine(network, 1).open_flow(Flow(0, 1, 1, None, None, fits, 1, 10**9, 1, 0, 1))


def test_one_packet_at_one_bit_a_second_is_right() -> None:
    network = compile_network(star(2, LinkSpec(10**9, 0, 1 << 30)))
    sim = Engine(network, 1)
    sim.start_log()
    sim.set_rate(network.link_names.index("h0->s0"), 1)
    frame = Frame("one", elements=1000, overhead_bytes=OVERHEAD)
    sim.open_flow(Flow(0, 1, 1000, None, None, frame, 1, 10**18, 1, 0, 1))
    run_to(sim, 10**17)

    assert sim.log[0][0] == 4020 * 8 * 10**12
