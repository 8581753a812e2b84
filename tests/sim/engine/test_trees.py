"""Aggregation trees, wide switches, timed slots and multicast of both engines against closed forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.engine.engine_data import Branch, Fate, Job, Rule, Split
from netfold.sim.engine.tree_paths import down_paths, receivers_of, with_splits
from netfold.sim.plan.idle_network import job_traffic
from netfold.switch.program import ProgramSpec
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.network import Network, compile_network, path
from tests.examples import examples
from tests.reference.engine.fabric import SLOT_TIMER, STREAM_TIMER
from tests.sim.engine.small import (
    FABRIC,
    FOREVER_PS,
    LINK,
    TWO_LEVELS,
    D,
    Make,
    X,
    aggregate,
    atp_job,
    check_sums,
    compiled,
    gradients,
    job,
    link_between,
    run,
    run_dry,
    segment,
    star_of,
    start,
)
from tests.sim.scenes import simulate
from tests.topologies.graphs import topologies


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
    assert [counters[name] // packets for name in ("packets", "partials", "results")] == [6, 2, 1]
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


def test_the_upper_bits_know_copies_and_losses(engine: Make) -> None:
    """Each worker's bit is told from those 32 above or below it."""
    network = star_of(64)
    every = tuple(range(len(network.link_names)))
    rules = [Rule(Fate.LOSS, 0.02, every), Rule(Fate.DUPLICATE, 0.05, every)]
    sim = engine(network, rules=rules)
    times = {"timeout_ps": 500 * X, "first_timeout_ps": 500 * X, "timeout_max_ps": 10**12}
    words = gradients(64, 4 * 12)

    check_sums(aggregate(sim, sim.add_job(job(network, 3, **times)), words).results, words)


@pytest.mark.parametrize(
    ("program", "limit"), [(SWITCHML, 64), (TREE, 64), (TIMED, 32)], ids=["switchml", "tree", "timed"]
)
def test_more_children_than_bits_are_refused(program: ProgramSpec, limit: int) -> None:
    timer = {"slot_timer_ps": X} if program is TIMED else {}
    inside, beyond = star_of(limit), star_of(limit + 1)
    compiled(inside).add_job(job(inside, 2, program=program, **timer))
    with pytest.raises(ValueError, match=f"point 0 has {limit + 1} children, must have 1 to {limit}"):
        compiled(beyond).add_job(job(beyond, 2, program=program, **timer))


