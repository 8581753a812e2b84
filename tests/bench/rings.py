"""Ring all-reduces that the engine carries out as schedules.

W3: 100 MB over 1,024 hosts on one switch, 100 Gbps, 1 us; packets of 9,000 B, which are counted. The ideal
is 2 (n − 1) times a segment's bytes at the rate of a link, and two delays; a switch that stores and forwards
adds a packet to each step.
Curve: the cost of a packet-hop at growing numbers of hosts, each with segments of eleven packets.
Values: 512 hosts, whose words are summed.
"""

from __future__ import annotations

import time

import numpy as np

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.ring.schedule import ring_schedule
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Frame
from netfold.sim.engine.schedules.operation import Operation
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import compile_network
from tests.bench.loads import FAR_PS, LONG_PS, Measured

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
    schedule, result = ring_schedule(hosts), np.zeros(words if merge else 0, np.int32)
    own = [np.full(words, worker + 1, np.int32) if merge else None for worker in range(hosts)]
    started, end_ps = time.process_time(), 0
    for number in range(times):
        opened = engine.open_schedule(
            Operation(
                schedule=schedule,
                hosts=tuple(range(hosts)),
                frame=FRAME,
                window=512,
                timeout_ps=LONG_PS,
                ack_every=64,
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
