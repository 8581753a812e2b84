"""What protocols promise on FIFO networks that lose packets, and what a lost register does to them.

4 workers, window 16, 400 packets; 8 seeds a case with the compiled engine, a few with the reference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from netfold.sim.engine.interface import Branch, Frame, Job, Overflow, Segment, Server
from netfold.sim.engine.setup.jobs import first_entries
from netfold.sim.plan.frames import frame_of
from netfold.switch.programs.atp import ATP
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import Network, compile_network
from tests.reference.atp import atp_packet
from tests.reference.engine.chunk import JobNumber
from tests.reference.engine.fabric import Fabric
from tests.sim.engine.small import (
    FAST,
    Make,
    Sim,
    aggregate,
    check_sums,
    claimed,
    compiled,
    gradients,
    job,
    links_total,
    retransmitted,
    run_dry,
    seeds,
    segment,
    star_of,
    start,
)

WORKERS, WINDOW, PACKETS = 4, 16, 400
FRAME = Frame("test", elements=2, overhead_bytes=100)
ROCE = replace(
    frame_of("roce-1024"), elements=2, overhead_bytes=frame_of("roce-1024").overhead_bytes + 4 * 254
)
STUCK_PS = 10**10  # a hundred times the longest timeout
MARGIN = 2**31 // WORKERS  # words whose sums stay in int32
TIMEOUTS = {"timeout_ps": 100_000_000, "first_timeout_ps": 100_000_000, "timeout_max_ps": 100_000_000}


class Case(NamedTuple):
    """A protocol on its network."""

    network: Network
    job: Job


def switchml() -> Case:
    network = star_of(WORKERS, FAST)
    return Case(network, job(network, WINDOW, FRAME, **TIMEOUTS))


def messages() -> Case:
    """Units of four packets, the first and the last of another size."""
    network = star_of(WORKERS, FAST)
    return Case(network, job(network, 4 * WINDOW, ROCE, 4, **TIMEOUTS))


def two_racks() -> Case:
    """Two leaves add up two workers each; the spine adds up the leaves."""
    network = compile_network(leaf_spine(2, 1, 2, FAST, FAST))
    spine, leaves = (network.nodes.index("spine0"), [network.nodes.index(f"leaf{i}") for i in range(2)])
    branches = tuple(Branch(leaf, 0) for leaf in leaves)
    return Case(network, replace(switchml().job, switch=spine, branches=branches, homes=(1, 1, 2, 2)))


def atp() -> Case:
    network = star_of(WORKERS + 1, FAST)
    made = replace(
        switchml().job,
        switch=WORKERS + 1,
        program=ATP,
        overflow=Overflow.STICKY,
        timeout_ps=200_000_000,
        first_timeout_ps=1_000_000_000,
        server=Server(WORKERS, 20_000, WINDOW, 80_000, is_adaptive=False),
    )
    return Case(network, made)


PROTOCOLS = {"SwitchML": switchml, "SwitchML's messages": messages, "two racks": two_racks, "ATP": atp}
EVERY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
@EVERY_PROTOCOL
def test_sums_are_exact_whatever_is_lost(engine: Make, protocol: str, loss: float) -> None:
    """Two exchanges in a row; all that is lost is sent again, and nothing else."""
    case = PROTOCOLS[protocol]()
    margin = MARGIN if case.job.program is ATP else 2**31
    elements = case.job.frame.elements
    evictions = 0
    for seed in seeds(engine, 8):
        sim = engine(case.network, loss, seed)
        number = sim.add_job(case.job)
        for size in (PACKETS * elements, 37 * elements + 1):
            words = gradients(WORKERS, size, seed, margin)
            check_sums(aggregate(sim, number, words).results, words)
        run_dry(sim)
        assert claimed(sim, number) == []
        assert (links_total(sim, "lost_packets") > 0) == (retransmitted(sim, number, WORKERS) > 0)
        counters = sim.switch_counters(number)
        assert counters["collisions"] == 0
        evictions += counters["evictions"]
        if loss == 0 and not case.job.branches:
            rest = 38 if case.job.unit_packets == 1 else 40
            assert counters["packets"] == WORKERS * (PACKETS + rest)
    assert (evictions > 0) == (case.job.program is ATP and loss > 0)


@pytest.mark.parametrize("protocol", ["SwitchML", "ATP"])
@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_lost_registers(engine: Make, protocol: str, loss: float) -> None:
    """SwitchML finishes where no result is lost, else some never do; ATP finishes; nothing is ever wrong."""
    case = PROTOCOLS[protocol]()
    finished = struck = 0
    for seed in seeds(engine, 12, 6):
        sim = engine(case.network, loss, seed)
        number = sim.add_job(case.job)
        words = gradients(WORKERS, PACKETS * FRAME.elements, seed, MARGIN)
        own = [segment(each) for each in words]
        start(sim, number, [[each] for each in own])
        assert run_until(sim, WORKERS, 5_000_000 + 1_200_000 * seed) == 0
        struck += claimed(sim, number) != []
        sim.clear(case.job.switch)
        assert claimed(sim, number) == []
        finished += run_until(sim, WORKERS, STUCK_PS) == WORKERS
        check_what_is_there(own)
    assert struck > 0 or protocol == "SwitchML"  # whose workers are in step
    if protocol == "ATP" or loss == 0:
        assert finished == len(seeds(engine, 12, 6))
    else:
        assert finished < len(seeds(engine, 12, 6)) / 2


def run_until(sim: Sim, completions: int, until_ps: int) -> int:
    """Run until so many streams are done, or a time; returns how many are."""
    done = 0
    while done < completions and sim.now_ps < until_ps:
        done += len(sim.run(until_ps))
    return done


def check_what_is_there(own: list[Segment]) -> None:
    """Every word that has come is the sum."""
    total = sum(each.words.astype(np.int64) for each in own)
    for each in own:
        is_there = each.result != 0
        assert np.array_equal(each.result[is_there], total[is_there])


def test_first_entries_collide_as_often_as_hashing_says() -> None:
    """A window entry meets one of J other live ones with probability 1 − (1 − 1/M)^J, within 3 sigma."""
    entries, window, others, count = 2000, 20, 30, 100
    hits = 0
    for seed in range(count):
        live = {entry for job in range(1, 1 + others) for entry in first_entries(seed, job, entries, window)}
        own = first_entries(seed, 0, entries, window)
        assert len(set(own)) == window
        hits += sum(entry in live for entry in own)
    expected = 1 - (1 - 1 / entries) ** (others * window)
    draws = count * window
    sigma = (expected * (1 - expected) / draws) ** 0.5
    assert abs(hits / draws - expected) < 3 * sigma


def test_first_entries_are_the_reference_s() -> None:
    """Also where there are hardly more entries than places."""
    case = atp()
    assert case.job.server is not None
    for entries in (2000, 20):
        server = replace(case.job.server, entries=entries, window_max=20)
        for seed in range(20):
            fabric = Fabric(case.network, (), seed)
            theirs = atp_packet.first_entries(fabric, JobNumber(replace(case.job, server=server), seed))
            assert first_entries(seed, seed, entries, 20) == theirs


def test_goodput_of_atp_is_that_of_its_frame() -> None:
    """62 words in 332 B on the wire: at most 74.7 Gb/s of gradient at 100 Gb/s."""
    frame = Frame("atp", 62, 84)
    case = atp()
    assert case.job.server is not None
    server = replace(case.job.server, window_max=250)
    sim = compiled(case.network)
    number = sim.add_job(replace(case.job, frame=frame, slots_count=250, server=server))
    packets = 10_000
    aggregate(sim, number, gradients(WORKERS, packets * 62, 1, MARGIN))
    goodput_bps = packets * 62 * 32 * 10**12 / sim.now_ps
    assert 0.95 * 74.7e9 < goodput_bps < 74.7e9
