"""Aggregation trees and timed slots of both engines against closed forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netfold.sim.engine.interface import Branch, Fate, Rule
from netfold.switch.program import ProgramSpec
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network
from tests.reference.engine.fabric import SLOT_TIMER, STREAM_TIMER
from tests.sim.engine.small import (
    FOREVER_PS,
    LINK,
    D,
    Make,
    X,
    aggregate,
    check_sums,
    compiled,
    gradients,
    job,
    link_between,
    run,
    segment,
    star_of,
    start,
)
from tests.sim.scenes import simulate

FABRIC = compile_network(leaf_spine(2, 1, 2, LINK, LINK))  # hosts 0 … 3, leaves 4 and 5, spine 6
TWO_LEVELS: dict[str, Any] = {"switch": 6, "branches": (Branch(4, 0), Branch(5, 0)), "homes": (1, 1, 2, 2)}


@pytest.mark.parametrize("program", [SWITCHML, TREE])
@pytest.mark.parametrize("unit_packets", [1, 3])
def test_two_levels_take_four_hops_and_a_packet_per_uplink(
    engine: Make, program: ProgramSpec, unit_packets: int
) -> None:
    packets = 2 * unit_packets
    sim = engine(FABRIC)
    number = sim.add_job(job(FABRIC, packets, unit_packets=unit_packets, program=program, **TWO_LEVELS))
    words = gradients(4, 4 * packets)
    outcome = aggregate(sim, number, words)

    assert outcome.finished_ps == [(packets + 3) * X + 4 * D] * 4
    check_sums(outcome.results, words)
    counters = sim.switch_counters(number)
    assert (counters["packets"], counters["partials"], counters["results"]) == (
        6 * packets,
        2 * packets,
        packets,
    )
    assert counters["answers"] + counters["stale_results"] + counters["duplicates_dropped"] == 0
    assert not any(row[2] == STREAM_TIMER for row in sim.log)


def test_a_leaf_answers_from_the_result_that_it_keeps(engine: Make) -> None:
    """A worker whose result is lost gets it again from its leaf; the spine hears nothing of it."""
    sim = engine(FABRIC)
    timeouts = {"timeout_ps": 40 * X + 8 * D, "first_timeout_ps": 40 * X + 8 * D}
    number = sim.add_job(job(FABRIC, 1, **timeouts, **TWO_LEVELS))
    words = gradients(4, 4)
    own = [segment(each) for each in words]
    start(sim, number, [[each] for each in own])
    last_link = link_between(FABRIC, 4, 0)
    sim.cut(last_link)
    run(sim, 3)
    sim.flush(last_link)
    sim.restore(last_link)
    (done,) = sim.run(FOREVER_PS)

    assert done.time_ps == 40 * X + 8 * D + 2 * X + 2 * D
    check_sums([own[0].result], words)
    counters = sim.switch_counters(number)
    assert (counters["answers"], counters["partials"], counters["results"]) == (1, 2, 1)


def test_a_slot_that_waits_too_long_answers_with_what_it_has(engine: Make) -> None:
    """Worker 1 comes late: it gets what worker 0 sent, and sends nothing."""
    network = star_of(2)
    sim = engine(network)
    number = sim.add_job(job(network, 1, program=TIMED, slot_timer_ps=5 * X))
    words = gradients(2, 4)
    own = [segment(each, holders=np.zeros(1, np.uint32)) for each in words]
    sim.open_stream(number, 0, [own[0]])
    (early,) = sim.run(FOREVER_PS)
    assert early.time_ps == X + D + 5 * X + X + D
    sim.open_stream(number, 1, [own[1]])
    (late,) = sim.run(FOREVER_PS)

    assert late.time_ps == early.time_ps
    for each in own:
        assert np.array_equal(each.result, words[0])
        assert np.array_equal(np.asarray(each.holders), [1])
    (timer,) = [row for row in sim.log if row[2] == SLOT_TIMER]
    assert timer[3:] == (-1, number * 65536, 0, 0, 0)
    counters = sim.switch_counters(number)
    assert (counters["timed_out"], counters["packets"], counters["results"]) == (1, 1, 0)


@pytest.mark.parametrize("program", [SWITCHML, TREE])
@pytest.mark.parametrize("workers", [33, 64])
def test_as_many_children_as_a_bitmap_has_bits(engine: Make, program: ProgramSpec, workers: int) -> None:
    sim = engine(star_of(workers))
    words = gradients(workers, 4 * 5)
    number = sim.add_job(job(star_of(workers), 2, program=program))
    outcome = aggregate(sim, number, words)

    check_sums(outcome.results, words)
    # Windows of two packets: the third leaves when the first has returned, after 2 X + 2 D.
    assert outcome.finished_ps == [3 * (2 * X + 2 * D)] * workers


@pytest.mark.parametrize("workers", [64])
def test_the_upper_bits_know_copies_and_losses(engine: Make, workers: int) -> None:
    """Each worker's bit is told from those 32 above or below it."""
    network = star_of(workers)
    every = tuple(range(len(network.link_names)))
    rules = [Rule(Fate.LOSS, 0.02, every), Rule(Fate.DUPLICATE, 0.05, every)]
    sim = engine(network, rules=rules)
    times = {"timeout_ps": 500 * X, "first_timeout_ps": 500 * X, "timeout_max_ps": 10**12}
    words = gradients(workers, 4 * 12)

    check_sums(aggregate(sim, sim.add_job(job(network, 3, **times)), words).results, words)


@pytest.mark.parametrize(
    ("program", "limit"), [(SWITCHML, 64), (TREE, 64), (TIMED, 32)], ids=["switchml", "tree", "timed"]
)
def test_more_children_than_bits_are_refused(program: ProgramSpec, limit: int) -> None:
    timer = {"slot_timer_ps": X} if program is TIMED else {}
    for workers in (limit, limit + 1):
        network = star_of(workers)
        plan = job(network, 2, program=program, **timer)
        if workers == limit:
            compiled(network).add_job(plan)
            continue
        with pytest.raises(ValueError, match=f"point 0 has {workers} children, must have 1 to {limit}"):
            compiled(network).add_job(plan)


def test_trees_take_more(engine: Make) -> None:
    network = compile_network(leaf_spine(3, 1, 32, LINK, LINK))
    tree: dict[str, Any] = {"switch": 99, "branches": tuple(Branch(leaf, 0) for leaf in (96, 97, 98))}
    sim = engine(network)
    number = sim.add_job(job(network, 2, homes=tuple(1 + rank // 32 for rank in range(96)), **tree))
    words = gradients(96, 4 * 5)

    check_sums(aggregate(sim, number, words).results, words)


STAR = """\
name: wide
seed: 1
topology: {kind: star, hosts: 64, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 64
workload: {kind: synthetic, elements: 4000}
codec: {kind: fixed_point, factor: 1e6}
collective: {kind: in_network, frame: udp-256, slots: 16, timeout: 200us}
"""
RACKS = (
    "topology={kind: leaf_spine, leaves: 1, spines: 2, hosts_per_leaf: 65, switch: tofino1, rate: 100Gbps}"
)


@pytest.mark.parametrize(
    "sets",
    [
        ("workers=64", "faults=[{kind: loss, rate: 0.1%}]"),
        ("workers=65", RACKS, "collective.trees=2"),
        ("workers=65", RACKS, "collective.multicast=on"),
    ],
)
def test_runs_of_many_workers_are_right(tmp_path: Path, sets: tuple[str, ...]) -> None:
    result = simulate(tmp_path, *sets, text=STAR)

    assert {check.verdict for check in result.jobs[0].checks} == {"pass"}
