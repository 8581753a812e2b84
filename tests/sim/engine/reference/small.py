"""Networks small enough to work out on paper, and what to send over them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Merge
from netfold.sim.engine.interface import Completion, Flow, Frame, Job, Scaled, Segment, losses
from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph
from netfold.topologies.routing import Network, compile_network
from tests.reference.engine.engine import ReferenceEngine

FRAME = Frame("test", elements=4, overhead_bytes=34, ack_bytes=20)  # 50 B a packet
LINK = LinkSpec(rate_bps=10**9, delay_ps=7_000_000, buffer_bytes=1 << 20)
X = 400_000  # ps that a full packet takes on LINK
A = 160_000  # and an ACK
D = LINK.delay_ps
FOREVER = 10**15


def line(links: int) -> Network:
    """Two hosts, 0 and 1, with `links` links from one to the other."""
    graph = new_graph("line")
    add_host(graph, "h0")
    add_host(graph, "h1")
    nodes = ["h0", *(f"s{index}" for index in range(links - 1)), "h1"]
    for switch in nodes[1:-1]:
        add_switch(graph, switch, tier=1, profile="plain")
    for a, b in pairwise(nodes):
        add_link(graph, a, b, LINK)
    return compile_network(graph)


def engine(network: Network, loss: float = 0.0, seed: int = 1) -> ReferenceEngine:
    """An engine with the same loss on every link."""
    return ReferenceEngine(network, seed, losses([loss] * len(network.link_source)))


def flow(words_count: int, **changes: object) -> Flow:
    """A flow from host 0 to host 1 with a window for everything, but for the changes."""
    words = np.arange(words_count, dtype=np.int32) * 77
    plain = Flow(0, 1, words_count, words, np.zeros_like(words), FRAME, 1000, 10**9, 1, 0, 5)
    return replace(plain, **changes)  # type: ignore[arg-type]


def job(workers: int, slots: int, unit_packets: int = 1, **changes: object) -> Job:
    """Workers on all hosts of a star (its switch is the last node), but for the changes."""
    hosts, routes = tuple(range(workers)), (0,) * workers
    plain = Job(hosts, workers, 3, slots, unit_packets, FRAME, 10**9, 10**9, 10**9, routes)
    return replace(plain, **changes)  # type: ignore[arg-type]


def gradients(workers: int, size: int, seed: int = 0) -> list[NDArray[np.int32]]:
    """Random words of any int32 value, one array per worker."""
    random = np.random.default_rng(seed)
    return [random.integers(-(2**31), 2**31, size, dtype=np.int32) for _ in range(workers)]


def segment(words: NDArray[np.int32], merge: Merge = Merge.ADD) -> Segment:
    """A segment with room for its result."""
    return Segment(words, np.zeros_like(words), merge)


def aggregate(
    sim: ReferenceEngine, number: int, segments: list[list[Segment]], scaled: list[Scaled] | None = None
) -> list[Completion]:
    """Open one stream per worker and run until all are done."""
    for rank, own in enumerate(segments):
        sim.open_stream(number, rank, own, scaled[rank] if scaled else None)
    done: list[Completion] = []
    while len(done) < len(segments):
        new = sim.run(FOREVER)
        assert new, "every stream ends"
        done += new
    return done


def run_dry(sim: ReferenceEngine) -> None:
    """Run until nothing is left to happen."""
    while sim.next_event_ps() is not None:
        sim.run(FOREVER)


def check_conservation(sim: ReferenceEngine) -> None:
    """What a link sent has arrived, was lost, or is under way."""
    for counters in sim.link_counters():
        for unit in ("packets", "bytes"):
            arrived = [counters[f"{kind}_{unit}"] for kind in ("delivered", "lost", "in_flight")]
            assert counters[f"sent_{unit}"] == sum(arrived)
