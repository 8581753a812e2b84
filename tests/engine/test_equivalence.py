"""The compiled engine does what its plain-Python reference does, event for event, on random small plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from homomorphic.fixed_point import block_exponents
from sim.engine.engine import Engine
from sim.engine.model import Completion, Flow, Frame, Job, Merge, Scaled, Segment
from tests.reference.engine import ReferenceEngine
from topologies.graph import LinkSpec
from topologies.leaf_spine import leaf_spine
from topologies.routing import Network, compile_network
from topologies.star import star

HORIZON_PS = 20 * 10**9
RATES = st.sampled_from([10**9, 3 * 10**9, 10**10, 7 * 10**9])
DELAYS = st.sampled_from([0, 1, 50_000, 1_000_000])
BUFFERS = st.sampled_from([300, 2_000, 1 << 20])


@dataclass(frozen=True)
class Exchange:
    """One stream per worker: what is sent, and when each worker starts."""

    words: list[list[NDArray[Any]]]  # [worker][segment]
    merges: list[Merge]
    is_scaled: bool
    starts_ps: list[int]


@dataclass(frozen=True)
class Plan:
    """A network, its traffic, and chance."""

    network: Network
    loss: NDArray[np.float64]
    seed: int
    jobs: list[tuple[Job, list[Exchange]]]  # a job's exchanges follow each other
    flows: list[tuple[int, Flow]]  # start, flow


@st.composite
def networks(draw: st.DrawFn) -> Network:
    link = LinkSpec(draw(RATES), draw(DELAYS), draw(BUFFERS))
    if draw(st.booleans()):
        return compile_network(star(draw(st.integers(2, 5)), link))
    uplink = LinkSpec(draw(RATES), draw(DELAYS), draw(BUFFERS))
    return compile_network(leaf_spine(draw(st.integers(1, 2)), draw(st.integers(1, 2)), 2, link, uplink))


def _words(random: np.random.Generator, size: int, is_scaled: bool) -> NDArray[Any]:
    if is_scaled:
        return (random.standard_normal(size) * 10.0 ** random.integers(-3, 3)).astype(np.float32)
    return random.integers(-(2**31), 2**31, size, dtype=np.int32)


@st.composite
def jobs(draw: st.DrawFn, network: Network, slot_base: int) -> tuple[Job, list[Exchange]]:
    hosts = [node for node in range(len(network.nodes)) if network.is_host[node]]
    switches = [node for node in range(len(network.nodes)) if not network.is_host[node]]
    workers = draw(st.permutations(hosts))[: draw(st.integers(1, len(hosts)))]
    unit_packets = draw(st.sampled_from([1, 1, 2, 3]))
    extra = draw(st.integers(0, 4))
    job = Job(
        hosts=tuple(workers),
        switch=draw(st.sampled_from(switches)),
        slot_base=slot_base,
        slots_count=unit_packets * draw(st.integers(1, 5)),
        unit_packets=unit_packets,
        frame=Frame("test", 4, 40, first_bytes=extra, last_bytes=2 * extra),
        timeout_ps=draw(st.sampled_from([3_000_000, 20_000_000])),
        first_timeout_ps=draw(st.sampled_from([3_000_000, 50_000_000])),
        timeout_max_ps=40_000_000,
        routes=tuple(draw(st.integers(0, 1000)) for _ in workers),
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    exchanges = []
    for _ in range(draw(st.integers(1, 2))):
        is_scaled = draw(st.booleans())
        sizes = [draw(st.integers(1, 60)) for _ in range(1 if is_scaled else draw(st.integers(1, 3)))]
        exchanges.append(
            Exchange(
                words=[[_words(random, size, is_scaled) for size in sizes] for _ in workers],
                merges=[Merge.ADD if is_scaled else draw(st.sampled_from(Merge)) for _ in sizes],
                is_scaled=is_scaled,
                starts_ps=[draw(st.sampled_from([0, 0, 100_000, 9_000_000])) for _ in workers],
            )
        )
    return job, exchanges


@st.composite
def flows(draw: st.DrawFn, network: Network) -> tuple[int, Flow]:
    hosts = [node for node in range(len(network.nodes)) if network.is_host[node]]
    source, target = draw(st.permutations(hosts))[:2]
    window = draw(st.integers(1, 12))
    words = np.arange(draw(st.integers(0, 120)), dtype=np.int32) * 7919
    flow = Flow(
        source=source,
        target=target,
        words_count=words.size,
        words=words,
        received=words,  # replaced by each run's own
        frame=Frame("flow", 4, 30, first_bytes=3, last_bytes=1, ack_bytes=20),
        window=window,
        timeout_ps=draw(st.sampled_from([2_000_000, 30_000_000])),
        ack_every=draw(st.integers(1, window)),
        route=draw(st.integers(0, 1000)),
        key=draw(st.integers(0, 2**64 - 1)),
    )
    return draw(st.sampled_from([0, 0, 300_000, 5_000_000])), flow


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    network = draw(networks())
    rates = st.sampled_from([0.0, 0.0, 0.02, 0.3])
    loss = np.array([draw(rates) for _ in network.link_names])
    first = draw(jobs(network, 0)) if draw(st.booleans()) else None
    second = draw(jobs(network, 20)) if draw(st.booleans()) else None
    return Plan(
        network,
        loss,
        draw(st.integers(0, 2**63)),
        [job for job in (first, second) if job is not None],
        [draw(flows(network)) for _ in range(draw(st.integers(0, 4)))],
    )


class Play:
    """One engine taken through a plan; everything it did is kept."""

    def __init__(self, engine: Any, plan: Plan) -> None:
        self.engine, self.plan = engine, plan
        self.completions: list[Completion] = []
        self.results: list[NDArray[Any]] = []
        self._due: list[tuple[int, int, Any]] = []  # (time, number, action)
        self._scheduled = 0
        self._rounds: dict[tuple[int, int], int] = {}
        for number, (job, _) in enumerate(plan.jobs):
            engine.add_job(job)
            for worker in range(len(job.hosts)):
                self._schedule_stream(0, number, worker, 0)
        for start_ps, flow in plan.flows:
            self._schedule(start_ps, lambda flow=flow: self._open_flow(flow))

    def run(self) -> None:
        while True:
            self._due.sort(key=lambda item: item[:2])
            if self._run_to(self._due[0][0] if self._due else HORIZON_PS):
                continue  # a completion may have scheduled something earlier
            if not self._due:
                return
            _, _, action = self._due.pop(0)
            action()

    def _run_to(self, time_ps: int) -> bool:
        new = self.engine.run(time_ps)
        self.completions += new
        for completion in new:
            if completion.kind == "stream":
                key = completion.job, completion.worker
                self._rounds[key] = self._rounds.get(key, 0) + 1
                self._schedule_stream(self.engine.now_ps, *key, self._rounds[key])
        return bool(new)

    def _schedule(self, time_ps: int, action: Any) -> None:
        self._scheduled += 1
        self._due.append((time_ps, self._scheduled, action))

    def _schedule_stream(self, now_ps: int, number: int, worker: int, index: int) -> None:
        exchanges = self.plan.jobs[number][1]
        if index < len(exchanges):
            start_ps = now_ps + exchanges[index].starts_ps[worker]
            self._schedule(start_ps, lambda: self._open_stream(number, worker, exchanges[index]))

    def _open_stream(self, number: int, worker: int, exchange: Exchange) -> None:
        segments = []
        for words, merge in zip(exchange.words[worker], exchange.merges, strict=True):
            result = np.zeros(words.size, np.int32)
            self.results.append(result)
            segments.append(Segment(words, result, merge))
        scaled = None
        if exchange.is_scaled:
            job = self.plan.jobs[number][0]
            workers, block = len(job.hosts), job.unit_packets * job.frame.elements
            exponents = block_exponents(exchange.words[worker][0], block, workers)
            scaled = Scaled(exponents, np.full_like(exponents, -128))
            self.results.append(scaled.agreed)
        self.engine.open_stream(number, worker, segments, scaled)

    def _open_flow(self, flow: Flow) -> None:
        assert flow.words is not None
        received = np.zeros_like(flow.words)
        self.results.append(received)
        fields = {**flow.__dict__, "received": received}
        self.engine.open_flow(Flow(**fields))


@settings(max_examples=150)
@given(plans())
def test_same_events_same_words(plan: Plan) -> None:
    reference = Play(ReferenceEngine(plan.network, plan.loss, plan.seed), plan)
    engine = Engine(plan.network, plan.loss, plan.seed)
    engine.start_log()
    compiled = Play(engine, plan)
    reference.run()
    compiled.run()

    assert engine.log == [tuple(row) for row in reference.engine.log]
    assert compiled.completions == reference.completions
    for ours, theirs in zip(compiled.results, reference.results, strict=True):
        assert np.array_equal(ours, theirs)
    for ours_link, theirs_link in zip(engine.link_counters(), reference.engine.link_counters(), strict=True):
        assert {name: ours_link[name] for name in theirs_link} == theirs_link
    for number, (job, _) in enumerate(plan.jobs):
        assert engine.switch_counters(number) == reference.engine.switch_counters(number)
        for worker in range(len(job.hosts)):
            assert engine.worker_counters(number, worker) == reference.engine.worker_counters(number, worker)


@settings(max_examples=100)
@given(plans())
def test_everything_completes(plan: Plan) -> None:
    """Whatever is lost or dropped, every stream and flow ends within some hundred timeouts."""
    play = Play(Engine(plan.network, np.minimum(plan.loss, 0.02), plan.seed), plan)
    play.run()

    streams = sum(len(job.hosts) * len(exchanges) for job, exchanges in plan.jobs)
    assert len(play.completions) == streams + len(plan.flows)
