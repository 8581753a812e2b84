"""Where a job is added up if the scenario leaves it open, and what is said where a ring is faster."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from netfold.sim.collectives.in_network.placement import candidates
from netfold.sim.plan.idle_network import Pace, job_pace
from netfold.topologies import graph as graphs
from netfold.topologies.files.node_link import to_json
from netfold.topologies.graph import LinkSpec
from tests.sim.scenes import job_of, job_plan, measure, only, plan, refused, simulate

# The link between a leaf and the spine carries four streams as fast as its hosts send, and has eight.
RACKS = """\
name: racks
seed: 1
topology: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 8, rate: 25Gbps, uplink_rate: 100Gbps}
workers: 16
workload: {kind: synthetic, elements: 300000}
codec: {kind: fixed_point}
collective: {kind: in_network, frame: udp-256}
"""
ONE, TREE = "collective.aggregators=one", "collective.aggregators=tree"
LINE_25G = 25e9 / 8 * 64 / 332  # words per second of udp-256: 332 B for 64


def points(folder: Path, *sets: str, text: str = RACKS) -> list[str]:
    """Names of the switches that add up, the root first."""
    variant = only(folder, *sets, text=text)
    job = job_of(variant)
    return [variant.network.nodes[one.switch] for one in (job, *job.branches)]


def test_a_tree_where_the_uplink_cannot_carry_all_streams(tmp_path: Path) -> None:
    assert points(tmp_path) == ["leaf0", "leaf1"]
    assert points(tmp_path, "collective.switch=spine0") == ["spine0", "leaf0", "leaf1"]
    assert points(tmp_path, ONE) == ["leaf0"]


@pytest.mark.parametrize(("hosts", "expected"), [(4, ["leaf0"]), (5, ["leaf0", "leaf1"])])
def test_one_switch_as_long_as_the_uplink_carries_all_streams(
    tmp_path: Path, hosts: int, expected: list[str]
) -> None:
    """Four streams of 25 Gbps fit on 100 Gbps, five do not."""
    sets = (f"topology.hosts_per_leaf={hosts}", f"workers={2 * hosts}")

    assert points(tmp_path, *sets) == expected


@pytest.mark.parametrize(
    ("sets", "elements_per_s"),
    [
        ((), LINE_25G),
        ((ONE,), LINE_25G / 2),
    ],
    ids=["auto", "one"],
)
def test_what_is_chosen_by_is_what_comes_out(
    tmp_path: Path, sets: tuple[str, ...], elements_per_s: float
) -> None:
    """The busiest link's share, but for round trips and exponents that go ahead."""
    metrics = measure(tmp_path, "workload.elements=1000000", *sets, text=RACKS)

    assert metrics["aggregation_elements_per_s"] == pytest.approx(elements_per_s, rel=0.04)


def test_a_root_in_the_middle_where_the_round_trip_decides(tmp_path: Path) -> None:
    """16 slots are less than a round trip at 100 Gbps: two hops to a spine, three to another leaf."""
    sharp = "collective={kind: in_network, program: tree, frame: roce-2048, slots: 16}"
    sets = ("topology={rate: 100Gbps, hosts_per_leaf: 4, switch: ideal}", "workers=8", sharp)

    assert points(tmp_path, *sets) == ["spine0", "leaf0", "leaf1"]
    times = {
        root: simulate(tmp_path, *sets, f"collective.switch={root}", TREE, text=RACKS).steps[0].end_ps
        for root in ("spine0", "leaf0")
    }
    assert times["spine0"] < times["leaf0"]


WIDE = ("topology.hosts_per_leaf=32", "workers=64")


def test_all_switches_are_tried_before_one_is_relieved(tmp_path: Path) -> None:
    """Leaf 0 would have 32 workers and a leaf below it; the spine has two leaves."""
    assert points(tmp_path, *WIDE) == ["spine0", "leaf0", "leaf1"]
    assert points(tmp_path, *WIDE, TREE) == ["spine0", "leaf0", "leaf1"]
    assert points(tmp_path, *WIDE, TREE, "collective.switch=leaf0") == ["leaf0", "spine0", "leaf1"]


def test_a_refusal_lists_what_was_tried(tmp_path: Path) -> None:
    sets = ("topology.hosts_per_leaf=48", "workers=96")

    assert refused(tmp_path, *sets, text=RACKS) == (
        "--set: workers: leaf0 with a tree below: switch leaf0: SwitchML cannot tell 49 workers apart: its "
        "bitmap is one 32-bit word\n  use 32 workers at most; also tried: "
        "leaf1 with a tree below, spine0 with a tree below, leaf0, leaf1, spine0"
    )


