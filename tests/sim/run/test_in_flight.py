"""Buckets in flight: several at a time, in one order on all workers, none waiting for ever."""

from __future__ import annotations

from collections.abc import Generator
from fractions import Fraction
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import simpy
from hypothesis import given as drawn_from
from hypothesis import strategies as st

from netfold.sim.checks.checks import RoundLog
from netfold.sim.collectives.collective import OperationId
from netfold.sim.engine.engine_data import Condition
from netfold.sim.network.fabric import EndOfInstant, InstantPhase
from netfold.sim.plan.plan import Overlap
from netfold.sim.report.figures import _panel
from netfold.sim.results.folder import load
from netfold.sim.run.job import RunningJob
from netfold.sim.run.run import run_variant
from netfold.sim.run.step import Coordinator
from netfold.sim.run.variant import JobResult
from netfold.sim.workload.fusion import Bucket
from tests.examples import examples
from tests.sim import scenes
from tests.sim.run.given import Given, Played, Times, play
from tests.sim.scenes import plan

SCENARIO = """\
name: buckets
seed: 7
topology: {kind: star, hosts: 4, rate: 100Gbps, delay: 1us, switch: tofino1}
workers: 4
workload: {kind: synthetic, elements: 24000, density: 0.1, steps: 2, bucket: 16KB}
device: {kind: fixed, forward: 20us, backward: 60us, memory_rate: 200Gbps, launch: 200ns}
codec: {kind: fixed_point}
collective: {kind: in_network, program: switchml, slots: 16, frame: udp-256}
"""
BUCKETS = 6
SWITCH = ("collective={kind: in_network, program: switchml, slots: 16, timeout: released, frame: udp-256}",)
ATP = ("topology.hosts=5", "codec.factor=1000", "collective={kind: in_network, program: atp, frame: atp}")
RING = ("collective={kind: ring, frame: udp-256, window: 32}",)
TRAINED = ("workload={kind: training, model: mlp, batch: 64, steps: 3, bucket: 8KB}",)
FAULTS = (
    "faults=[{kind: loss, rate: 1%}, {kind: duplicate, rate: 2%, delay: 3us},"
    " {kind: slow_host, worker: 1, factor: 3}, {kind: worker_pause, worker: 2, at: 40us, for: 30us}]"
)


class Outcome(NamedTuple):
    """What a run computed: everything but times, packets and the order of rounds."""

    totals: dict[tuple[int, int, int], bytes]  # by step, bucket and worker
    notes: list[Any]
    losses: list[float | None]
    rounds: list[Any]


def run(folder: Path, *sets: str) -> tuple[JobResult, Outcome]:
    totals: dict[tuple[int, int, int], bytes] = {}
    close = RunningJob._close

    def closing(self: RunningJob, step: int, bucket: Bucket, log: RoundLog) -> None:
        totals.update({(step, bucket.index, rank): one.total.tobytes() for rank, one in log.decoded.items()})
        close(self, step, bucket, log)

    resolved = plan(folder, *sets, text=SCENARIO)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunningJob, "_close", closing)
        (job,) = run_variant(resolved, resolved.variants[0]).jobs
    journal = job.journal
    kept = "step bucket messages payload_bytes_up merges_verified choice fallback_parts"
    rounds = sorted(map(attrgetter(*kept.split()), journal.rounds))
    notes = sorted((one.step, one.bucket, one.kind, one.text, one.count) for one in journal.notes)
    losses = [one.loss for one in journal.steps]
    return job, Outcome(totals, notes, losses, rounds)


def overlap(in_flight: int, order: str = "ready", encode: str = "on_device") -> str:
    return f"overlap={{buckets_in_flight: {in_flight}, order: {order}, encode: {encode}}}"


CODECS = ("{kind: fixed_point}", "{kind: lossless}", "{kind: packed}", "{kind: auto}")
_ONE_AT_A_TIME: dict[tuple[str, ...], Outcome] = {}


