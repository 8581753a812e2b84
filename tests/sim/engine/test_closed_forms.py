"""Times of the compiled engine against closed forms, to the picosecond, and against published figures.

D is a link's delay, X the time of a full packet on it, T the number of packets of a stream, W its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Merge
from netfold.sim.engine.interface import Flow, Frame, Segment
from netfold.sim.plan.frames import frame_of
from netfold.topologies.graph import LinkSpec
from netfold.topologies.leaf_spine import leaf_spine
from netfold.topologies.routing import Network, compile_network
from netfold.topologies.star import star
from tests.sim.engine.compiled import (
    DELAY_PS,
    FOREVER_PS,
    LINK,
    MIDDLE,
    ROCE,
    aggregate,
    chain,
    engine,
    flow,
    gradients,
    job,
    run,
    run_dry,
    transmit_ps,
    with_loopback,
    wrapping_sum,
)

X = transmit_ps(1106)
ROUND_TRIP_PS = 2 * X + 2 * DELAY_PS
SMALL = replace(MIDDLE, name="small", elements=2, overhead_bytes=1106 - 8)  # the same wire size, fewer words


def finished_ps(
    network: Network, packets: int, window: int, frame: Frame = SMALL, unit_packets: int = 1
) -> list[int]:
    """When each worker is done with an exchange of so many full packets that starts at 0."""
    sim = engine(network)
    number = sim.add_job(job(network, window * unit_packets, frame, unit_packets))
    words = gradients(int(network.is_host.sum()), packets * frame.elements)
    outcome = aggregate(sim, number, words)
    assert all(np.array_equal(result, wrapping_sum(words)) for result in outcome.results)
    run_dry(sim)
    counters = {name: count for name, count in sim.switch_counters(number).items() if count}
    assert counters.pop("overflowed_words", 0) <= (len(words) - 1) * packets * frame.elements
    assert counters == {"packets": len(words) * packets, "results": packets}
    return outcome.finished_ps


@given(
    st.lists(st.tuples(st.integers(10**9, 4 * 10**11), st.integers(0, 10**7)), min_size=2, max_size=5),
    st.integers(1, 12),
)
def test_a_flow_pipelines_through_its_links(links: list[tuple[int, int]], packets: int) -> None:
    """It takes every link's X and D once, and the slowest link's X for each further packet."""
    times_ps = [transmit_ps(1106, rate_bps) for rate_bps, _ in links]
    sim = engine(chain([LinkSpec(*link, 1 << 30) for link in links]))
    sent = flow(0, 1, np.arange(256 * packets, dtype=np.int32), MIDDLE)
    sim.open_flow(sent)
    (done,) = sim.run(FOREVER_PS)

    delays_ps = sum(delay_ps for _, delay_ps in links)
    assert sum(times_ps) + (packets - 1) * max(times_ps) + delays_ps == done.time_ps
    assert sent.words is not None
    assert sent.received is not None
    assert np.array_equal(sent.words, sent.received)
    run_dry(sim)


def test_neighbours_on_a_star_send_at_line_rate() -> None:
    """8 hosts send 100 MB each in packets of 1000 B: 8.00208 ms, as ns.py 0.5.0 and csg-htsim measure too."""
    network = compile_network(star(8, LINK))
    sim = engine(network)
    frame = Frame("plain", elements=250, overhead_bytes=0)
    for host in range(8):
        sim.open_flow(
            Flow(host, (host + 1) % 8, 25 * 10**6, None, None, frame, 100_000, FOREVER_PS, 100_000, 0, host)
        )
    done = run(sim, 8)

    assert {8_002_080_000} == {completion.time_ps for completion in done}
    assert sim.packet_hops == 2 * 800_000


@pytest.mark.parametrize("workers", [2, 5, 8])
def test_ring_all_reduce(workers: int) -> None:
    """A step takes T + 1 packet times and two delays; the next one starts behind an acknowledgement."""
    packets, steps = 5, 2 * (workers - 1)
    sim = engine(compile_network(star(workers, LINK)))
    targets: list[int] = []  # by flow

    def send(source: int) -> None:
        targets.append((source + 1) % workers)
        sim.open_flow(flow(source, targets[-1], np.arange(256 * packets, dtype=np.int32), MIDDLE))

    for source in range(workers):
        send(source)
    last_ps = 0
    for finished in range(steps * workers):
        (done,) = sim.run(FOREVER_PS)
        last_ps = done.time_ps
        if finished < (steps - 1) * workers:
            send(targets[done.worker])

    assert steps * ((packets + 1) * X + 2 * DELAY_PS) + (steps - 1) * transmit_ps(MIDDLE.ack_bytes) == last_ps


@pytest.mark.parametrize("workers", [1, 2, 7, 32])
@pytest.mark.parametrize("packets", [1, 2, 60])
def test_a_dense_exchange_takes_a_round_trip_and_then_a_packet_time_each(workers: int, packets: int) -> None:
    """Whatever the number of workers."""
    network = compile_network(star(workers, LINK))

    assert finished_ps(network, packets, window=64) == [ROUND_TRIP_PS + (packets - 1) * X] * workers


@pytest.mark.parametrize("window", [1, 2, 5, 20, 24, 25, 26, 64])
def test_the_window_limits_the_rate_below_the_knee(window: int) -> None:
    """W packets a round trip, until W packet times fill it: here from 25 on."""
    rounds = 6
    expected_ps = rounds * ROUND_TRIP_PS + (window - 1) * X
    if window >= 25:
        expected_ps = ROUND_TRIP_PS + (rounds * window - 1) * X
    network = compile_network(star(2, LINK))

    assert finished_ps(network, rounds * window, window) == [expected_ps] * 2


@pytest.mark.parametrize(
    ("slots", "size_bytes", "rate_bps", "longest_us"), [(128, 180, 10**10, 18), (512, 1106, 10**11, 45)]
)
def test_published_pool_sizes_sustain_their_line_rate(
    slots: int, size_bytes: int, rate_bps: int, longest_us: int
) -> None:
    """SwitchML's pools (NSDI 2021) of 128 slots at 10G and 512 at 100G: up to 18 and 45 us, no ps more."""
    frame = Frame("pool", elements=1, overhead_bytes=size_bytes - 4)
    packet_ps, rounds = transmit_ps(size_bytes, rate_bps), 3
    longest_ps = slots * packet_ps
    assert longest_us == longest_ps // 10**6

    for late_ps in (0, 2):
        delay_ps = (longest_ps - 2 * packet_ps + late_ps) // 2
        network = compile_network(star(2, LinkSpec(rate_bps, delay_ps, 1 << 30)))
        expected_ps = longest_ps + late_ps + (rounds * slots - 1) * packet_ps + (rounds - 1) * late_ps
        assert finished_ps(network, rounds * slots, slots, frame) == [expected_ps] * 2


