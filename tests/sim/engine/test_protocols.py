"""What protocols promise on FIFO networks that lose packets, and what a lost register does to them.

4 workers, window 16, 400 packets, 30 seeds a case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.codec import Merge
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Branch, Frame, Job, Overflow, Segment, Server, losses
from netfold.sim.engine.setup.jobs import first_entries
from netfold.switch.programs.atp import ATP
from netfold.topologies.graph import LinkSpec
from netfold.topologies.leaf_spine import leaf_spine
from netfold.topologies.routing import Network, compile_network
from netfold.topologies.star import star

WORKERS, WINDOW, PACKETS, SEEDS = 4, 16, 400, 30
FRAME = Frame("test", elements=2, overhead_bytes=100)
LINK = LinkSpec(100 * 10**9, 1_000_000, 1 << 20)
FAR_PS = 10**12
STUCK_PS = 10**10  # a hundred times the longest timeout
MARGIN = 2**31 // WORKERS  # words whose sums stay in int32


class Case(NamedTuple):
    """A protocol on its network."""

    network: Network
    job: Job


def switchml() -> Case:
    network = compile_network(star(WORKERS, LINK))
    job = Job(
        hosts=tuple(range(WORKERS)),
        switch=WORKERS,
        slot_base=0,
        slots_count=WINDOW,
        unit_packets=1,
        frame=FRAME,
        timeout_ps=100_000_000,
        first_timeout_ps=100_000_000,
        timeout_max_ps=100_000_000,
        routes=(0,) * WORKERS,
    )
    return Case(network, job)


def two_racks() -> Case:
    """Two leaves add up two workers each; the spine adds up the leaves."""
    network = compile_network(leaf_spine(2, 1, 2, LINK, LINK))
    spine, leaves = (network.nodes.index("spine0"), [network.nodes.index(f"leaf{i}") for i in range(2)])
    branches = tuple(Branch(leaf, 0) for leaf in leaves)
    return Case(network, replace(switchml().job, switch=spine, branches=branches, homes=(1, 1, 2, 2)))


def atp() -> Case:
    network = compile_network(star(WORKERS + 1, LINK))
    job = replace(
        switchml().job,
        switch=WORKERS + 1,
        program=ATP,
        overflow=Overflow.STICKY,
        timeout_ps=200_000_000,
        first_timeout_ps=1_000_000_000,
        server=Server(WORKERS, 20_000, WINDOW, 80_000, is_adaptive=False),
    )
    return Case(network, job)


PROTOCOLS = {"SwitchML": switchml, "two racks": two_racks, "ATP": atp}


def words(workers: int, size: int, seed: int) -> list[NDArray[np.int32]]:
    random = np.random.default_rng(seed)
    return [random.integers(-MARGIN, MARGIN, size, dtype=np.int32) for _ in range(workers)]


def start(engine: Engine, number: int, sent: list[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    """Open a stream of every worker; returns where the results will be."""
    results = [np.zeros_like(own) for own in sent]
    for worker, (own, result) in enumerate(zip(sent, results, strict=True)):
        engine.open_stream(number, worker, [Segment(own, result, Merge.ADD)])
    return results


def run(engine: Engine, completions: int, until_ps: int = FAR_PS) -> int:
    """Run until so many streams are done, or a time; returns how many are."""
    done = 0
    while done < completions and engine.now_ps < until_ps:
        done += len(engine.run(until_ps))
    return done


def run_dry(engine: Engine) -> None:
    while engine.next_event_ps() is not None:
        engine.run(FAR_PS)


@pytest.mark.parametrize("loss", [0.0, 0.001, 0.01, 0.05])
@pytest.mark.parametrize("make", PROTOCOLS.values(), ids=PROTOCOLS)
def test_sums_are_exact_whatever_is_lost(make: type[Case], loss: float) -> None:
    case = make()
    for seed in range(SEEDS):
        engine = Engine(case.network, seed, losses([loss] * len(case.network.link_names)))
        number = engine.add_job(case.job)
        sent = words(WORKERS, PACKETS * FRAME.elements, seed)
        results = start(engine, number, sent)
        assert run(engine, WORKERS) == WORKERS
        total = sum(own.astype(np.int64) for own in sent).astype(np.int32)
        assert all(np.array_equal(result, total) for result in results)
        run_dry(engine)
        assert engine.leaks(number) == []


def test_jobs_that_share_few_entries_collide_and_lose_nothing() -> None:
    """Three jobs of two workers on 24 entries, 1 % loss."""
    network = compile_network(star(9, LINK))
    switch = network.nodes.index("s0")
    for seed in range(5):
        engine = Engine(network, seed, losses([0.01] * len(network.link_names)))
        jobs = [
            replace(
                atp().job,
                hosts=(2 * index, 2 * index + 1),
                routes=(0, 0),
                switch=switch,
                slots_count=8,
                server=Server(6 + index, 24, 8, 80_000),
            )
            for index in range(3)
        ]
        numbers = [engine.add_job(job) for job in jobs]
        sent = [words(2, PACKETS * FRAME.elements, 10 * seed + number) for number in numbers]
        results = [start(engine, number, own) for number, own in zip(numbers, sent, strict=True)]
        assert run(engine, 6) == 6
        for own, outcome in zip(sent, results, strict=True):
            assert all(np.array_equal(result, own[0] + own[1]) for result in outcome)
        run_dry(engine)
        assert sum(engine.switch_counters(number)["collisions"] for number in numbers) > 10
        assert all(engine.leaks(number) == [] for number in numbers)


@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_lost_registers(loss: float) -> None:
    """SwitchML finishes where no result is lost, else some never do; ATP finishes; nothing is ever wrong."""
    finished = dict.fromkeys(("SwitchML", "ATP"), 0)
    for name in finished:
        case = PROTOCOLS[name]()
        for seed in range(SEEDS):
            engine = Engine(case.network, seed, losses([loss] * len(case.network.link_names)))
            number = engine.add_job(case.job)
            sent = words(WORKERS, PACKETS * FRAME.elements, seed)
            results = start(engine, number, sent)
            done = run(engine, WORKERS, 5_000_000 + 1_200_000 * seed)
            assert done == 0
            engine.clear(case.job.switch)
            done += run(engine, WORKERS, STUCK_PS)
            finished[name] += done == WORKERS
            total = sum(own.astype(np.int64) for own in sent).astype(np.int32)
            for result in results:
                is_there = result != 0
                assert np.array_equal(result[is_there], total[is_there])
    assert finished["ATP"] == SEEDS
    assert finished["SwitchML"] == SEEDS if loss == 0 else finished["SwitchML"] < SEEDS / 2


def test_entries_collide_as_often_as_hashing_says() -> None:
    """A window entry meets one of J other live ones with probability 1 − (1 − 1/M)^J, within 3 sigma."""
    entries, window, others, seeds = 2000, 20, 30, 200
    hits = 0
    for seed in range(seeds):
        live = {entry for job in range(1, 1 + others) for entry in first_entries(seed, job, entries, window)}
        hits += sum(entry in live for entry in first_entries(seed, 0, entries, window))
    expected = 1 - (1 - 1 / entries) ** (others * window)
    draws = seeds * window
    sigma = (expected * (1 - expected) / draws) ** 0.5
    assert abs(hits / draws - expected) < 3 * sigma


def test_packets_collide_as_often_as_entries_are_taken() -> None:
    """Entries that others hold, J drawn of M: the share of a window that collides, within 3 sigma."""
    entries, window, others, seeds = 2000, 20, 600, 200
    case = atp()
    server = replace(case.job.server, entries=entries, window_max=window)
    collisions = 0
    for seed in range(seeds):
        engine = Engine(case.network, seed)
        number = engine.add_job(replace(case.job, slots_count=window, server=server))
        taken = np.random.default_rng(seed).integers(0, entries, others)
        engine.world.entries.rows["identity"][taken] = -1  # nobody's here: never freed
        results = start(engine, number, words(WORKERS, window * FRAME.elements, seed))
        assert run(engine, WORKERS) == WORKERS
        assert all(np.array_equal(result, results[0]) for result in results)
        collisions += engine.switch_counters(number)["collisions"] // WORKERS
    expected = 1 - (1 - 1 / entries) ** others
    draws = seeds * window
    assert abs(collisions / draws - expected) < 3 * (expected * (1 - expected) / draws) ** 0.5


def test_goodput_of_atp_is_that_of_its_frame() -> None:
    """62 words in 332 B on the wire: at most 74.7 Gb/s of gradient at 100 Gb/s."""
    frame = Frame("atp", 62, 84)
    case = atp()
    job = replace(case.job, frame=frame, slots_count=250, server=replace(case.job.server, window_max=250))
    engine = Engine(case.network, 1)
    number = engine.add_job(job)
    packets = 20_000
    start(engine, number, words(WORKERS, packets * 62, 1))
    assert run(engine, WORKERS) == WORKERS
    goodput_bps = packets * 62 * 32 * 10**12 / engine.now_ps
    assert 0.95 * 74.7e9 < goodput_bps < 74.7e9
