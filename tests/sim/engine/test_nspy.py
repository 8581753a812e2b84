"""The compiled engine against ns.py, an independent packet simulator (TL-System/ns.py, on SimPy).

A link here is a `Port` (FIFO, store and forward) and a `Wire` (delay) there. Both get the same packets at
the same time; arrivals at the end of every path must be the same picosecond. Acknowledgements travel on links
that carry no data and are left out.

Where the two differ by definition: ns.py counts time in float seconds, netfold rounds a packet's time on the
wire up to a picosecond; and in a full buffer ns.py counts the packet that is being sent in full until its
last bit has left, netfold only what is left of it. With packets of one size and a buffer of whole packets the
last makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

from netfold.sim.engine.interface import Flow, Frame
from netfold.topologies.graph import LinkSpec, hosts
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import Network, compile_network, path
from tests.sim.engine.small import compiled, flow, run_dry
from tests.topologies.fabrics import fat_tree, torus

FRAME = Frame("test", elements=240, overhead_bytes=40)  # 1000 B when full
SILENT = Frame("silent", elements=240, overhead_bytes=40, ack_bytes=0)  # delays no data

Arrivals = dict[tuple[int, int], float]  # by flow and packet: ps


def link(rate_bps: int, delay_ps: int = 10**6, buffer_bytes: int = 1 << 30) -> LinkSpec:
    return LinkSpec(rate_bps, delay_ps, buffer_bytes)


def sizes(sent: Flow) -> list[int]:
    """Wire bytes of a flow's packets."""
    full, rest = divmod(sent.words_count, sent.frame.elements)
    counts = [sent.frame.elements] * full + [rest] * (rest > 0)
    last = len(counts) - 1
    return [sent.frame.wire_bytes(n, first=i == 0, last=i == last) for i, n in enumerate(counts)]


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
    expected = {packet: round(time_ps) for packet, time_ps in theirs(network, flows, starts_ps).items()}
    found = ours(network, flows, starts_ps)
    assert expected == found
    return found


def words(packets: int, last_words: int = 240) -> Any:
    return np.arange((packets - 1) * 240 + last_words, dtype=np.int32)


@pytest.mark.parametrize("rate_bps", [10**9, 25 * 10**9, 100 * 10**9])
@pytest.mark.parametrize("last_words", [1, 240])
def test_one_flow_through_one_switch(rate_bps: int, last_words: int) -> None:
    arrivals = check_same(star(2, link(rate_bps)), [flow(0, 1, words(20, last_words), FRAME)], [0])

    assert len(arrivals) == 20


def test_every_hop_another_rate_and_delay() -> None:
    graph = leaf_spine(2, 1, 1, link(10**10), link(10**10))
    hops = [("h0", "leaf0"), ("leaf0", "spine0"), ("spine0", "leaf1"), ("leaf1", "h1")]
    rates_bps = [40 * 10**9, 10 * 10**9, 25 * 10**9, 2 * 10**9]
    for (a, b), rate_bps, delay_ps in zip(hops, rates_bps, [0, 1_000_003, 77, 5_000_000], strict=True):
        graph.edges[a, b].update(rate_bps=rate_bps, delay_ps=delay_ps)

    assert len(check_same(graph, [flow(0, 1, words(25, 100), FRAME)], [0])) == 25


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

    assert len(check_same(graph, flows, [1_234_567 * number for number in range(len(flows))])) == 9 * len(
        flows
    )


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