def loop_ps(units: Sequence[Sequence[int]], window: int) -> int:
    """End of an exchange on a star by a plain loop: units are packet times, equal for all workers."""
    up_ps = down_ps = 0
    ends_ps: list[int] = []
    for index, packet_times in enumerate(units):
        ready_ps = ends_ps[index - window] if index >= window else 0
        for packet_ps in packet_times:
            up_ps = max(up_ps, ready_ps) + packet_ps
            down_ps = max(down_ps, up_ps + DELAY_PS) + packet_ps
        ends_ps.append(down_ps + DELAY_PS)
    return ends_ps[-1]


@pytest.mark.parametrize("unit_packets", [1, 2, 4, 16])
@pytest.mark.parametrize("window", [1, 3, 40])
def test_messages_of_several_packets(unit_packets: int, window: int) -> None:
    """RoCE: 16 B more on a message's first packet, 4 B on its last."""
    frame = replace(ROCE, elements=2, overhead_bytes=ROCE.overhead_bytes + 4 * 254)
    sizes = [1106] * unit_packets
    sizes[0] += 16
    sizes[-1] += 4
    units = [[transmit_ps(size_bytes) for size_bytes in sizes]] * 50
    network = compile_network(star(3, LINK))

    assert (
        finished_ps(network, 50 * unit_packets, window, frame, unit_packets) == [loop_ps(units, window)] * 3
    )


