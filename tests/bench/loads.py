"""The loads that packet simulators are compared by, on netfold's engine and on ns.py.

W1: 8 hosts on one switch, 100 Gbps, 1 us; host i sends to host i + 1 in packets of 1000 B, no payload.
W4: SwitchML on one switch: 8 workers, 100 Gbps, 1 us, 512 slots of 256 values, frames of 1106 B; values
    are carried and summed.
Packing: the kernels of codec `packed` on one worker's gradient, outside any network.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from homomorphic import bits
from homomorphic.fixed_point import scale_of
from sim.engine.engine import Engine
from sim.engine.model import Flow, Frame, Job, Merge, Segment
from topologies.graph import LinkSpec
from topologies.routing import Network, compile_network
from topologies.star import star

HOSTS = 8
FAR_PS = 10**15
LONG_PS = 10**13  # a timeout that never comes


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


BLOCK_ELEMENTS = 4096


class Packing:
    """A gradient of some density, and every buffer that packing and expanding it needs, already touched."""

    def __init__(self, elements: int, density: float) -> None:
        random = np.random.default_rng(1)
        chosen = random.random(elements, np.float32) < density
        self.gradient = random.standard_normal(elements, np.float32) * chosen
        self.index = np.ones(-(-elements // 32), np.uint32)
        self.wide = np.ones(-(-elements // 64), np.uint64)
        self.words = np.ones(np.count_nonzero(self.gradient), np.int32)
        self.scales = np.full(-(-elements // BLOCK_ELEMENTS), scale_of(4, 1), np.float32)
        self.decoded = np.ones(elements, np.float32)

    def encode(self) -> None:
        """Write the index, and the integers at its bits."""
        bits.write_index(self.gradient, self.index)
        bits.widen(self.index, self.wide)
        bits.pack(self.wide, self.gradient, self.scales, BLOCK_ELEMENTS, self.words)

    def expand(self) -> None:
        """Put the integers back where they belong, and zeros elsewhere."""
        bits.expand(self.wide, self.words, self.scales, BLOCK_ELEMENTS, self.decoded)


def network() -> Network:
    """The star of both loads."""
    return compile_network(star(HOSTS, LinkSpec(100 * 10**9, 10**6, 64 << 20)))


def w1(packets: int) -> Measured:
    """W1 with `packets` packets per host; acknowledgements weigh nothing, one for 64 packets."""
    engine = Engine(network(), 1)
    frame = Frame("w1", elements=250, overhead_bytes=0, ack_bytes=0)
    for host in range(HOSTS):
        target = (host + 1) % HOSTS
        engine.open_flow(Flow(host, target, 250 * packets, None, None, frame, 512, LONG_PS, 64, 0, host))
    cpu_s, last_ps = _run(engine, HOSTS)
    return Measured(last_ps / 1e9, 2 * HOSTS * packets, engine.events, cpu_s)


def w4_words(elements: int) -> list[list[np.ndarray]]:
    """Per worker: words to send and room for the sums, already touched."""
    words = np.arange(elements, dtype=np.int32)
    return [[words * (worker + 1), np.ones(elements, np.int32)] for worker in range(HOSTS)]


def w4(buffers: list[list[np.ndarray]]) -> Measured:
    """W4 on the given buffers; the sums of the workers' words are left in them."""
    engine = Engine(network(), 1)
    frame = Frame("w4", elements=256, overhead_bytes=1106 - 1024)
    hosts, timeouts = tuple(range(HOSTS)), (LONG_PS, LONG_PS, LONG_PS)
    engine.add_job(Job(hosts, HOSTS, 0, 512, 1, frame, *timeouts, routes=hosts))
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