@pytest.mark.slow
@drawn_from(
    codec=st.sampled_from(CODECS),
    network=st.sampled_from([SWITCH, RING]),
    workload=st.sampled_from([(), TRAINED]),
    has_faults=st.booleans(),
    in_flight=st.integers(2, 8),
    order=st.sampled_from(["ready", "first_layer"]),
    encode=st.sampled_from(["beside", "on_device"]),
)
@examples(4, at_night=2)
def test_any_number_in_flight_computes_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    codec: str,
    network: tuple[str, ...],
    workload: tuple[str, ...],
    has_faults: bool,
    in_flight: int,
    order: str,
    encode: str,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    sets = (f"codec={codec}", *network, *workload, *([FAULTS] if has_faults else []))
    if sets not in _ONE_AT_A_TIME:
        _, _ONE_AT_A_TIME[sets] = run(folder, *sets)

    job, found = run(folder, *sets, overlap(in_flight, order, encode))

    assert {check.verdict for check in job.checks} == {"pass"}
    assert found == _ONE_AT_A_TIME[sets]


@pytest.mark.parametrize("network", [SWITCH, RING, ATP], ids=["switch", "ring", "atp"])
def test_wire_bytes_of_rounds_add_up_to_those_of_the_links(tmp_path: Path, network: tuple[str, ...]) -> None:
    """Of all steps together: bytes on the links are those of some round, but for a tail after the last."""
    resolved = plan(tmp_path, *network, overlap(4), text=SCENARIO)
    found = run_variant(resolved, resolved.variants[0])
    (job,) = found.jobs
    up = sum(one.bytes for one in found.links if one.source in {"h0", "h1", "h2", "h3"})
    down = sum(one.bytes for one in found.links if one.target in {"h0", "h1", "h2", "h3"})

    assert {check.verdict for check in job.checks} == {"pass"}
    assert sum(one.wire_bytes_up for one in job.journal.rounds) == pytest.approx(up, rel=0.002)
    assert sum(one.wire_bytes_down for one in job.journal.rounds) == pytest.approx(down, rel=0.002)


def test_a_switch_counts_the_bytes_of_every_round_as_one_at_a_time(tmp_path: Path) -> None:
    """A worker's streams follow each other, so that each round has its own bytes."""
    alone, _ = run(tmp_path, *SWITCH)
    overlapping, _ = run(tmp_path, *SWITCH, overlap(BUCKETS))

    def sizes(job: JobResult) -> list[tuple[int, ...]]:
        rounds = job.journal.rounds
        return sorted((one.step, one.bucket, one.wire_bytes_up, one.wire_bytes_down) for one in rounds)

    assert sizes(alone) == sizes(overlapping)
    assert max(one.end_ps for one in alone.journal.rounds) > max(
        one.end_ps for one in overlapping.journal.rounds
    )


def test_the_rows_of_the_breakdown_add_up_where_rounds_overlap(tmp_path: Path) -> None:
    outcome = scenes.run(tmp_path, "codec={kind: lossless}", overlap(4), text=SCENARIO)

    (variant,) = outcome.summary["variants"]
    metrics = variant["metrics"]
    rows = metrics["breakdown"]
    per_step = sum(row["time_us"] for row in rows) * BUCKETS
    assert per_step == pytest.approx(metrics["aggregation_time_us"])
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert all(row["time_us"] >= 0 for row in rows)
    assert {"wait"} <= {row["phase"] for row in rows}
    assert variant["setup"]["overlap"] == {"buckets_in_flight": 4, "encode": "on_device"}

    assert outcome.run_dir is not None
    panel = _panel(load(outcome.run_dir), variant["name"])
    assert "wait" not in {bar.name for bar in panel.bars}
    assert {"encode", "backward"} <= {bar.name for bar in panel.bars}
    assert np.isfinite(panel.end_us)


