"""The compiled engine, and what its own tests send over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Merge
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Completion, Flow, Frame, Job, Scaled, Segment, losses
from netfold.sim.plan.frames import frame_of
from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph
from netfold.topologies.routing import Network, compile_network

Words = NDArray[np.int32]

RATE_BPS = 100 * 10**9
DELAY_PS = 10**6
LINK = LinkSpec(RATE_BPS, DELAY_PS, 64 << 20)
ROCE = frame_of("roce-1024")
MIDDLE = replace(ROCE, name="roce-middle", first_bytes=0, last_bytes=0)  # every packet 1106 B
FOREVER_PS = 10**15


class Outcome(NamedTuple):
    """What one exchange of a job gave, by worker."""

    finished_ps: list[int]
    results: list[Words]


def engine(network: Network, loss: float = 0.0, seed: int = 1) -> Engine:
    """An engine with the same loss on every link."""
    return Engine(network, seed, losses([loss] * len(network.link_source)))


def transmit_ps(size_bytes: int, rate_bps: int = RATE_BPS) -> int:
    """Time on the wire."""
    return -(-size_bytes * 8 * 10**12 // rate_bps)


def job(network: Network, slots: int, frame: Frame = MIDDLE, unit_packets: int = 1, **changes: object) -> Job:
    """Workers on all hosts, aggregated by the first switch; timers never fire; but for the changes."""
    workers = int(network.is_host.sum())
    plain = Job(
        hosts=tuple(range(workers)),
        switch=workers,
        slot_base=0,
        slots_count=slots,
        unit_packets=unit_packets,
        frame=frame,
        timeout_ps=FOREVER_PS,
        first_timeout_ps=FOREVER_PS,
        timeout_max_ps=FOREVER_PS,
        routes=(0,) * workers,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def flow(source: int, target: int, words: Words, frame: Frame, **changes: object) -> Flow:
    """A flow that sends everything at once and is acknowledged once; but for the changes."""
    packets = max(1, -(-words.size // frame.elements))
    plain = Flow(
        source=source,
        target=target,
        words_count=words.size,
        words=words,
        received=np.zeros_like(words),
        frame=frame,
        window=packets,
        timeout_ps=10**12,
        ack_every=packets,
        route=0,
        key=source,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def gradients(workers: int, size: int, seed: int = 0) -> list[Words]:
    """Random words of any int32 value, one array per worker."""
    random = np.random.default_rng(seed)
    return [random.integers(-(2**31), 2**31, size, dtype=np.int32) for _ in range(workers)]


def wrapping_sum(words: Sequence[Words]) -> Words:
    """Sum over workers modulo 2^32."""
    total = np.zeros_like(words[0])
    for each in words:
        total += each
    return total


def aggregate(
    sim: Engine,
    number: int,
    words: Sequence[NDArray[np.int32] | NDArray[np.float32]],
    scaled: Sequence[Scaled] | None = None,
) -> Outcome:
    """One stream of one segment per worker, opened now and run until all are done."""
    results = [np.zeros(each.size, np.int32) for each in words]
    for rank, (each, result) in enumerate(zip(words, results, strict=True)):
        segments = [Segment(each, result, Merge.ADD)]
        sim.open_stream(number, rank, segments, scaled[rank] if scaled else None)
    done = run(sim, len(words))
    finished_ps = {completion.worker: completion.time_ps for completion in done}
    return Outcome([finished_ps[rank] for rank in range(len(words))], results)


def run(sim: Engine, completions: int) -> list[Completion]:
    """Run until so many streams and flows are done."""
    done: list[Completion] = []
    while len(done) < completions:
        new = sim.run(FOREVER_PS)
        assert new, f"only {len(done)} of {completions} ever end"
        done += new
    return done


def run_dry(sim: Engine) -> None:
    """Run until nothing is left to happen, and check that no packet has got lost without being counted."""
    while sim.next_event_ps() is not None:
        sim.run(FOREVER_PS)
    check_conservation(sim)


def check_conservation(sim: Engine) -> None:
    """On an idle network, what each link sent has arrived or was lost, in packets and in bytes."""
    assert sim.next_event_ps() is None
    for counters in sim.link_counters():
        for unit in ("packets", "bytes"):
            assert counters[f"in_flight_{unit}"] == 0
            assert counters[f"sent_{unit}"] == counters[f"delivered_{unit}"] + counters[f"lost_{unit}"]


def chain(links: Sequence[LinkSpec]) -> Network:
    """Hosts 0 and 1 with these links from one to the other (two or more), switches in between."""
    graph = new_graph("chain")
    nodes = ["h0", *(f"s{index}" for index in range(len(links) - 1)), "h1"]
    for host in (nodes[0], nodes[-1]):
        add_host(graph, host)
    for switch in nodes[1:-1]:
        add_switch(graph, switch, tier=1, profile="plain")
    for (a, b), link in zip(pairwise(nodes), links, strict=True):
        add_link(graph, a, b, link)
    return compile_network(graph)


def with_loopback(network: Network, node: int, link: LinkSpec) -> Network:
    """The same network with one more link, the last one, from a switch to itself."""
    return replace(
        network,
        link_names=(*network.link_names, f"{network.nodes[node]} loopback"),
        link_source=np.append(network.link_source, np.int32(node)),
        link_target=np.append(network.link_target, np.int32(node)),
        rate_bps=np.append(network.rate_bps, link.rate_bps),
        delay_ps=np.append(network.delay_ps, link.delay_ps),
        buffer_bytes=np.append(network.buffer_bytes, link.buffer_bytes),
    )
