"""Schedules between hosts: their rules, closed forms on paper in both engines, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples_of
from hypothesis import strategies as st

from netfold.homomorphic.merge import Merge
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import NONE, Completion, JointOperations, Operation, Schedule, Sender
from tests.examples import examples
from tests.sim.engine.checked_schedule import check_schedule
from tests.sim.engine.small import FRAME, A, D, Make, X, changed, logged, reference, run, star_of
from tests.sim.exchanges import ring_schedule, torus_schedule

LONG_PS = 10**12


def schedule(workers: int, chunks: int, *rows: tuple[int, int, int, int, bool], **fields: Any) -> Schedule:
    """Transfers (source, target, first, count, merges), each waiting for all earlier ones to its source."""
    count = len(rows)
    waits = [[at for at in range(number) if rows[at][1] == rows[number][0]] for number in range(count)]
    found = Schedule(
        workers,
        chunks,
        *(np.array([row[column] for row in rows], np.int32) for column in range(4)),
        np.array([row[4] for row in rows], np.bool_),
        np.arange(count, dtype=np.int64),
        np.full(count, NONE, np.int32),
        np.full(count, NONE, np.int32),
        np.append(0, np.cumsum([len(one) for one in waits])).astype(np.int64),
        np.array([at for one in waits for at in one], np.int32),
    )
    return replace(found, **fields)


THERE_AND_BACK = ((0, 1, 0, 1, True), (1, 0, 0, 1, False))


def operation(of: Schedule, words: int, merge: Merge | None = None, **fields: Any) -> Operation:
    """Workers on the first hosts, with a window that holds all."""
    workers = range(of.workers)
    found = Operation(
        schedule=of,
        hosts=tuple(workers),
        sender=Sender(FRAME, 64, LONG_PS),
        number=0,
        seed=1,
        ends=of.ends(words),
        merge=merge,
        result=None if merge is None else np.zeros(words, np.int32),
    )
    return changed(found, **fields)


def end_ps(make: Make, given: Operation, words: list[Any] | None = None) -> int:
    """When the last of all workers has finished, who begin at once on a star."""
    workers = given.schedule.workers
    engine = make(star_of(max(2, workers)))
    number = engine.open_schedule(given)
    for worker in range(workers):
        engine.begin(number, worker, words[worker] if words else None)
    left, at_ps = workers, 0
    while left:
        completions = engine.run(10**15)
        assert {one.kind for one in completions} == {"worker"}
        left, at_ps = left - len(completions), completions[-1].time_ps
    return at_ps


@pytest.mark.parametrize(
    ("rows", "fields", "told"),
    [
        (((0, 0, 0, 1, True),), {}, "the two must differ"),
        (((0, 2, 0, 1, True),), {}, "workers 0 to 1"),
        (((0, 1, 0, 3, True),), {}, "carries chunks"),
        (((0, 1, 0, 1, True), (0, 1, 0, 1, True)), {}, "worker 0 has merged chunk 0 away"),
        (((0, 1, 0, 1, True), (1, 0, 0, 1, True)), {}, "worker 0 has merged chunk 0 away"),
        (((0, 1, 0, 1, False),), {}, "is not final"),
        (((0, 1, 0, 1, True),), {}, "ends with chunk 0 of nobody"),
        (THERE_AND_BACK, {"step": np.zeros(2, np.int64)}, ""),
        (
            THERE_AND_BACK,
            {"waits_for": np.zeros(0, np.int32), "waits_first": np.zeros(3, np.int64)},
            "may leave before transfer 0 has brought chunk 0",
        ),
        (THERE_AND_BACK, {"lane": np.zeros(2, np.int32)}, "lane 0 is that of"),
        (THERE_AND_BACK, {"follows": np.array([NONE, 0], np.int32)}, "no earlier one to its target"),
        (THERE_AND_BACK, {"waits_for": np.ones(1, np.int32)}, "no earlier one to its source"),
    ],
)
def test_what_breaks_a_rule_is_told(rows: Any, fields: dict[str, Any], told: str) -> None:
    given = schedule(2, 1, *rows, **fields)
    if not told:  # the same step from different workers, to different ones
        check_schedule(given)
        return
    with pytest.raises(ValueError, match=told):
        check_schedule(given)


def test_two_transfers_to_a_worker_have_different_steps() -> None:
    rows = ((0, 2, 0, 1, True), (1, 2, 0, 1, True), (2, 0, 0, 1, False), (2, 1, 0, 1, False))
    check_schedule(schedule(3, 1, *rows))
    with pytest.raises(ValueError, match="two transfers to worker 2 with step 0"):
        check_schedule(schedule(3, 1, *rows, step=np.array([0, 0, 1, 2])))


def test_words_that_are_only_counted_take_as_long(engine: Make) -> None:
    given, own = operation(ring_schedule(4), 37, Merge.MAX), [np.arange(37, dtype=np.int32)] * 4

    assert end_ps(engine, given, own) == end_ps(engine, operation(ring_schedule(4), 37))


@pytest.mark.parametrize("merge", [Merge.ADD, Merge.MAX])
@pytest.mark.parametrize("present", [1, 0])
def test_absent_workers_change_nothing(engine: Make, merge: Merge, present: int) -> None:
    """Of one worker the result is its words; of none, those that change no others."""
    given, own = operation(ring_schedule(3), 6, merge), np.arange(-3, 3, dtype=np.int32)
    sim = engine(star_of(3))
    number = sim.open_schedule(given)
    for worker in range(3):
        sim.begin(number, worker, own, is_absent=worker >= present)
    run(sim, 3)

    nothing = np.iinfo(np.int32).min if merge is Merge.MAX else 0
    assert given.result is not None
    assert given.result.tolist() == (own.tolist() if present else [nothing] * 6)


@pytest.mark.parametrize("merge_ps", [1, 3 * X])
def test_a_merge_takes_its_time(engine: Make, merge_ps: int) -> None:
    given = operation(schedule(2, 1, *THERE_AND_BACK), 4)
    slow = replace(given, merge=Merge.ADD, result=np.zeros(4, np.int32))
    slow = replace(slow, merge_ps=np.full((2, 2), merge_ps, np.int64))
    own = [np.arange(4, dtype=np.int32)] * 2

    # Without it, the ACK of the arriving packet goes first on the same link.
    assert end_ps(engine, slow, own) == end_ps(engine, given) + max(merge_ps, A) - A


def test_a_worker_that_asks_merges_until_it_is_told(engine: Make) -> None:
    """Asked when the transfer has come, told that its merge takes 3 X; then the sum goes back."""
    sim = engine(star_of(2))
    number = sim.open_schedule(operation(schedule(2, 1, *THERE_AND_BACK), 4, asks=(1,)))
    for worker in range(2):
        sim.begin(number, worker, None)
    came_ps = 2 * (X + D)
    assert run(sim, 1) == [Completion(came_ps, "merge", number, 0)]
    sim.end_merge(number, 0, came_ps + 3 * X)

    merged, back = (Completion(3 * X + came_ps * (2 - worker), "worker", number, worker) for worker in (1, 0))
    assert run(sim, 2) == [merged, back]


def test_a_lane_has_one_window_for_all_its_transfers(engine: Make) -> None:
    """Two chunks of two packets each: a window of three lets the second go when the first is delivered."""
    rows = ((0, 1, 0, 1, True), (0, 1, 1, 1, True), (1, 0, 0, 1, False), (1, 0, 1, 1, False))
    lanes = np.array([0, 0, 1, 1], np.int32)
    free = operation(schedule(2, 2, *rows), 16, ack_every=1)
    narrow = operation(schedule(2, 2, *rows, lane=lanes), 16, window=3)
    wide = operation(schedule(2, 2, *rows, lane=lanes), 16, window=4)

    assert end_ps(engine, wide) == end_ps(engine, free) < end_ps(engine, narrow)


def test_a_flow_that_never_starts_has_sent_nothing() -> None:
    """Its source has crashed; the flow before it in its row sent packets again in vain."""
    engine = Engine(star_of(2), 1)
    for number in range(2):
        one = operation(schedule(2, 1, *THERE_AND_BACK), 16, timeout_ps=D, number=number)
        opened = engine.open_schedule(one)
        for worker in range(2):
            engine.begin(opened, worker, None)
        if number == 0:
            engine.run(10**15)
            engine.run(10**15)
            counts = engine.flow_reordering(0)
            engine.crash(0)

    assert counts[1] > 0
    assert engine.flow_reordering(0) == counts


def test_what_does_not_fit_is_refused() -> None:
    engine = Engine(star_of(3), 1)
    given = operation(ring_schedule(3), 30, Merge.ADD)
    for wrong, told in (
        (replace(given, hosts=(0, 1, 1)), "two workers share a host"),
        (replace(given, hosts=(0, 1)), "2 hosts for 3 workers"),
        (replace(given, hosts=(0, 1, 3)), "must be a host"),
        (changed(given, ack_every=65), "ack_every must be from 1 to the window"),
        (changed(given, ack_every=0), "ack_every must be from 1 to the window"),
        (replace(given, ends=given.ends[:-1]), "ends is a contiguous array"),
        (replace(given, ends=np.repeat(given.ends, 2)[::2]), "ends is a contiguous array"),
        (replace(given, merge_ps=np.zeros((3, 2), np.int64)), "merge_ps is a contiguous array"),
        (replace(given, table=np.zeros(16, np.int64)), "table is a contiguous array of int32"),
        (replace(given, result=None), "there is a result where"),
        (replace(given, result=np.zeros(29, np.int32)), "expected 30 words"),
    ):
        with pytest.raises(ValueError, match=told):
            engine.open_schedule(wrong)
    number = engine.open_schedule(given)
    with pytest.raises(ValueError, match="expected 30 words"):
        engine.begin(number, 0, np.zeros(31, np.int32))
    engine.begin(number, 0, np.zeros(30, np.int32))
    with pytest.raises(RuntimeError, match="worker 0 of schedule 0 has begun already"):
        engine.begin(number, 0, np.zeros(30, np.int32))
    with pytest.raises(RuntimeError, match="3 workers of schedule 0 have not finished"):
        engine.close_schedule(number)


def test_a_ring_takes_buffers_of_one_message() -> None:
    """Merged words go into the buffer that the arriving ones are in."""
    workers, words = 16, 1 << 16
    engine = Engine(star_of(workers), 1)
    number = engine.open_schedule(operation(ring_schedule(workers), words, Merge.ADD))
    for worker in range(workers):
        engine.begin(number, worker, np.ones(words, np.int32))
    done = 0
    while done < workers:
        done += len(engine.run(10**15))
    opened = engine._schedules[number]

    used = opened.buffers - int(engine.world.schedules[opened.row].scratch_count)
    assert used == 0
    assert opened.buffers * int(engine.world.schedules[opened.row].scratch_bytes) <= 2 * 4 * words + 16 * 8
    engine.close_schedule(number)
    following = engine.open_schedule(operation(ring_schedule(workers), words, Merge.ADD))
    assert engine._schedules[following].row == opened.row  # its row too is used again


def test_buffers_are_given_to_the_schedule_that_is_short() -> None:
    engine = Engine(star_of(3), 1)
    numbers = [engine.open_schedule(operation(ring_schedule(3), 30, Merge.ADD, number=at)) for at in range(3)]
    opened = [engine._schedules[number] for number in numbers]
    had = [each.buffers for each in opened]

    engine.world.clock["short_of"] = 1 + opened[1].row
    engine._grow()
    assert [each.buffers > before for each, before in zip(opened, had, strict=True)] == [False, True, False]


def test_the_torus_takes_all_merges_in_one_order() -> None:
    given = torus_schedule((3, 2))
    check_schedule(given)
    to_worker = np.flatnonzero(given.target == 1)
    assert sorted(given.follows[to_worker].tolist()) == [NONE, *to_worker.tolist()[:-1]]


# Joint operations: messages that all ranks get as they are, each along a schedule of its own.


def passed_on(ranks: int, chunks: int) -> Schedule:
    """Each chunk from a worker to the next, with a lane for each pair."""
    rows = [(at, at + 1, chunk, 1, False) for at in range(ranks - 1) for chunk in range(chunks)]
    waits = [[number - chunks] if number >= chunks else [] for number in range(len(rows))]
    given = schedule(ranks, chunks, *rows, lane=np.array([row[0] for row in rows], np.int32))
    firsts = np.append(0, np.cumsum([len(one) for one in waits])).astype(np.int64)
    return replace(
        given, waits_first=firsts, waits_for=np.array([at for one in waits for at in one], np.int32)
    )


def joint_of(sim: Any, ranks: int, operations: int) -> JointOperations:
    left = np.full(ranks, operations, np.int64)
    return JointOperations(sim.open_joint(), left, np.zeros(ranks, np.bool_), Engine.new_lanes(ranks))


def send_round(sim: Any, sizes: list[int], chunk_words: int, window: int) -> list[Completion]:
    """Every rank sends a message of its size round a ring; what completes, in order."""
    ranks = len(sizes)
    joint = joint_of(sim, ranks, ranks)
    numbers: list[int] = []
    for rank, size in enumerate(sizes):
        order = tuple((rank + at) % ranks for at in range(ranks))
        chunks = max(1, -(-size // chunk_words))
        given = operation(
            passed_on(ranks, chunks),
            0,
            hosts=order,
            ranks=order,
            number=rank,
            window=window,
            ends=np.minimum(np.arange(chunks + 1, dtype=np.int64) * chunk_words, size),
            joint=joint,
            lane_names=np.array(order[:-1], np.int64),
        )
        opened = sim.open_schedule(given)
        joint.has_begun[rank] = True
        sim.begin(opened, 0, np.arange(size, dtype=np.int32))
        for owner, number in enumerate(numbers):
            sim.join(number, (rank - owner) % ranks)
        numbers.append(opened)
    return run(sim, ranks)


@examples(15)
@examples_of(data=st.data())
def test_joint_operations_are_those_of_the_reference(data: st.DataObject) -> None:
    """Event for event, with all the ties of a star of equal links."""
    sizes = data.draw(st.lists(st.integers(0, 24), min_size=2, max_size=5), label="words")
    chunk_words = data.draw(st.sampled_from([1, 8, 12, 64]), label="chunk")
    window = data.draw(st.sampled_from([1, 3, 64]), label="window")
    done = []
    for make in (logged, reference):
        sim = make(star_of(len(sizes)))
        done.append((send_round(sim, sizes, chunk_words, window), sim.log))

    assert done[0] == done[1]


def test_joint_operations_share_windows_and_end_together(engine: Make) -> None:
    """Two messages of two packets go from host 0 by host 1 to host 2; a message takes 3 X + 2 D a hop.

    A window of three holds the second back until the first is delivered, at host 0 and again at host 1, where
    the first left by A later, as an acknowledgement goes before it.
    """
    sim, words = engine(star_of(3)), 2 * FRAME.elements
    joint = joint_of(sim, 3, 2)
    given = operation(passed_on(3, 1), words, window=3, ranks=(0, 1, 2), joint=joint)
    given = replace(given, lane_names=np.arange(2, dtype=np.int64))
    for number in range(2):
        opened = sim.open_schedule(replace(given, number=number))
        sim.begin(opened, 0, np.arange(words, dtype=np.int32))
        sim.join(opened, 1)
        sim.join(opened, 2)

    hop_ps = 3 * X + 2 * D
    ends_ps = (0, 2 * hop_ps, 3 * hop_ps + A)
    assert run(sim, 3) == [
        Completion(end_ps, "worker", joint.number, rank) for rank, end_ps in enumerate(ends_ps)
    ]


def test_within_a_host_a_joint_operation_takes_no_time(engine: Make) -> None:
    sim = engine(star_of(2))
    joint = joint_of(sim, 3, 1)
    given = operation(passed_on(3, 1), 4, hosts=(0, 0, 1), ranks=(0, 1, 2), joint=joint)
    opened = sim.open_schedule(replace(given, lane_names=np.arange(2, dtype=np.int64)))
    sim.begin(opened, 0, np.arange(4, dtype=np.int32))
    sim.join(opened, 1)
    sim.join(opened, 2)

    ends_ps = (0, 0, 2 * (X + D))
    assert run(sim, 3) == [
        Completion(end_ps, "worker", joint.number, rank) for rank, end_ps in enumerate(ends_ps)
    ]


def test_what_joint_operations_need_is_checked() -> None:
    engine = Engine(star_of(3), 1)
    good = operation(passed_on(3, 1), 4, ranks=(0, 1, 2), joint=joint_of(engine, 3, 2))
    good = replace(good, lane_names=np.arange(2, dtype=np.int64))
    for wrong, told in (
        (replace(good, schedule=ring_schedule(3), ends=np.arange(4)), "joint operations merge nothing"),
        (replace(good, lane_names=None), "lane_names is a contiguous array of int64 of shape"),
        (replace(good, lane_names=np.array([0, 3])), "lane_names are from 0 to 2"),
        (replace(good, ranks=(0, 1, 3)), "ranks are from 0 to 2"),
    ):
        with pytest.raises(ValueError, match=told):
            engine.open_schedule(wrong)


def test_other_words_than_those_sent_are_a_broken_invariant() -> None:
    engine = Engine(star_of(3), 1)
    joint = joint_of(engine, 3, 1)
    given = operation(passed_on(3, 1), 4, ranks=(0, 1, 2), joint=joint)
    opened = engine.open_schedule(replace(given, lane_names=np.arange(2, dtype=np.int64)))
    engine.begin(opened, 0, np.arange(4, dtype=np.int32))
    engine.join(opened, 1)
    engine.join(opened, 2)
    run(engine, 3)
    engine._schedules[opened].cells["address"][2] += 4

    with pytest.raises(RuntimeError, match="does not hold the words that were sent"):
        engine.close_schedule(opened)