def test_only_the_last_decoding_of_a_bucket_waits_for_other_work(tmp_path: Path) -> None:
    """With `decode: last`, values follow their index while backward goes on."""
    last = "overlap={buckets_in_flight: 6, encode: on_device, decode: last}"
    device = "device={kind: fixed, forward: 20us, backward: 600us, memory_rate: 400Gbps, launch: 200ns}"
    job, _ = run(tmp_path, "codec={kind: packed}", *RING, last, device, "workload.steps=1")
    (step,) = job.journal.steps
    own = [one for one in job.journal.phases if one.worker == 0 and one.bucket >= 0]

    ends = {(one.bucket, one.label): one.end_ps for one in own if one.phase == "network"}
    first = [end_ps for (bucket, label), end_ps in ends.items() if bucket == 0]
    assert len(first) == 2
    assert max(first) < step.backward_end_ps / 2
    decoded = sorted((one.start_ps, one.bucket) for one in own if one.phase == "decode")
    assert decoded[0][0] < step.backward_end_ps / 2
    last_of_first = max(start_ps for start_ps, bucket in decoded if bucket == 0)
    assert last_of_first >= step.backward_end_ps


def stalled(folder: Path, *sets: str) -> tuple[dict[str, Any], str]:
    """The only variant, which stalls, and what its first check says."""
    (variant,) = scenes.run(folder, *sets, text=SCENARIO).summary["variants"]
    assert variant["verdict"] == "stalled"
    return variant, variant["checks"][0]["detail"]


def test_who_encodes_for_long_is_waited_for(tmp_path: Path) -> None:
    """6 s longer than the others, where traffic that rests for 1 s is stalled."""
    device = "device={kind: fixed, forward: 0s, backward: 0s, memory_rate: 200Gbps, launch: 3s}"
    result = scenes.simulate(tmp_path, device, "faults=[{kind: slow_host, worker: 1, factor: 3}]")
    assert {check.verdict for check in result.jobs[0].checks} == {"pass"}


def test_every_bucket_in_flight_is_named(tmp_path: Path) -> None:
    """Worker 0's messages are lost: it waits for those of the others, which cannot go on either."""
    variant, _ = stalled(tmp_path, *RING, overlap(3), "faults=[{kind: loss, rate: 100%, links: ['h0->s0']}]")

    first = variant["diagnosis"]["idle"][0]
    waiting = "; ".join(f"waits for 'values' of bucket {bucket} of step 0" for bucket in range(3))
    exponents = waiting.replace("'values'", "'values exponents'")
    assert first in (f"worker 0 {waiting}", f"worker 0 {exponents}")


@pytest.mark.parametrize(
    ("network", "encode", "at"),
    [
        (SWITCH, "beside", "5us"),
        (RING, "on_device", "31us"),
        (SWITCH, "on_device", "50us"),
        (RING, "beside", "85us"),
    ],
    ids=["forward", "backward", "encoding", "later"],
)
def test_a_crash_stops_the_device_and_the_network(
    tmp_path: Path, network: tuple[str, ...], encode: str, at: str
) -> None:
    """Whatever it was doing, worker 1 does nothing more."""
    crash = f"faults=[{{kind: worker_crash, worker: 1, at: {at}}}]"
    variant, detail = stalled(tmp_path, *network, overlap(3, encode=encode), crash)

    assert "crashed" in detail
    assert "worker 1 has crashed" in variant["diagnosis"]["idle"]
    assert variant["metrics"]["steps"] == 0


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
    encode=st.sampled_from(["beside", "on_device"]),
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
@examples(30, at_night=2)
def test_every_step_ends_with_the_right_sums_and_no_sooner_than_it_can(
    given: list[Given],
    overlap: Overlap,
    is_serial: bool,
    factors: list[Fraction],
    stops: list[tuple[int, int]],
) -> None:
    """And no more buckets are in flight than allowed."""
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
        tracks = [passes + codec] if overlap.encode == "on_device" else [passes, codec]
        tracks += [played.spans(worker, "network")] if is_serial else []
        begin, pause = stops[worker]
        for track in tracks:
            # What takes no time does not wait for the device, and lasts as long as a pause it falls into.
            in_order = sorted(span for span in track if not (begin <= span[0] and span[1] <= begin + pause))
            assert all(end <= start for (_, end), (start, _) in pairwise(in_order))
        spans: dict[tuple[int, int], tuple[int, int]] = {}  # of each step and bucket
        for phase in played.journal.phases:
            if phase.worker == worker and phase.bucket >= 0:
                begin, _ = spans.get((phase.step, phase.bucket), (phase.start_ps, 0))
                spans[phase.step, phase.bucket] = begin, phase.end_ps
        for time_ps in {begin for begin, _ in spans.values()}:
            assert sum(begin <= time_ps < end for begin, end in spans.values()) <= overlap.buckets_in_flight
        own, factor = given[worker], factors[worker]
        work = sum(times.encode + times.decode for one in own.operations for times in one)
        network = sum(times.network for one in own.operations for times in one)
        device_ps = own.forward + sum(own.backward) + (work if overlap.encode == "on_device" else 0)
        assert played.end_ps >= 2 * factor * device_ps
        assert played.end_ps >= 2 * factor * work
        if is_serial:
            assert played.end_ps >= 2 * network


