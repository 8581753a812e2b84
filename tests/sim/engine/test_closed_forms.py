"""Times in both engines against closed forms, to the picosecond, and against ns.py, an independent simulator.

D is a link's delay, X the time of a full packet on it, T the number of packets of a stream, W its window.

ns.py (TL-System/ns.py, on SimPy): a link here is a `Port` (FIFO, store and forward) and a `Wire` (delay)
there. Both get the same packets at the same time; arrivals at the end of every path must be the same
picosecond. Acknowledgements travel on links that carry no data and are left out. Where the two differ by
definition: ns.py counts time in float seconds, netfold rounds a packet's time on the wire up to a picosecond;
and in a full buffer ns.py counts the packet that is being sent in full until its last bit has left, netfold
only what is left of it. With packets of one size and a buffer of whole packets the last makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import networkx as nx
import numpy as np
import pytest
import simpy
from ns.demux.fib_demux import FIBDemux
from ns.packet.dist_generator import DistPacketGenerator
from ns.port.port import Port
from ns.port.wire import Wire

from netfold.sim.engine.engine_data import Completion, Flow, Frame
from netfold.sim.plan.plan import frame_of
from netfold.topologies.ecmp import planned_key
from netfold.topologies.graph import LinkSpec, hosts
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.network import Network, compile_network, path
from tests.examples import nightly
from tests.sim.engine.plans.plans import with_loopbacks
from tests.sim.engine.small import (
    DELAY_PS,
    FAST,
    FOREVER_PS,
    LINK,
    MIDDLE,
    D,
    Make,
    X,
    aggregate,
    check_sums,
    compiled,
    flow,
    gradients,
    job,
    run,
    run_dry,
    segment,
    star_of,
    start,
    transmit_ps,
)
from tests.topologies.graphs import fat_tree, torus

ROCE = frame_of("roce-1024")
ROUND_TRIP_PS = 2 * X + 2 * D
FAST_X = transmit_ps(1106)
FAST_ROUND_TRIP_PS = 2 * FAST_X + 2 * DELAY_PS
SMALL = replace(MIDDLE, name="small", elements=2, overhead_bytes=1106 - 8)  # the same wire size, fewer words


def end_ps(
    make: Make, network: Network, packets: int, window: int, frame: Frame = SMALL, unit_packets: int = 1
) -> int:
    """When all workers are done with an exchange of so many full packets that starts at 0."""
    sim = make(network)
    number = sim.add_job(job(network, window * unit_packets, frame, unit_packets))
    words = gradients(int(network.is_host.sum()), packets * frame.elements)
    own = [segment(each) for each in words]
    start(sim, number, [[each] for each in own])
    done = run(sim, len(words))
    assert done == [Completion(done[0].time_ps, "stream", number, rank) for rank in range(len(words))]
    check_sums([each.result for each in own], words)
    run_dry(sim)
    counters = {name: count for name, count in sim.switch_counters(number).items() if count}
    assert counters.pop("overflowed_words", 0) <= (len(words) - 1) * packets * frame.elements
    assert counters == {"packets": len(words) * packets, "results": packets}
    return done[0].time_ps


@pytest.mark.parametrize("window", [1, 3, 24, 25, 64])
@pytest.mark.parametrize("workers", [1, 2, 32])
def test_the_window_limits_the_rate_below_the_knee(engine: Make, window: int, workers: int) -> None:
    """W packets a round trip, until W packet times fill it: here from 25 on. Of however many workers."""
    rounds = 6 if workers < 32 else 2
    expected_ps = rounds * FAST_ROUND_TRIP_PS + (window - 1) * FAST_X
    if window >= 25:
        expected_ps = FAST_ROUND_TRIP_PS + (rounds * window - 1) * FAST_X

    assert end_ps(engine, star_of(workers, FAST), rounds * window, window) == expected_ps


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
        network = star_of(2, LinkSpec(rate_bps, delay_ps, 1 << 30))
        expected_ps = longest_ps + late_ps + (rounds * slots - 1) * packet_ps + (rounds - 1) * late_ps
        assert end_ps(compiled, network, rounds * slots, slots, frame) == expected_ps


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


@pytest.mark.parametrize("unit_packets", [1, 4, 16])
@pytest.mark.parametrize("window", [1, 3, 40])
def test_messages_of_several_packets(engine: Make, unit_packets: int, window: int) -> None:
    """RoCE: 16 B more on a message's first packet, 4 B on its last."""
    frame = replace(ROCE, elements=2, overhead_bytes=ROCE.overhead_bytes + 4 * 254)
    sizes = [1106] * unit_packets
    sizes[0] += 16
    sizes[-1] += 4
    units = [[transmit_ps(size_bytes) for size_bytes in sizes]] * (window + 8)
    found_ps = end_ps(engine, star_of(3, FAST), len(units) * unit_packets, window, frame, unit_packets)

    assert found_ps == loop_ps(units, window)


