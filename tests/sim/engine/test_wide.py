"""Switches with more children than 32: bitmaps of 64 bits, and trees of switches beyond."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.sim.engine.interface import Branch, Fate, Rule
from netfold.switch.program import ProgramSpec
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network
from tests.sim.engine.small import (
    LINK,
    D,
    Make,
    X,
    aggregate,
    check_sums,
    compiled,
    gradients,
    job,
    star_of,
)
from tests.sim.scenes import simulate


@pytest.mark.parametrize("program", [SWITCHML, TREE])
@pytest.mark.parametrize("workers", [1, 32, 33, 63, 64])
def test_as_many_children_as_a_bitmap_has_bits(engine: Make, program: ProgramSpec, workers: int) -> None:
    sim = engine(star_of(workers))
    words = gradients(workers, 4 * 5)
    number = sim.add_job(job(star_of(workers), 2, program=program))
    outcome = aggregate(sim, number, words)

    check_sums(outcome.results, words)
    # Windows of two packets: the third leaves when the first has returned, after 2 X + 2 D.
    assert outcome.finished_ps == [3 * (2 * X + 2 * D)] * workers


@pytest.mark.parametrize("workers", [33, 64])
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


@pytest.mark.parametrize("workers", [65, 96])
def test_trees_take_more(engine: Make, workers: int) -> None:
    network = compile_network(leaf_spine(3, 1, 32, LINK, LINK))
    leaves = [96, 97, 98]
    sim = engine(network)
    number = sim.add_job(
        job(
            network,
            2,
            hosts=tuple(range(workers)),
            routes=(0,) * workers,
            switch=99,
            branches=tuple(Branch(leaf, 0) for leaf in leaves),
            homes=tuple(1 + rank // 32 for rank in range(workers)),
        )
    )
    words = gradients(workers, 4 * 5)

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
        ("workers=32",),
        ("workers=33",),
        ("workers=64",),
        ("workers=64", "faults=[{kind: loss, rate: 0.1%}]"),
        ("workers=33", RACKS),
        ("workers=64", RACKS),
        ("workers=65", RACKS, "collective.trees=2"),
        ("workers=65", RACKS, "faults=[{kind: loss, rate: 0.1%}]"),
        ("workers=65", RACKS, "collective.multicast=on"),
    ],
)
def test_runs_of_many_workers_are_right(tmp_path: Path, sets: tuple[str, ...]) -> None:
    result = simulate(tmp_path, *sets, text=STAR)

    assert {check.verdict for check in result.jobs[0].checks} == {"pass"}
