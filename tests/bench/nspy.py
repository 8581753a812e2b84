"""W1 and W2 on ns.py (TL-System/ns.py), as its examples build such networks."""

from __future__ import annotations

import time
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import simpy
from ns.demux.fib_demux import FIBDemux
from ns.packet.dist_generator import DistPacketGenerator
from ns.packet.sink import PacketSink
from ns.port.port import Port
from ns.port.wire import Wire
from ns.switch.switch import SimplePacketSwitch

from netfold.topologies.ecmp import planned_key
from netfold.topologies.graph import LinkSpec
from netfold.topologies.network import compile_network, path
from tests.bench.loads import HOSTS, Measured, permutation
from tests.topologies.graphs import fat_tree

RATE_BPS, DELAY_S, PACKET_BYTES = 100e9, 1e-6, 1000


def _generator(env: simpy.Environment, host: int, packets: int) -> Any:
    """Packets at the rate of a link, of one flow per host."""
    each_s = repeat(PACKET_BYTES * 8 / RATE_BPS).__next__
    each_bytes = repeat(PACKET_BYTES).__next__
    return DistPacketGenerator(env, f"h{host}", each_s, each_bytes, flow_id=host, size=packets * PACKET_BYTES)


def w1(packets: int) -> Measured:
    """Generator → port → wire → switch → wire → sink, `packets` packets per host."""
    env = simpy.Environment()
    switch = SimplePacketSwitch(env, nports=HOSTS, port_rate=RATE_BPS, buffer_size=None, element_id="s0")
    switch.demux.fib = {host: (host + 1) % HOSTS for host in range(HOSTS)}
    sinks = []
    for host in range(HOSTS):
        generator = _generator(env, host, packets)
        port, up, down = Port(env, RATE_BPS), _wire(env), _wire(env)
        sink = PacketSink(env, rec_arrivals=False, rec_waits=False)
        generator.out, port.out, up.out, down.out = port, up, switch, sink
        switch.ports[host].out = down
        sinks.append(sink)
    return _measured(env, sinks, packets, 2 * HOSTS * packets)


def _measured(env: simpy.Environment, sinks: list[PacketSink], packets: int, hops: int) -> Measured:
    """Run until every sink has its packets."""
    started = time.process_time()
    env.run()
    cpu_s = time.process_time() - started
    received = sum(sum(sink.packets_received.values()) for sink in sinks)
    if received != len(sinks) * packets:
        raise RuntimeError(f"ns.py delivered {received} of {len(sinks) * packets} packets")
    return Measured(env.now * 1e3, hops, 0, cpu_s)


def _wire(env: simpy.Environment) -> Wire:
    return Wire(env, repeat(DELAY_S).__next__)


def w2(packets: int, k: int = 8) -> Measured:
    """W2: a port and a wire for each link, a table by flow behind each wire; nothing is dropped."""
    network = compile_network(fat_tree(k, LinkSpec(int(RATE_BPS), int(DELAY_S * 1e12), 64 << 20)))
    targets, random = permutation(k**3 // 4), np.random.default_rng(3)
    env = simpy.Environment()
    ports = [Port(env, RATE_BPS) for _ in network.link_names]
    sinks = [PacketSink(env, rec_arrivals=False, rec_waits=False) for _ in targets]
    fibs: list[dict[int, int]] = [{} for _ in ports]
    ends: list[dict[int, PacketSink]] = [{} for _ in ports]
    hops = 0
    for host, target in enumerate(targets):
        links = path(network, host, target, planned_key(int(random.integers(2**31))))
        hops += len(links) * packets
        for link, following in pairwise(links):
            fibs[link][host] = following
        ends[links[-1]][host] = sinks[target]
        generator = _generator(env, host, packets)
        generator.out = ports[host]
    for port, fib, end in zip(ports, fibs, ends, strict=True):
        port.out = _wire(env)
        port.out.out = FIBDemux(fib=fib, outs=ports, ends=end)
    return _measured(env, sinks, packets, hops)