@pytest.mark.parametrize(
    ("elements", "published_ms"), [(2_500_000, 0.8662), pytest.param(25_000_000, 8.6428, marks=nightly)]
)
def test_a_hundred_megabytes_of_eight_workers(elements: int, published_ms: float) -> None:
    """8 workers, 512 slots, 1106 B packets: the time of SwitchML-omnetpp, which carries no values."""
    network = star_of(8, FAST)
    sim = compiled(network)
    number = sim.add_job(job(network, 512, MIDDLE))
    words = gradients(2, elements) * 4
    outcome = aggregate(sim, number, words)
    packets = -(-elements // 256)

    assert outcome.finished_ps == [packets * FAST_X + FAST_X + 2 * DELAY_PS] * 8
    assert outcome.finished_ps[0] / 10**9 == pytest.approx(published_ms, abs=0.00006)
    assert sim.packet_hops == 16 * packets
    assert sim.next_event_ps() == FOREVER_PS  # voided timers
    check_sums(outcome.results, words)


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
        network = star_of(2, LinkSpec(rate_bps, DELAY_PS, 1 << 30))
        few_ps, many_ps = (end_ps(compiled, network, packets, 128, frame) for packets in (20, 120))

        assert many_ps - few_ps == 100 * transmit_ps(wire_bytes, rate_bps)
        assert 100 * frame.elements * 1000 / (many_ps - few_ps) == pytest.approx(expected_g, abs=0.0005)


@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize(
    "loopback", [LINK, LinkSpec(25 * 10**7, 600_000, 1 << 30), LinkSpec(10**9, 5000, 1000)]
)
def test_a_loopback_link_is_one_more_hop_for_results(engine: Make, workers: int, loopback: LinkSpec) -> None:
    """One packet of n goes round (p4app-switchML's 256 B packets); a slow loopback sets the pace."""
    packets = 30
    plain = star_of(workers)
    network = with_loopbacks(plain, loopback)
    sim = engine(network)
    number = sim.add_job(job(network, 64, loopback_link=len(plain.link_names)))
    words = gradients(workers, 4 * packets)
    outcome = aggregate(sim, number, words)

    loopback_ps = transmit_ps(50, loopback.rate_bps)
    there_and_back_ps = ROUND_TRIP_PS + loopback_ps + loopback.delay_ps
    assert outcome.finished_ps == [there_and_back_ps + (packets - 1) * loopback_ps] * workers
    check_sums(outcome.results, words)
    run_dry(sim)
    assert sim.link_counters()[-1]["delivered_packets"] == packets
    assert sim.switch_counters(number)["packets"] == workers * packets


@pytest.mark.parametrize(("routes", "spine_packets"), [((0, 1, 0, 1), [20, 20]), ((2, 4, 1, 3), [40, 0])])
def test_workers_of_another_leaf_come_over_the_spines_of_their_routes(
    engine: Make, routes: tuple[int, ...], spine_packets: list[int]
) -> None:
    """Two leaves, two spines, aggregation on leaf1: workers 0 and 1 have three links, 2 and 3 have one.

    On one spine their packets take turns: a round takes two packet times, and so does a result for both.
    """
    packets = 20
    network = compile_network(leaf_spine(2, 2, 2, LINK, LINK))
    sim = engine(network)
    places = {"switch": network.nodes.index("leaf1"), "routes": tuple(map(planned_key, routes))}
    number = sim.add_job(job(network, 64, **places))
    outcome = aggregate(sim, number, gradients(4, 4 * packets))

    sharing = 1 if spine_packets[1] else 2
    complete_ps = 2 * X + sharing * packets * X + 3 * D  # the last packet at leaf1
    near_ps = complete_ps + X + D
    far_ps = [complete_ps + 3 * X + 3 * D, complete_ps + (2 + sharing) * X + 3 * D]
    assert outcome.finished_ps == [*far_ps, near_ps, near_ps]
    sent = dict(zip(network.link_names, (link["sent_packets"] for link in sim.link_counters()), strict=True))
    assert spine_packets == [sent["leaf0->spine0"], sent["leaf0->spine1"]]
    assert spine_packets == [sent["spine0->leaf0"], sent["spine1->leaf0"]]
    run_dry(sim)


FRAME = Frame("test", elements=240, overhead_bytes=40)  # 1000 B when full
SILENT = Frame("silent", elements=240, overhead_bytes=40, ack_bytes=0)  # delays no data

Arrivals = dict[tuple[int, int], float]  # by flow and packet: ps


def link(rate_bps: int, delay_ps: int = 10**6, buffer_bytes: int = 1 << 30) -> LinkSpec:
    return LinkSpec(rate_bps, delay_ps, buffer_bytes)


def sizes(sent: Flow) -> list[int]:
    full, rest = divmod(sent.words_count, sent.sender.frame.elements)
    counts = [sent.sender.frame.elements] * full + [rest] * (rest > 0)
    last = len(counts) - 1
    return [sent.sender.frame.wire_bytes(n, first=i == 0, last=i == last) for i, n in enumerate(counts)]


def ours(network: Network, flows: Sequence[Flow], starts_ps: Sequence[int]) -> Arrivals:
    """First transmissions that arrive at their target, from the engine's log. Starts are in order."""
    sim = compiled(network)
    sim.start_log()
    for sent, start_ps in zip(flows, starts_ps, strict=True):
        while sim.now_ps < start_ps:  # `run` ends early whenever a flow is delivered
            sim.run(start_ps)
        sim.open_flow(sent)
    run_dry(sim)
    last_links = [path(network, sent.source, sent.target, sent.route)[-1] for sent in flows]
    return {
        (owner, unit): time_ps
        for time_ps, _, what, where, owner, unit, part, attempt in sim.log
        if what == 0 and part == 0 and attempt == 0 and where == last_links[owner]
    }


class Sink:
    """Notes when a packet arrives (ns.py's own sink does not say which one it was)."""

    def __init__(self, env: simpy.Environment, arrivals: Arrivals) -> None:
        self.env = env
        self.arrivals = arrivals

    def put(self, packet: Any) -> None:
        self.arrivals[packet.flow_id, packet.packet_id] = self.env.now * 1e12


def theirs(network: Network, flows: Sequence[Flow], starts_ps: Sequence[int]) -> Arrivals:
    """The same network and traffic in ns.py: every link a port and a wire, every node a table by flow."""
    env = simpy.Environment()
    arrivals: Arrivals = {}
    sink = Sink(env, arrivals)
    paths = [path(network, sent.source, sent.target, sent.route) for sent in flows]
    ports = []
    for index, rate_bps in enumerate(network.rate_bps):
        is_limited = not network.is_host[network.link_source[index]]
        limit = int(network.buffer_bytes[index]) + 1 if is_limited else None  # ns.py takes what is below it
        ports.append(Port(env, int(rate_bps), qlimit=limit, limit_bytes=True))
    for index, port in enumerate(ports):
        port.out = Wire(env, repeat(float(network.delay_ps[index]) / 1e12).__next__)
        fib = {number: way[way.index(index) + 1] for number, way in enumerate(paths) if index in way[:-1]}
        ends = {number: sink for number, way in enumerate(paths) if index == way[-1]}
        port.out.out = FIBDemux(fib=fib, outs=ports, ends=ends)
    for number, (sent, start_ps) in enumerate(zip(flows, starts_ps, strict=True)):
        generator = DistPacketGenerator(
            env,
            element_id=f"h{sent.source}",
            arrival_dist=lambda: 0,  # all at once: the sender's own port spaces them
            size_dist=iter(sizes(sent)).__next__,
            initial_delay=start_ps / 1e12,
            size=sum(sizes(sent)),
            flow_id=number,
        )
        generator.out = ports[paths[number][0]]
    env.run()
    return arrivals


def check_same(graph: nx.Graph, flows: Sequence[Flow], starts_ps: Sequence[int]) -> Arrivals:
    """Both simulators let the same packets arrive in the same picoseconds."""
    network = compile_network(graph)
    arrivals = ours(network, flows, starts_ps)
    assert {key: round(time_ps) for key, time_ps in theirs(network, flows, starts_ps).items()} == arrivals
    return arrivals


def words(packets: int, last_words: int = 240) -> Any:
    return np.arange((packets - 1) * 240 + last_words, dtype=np.int32)


@pytest.mark.parametrize("last_words", [1, 100, 240])
def test_every_hop_another_rate_and_delay(last_words: int) -> None:
    graph = leaf_spine(2, 1, 1, link(10**10), link(10**10))
    hops = [("h0", "leaf0"), ("leaf0", "spine0"), ("spine0", "leaf1"), ("leaf1", "h1")]
    rates_bps = [40 * 10**9, 10 * 10**9, 25 * 10**9, 2 * 10**9]
    for (a, b), rate_bps, delay_ps in zip(hops, rates_bps, [0, 1_000_003, 77, 5_000_000], strict=True):
        graph.edges[a, b].update(rate_bps=rate_bps, delay_ps=delay_ps)

    assert len(check_same(graph, [flow(0, 1, words(25, last_words), FRAME)], [0])) == 25


@pytest.mark.parametrize("later_ps", [0, 137_000])
def test_two_flows_share_the_link_to_their_target(later_ps: int) -> None:
    """Packets of two sizes take turns on the last link."""
    flows = [flow(0, 2, words(20), FRAME), flow(1, 2, words(31, 50), Frame("small", 240, 9))]

    assert len(check_same(star(3, link(10**10)), flows, [0, later_ps])) == 51


@pytest.mark.parametrize("make", [lambda: fat_tree(4, link(10**10)), lambda: torus((3, 3), 1, link(10**10))])
def test_flows_on_fabrics_with_several_paths(make: Callable[[], nx.Graph]) -> None:
    """A host sends to each of some others over the path that its key picks; flows meet on the way.

    By these keys no two packets reach a busy link in the same instant: their order there is nobody's rule.
    """
    graph = make()
    count = len(hosts(graph))
    flows = [
        flow(host, (host + far) % count, words(9, 11 + host), SILENT, route=1000 * host + far + 13)
        for host in range(count)
        for far in (3, 5)
    ]

    starts_ps = [1_234_567 * number for number in range(len(flows))]
    assert len(check_same(graph, flows, starts_ps)) == 9 * len(flows)


def test_a_rate_without_whole_picoseconds_rounds_up_once_a_packet() -> None:
    """1000 B at 7 Gb/s take 1142857.14… ps; every packet before adds less than 1 ps, and so does a link."""
    network = compile_network(star(2, link(7 * 10**9)))
    flows = [flow(0, 1, words(40), FRAME)]
    expected, found = theirs(network, flows, [0]), ours(network, flows, [0])
    assert expected.keys() == found.keys()
    for (_, packet), time_ps in found.items():
        late_ps = time_ps - expected[0, packet]

        assert -0.01 < late_ps < packet + 2


@pytest.mark.parametrize(("buffer_packets", "arrived"), [(1, 9), (5, 14)])
def test_a_full_buffer_drops_the_same_packets(buffer_packets: int, arrived: int) -> None:
    """60 packets come 6.1 times as fast as they leave, and none comes in the instant in which one leaves.

    With one place every seventh gets through; with more the link stays busy: 10 while packets come and what
    the buffer then holds.
    """
    graph = star(2, link(15_625_000_000))
    graph.edges["s0", "h1"].update(rate_bps=2_560_000_000, buffer_bytes=buffer_packets * 1000)
    arrivals = check_same(graph, [flow(0, 1, words(60), FRAME)], [0])

    assert len(arrivals) == arrived
    assert list(arrivals)[:buffer_packets] == [(0, packet) for packet in range(buffer_packets)]


def test_a_full_buffer_differs_where_a_long_packet_is_half_sent() -> None:
    """Room for 1500 B: half of a 1000 B packet is sent when the next comes. Only netfold has room for it."""
    graph = star(3, link(10**10))
    graph.edges["s0", "h2"].update(buffer_bytes=1500)
    network = compile_network(graph)
    flows = [flow(host, 2, words(1), FRAME) for host in (0, 1)]
    first, second = 2 * (800_000 + 10**6), 3 * 800_000 + 2 * 10**6

    assert ours(network, flows, [0, 400_000]) == {(0, 0): first, (1, 0): second}
    assert {(0, 0): first} == {key: round(ps) for key, ps in theirs(network, flows, [0, 400_000]).items()}