def test_trees_take_more(engine: Make) -> None:
    network = compile_network(leaf_spine(3, 1, 32, LINK, LINK))
    tree: dict[str, Any] = {"switch": 99, "branches": tuple(Branch(leaf, 0) for leaf in (96, 97, 98))}
    sim = engine(network)
    number = sim.add_job(job(network, 2, homes=tuple(1 + rank // 32 for rank in range(96)), **tree))
    words = gradients(96, 4 * 5)

    check_sums(aggregate(sim, number, words).results, words)


STAR_OF_64 = """\
name: wide
seed: 1
topology: {kind: star, hosts: 64, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 64
workload: {kind: synthetic, elements: 4000}
codec: {kind: fixed_point, factor: 1e6}
collective: {kind: in_network, frame: udp-256, slots: 16, timeout: 200us}
"""
RACK_OF_65 = (
    "topology={kind: leaf_spine, leaves: 1, spines: 2, hosts_per_leaf: 65, switch: tofino1, rate: 100Gbps}"
)


@pytest.mark.parametrize(
    "sets",
    [
        ("workers=64", "faults=[{kind: loss, rate: 0.1%}]"),
        ("workers=65", RACK_OF_65, "collective.trees=2"),
        ("workers=65", RACK_OF_65, "collective.multicast=on"),
    ],
)
def test_runs_of_many_workers_are_right(tmp_path: Path, sets: tuple[str, ...]) -> None:
    result = simulate(tmp_path, *sets, text=STAR_OF_64)

    assert {check.verdict for check in result.jobs[0].checks} == {"pass"}


RACKS_OF_3 = compile_network(leaf_spine(2, 1, 3, LINK, LINK))  # hosts 0 … 5, leaves 6 and 7, spine 8
SPINE = 8
TIMEOUTS = {"timeout_ps": 60 * X + 8 * D, "first_timeout_ps": 60 * X + 8 * D, "timeout_max_ps": 10**12}


def everywhere(_: int) -> bool:
    return True


def sent(sim: Any, network: Network) -> dict[str, int]:
    packets = [counters["sent_packets"] for counters in sim.link_counters()]
    return dict(zip(network.link_names, packets, strict=True))


@pytest.mark.parametrize("program", [SWITCHML, TREE])
def test_a_result_splits_at_the_last_common_switch(engine: Make, program: ProgramSpec) -> None:
    """Three workers behind each leaf: a result crosses each downlink once instead of three times."""
    copies, multicast = engine(RACKS_OF_3), engine(RACKS_OF_3)
    plain = job(RACKS_OF_3, 1, program=program, switch=SPINE)
    shared = with_splits(RACKS_OF_3, plain, everywhere)
    assert shared.splits == (Split(6, 0, -1, (0, 1, 2)), Split(7, 0, -1, (3, 4, 5)))
    words = gradients(6, 4)
    for sim, plan, downlink in ((copies, plain, 3), (multicast, shared, 1)):
        finished_ps = aggregate(sim, sim.add_job(plan), words).finished_ps
        # Up: X on the host's link, 3 X on the uplink. Down: X for each copy, and X to the host.
        assert max(finished_ps) == (1 + 3 + downlink + 1) * X + 4 * D
        assert downlink == 3 or len(set(finished_ps)) == 1
        packets = sent(sim, RACKS_OF_3)
        assert packets["spine0->leaf0"] == packets["spine0->leaf1"] == downlink
        assert all(packets[f"leaf{host // 3}->h{host}"] == 1 for host in range(6))


def test_splits_follow_each_other() -> None:
    """From leaf 0, results for two other leaves split at the spine, and at each leaf again."""
    network = compile_network(leaf_spine(3, 1, 2, LINK, LINK))  # hosts 0 … 5, leaves 6 7 8, spine 9
    plain = job(network, 1, switch=6)
    shared = with_splits(network, plain, everywhere)

    assert shared.splits == (Split(9, 0, -1, ()), Split(7, 0, 0, (2, 3)), Split(8, 0, 0, (4, 5)))
    assert [receivers_of(shared, place) for place in range(4)] == [(0, 1, 9), (7, 8), (2, 3), (4, 5)]
    # A switch that cannot split forwards copies, and those behind it split.
    behind = with_splits(network, plain, {7, 8}.__contains__)
    assert behind.splits == (Split(7, 0, -1, (2, 3)), Split(8, 0, -1, (4, 5)))
    assert with_splits(network, plain, lambda _: False) == plain


@pytest.mark.parametrize("unit_packets", [1, 3])
def test_a_copy_lost_before_the_split_is_lost_for_all_behind_it(engine: Make, unit_packets: int) -> None:
    """They time out, and each gets an answer of its own; the others notice nothing."""
    sim = engine(RACKS_OF_3)
    plain = job(RACKS_OF_3, unit_packets, unit_packets=unit_packets, switch=SPINE, **TIMEOUTS)
    number = sim.add_job(with_splits(RACKS_OF_3, plain, everywhere))
    words = gradients(6, 4 * unit_packets)
    own = [segment(each) for each in words]
    start(sim, number, [[each] for each in own])
    downlink = link_between(RACKS_OF_3, SPINE, 6)
    sim.cut(downlink)
    first = run(sim, 3)
    assert {done.worker for done in first} == {3, 4, 5}
    sim.flush(downlink)
    sim.restore(downlink)
    assert {done.worker for done in run(sim, 3)} == {0, 1, 2}

    check_sums([each.result for each in own], words)
    assert sim.switch_counters(number)["answers"] == 3 * unit_packets
    found = sent(sim, RACKS_OF_3)
    assert found["spine0->leaf0"] == 1 * unit_packets + 3 * unit_packets  # what the cut held up counts too
    assert found["leaf1->h3"] == unit_packets
    run_dry(sim)


def test_a_slots_timer_multicasts_too(engine: Make) -> None:
    sim = engine(RACKS_OF_3)
    late = job(RACKS_OF_3, 1, program=TIMED, slot_timer_ps=20 * X, switch=SPINE)
    number = sim.add_job(with_splits(RACKS_OF_3, late, everywhere))
    words = gradients(6, 4)
    own = [segment(each, holders=np.zeros(1, np.uint32)) for each in words]
    for rank in range(5):
        sim.open_stream(number, rank, [own[rank]])
    run(sim, 5)

    check_sums([each.result for each in own[:5]], words[:5])
    assert sim.switch_counters(number)["timed_out"] == 1
    assert sent(sim, RACKS_OF_3)["spine0->leaf1"] == 1


@pytest.mark.parametrize(
    ("splits", "text"),
    [
        ((Split(6, 0, -1, (0,)),), "fewer than two receivers"),
        ((Split(6, 0, -1, (0, 0)),), "cannot send a copy to child 0"),
        ((Split(6, 0, -1, (0, 6)),), "cannot send a copy to child 6"),
        ((Split(6, 0, 0, (0, 1)),), "has parent 0"),
        ((Split(6, 1, -1, (0, 1)),), "point 1"),
        ((Split(6, 0, -1, (0, 1)), Split(7, 0, -1, (1, 2))), "cannot send a copy to child 1"),
    ],
)
def test_splits_that_are_no_tree(splits: tuple[Split, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        compiled(RACKS_OF_3).add_job(job(RACKS_OF_3, 1, switch=SPINE, splits=splits))


def test_a_split_and_its_parent_belong_to_one_point() -> None:
    splits = (Split(6, 0, -1, (0, 1)), Split(4, 1, 0, (0, 1)))
    with pytest.raises(ValueError, match="split 1 and its parent belong to different points"):
        compiled(FABRIC).add_job(job(FABRIC, 1, splits=splits, **TWO_LEVELS))


def test_atp_has_no_splits() -> None:
    with pytest.raises(ValueError, match="no splits"):
        compiled(star_of(3)).add_job(atp_job(star_of(3), 1, splits=(Split(3, 0, -1, (0, 1)),)))


def by_walking(network: Network, plain: Job, able: Callable[[int], bool]) -> Counter[int]:
    """Copies of one result per link: walks every path, and counts a link once per way that leads to it.

    A link is shared by all children whose paths are equal up to it and that a switch behind it tells apart.
    """
    prefixes: dict[tuple[int, ...], int] = {}
    nodes = {}
    for point, place in enumerate(plain.switches):
        for is_worker, number in plain.children_of(point):
            assert is_worker, "a job on a star of its own has one point"
            links = path(network, place, plain.hosts[number], plain.routes[number])
            for count in range(1, len(links) + 1):
                key = (point, *links[:count])
                prefixes[key] = prefixes.get(key, 0) + 1
                nodes[key] = int(network.link_target[links[count - 1]])
    copies: Counter[int] = Counter()

    def needed(key: tuple[int, ...]) -> int:
        """Copies that must cross the last link of a prefix."""
        below = [other for other in prefixes if len(other) == len(key) + 1 and other[: len(key)] == key]
        ending = prefixes[key] - sum(prefixes[other] for other in below)
        wanted = ending + sum(needed(other) for other in below)
        if ending == 0 and wanted > 1 and able(nodes[key]):
            wanted = 1
        copies[key[-1]] += wanted
        return wanted

    for key in [one for one in prefixes if len(one) == 2]:
        needed(key)
    return copies


@examples(60, at_night=3)
@given(graph=topologies(hosts_max=7), data=st.data())
def test_copies_against_a_walk_of_every_path(graph: Any, data: st.DataObject) -> None:
    """On graphs where a node's way down is the same whoever asks: trees, of which there is one path."""
    tree = nx.minimum_spanning_tree(graph, weight="delay_ps")
    tree.graph.update(graph.graph)
    network = compile_network(tree)
    switches = [node for node, is_host in enumerate(network.is_host) if not is_host]
    root = data.draw(st.sampled_from(switches))
    able = data.draw(st.sets(st.sampled_from(switches)))
    plain = job(network, 1, switch=root)
    shared = with_splits(network, plain, able.__contains__)

    down = down_paths(network, shared)
    copies = Counter(link for links in (*down.to_splits, *down.last.values()) for link in links)
    assert copies == by_walking(network, plain, able.__contains__)
    up = Counter(link for host in plain.hosts for link in path(network, host, root, 0))
    assert job_traffic(network, shared).load == up + copies
    for index, host in enumerate(plain.hosts):
        assert list(down.to_child[0, index]) == path(network, root, host, 0)


@examples(10, at_night=2)
@given(graph=topologies(hosts_max=7), data=st.data())
def test_loads_are_those_of_a_run(engine: Make, graph: Any, data: st.DataObject) -> None:
    """Packets per link on an idle network: the closed form for one packet of every worker."""
    nx.set_edge_attributes(graph, 1 << 20, "buffer_bytes")
    network = compile_network(graph)
    switches = [node for node, is_host in enumerate(network.is_host) if not is_host]
    able = data.draw(st.sets(st.sampled_from(switches)))
    routes = tuple(data.draw(st.integers(0, 100)) for host in range(int(network.is_host.sum())))
    plain = job(network, 2, switch=data.draw(st.sampled_from(switches)), routes=routes)
    shared = with_splits(network, plain, able.__contains__)
    sim = engine(network)
    words = gradients(len(routes), 4 * 3)
    check_sums(aggregate(sim, sim.add_job(shared), words).results, words)

    load = job_traffic(network, shared).load
    assert [counters["sent_packets"] for counters in sim.link_counters()] == [
        3 * load[link] for link in range(len(network.link_names))
    ]
