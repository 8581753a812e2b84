"""The loads for comparing packet simulators, on netfold's engine and on ns.py.

W1: 8 hosts on one switch, 100 Gbps, 1 us; host i sends to host i + 1 in packets of 1000 B, no payload.
W2: a k-ary fat tree of such links, k³/4 hosts; host i sends to the host that a random permutation without
    fixed points names, over one random shortest path, in the same packets and with the same window. Every
    switch takes the link of the same random number, mod count, as it did before keys were hashed at every
    switch: so runs compare. Flows that are hashed to these paths take them.
W4: SwitchML on one switch: 8 workers, 100 Gbps, 1 us, 512 slots of 256 values, frames of 1106 B; values
    are carried and summed.

Ring all-reduces that the engine carries out as schedules:
W3: 100 MB over 1,024 hosts on one switch, 100 Gbps, 1 us; packets of 9,000 B, which are counted. The ideal
    is 2 (n − 1) times a segment's bytes at the rate of a link, and two delays; a switch that stores and
    forwards adds a packet to each step.
Curve: the cost of a packet-hop at growing numbers of hosts, each with segments of eleven packets.
Values: 512 hosts, whose words are summed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count

import numpy as np

from netfold.homomorphic.merge import Merge
from netfold.sim.collectives.kinds.ring import Ring
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Flow, Frame, Job, Operation, Segment, Sender
from netfold.topologies.ecmp import planned_key
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.network import Network, compile_network, path
from netfold.topologies.routing import ECMP, Policy
from tests.topologies.graphs import fat_tree

HOSTS = 8
FAR_PS = 10**15
LONG_PS = 10**13  # a timeout that never expires


@dataclass(frozen=True)
class Measured:
    """One run of a load."""

    simulated_ms: float
    packet_hops: int  # acknowledgements left out
    events: int
    cpu_s: float

    @property
    def hops_per_cpu_s(self) -> float:
        """Packet-hops per second of processor time."""
        return self.packet_hops / self.cpu_s


def network() -> Network:
    """The star of both loads."""
    return compile_network(star(HOSTS, LinkSpec(100 * 10**9, 10**6, 64 << 20)))


def w1(packets: int) -> Measured:
    """W1 with `packets` packets per host; one acknowledgement of no bytes for 64 packets."""
    engine = Engine(network(), 1)
    frame = Frame("w1", elements=250, overhead_bytes=0, ack_bytes=0)
    sender = Sender(frame, 512, LONG_PS, 64)
    for host in range(HOSTS):
        engine.open_flow(Flow(host, (host + 1) % HOSTS, 250 * packets, None, None, sender, 0, host))
    cpu_s, last_ps = _run(engine, HOSTS)
    return Measured(last_ps / 1e9, 2 * HOSTS * packets, engine.events, cpu_s)


def permutation(hosts: int) -> list[int]:
    """A random permutation in which no host sends to itself; the same every time."""
    order = np.random.default_rng(2).permutation(hosts)
    targets = np.empty(hosts, np.int64)
    targets[order] = np.roll(order, 1)  # one cycle
    return [int(target) for target in targets]


def w2(packets: int, k: int = 8, policy: Policy = ECMP) -> Measured:
    """W2 with `packets` packets per host; one acknowledgement of no bytes for 64 packets."""
    fabric = compile_network(fat_tree(k, LinkSpec(100 * 10**9, 10**6, 64 << 20)), policy=policy)
    engine = Engine(fabric, 1)
    frame, targets = Frame("w2", elements=250, overhead_bytes=0, ack_bytes=0), permutation(k**3 // 4)
    hops, random = 0, np.random.default_rng(3)
    routes = []
    for host, target in enumerate(targets):
        links = path(fabric, host, target, planned_key(int(random.integers(2**31))))
        routes.append(next(key for key in count() if path(fabric, host, target, key) == links))
        hops += len(links) * packets
    started, sender = time.process_time(), Sender(frame, 512, LONG_PS, 64)
    for host, (target, route) in enumerate(zip(targets, routes, strict=True)):
        engine.open_flow(Flow(host, target, 250 * packets, None, None, sender, route, host))
    cpu_s, last_ps = _run(engine, len(targets), started)
    return Measured(last_ps / 1e9, hops, engine.events, cpu_s)


def w4_words(elements: int) -> list[list[np.ndarray]]:
    """Per worker: words to send and room for the sums, already touched."""
    words = np.arange(elements, dtype=np.int32)
    return [[words * (worker + 1), np.ones(elements, np.int32)] for worker in range(HOSTS)]


def w4(buffers: list[list[np.ndarray]]) -> Measured:
    """W4 on the given buffers; the sums of the workers' words are left in them."""
    engine = Engine(network(), 1)
    frame = Frame("w4", elements=256, overhead_bytes=1106 - 1024)
    hosts, sender = tuple(range(HOSTS)), Sender(frame, 512, LONG_PS, first_timeout_ps=LONG_PS)
    engine.add_job(Job(hosts, HOSTS, 0, 1, sender, routes=hosts))
    started = time.process_time()
    for worker, (words, sums) in enumerate(buffers):
        engine.open_stream(0, worker, [Segment(words, sums, Merge.ADD)])
    cpu_s, last_ps = _run(engine, HOSTS, started)
    return Measured(last_ps / 1e9, engine.packet_hops, engine.events, cpu_s)