def opposed() -> Played:
    """Worker 1 is slow: its first bucket has its second message before its second bucket is ready."""
    times = Times(1, 10, 1)
    conditions = [Condition(), Condition(Fraction(10))]
    return play(Given(0, [5, 5], [[times, times], [times]]), Overlap(2), conditions=conditions)


def test_workers_follow_the_first_to_choose() -> None:
    """At worker 0 bucket 1 waits for its turn since 11, and bucket 0's second message only since 72."""
    played = opposed()

    assert played.is_done
    order = [OperationId(0, 0, 0), OperationId(0, 1, 0), OperationId(0, 0, 1)]
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

        def take(self, worker: int, operation_id: OperationId, rank: int) -> simpy.Event:
            self._held[worker].append(self._units[worker].request())
            return self._held[worker][-1]  # type: ignore[no-any-return]

        def release(self, worker: int) -> None:
            self._units[worker].release(self._held[worker].pop(0))

    monkeypatch.setattr("netfold.sim.run.job.Coordinator", Own)
    failed = opposed()
    assert "AssertionError" in str(failed.job.failure)  # of a serial collective's order
    assert failed.is_done  # a job ends where one of its buckets fails
    monkeypatch.setattr("tests.sim.run.given.Line._is_same", lambda self, place, number: True)
    played = opposed()

    assert not played.is_done
    assert [own[-1] for own in played.line.opened] == [OperationId(0, 1, 0), OperationId(0, 0, 1)]


def taken(wanted: list[list[float]], at_once: int) -> tuple[list[list[int]], list[int]]:
    """What workers had and their ends; they want buckets at `wanted[worker][bucket]` and hold each for 10.

    At 7.2 is at 7, but after two other events of that instant.
    """
    environment = simpy.Environment()
    turns = Coordinator(environment, len(wanted), at_once)
    had: list[list[int]] = [[] for _ in wanted]
    ends = [0] * len(wanted)

    def work(worker: int, bucket: int, time_ps: float) -> Generator[simpy.Event, Any, None]:
        yield environment.timeout(int(time_ps))
        for _ in range(round(10 * (time_ps % 1))):
            yield environment.timeout(0)
        yield turns.take(worker, OperationId(0, bucket, 0), bucket)
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

    def at(stage: InstantPhase) -> Generator[simpy.Event, Any, None]:
        yield EndOfInstant(environment, stage)
        seen.append(stage.name)
        yield environment.timeout(0)
        seen.append(f"after {stage.name}")

    for stage in reversed(InstantPhase):
        environment.process(at(stage))
    environment.run()

    assert np.ravel([[stage.name, f"after {stage.name}"] for stage in InstantPhase]).tolist() == seen
    assert environment.now == 0
