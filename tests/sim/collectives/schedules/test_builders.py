"""What schedules promise: an all-reduce in any order of events, with the published volumes and depths."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.collectives.building.composition import Cut
from netfold.sim.collectives.halving_doubling.schedule import halving_schedule
from netfold.sim.collectives.hierarchical.schedule import composed
from netfold.sim.collectives.ring.schedule import ring_schedule
from netfold.sim.collectives.torus_2d.grid import Grid
from netfold.sim.collectives.torus_2d.schedule import torus_schedule
from netfold.sim.collectives.tree.schedule import binary_tree, tree_schedule
from netfold.sim.engine.schedule import NONE, Schedule
from tests.examples import examples
from tests.reference.collectives.hosts import leaves
from tests.reference.collectives.played import in_any_order
from tests.reference.collectives.programs import Kind, tree_of
from tests.sim.collectives.schedules.cases import Case, cases, cut_of, groupings, kinds, whole
from tests.sim.engine.checked_schedule import check_schedule

UP_TO = (*range(1, 10), 12, 15, 16, 17, 31, 32, 33, 40)


def schedules(workers: int) -> list[Schedule]:
    return [
        ring_schedule(workers),
        ring_schedule(workers, 2, 3),
        ring_schedule(workers, 3),
        halving_schedule(workers),
        tree_schedule(workers, 1, 2),
        tree_schedule(workers, 2, 3),
    ]


@pytest.mark.parametrize("workers", UP_TO)
def test_every_schedule_is_an_all_reduce(workers: int) -> None:
    for schedule in schedules(workers):
        assert (schedule.workers, schedule.transfers > 0) == (workers, workers > 1)
        check_schedule(schedule)


@examples(35)
@given(groups=groupings(16), inner=kinds(), outer=kinds(), blocks=st.integers(1, 3))
def test_so_is_every_hierarchy_of_any_groups(
    groups: list[list[int]], inner: object, outer: object, blocks: int
) -> None:
    cut = composed(groups, lambda size: cut_of(inner, size), cut_of(outer, len(groups)), blocks)

    check_schedule(cut.schedule)
    assert len(cut.cells) == cut.schedule.chunks + 1
    assert list(cut.cells) == sorted(set(cut.cells))
    assert (cut.cells[0], cut.cells[-1]) == (0, 1)
    # What a worker sends to another shares one window, in all phases and blocks, and with nobody else.
    made = cut.schedule
    pairs = list(zip(made.source.tolist(), made.target.tolist(), strict=True))
    lanes = made.lane.tolist()
    assert NONE not in lanes
    assert len(set(zip(pairs, lanes, strict=True))) == len(set(pairs)) == len(set(lanes))


@examples(30)
@given(case=cases(7, sizes=(64,)), seed=st.integers(0, 10**6))
def test_no_order_of_events_breaks_it(case: Case, seed: int) -> None:
    """Transfers that take any time: what is waited for is enough, and merges are always the same."""
    held = in_any_order(case.cut.schedule, seed)

    for worker in held:
        for value in worker:
            assert sorted(leaves(value)) == list(range(case.workers))
    assert in_any_order(case.cut.schedule, seed + 1) == held


def sent(cut: Cut, size: Fraction = Fraction(1)) -> list[Fraction]:
    """What each worker sends, as shares of a message."""
    found = [Fraction(0)] * cut.schedule.workers
    for row in range(cut.schedule.transfers):
        first, end = int(cut.schedule.first[row]), int(cut.schedule.first[row] + cut.schedule.count[row])
        found[cut.schedule.source[row]] += cut.cells[end] - cut.cells[first]
    return found


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 8, 16, 32])
def test_every_worker_sends_the_published_words(workers: int) -> None:
    """2 (n − 1) / n of a message on a ring; as many by halving and doubling among a power of two."""
    ring = [Fraction(2 * (workers - 1), workers)] * workers

    assert sent(whole(ring_schedule(workers))) == ring
    assert sent(whole(ring_schedule(workers, 3, 2))) == ring
    if workers & (workers - 1) == 0:
        assert sent(whole(halving_schedule(workers))) == ring
    else:  # those left out give all they have to the next, which gives the result back
        core = 1 << (workers.bit_length() - 1)
        one, extra = Fraction(2 * (core - 1), core), workers - core
        expected = [Fraction(1), one + 1] * extra + [one] * (core - extra)
        assert sent(whole(halving_schedule(workers))) == expected


@pytest.mark.parametrize("workers", UP_TO)
def test_two_trees_share_the_work(workers: int) -> None:
    """Nobody has children in both, so nobody sends more than two messages (Sanders et al., section 3)."""
    trees = [binary_tree(workers, number) for number in (0, 1)]
    children = [(tree.children >= 0).sum(axis=1) for tree in trees]

    assert not ((children[0] > 0) & (children[1] > 0)).any()
    assert max(sent(whole(tree_schedule(workers, 2, 2))), default=0) <= 2
    depth = workers.bit_length() - 1  # ⌊log2 n⌋
    assert [int(tree.depths.max()) for tree in trees] == [depth, depth]
    for number, tree in enumerate(trees):
        root, below = tree_of(workers, number)
        assert tree.root == root
        for parent, expected in below.items():
            assert [one for one in tree.children[parent].tolist() if one >= 0] == expected
            assert all(int(tree.parents[child]) == parent for child in expected)


def depth_of(schedule: Schedule) -> int:
    """The longest chain of transfers one after the other: each waits for one that was processed."""
    depths = np.zeros(schedule.transfers + 1, np.int64)  # the last one is that of none
    for row in range(schedule.transfers):
        waits = schedule.waits_for[schedule.waits_first[row] : schedule.waits_first[row + 1]]
        sent = 1 + max((int(depths[one]) for one in waits), default=0)
        depths[row] = max(sent, int(depths[schedule.follows[row]]))
    return int(depths.max())


@pytest.mark.parametrize("workers", UP_TO)
def test_the_longest_chains_are_as_long_as_published(workers: int) -> None:
    rounds = workers.bit_length() - 1
    assert depth_of(ring_schedule(workers)) == 2 * (workers - 1)
    assert depth_of(tree_schedule(workers)) == 2 * rounds
    is_power = workers == 1 << rounds
    assert depth_of(halving_schedule(workers)) == 2 * rounds + (0 if is_power else 2)
    assert rounds == np.ceil(np.log2(workers)) - (0 if is_power else 1)


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (4, 4), (3, 5)])
def test_rings_in_rows_and_across_them_are_a_torus(rows: int, columns: int) -> None:
    """The same transfers of the same words between the same workers."""
    torus = torus_schedule(Grid.of(rows * columns, rows), is_host=False)
    groups = [range(row * columns, (row + 1) * columns) for row in range(rows)]
    cut = composed(groups, lambda size: whole(ring_schedule(size)), whole(ring_schedule(rows)))

    def rows_of(schedule: Schedule) -> Counter[tuple[object, ...]]:
        names = (schedule.source, schedule.target, schedule.count, schedule.merges)
        return Counter(zip(*(one.tolist() for one in names), strict=True))

    assert rows_of(cut.schedule) == rows_of(torus)


@pytest.mark.parametrize(
    ("groups", "inner", "outer"), [(32, "ring", "ring"), (128, "halving_doubling", "tree")]
)
def test_a_thousand_workers_take_about_a_second(groups: int, inner: str, outer: str) -> None:
    size = 1024 // groups
    members = [range(one * size, (one + 1) * size) for one in range(groups)]
    before = process_time()
    cut = composed(members, lambda count: cut_of(Kind(inner), count), cut_of(Kind(outer), groups), 2)

    assert cut.schedule.workers == 1024
    assert process_time() - before < 5