def test_a_second_job_goes_where_there_is_room(tmp_path: Path) -> None:
    """Each job spans both racks; SHARP holds 23 operations, so two of 16 cannot share a switch."""
    sets = (
        "topology={hosts_per_leaf: 2, spines: 2, switch: sharp}",
        "workers={count: 2, placement: spread}",
        "collective={kind: in_network, program: tree, frame: roce-2048, slots: 16}",
        "codec={kind: none}",
    )
    text = RACKS + "jobs: [{name: a}, {name: b}]\n"

    jobs = only(tmp_path, *sets, text=text).jobs
    roots = [job.collective.aggregation.switch for job in jobs if job.collective.aggregation]
    assert len(set(roots)) == 2
    assert "16 slots do not fit on switch spine0" in refused(
        tmp_path, *sets, "collective.switch=spine0", text=text
    )


SLOWER = (
    "a ring would be faster here, with about 0.386 G against 0.301 G dense elements/s: "
    "8 streams share leaf1->spine0; use collective.aggregators: auto (0.602 G)"
)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ((), ()),
        ((ONE,), (SLOWER,)),
        ((ONE, "workload.elements=1000"), ()),  # 30 steps of a ring, one after the other, take longer
        ((ONE, "topology.hosts_per_leaf=4", "workers=8"), ()),
    ],
    ids=["tree", "one", "short", "fat uplinks"],
)
def test_a_ring_that_is_faster_is_told(
    tmp_path: Path, sets: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """Ring: 25 Gbps · 256 words / 1106 B · 16/30; one switch: an eighth of 100 Gbps · 64 words / 332 B."""
    assert job_plan(only(tmp_path, *sets, text=RACKS)).warnings == expected


@pytest.mark.parametrize(
    ("sets", "remedy"),
    [
        (
            ("collective.slots=8",),
            "its slots are too few for a round trip of 7.32us; use more collective.slots",
        ),
        (
            ("collective.program=atp", "collective.frame=atp", "codec={kind: fixed_point, factor: 1e6}"),
            "use collective: {kind: ring}",
        ),
    ],
)
def test_what_else_helps(tmp_path: Path, sets: tuple[str, ...], remedy: str) -> None:
    text = RACKS.replace("hosts_per_leaf: 8", "hosts_per_leaf: 9")
    (warning,) = job_plan(only(tmp_path, *sets, text=text)).warnings

    assert warning.startswith("a ring would be faster here")
    assert warning.endswith(remedy)


@pytest.mark.parametrize("sets", [(), (ONE,)], ids=["auto", "one"])
def test_a_long_chain_is_not_measured_twice_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sets: tuple[str, ...]
) -> None:
    """The window is too small for so long a way: a ring is faster, and no switch helps."""
    calls = []

    def counted(*arguments: Any) -> Pace:
        calls.append(arguments)
        return job_pace(*arguments)

    monkeypatch.setattr(candidates, "job_pace", counted)
    (tmp_path / "net.json").write_text(to_json(_chain(200)))
    chain = ("topology={kind: file, path: net.json}", "workers=2", "collective.slots=512", *sets)

    (warning,) = job_plan(only(tmp_path, *chain, text=RACKS)).warnings
    assert warning.endswith("use more collective.slots")
    compared = 64 * (1 if sets else 2)  # switches, each alone and as a root
    assert len(calls) <= 2 * compared


def _chain(length: int) -> nx.Graph:
    """Two hosts, and switches in a row between them."""
    graph = graphs.new_graph("chain")
    nodes = ["h0", *(f"s{index}" for index in range(length)), "h1"]
    for name in nodes[1:-1]:
        graphs.add_switch(graph, name, 1, "ideal")
    for name in ("h0", "h1"):
        graphs.add_host(graph, name)
    for a, b in pairwise(nodes):
        graphs.add_link(graph, a, b, LinkSpec(10**11, 10**6, 1 << 20))
    return graph


def test_many_switches_of_a_large_network_are_not_all_compared(tmp_path: Path) -> None:
    """100 spines alike: the first whose tree is as fast as hosts' links is taken at once."""
    sets = ("topology={spines: 100, leaves: 8}", "workers={count: 64, placement: spread}")

    assert points(tmp_path, *sets)[0] == "spine0"
    assert plan(tmp_path, *sets, "collective.slots=1", text=RACKS)
