"""Workers that are ready in different orders never wait for each other for ever."""

from __future__ import annotations

from collections.abc import Generator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given as drawn_from
from hypothesis import strategies as st

from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.network.instants import EndOfInstant, Stage
from netfold.sim.plan.faults import Condition
from netfold.sim.plan.overlap import Overlap
from netfold.sim.run.step.turns import Turns
from tests.examples import examples
from tests.sim.run.step.given import Given, Played, Times, play

TIMES = st.integers(0, 60)
FACTORS = st.sampled_from([Fraction(1), Fraction(3), Fraction(7, 2)])


@st.composite
def jobs(draw: st.DrawFn) -> list[Given]:
    """Workers with their own encoding and decoding times; buckets of one to three operations."""
    workers, buckets = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    counts = [draw(st.integers(0, 3)) for _ in range(buckets)]
    network = [[draw(TIMES) for _ in range(count)] for count in counts]
    forward, backward = draw(TIMES), [draw(TIMES) for _ in range(buckets)]
    return [
        Given(
            forward,
            backward,
            [[Times(draw(TIMES), time, draw(TIMES)) for time in times] for times in network],
        )
        for _ in range(workers)
    ]


OVERLAPS = st.builds(
    Overlap,
    st.integers(1, 7),
    st.sampled_from(["ready", "first_layer"]),
    encodes_on_device=st.booleans(),
)


def assert_right_totals(played: Played) -> None:
    for step, sums in enumerate(played.workload.applied):
        for bucket, total in enumerate(sums):
            is_sent = bool(played.workload.given.operations[bucket])
            workers = range(played.workload.workers if is_sent else 1)
            assert total.tolist() == [sum(100 * step + 10 * bucket + one for one in workers)] * total.size


@drawn_from(
    given=jobs(),
    overlap=OVERLAPS,
    is_serial=st.booleans(),
    factors=st.lists(FACTORS, min_size=4, max_size=4),
    stops=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 200)), min_size=4, max_size=4),
)
@examples(60)
def test_every_step_ends_with_the_right_sums_and_no_sooner_than_it_can(
    given: list[Given],
    overlap: Overlap,
    is_serial: bool,
    factors: list[Fraction],
    stops: list[tuple[int, int]],
) -> None:
    conditions = [
        Condition(factor, ((begin, begin + pause),))
        for factor, (begin, pause) in zip(factors, stops, strict=True)
    ][: len(given)]

    played = play(given, overlap, steps=2, conditions=conditions, is_serial=is_serial)

    assert played.is_done
    assert len(played.journal.steps) == 2
    assert_right_totals(played)
    operations = {place for own in played.line.opened[:1] for place in own}
    assert all(set(own) == operations for own in played.line.opened)
    for worker in range(len(given)):
        passes = played.spans(worker, "forward", "backward")
        codec = played.spans(worker, "encode", "decode")
        tracks = [passes + codec] if overlap.encodes_on_device else [passes, codec]
        tracks += [played.spans(worker, "network")] if is_serial else []
        for track in tracks:
            in_order = sorted(track)
            assert all(end <= start for (_, end), (start, _) in pairwise(in_order))
        own, factor = given[worker], factors[worker]
        work = sum(times.encode + times.decode for one in own.operations for times in one)
        network = sum(times.network for one in own.operations for times in one)
        device_ps = own.forward + sum(own.backward) + (work if overlap.encodes_on_device else 0)
        assert played.end_ps >= 2 * factor * device_ps
        assert played.end_ps >= 2 * factor * work
        if is_serial:
            assert played.end_ps >= 2 * network


@drawn_from(given=jobs(), overlap=OVERLAPS)
@examples(20)
def test_no_more_buckets_are_in_flight_than_allowed(given: list[Given], overlap: Overlap) -> None:
    played = play(given, overlap)
    for worker in range(len(given)):
        spans = {}
        for one in played.journal.phases:
            if one.worker == worker and one.bucket >= 0:
                begin, _ = spans.get(one.bucket, (one.start_ps, 0))
                spans[one.bucket] = begin, one.end_ps
        for time_ps in {begin for begin, _ in spans.values()}:
            assert sum(begin <= time_ps < end for begin, end in spans.values()) <= overlap.buckets_in_flight


def opposed() -> Played:
    """Worker 1 is slow: its first bucket has its second message before its second bucket is ready."""
    times = Times(1, 10, 1)
    conditions = [Condition(), Condition(Fraction(10))]
    return play(Given(0, [5, 5], [[times, times], [times]]), Overlap(2), conditions=conditions)


