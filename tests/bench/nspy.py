"""W1 on ns.py (TL-System/ns.py), as its examples build such a network."""

from __future__ import annotations

import time
from itertools import repeat

import simpy
from ns.packet.dist_generator import DistPacketGenerator
from ns.packet.sink import PacketSink
from ns.port.port import Port
from ns.port.wire import Wire
from ns.switch.switch import SimplePacketSwitch

from tests.bench.loads import HOSTS, Measured

RATE_BPS, DELAY_S, PACKET_BYTES = 100e9, 1e-6, 1000


def w1(packets: int) -> Measured:
    """Generator → port → wire → switch → wire → sink, `packets` packets per host."""
    env = simpy.Environment()
    gap_s = PACKET_BYTES * 8 / RATE_BPS
    switch = SimplePacketSwitch(env, nports=HOSTS, port_rate=RATE_BPS, buffer_size=None, element_id="s0")
    switch.demux.fib = {host: (host + 1) % HOSTS for host in range(HOSTS)}
    sinks = []
    for host in range(HOSTS):
        generator = DistPacketGenerator(
            env,
            f"h{host}",
            repeat(gap_s).__next__,
            repeat(PACKET_BYTES).__next__,
            flow_id=host,
            size=packets * PACKET_BYTES,
        )
        port, up, down = Port(env, RATE_BPS), _wire(env), _wire(env)
        sink = PacketSink(env, rec_arrivals=False, rec_waits=False)
        generator.out, port.out, up.out, down.out = port, up, switch, sink
        switch.ports[host].out = down
        sinks.append(sink)
    started = time.process_time()
    env.run()
    cpu_s = time.process_time() - started
    received = sum(sum(sink.packets_received.values()) for sink in sinks)
    if received != HOSTS * packets:
        raise RuntimeError(f"ns.py delivered {received} of {HOSTS * packets} packets")
    return Measured(env.now * 1e3, 2 * received, 0, cpu_s)


def _wire(env: simpy.Environment) -> Wire:
    return Wire(env, repeat(DELAY_S).__next__)