def _run(engine: Engine, completions: int, started: float | None = None) -> tuple[float, int]:
    """Run to the last completion; processor time and simulated end."""
    started = time.process_time() if started is None else started
    while completions:
        completions -= len(engine.run(FAR_PS))
    return time.process_time() - started, engine.now_ps


FRAME = Frame("w3", elements=2250, overhead_bytes=0, ack_bytes=0)
BYTE_PS, DELAY_PS = 80, 10**6
SEGMENT_WORDS = 24_415
CURVE = (16, 64, 256, 1024)
CURVE_HOPS = 2_000_000  # at least


def ring(hosts: int, words: int, times: int = 1, merge: Merge | None = None) -> tuple[Measured, np.ndarray]:
    """So many all-reduces, one after the other, of words that are counted or merged; and the last result.

    Worker r puts r + 1 into every word.
    """
    engine = Engine(compile_network(star(hosts, LinkSpec(100 * 10**9, DELAY_PS, 64 << 20))), 1)
    schedule, result = Ring(kind="ring").cut(hosts).schedule, np.zeros(words if merge else 0, np.int32)
    own = [np.full(words, worker + 1, np.int32) if merge else None for worker in range(hosts)]
    started, end_ps = time.process_time(), 0
    for number in range(times):
        opened = engine.open_schedule(
            Operation(
                schedule=schedule,
                hosts=tuple(range(hosts)),
                sender=Sender(FRAME, 512, LONG_PS, 64),
                number=number,
                seed=1,
                ends=schedule.ends(words),
                merge=merge,
                result=result if merge else None,
            )
        )
        for worker in range(hosts):
            engine.begin(opened, worker, own[worker])
        left = hosts
        while left:
            left -= len(engine.run(FAR_PS))
        end_ps = engine.now_ps
        engine.close_schedule(opened)
    cpu_s = time.process_time() - started
    segments = np.diff(schedule.ends(words))
    hops = times * 2 * 2 * (hosts - 1) * int(np.maximum(1, -(-segments // FRAME.elements)).sum())
    return Measured(end_ps / 1e9, hops, engine.events, cpu_s), result


def stored_ms(hosts: int, words: int) -> float:
    """2 (n − 1) segments and delays; a switch stores the longest packet of each step before it sends it."""
    ideal_ms = 2 * (hosts - 1) * (4 * words / hosts * BYTE_PS + 2 * DELAY_PS) / 1e9
    return ideal_ms + 2 * (hosts - 1) * 4 * min(FRAME.elements, words // hosts) * BYTE_PS / 1e9


def curve_point(hosts: int) -> Measured:
    """As many all-reduces as make `CURVE_HOPS`."""
    words = hosts * SEGMENT_WORDS
    times = -(-CURVE_HOPS // (2 * 2 * hosts * (hosts - 1) * -(-SEGMENT_WORDS // FRAME.elements)))
    return ring(hosts, words, times)[0]