def test_workers_follow_the_first_to_choose() -> None:
    """At worker 0 bucket 1 waits for its turn since 11, and bucket 0's second message only since 72."""
    played = opposed()

    assert played.is_done
    order = [OperationPlace(0, 0, 0), OperationPlace(0, 1, 0), OperationPlace(0, 0, 1)]
    assert played.line.opened == [order, order]
    # Bucket 0 is ready at worker 1 after 50 and encoded after 60, bucket 1 after 100 and 110, though the
    # network is free from 70 on.
    assert [end for _, end in played.line.spans[1]] == [70, 120, 130]


def test_without_agreed_turns_they_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: each worker sends what it has ready, one at a time, and they hold each other up."""

    class Own:
        """Turns in each worker's own order."""

        def __init__(self, environment: simpy.Environment, workers: int, at_once: int) -> None:
            self._units = [simpy.Resource(environment, at_once) for _ in range(workers)]
            self._held: list[list[Any]] = [[] for _ in range(workers)]

        def take(self, worker: int, place: OperationPlace, rank: int) -> simpy.Event:
            self._held[worker].append(self._units[worker].request())
            return self._held[worker][-1]  # type: ignore[no-any-return]

        def release(self, worker: int) -> None:
            self._units[worker].release(self._held[worker].pop(0))

    monkeypatch.setattr("netfold.sim.run.step.rounds.Turns", Own)
    assert "AssertionError" in str(opposed().job.failure)  # of a serial collective's order
    monkeypatch.setattr("tests.sim.run.step.given.Line._is_same", lambda self, place, number: True)
    played = opposed()

    assert not played.is_done
    assert [own[-1] for own in played.line.opened] == [OperationPlace(0, 1, 0), OperationPlace(0, 0, 1)]


def taken(wanted: list[list[float]], at_once: int) -> tuple[list[list[int]], list[int]]:
    """What workers had and their ends; they want buckets at `wanted[worker][bucket]` and hold each for 10.

    At 7.2 is at 7, but after two other events of that instant.
    """
    environment = simpy.Environment()
    turns = Turns(environment, len(wanted), at_once)
    had: list[list[int]] = [[] for _ in wanted]
    ends = [0] * len(wanted)

    def work(worker: int, bucket: int, time_ps: float) -> Generator[simpy.Event, Any, None]:
        yield environment.timeout(int(time_ps))
        for _ in range(round(10 * (time_ps % 1))):
            yield environment.timeout(0)
        yield turns.take(worker, OperationPlace(0, bucket, 0), bucket)
        had[worker].append(bucket)
        yield environment.timeout(10)
        turns.release(worker)
        ends[worker] = int(environment.now)

    for worker, times in enumerate(wanted):
        for bucket, time_ps in enumerate(times):
            environment.process(work(worker, bucket, time_ps))
    environment.run()
    assert not turns._order  # all have had all
    return had, ends


@pytest.mark.parametrize(
    ("wanted", "at_once", "had", "ends"),
    [
        # Worker 1 has all at 0 and chooses 0, 1, 2, by rank; worker 0 follows though bucket 2 is there at 3.
        ([[7, 7, 3], [0, 0, 0]], 1, [0, 1, 2], [37, 30]),
        ([[7.3, 7, 7.1]], 1, [0, 1, 2], [37]),  # what asks later in the same instant is in time
        ([[50, 60, 70], [0, 10, 20]], 1, [0, 1, 2], [80, 30]),  # a worker that is ahead waits for none
        # Both are first at 0, and worker 0 is asked first: it has only bucket 1.
        ([[5, 0], [0, 9]], 1, [1, 0], [20, 29]),
        ([[0, 0, 0, 0], [0, 0, 0, 0]], 2, [0, 1, 2, 3], [20, 20]),
    ],
)
def test_turns(wanted: list[list[float]], at_once: int, had: list[int], ends: list[int]) -> None:
    found, ended = taken(wanted, at_once)

    assert found == [had] * len(wanted)
    assert ended == ends


def test_stages_of_an_instant() -> None:
    """Later stages come after earlier ones and after ordinary events that those cause."""
    environment, seen = simpy.Environment(), list[str]()

    def at(stage: Stage) -> Generator[simpy.Event, Any, None]:
        yield EndOfInstant(environment, stage)
        seen.append(stage.name)
        yield environment.timeout(0)
        seen.append(f"after {stage.name}")

    for stage in reversed(Stage):
        environment.process(at(stage))
    environment.run()

    assert np.ravel([[stage.name, f"after {stage.name}"] for stage in Stage]).tolist() == seen
    assert environment.now == 0