@pytest.mark.parametrize(("elements", "published_ms"), [(2_500_000, 0.8662), (25_000_000, 8.6428)])
def test_a_hundred_megabytes_of_eight_workers(elements: int, published_ms: float) -> None:
    """8 workers, 512 slots, 1106 B packets: the time of SwitchML-omnetpp, which carries no values."""
    network = compile_network(star(8, LINK))
    sim = engine(network)
    number = sim.add_job(job(network, 512))
    words = gradients(2, elements) * 4
    outcome = aggregate(sim, number, words)
    packets = -(-elements // 256)

    assert outcome.finished_ps == [packets * X + X + 2 * DELAY_PS] * 8
    assert outcome.finished_ps[0] / 10**9 == pytest.approx(published_ms, abs=0.00006)
    assert sim.packet_hops == 16 * packets
    assert sim.next_event_ps() == FOREVER_PS  # voided timers
    expected = 4 * (words[0] + words[1])
    assert all(np.array_equal(result, expected) for result in outcome.results)


@pytest.mark.parametrize(
    ("name", "wire_bytes", "rates_g"),
    [
        ("udp-256", 332, [0.241, 0.602, 0.964, 2.410]),
        ("udp-1024", 1100, [0.291, 0.727, 1.164, 2.909]),
        ("roce-1024", 1106, [0.289, 0.723, 1.157, 2.893]),
    ],
)
def test_element_rates_are_those_of_the_wire(name: str, wire_bytes: int, rates_g: list[float]) -> None:
    """Elements a second at 10, 25, 40 and 100 Gb/s; for RoCE those of packets in the middle of a message."""
    frame = replace(frame_of(name), first_bytes=0, last_bytes=0)
    assert wire_bytes == frame.wire_bytes(frame.elements, first=False, last=False)
    for rate_bps, expected_g in zip([10**10, 25 * 10**9, 4 * 10**10, 10**11], rates_g, strict=True):
        network = compile_network(star(2, LinkSpec(rate_bps, DELAY_PS, 1 << 30)))
        few_ps, many_ps = (finished_ps(network, packets, 128, frame)[0] for packets in (20, 120))

        assert many_ps - few_ps == 100 * transmit_ps(wire_bytes, rate_bps)
        assert 100 * frame.elements * 1000 / (many_ps - few_ps) == pytest.approx(expected_g, abs=0.0005)


def test_a_late_worker_delays_everyone_by_as_much() -> None:
    """The others' packets wait in the switch."""
    packets, late_ps = 20, 3_456_789
    network = compile_network(star(3, LINK))
    sim = engine(network)
    number = sim.add_job(job(network, 64, SMALL))
    for rank, words in enumerate(gradients(3, 2 * packets)):
        sim.run(late_ps * (rank == 2))
        sim.open_stream(number, rank, [Segment(words, np.zeros_like(words), Merge.ADD)])

    expected_ps = late_ps + ROUND_TRIP_PS + (packets - 1) * X
    assert [expected_ps] * 3 == [completion.time_ps for completion in run(sim, 3)]


@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize("loopback", [LINK, LinkSpec(25 * 10**9, 600_000, 1 << 30)])
def test_a_loopback_link_is_one_more_hop_for_results(workers: int, loopback: LinkSpec) -> None:
    """One packet of n goes round (p4app-switchML's 256 B packets); a slow loopback sets the pace."""
    packets = 30
    plain = compile_network(star(workers, LINK))
    network = with_loopback(plain, workers, loopback)
    sim = engine(network)
    number = sim.add_job(job(network, 64, SMALL, loopback_link=len(plain.link_names)))
    words = gradients(workers, 2 * packets)
    outcome = aggregate(sim, number, words)

    loopback_ps = transmit_ps(1106, loopback.rate_bps)
    there_and_back_ps = ROUND_TRIP_PS + loopback_ps + loopback.delay_ps
    assert outcome.finished_ps == [there_and_back_ps + (packets - 1) * loopback_ps] * workers
    assert all(np.array_equal(result, wrapping_sum(words)) for result in outcome.results)
    assert sim.link_counters()[-1]["sent_packets"] == packets
    assert sim.switch_counters(number)["packets"] == workers * packets
    run_dry(sim)


@pytest.mark.parametrize(("routes", "spine_packets"), [((0, 1, 0, 1), [20, 20]), ((2, 4, 1, 3), [40, 0])])
def test_workers_of_another_leaf_come_over_the_spines_of_their_routes(
    routes: tuple[int, ...], spine_packets: list[int]
) -> None:
    """Two leaves, two spines, aggregation on leaf1: workers 0 and 1 have three links, 2 and 3 have one.

    On one spine their packets take turns: a round takes two packet times, and so does a result for both.
    """
    packets = 20
    network = compile_network(leaf_spine(2, 2, 2, LINK, LINK))
    leaf1 = network.nodes.index("leaf1")
    sim = engine(network)
    number = sim.add_job(job(network, 64, SMALL, switch=leaf1, routes=routes))
    outcome = aggregate(sim, number, gradients(4, 2 * packets))

    sharing = 1 if spine_packets[1] else 2
    complete_ps = 2 * X + sharing * packets * X + 3 * DELAY_PS  # the last packet at leaf1
    near_ps = complete_ps + X + DELAY_PS
    far_ps = [complete_ps + 3 * X + 3 * DELAY_PS, complete_ps + (2 + sharing) * X + 3 * DELAY_PS]
    assert outcome.finished_ps == [*far_ps, near_ps, near_ps]
    sent = dict(zip(network.link_names, (link["sent_packets"] for link in sim.link_counters()), strict=True))
    assert spine_packets == [sent["leaf0->spine0"], sent["leaf0->spine1"]]
    assert spine_packets == [sent["spine0->leaf0"], sent["spine1->leaf0"]]
    run_dry(sim)
