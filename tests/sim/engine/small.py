"""Networks small enough to work out on paper, what to send over them, and both engines with one face.

D is a link's delay, X the time of a full packet on it, A that of an acknowledgement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.merge import Merge
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import (
    AtpServer,
    Branch,
    Completion,
    Flow,
    Frame,
    Job,
    Rule,
    Scaled,
    Segment,
    Sender,
    losses,
)
from netfold.sim.plan.plan import frame_of
from netfold.switch.programs.atp import ATP
from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.network import Network, compile_network, next_links
from tests.examples import nightly
from tests.reference.engine.engine import ReferenceEngine

Words = NDArray[np.int32]
Sim = Engine | ReferenceEngine

FRAME = Frame("test", elements=4, overhead_bytes=34, ack_bytes=20)  # 50 B a packet
LINK = LinkSpec(rate_bps=10**9, delay_ps=7_000_000, buffer_bytes=1 << 20)
X = 400_000  # ps that a full packet takes on LINK
A = 160_000  # and an ACK
D = LINK.delay_ps

RATE_BPS = 100 * 10**9
DELAY_PS = 10**6
FAST = LinkSpec(RATE_BPS, DELAY_PS, 64 << 20)
MIDDLE = replace(
    frame_of("roce-1024"), name="roce-middle", first_bytes=0, last_bytes=0
)  # every packet 1106 B
FOREVER_PS = 10**15

FABRIC = compile_network(leaf_spine(2, 1, 2, LINK, LINK))  # hosts 0 … 3, leaves 4 and 5, spine 6
TWO_LEVELS: dict[str, Any] = {"switch": 6, "branches": (Branch(4, 0), Branch(5, 0)), "homes": (1, 1, 2, 2)}


class Make(Protocol):
    """An engine with the same loss on every link, or with other rules."""

    def __call__(
        self, network: Network, loss: float = 0.0, seed: int = 1, rules: Sequence[Rule] | None = None
    ) -> Sim: ...


def compiled(
    network: Network, loss: float = 0.0, seed: int = 1, rules: Sequence[Rule] | None = None
) -> Engine:
    return Engine(network, seed, losses([loss] * len(network.link_source)) if rules is None else rules)


def logged(network: Network, loss: float = 0.0, seed: int = 1, rules: Sequence[Rule] | None = None) -> Engine:
    """The compiled engine, with its log."""
    sim = compiled(network, loss, seed, rules)
    sim.start_log()
    return sim


def reference(
    network: Network, loss: float = 0.0, seed: int = 1, rules: Sequence[Rule] | None = None
) -> ReferenceEngine:
    """The plain-Python engine; it always keeps its log."""
    rules = losses([loss] * len(network.link_source)) if rules is None else rules
    return ReferenceEngine(network, seed, rules)


# Of long tests: by day the compiled engine, which does what the plain one does (test_plans), by night both.
REFERENCE_BY_NIGHT = pytest.mark.parametrize(
    "engine", [logged, pytest.param(reference, marks=nightly)], ids=["compiled", "reference"]
)


def seeds(make: Make, compiled_count: int, reference_count: int = 2) -> range:
    """So many fates of the compiled engine, a few of the slow one."""
    return range(reference_count if make is reference else compiled_count)


def claimed(sim: Sim, number: int) -> list[Any]:
    """What switches hold of a job that is over."""
    if isinstance(sim, Engine):
        return sim.leaks(number)
    job = sim.numbered[number].job
    return sim.entries[job.switch].claimed() if job.program is ATP else []


def windows(sim: Sim, number: int) -> list[int]:
    """Packets that each worker of an ATP job may have on their way."""
    if isinstance(sim, Engine):
        frame_bytes = FRAME.wire_bytes(FRAME.elements, first=False, last=False)
        of_job = sim.world.streams["job"] == number
        return [int(size) // frame_bytes for size in sim.world.streams["window_bytes"][of_job]]
    job = sim.jobs[number]
    return [worker.window for worker in job.workers]  # type: ignore[union-attr]


def transmit_ps(size_bytes: int, rate_bps: int = RATE_BPS) -> int:
    """Time on the wire."""
    return -(-size_bytes * 8 * 10**12 // rate_bps)


def star_of(hosts: int, link: LinkSpec = LINK) -> Network:
    """Hosts 0, 1, … on a switch, the last node."""
    return compile_network(star(hosts, link))


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


def link_between(network: Network, a: int, b: int) -> int:
    """The first link on the way from one node to another."""
    return next_links(network, a, b)[0]


def changed(sent: Any, **changes: Any) -> Any:
    """A job, flow or operation with changes, of it or of its sender."""
    of_sender = {name: changes.pop(name) for name in list(changes) if name in Sender.__dataclass_fields__}
    return replace(sent, sender=replace(sent.sender, **of_sender), **changes)


def job(network: Network, slots: int, frame: Frame = FRAME, unit_packets: int = 1, **changes: Any) -> Job:
    """Workers on all hosts, aggregated by the first switch; timers never fire; but for the changes."""
    workers = int(network.is_host.sum())
    plain = Job(
        hosts=tuple(range(workers)),
        switch=workers,
        slot_base=0,
        unit_packets=unit_packets,
        sender=Sender(frame, slots, FOREVER_PS, 1, FOREVER_PS, FOREVER_PS),
        routes=(0,) * workers,
    )
    return changed(plain, **changes)


def atp_job(network: Network, window: int, entries: int = 1000, **changes: Any) -> Job:
    """Workers on all hosts but the last, where the server is; entries for all that is ever on its way.

    The changes are those of the job or of its server.
    """
    workers = int(network.is_host.sum()) - 1
    of_server = {name: changes.pop(name) for name in list(changes) if name in AtpServer.__dataclass_fields__}
    plain = AtpServer(workers, entries, window_max=window)
    server = replace(plain, **of_server)
    sender = {"timeout_ps": 60_000_000, "first_timeout_ps": 100_000_000, "timeout_max_ps": 10**9}
    sender["ecn_bytes"] = 1 << 20
    ends = {"hosts": tuple(range(workers)), "routes": (0,) * workers}
    return job(network, window, program=ATP, server=server, **{**sender, **ends, **changes})


def flow(source: int, target: int, words: Words, frame: Frame = FRAME, **changes: Any) -> Flow:
    """A flow that sends everything at once and is acknowledged once; but for the changes."""
    packets = max(1, -(-words.size // frame.elements))
    plain = Flow(
        source=source,
        target=target,
        words_count=words.size,
        words=words,
        received=np.zeros_like(words),
        sender=Sender(frame, packets, 10**12, packets),
        route=0,
        key=source,
    )
    return changed(plain, **changes)


def message(words_count: int, **changes: Any) -> Flow:
    """A flow from host 0 to host 1 that sends everything at once, every packet acknowledged."""
    words = np.arange(words_count, dtype=np.int32) * 77
    return flow(0, 1, words, **{"ack_every": 1, "timeout_ps": 10**9, "key": 5, **changes})


def check_received(flows: Sequence[Flow]) -> None:
    for each in flows:
        assert each.words is not None
        assert each.received is not None
        assert np.array_equal(each.words, each.received)


def gradients(workers: int, size: int, seed: int = 0, margin: int = 2**31) -> list[Words]:
    """Random words from −margin up to margin, any int32 if left out; one array per worker."""
    random = np.random.default_rng(seed)
    return [random.integers(-margin, margin, size, dtype=np.int32) for _ in range(workers)]


def wrapping_sum(words: Sequence[Words]) -> Words:
    """Sum over workers modulo 2^32."""
    total = np.zeros_like(words[0])
    for each in words:
        total += each
    return total


def segment(words: NDArray[Any], merge: Merge = Merge.ADD, **changes: Any) -> Segment:
    """A segment with room for its result."""
    return replace(Segment(words, np.zeros(words.size, np.int32), merge), **changes)


def start(
    sim: Sim, number: int, segments: Sequence[list[Segment]], scaled: Sequence[Scaled] | None = None
) -> None:
    """Open one stream per worker now."""
    for rank, own in enumerate(segments):
        sim.open_stream(number, rank, own, scaled[rank] if scaled else None)


class Outcome(NamedTuple):
    """What one exchange of a job gave, by worker."""

    finished_ps: list[int]
    results: list[Words]


def aggregate(
    sim: Sim, number: int, words: Sequence[NDArray[Any]], scaled: Sequence[Scaled] | None = None
) -> Outcome:
    """One stream of one segment per worker, opened now and run until all are done."""
    segments = [segment(each) for each in words]
    start(sim, number, [[each] for each in segments], scaled)
    finished_ps = {completion.worker: completion.time_ps for completion in run(sim, len(words))}
    return Outcome([finished_ps[rank] for rank in range(len(words))], [each.result for each in segments])


def check_sums(results: Sequence[Words], words: Sequence[Words]) -> None:
    expected = wrapping_sum(words)
    assert all(np.array_equal(result, expected) for result in results)


def run(sim: Sim, completions: int) -> list[Completion]:
    """Run until so many streams and flows are done."""
    done: list[Completion] = []
    while len(done) < completions:
        new = sim.run(FOREVER_PS)
        assert new, f"only {len(done)} of {completions} ever end"
        done += new
    return done


def run_dry(sim: Sim) -> list[Completion]:
    """Run until nothing is left to happen, and check that no packet has got lost without being counted."""
    done: list[Completion] = []
    while (time_ps := sim.next_event_ps()) is not None:
        done += sim.run(max(time_ps, FOREVER_PS))
    check_conservation(sim)
    assert links_total(sim, "in_flight_packets") == 0
    return done


def check_conservation(sim: Sim) -> None:
    """What each link sent has arrived, was lost, or is under way, in packets and in bytes."""
    for counters in sim.link_counters():
        for unit in ("packets", "bytes"):
            arrived = [counters[f"{kind}_{unit}"] for kind in ("delivered", "lost", "in_flight")]
            assert counters[f"sent_{unit}"] == sum(arrived)


def links_total(sim: Sim, counter: str) -> int:
    return sum(counters[counter] for counters in sim.link_counters())


def retransmitted(sim: Sim, number: int, workers: int) -> int:
    """Packets that the workers of a job have sent again."""
    return sum(sim.worker_counters(number, rank)["retransmitted_packets"] for rank in range(workers))
