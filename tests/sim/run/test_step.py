"""The steps of a job: what they share, when they begin."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

import netfold
import netfold.sim.workload.workload_keys
from netfold.homomorphic.codec import Decoded, Encoder, Exchange
from netfold.homomorphic.codecs.dense import Dense
from netfold.homomorphic.message import Gradient, Round, Step, StepFact, Tensor
from netfold.sim.checks.checks import RoundLog
from netfold.sim.engine.engine_data import Condition
from netfold.sim.network.fabric import HostTimes
from netfold.sim.network.stall import HAS_CRASHED
from netfold.sim.run.step import (
    LAST,
    Computing,
    SerialDevice,
    Span,
    Stretch,
    WireBytes,
    WorkerActivities,
    stretches,
)
from netfold.sim.workload.device_rooflines import Passes
from netfold.sim.workload.fusion import Bucket
from netfold.sim.workload.training import TrainingWorkload
from netfold.sim.workload.workload import Workload
from tests.examples import examples
from tests.registry import known
from tests.sim.scenes import RING, simulate
from tests.sim.workload.given import weights_of


def worked(asked: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Ask for work of (time, rank, duration); number and begin of each piece, in the order they were done."""
    environment = simpy.Environment()
    unit, done = SerialDevice(environment), list[tuple[int, int]]()

    def work(number: int) -> Generator[simpy.Event, Any, None]:
        time_ps, rank, duration_ps = asked[number]
        yield environment.timeout(time_ps)
        yield unit.take(rank)
        done.append((number, int(environment.now)))
        yield environment.timeout(duration_ps)
        unit.release()

    for number in range(len(asked)):
        environment.process(work(number))
    environment.run()
    return done


@pytest.mark.parametrize(
    ("asked", "done"),
    [
        # The first is alone when it asks; the other two wait for it, and for each other by rank.
        ([(0, 5, 10), (1, 2, 10), (2, 1, 10)], [(0, 0), (2, 10), (1, 20)]),
        # At one instant by rank, and then in turn.
        ([(3, 1, 1), (3, 0, 1), (3, 1, 1), (3, LAST, 1)], [(1, 3), (0, 4), (2, 5), (3, 6)]),
        # Number 2 asks at the instant at which number 0 ends, and goes before number 1.
        ([(0, 0, 10), (5, 9, 1), (10, 3, 1)], [(0, 0), (2, 10), (1, 11)]),
    ],
)
def test_a_unit_does_one_thing_at_a_time_by_rank(
    asked: list[tuple[int, int, int]], done: list[tuple[int, int]]
) -> None:
    assert worked(asked) == done


CONDITIONS = st.builds(
    Condition,
    st.sampled_from([Fraction(1), Fraction(4, 3), Fraction(7, 2)]),
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(1, 100)).map(lambda pair: (pair[0], sum(pair))), max_size=3
    ).map(lambda stops: tuple(sorted(stops))),
)


def computed(
    condition: Condition, passes: list[Stretch], work: list[tuple[int, int]] | None = None
) -> tuple[Computing, dict[int, str]]:
    """Passes from time 10 on; meanwhile the device has other work (time, duration)."""
    environment = simpy.Environment(initial_time=10)
    hosts, texts = HostTimes(environment, [condition]), dict[int, str]()
    unit = SerialDevice(environment)
    activities = WorkerActivities(hosts, 1, lambda worker, what, until_ps: texts.update({until_ps: what}))
    computing = Computing(environment, hosts, unit, activities, passes)

    def other(time_ps: int, duration_ps: int) -> Generator[simpy.Event, Any, None]:
        yield environment.timeout(time_ps)
        yield unit.take(0)
        yield hosts.work(0, duration_ps)
        unit.release()

    environment.process(computing.run(3, 0))
    for one in work or []:
        environment.process(other(*one))
    environment.run()
    return computing, texts


@given(
    condition=CONDITIONS,
    forward=st.integers(0, 100),
    backward=st.lists(st.integers(0, 100), min_size=1, max_size=5),
)
@examples(60)
def test_undisturbed_passes_take_their_work_rounded_once(
    condition: Condition, forward: int, backward: list[int]
) -> None:
    """Every bucket is ready when a host that does nothing else has done all work up to it."""
    totals = (forward + np.cumsum(backward)).tolist()
    passes = [Stretch("forward", forward)]
    passes += [Stretch("backward", total, (index,)) for index, total in enumerate(totals)]

    computing, _ = computed(condition, passes)

    assert computing.ready_ps == {index: condition.end_ps(10, total) for index, total in enumerate(totals)}
    start_ps, middle_ps = condition.end_ps(10, 0), condition.end_ps(10, forward)
    assert computing.spans == [
        Span("forward", start_ps, middle_ps),
        Span("backward", middle_ps, condition.end_ps(10, totals[-1])),
    ]
    assert (computing.end_ps("forward"), computing.end_ps("backward")) == (
        middle_ps,
        computing.ready_ps[len(backward) - 1],
    )


def test_work_that_waits_goes_between_stretches_and_not_into_them() -> None:
    passes = [Stretch("forward", 20), Stretch("backward", 50, (0,)), Stretch("backward", 80, (1,))]

    computing, texts = computed(Condition(), passes, [(25, 7), (45, 5), (46, 5)])

    # Asked at 35 and 55 (it begins at 10): the stretches end at 30, 60 and, after 7 + 5 + 5, at 107.
    assert computing.spans == [Span("forward", 10, 30), Span("backward", 30, 60), Span("backward", 77, 107)]
    assert computing.ready_ps == {0: 60, 1: 107}
    assert texts == {
        30: "computes bucket 0 of step 3",
        60: "computes bucket 0 of step 3",
        107: "computes bucket 1 of step 3",
    }


def test_passes_end_with_their_host() -> None:
    passes = [Stretch("forward", 20), Stretch("backward", 50, (0,)), Stretch("backward", 80, (1,))]

    computing, texts = computed(Condition(crash_ps=45), passes)

    assert computing.spans == [Span("forward", 10, 30), Span("backward", 30, 45)]
    assert computing.ready_ps == {}
    assert texts[45] == HAS_CRASHED


def test_stretches_of_a_workload() -> None:
    """Up to each bucket's share, and the rest of backward if the last bucket is ready before its end."""
    buckets = [Bucket(0, "a", 10, 0.25, 0), Bucket(1, "b", 30, 0.5, 10)]

    assert stretches(Passes(100, 1000), buckets) == [
        Stretch("forward", 100),
        Stretch("backward", 350, (0,)),
        Stretch("backward", 600, (1,)),
        Stretch("backward", 1100),
    ]
    whole = [Bucket(0, "a", 10, 1.0, 0)]
    assert stretches(Passes(), whole) == [Stretch("forward", 0), Stretch("backward", 0, (0,))]


def test_stretches_of_local_steps() -> None:
    """Whole passes one after the other; the buckets are in the last of them."""
    buckets = [Bucket(0, "a", 10, 1.0, 0), Bucket(1, "b", 30, 1.0, 10)]

    assert stretches(Passes(100, 1000), buckets, times=3) == [
        Stretch("forward", 100),
        Stretch("backward", 1100),
        Stretch("forward", 1200),
        Stretch("backward", 2200),
        Stretch("forward", 2300),
        Stretch("backward", 3300, (0,)),
        Stretch("backward", 3300, (1,)),
    ]
    # Whatever is known of the gradients of the last pass.
    tensors = (Tensor("a", (5,), "a"),)
    known = stretches(Passes(10, 100, {"a": 20}), [Bucket(0, "a", 5, 1.0, 0, tensors)], times=2)
    assert known[-1] == Stretch("backward", 220, (0,))


def test_stretches_follow_the_times_of_tensors() -> None:
    """Buckets in the order of their last tensors, whatever their numbers and shares; all times scaled."""
    first, second = (Tensor("a", (5,), "a"),), (Tensor("b", (5,), "b"), Tensor("c", (5,), "c"))
    buckets = [Bucket(0, "a", 5, 0.3, 0, first), Bucket(1, "b..c", 10, 1.0, 5, second)]
    passes = Passes(10, 100, {"a": 90, "b": 20, "c": 30})

    assert stretches(passes, buckets, Fraction(3, 2)) == [
        Stretch("forward", 15),
        Stretch("backward", 60, (1,)),
        Stretch("backward", 150, (0,)),
        Stretch("backward", 165),
    ]


class Links:
    """Two links per worker, whose counters the test sets."""

    def __init__(self, workers: int) -> None:
        self.bytes = [0] * (2 * workers)
        links = [(2 * own, 2 * own + 1) for own in range(workers)]
        self.wire = WireBytes(lambda link: self.bytes[link], links)

    def carry(self, worker: int, up: int, down: int) -> None:
        self.bytes[2 * worker] += up
        self.bytes[2 * worker + 1] += down


def test_bytes_of_one_round_after_the_other() -> None:
    """What passes before and after an operation belongs to the round that ends next."""
    links, first, second = Links(1), RoundLog([]), RoundLog([])
    for log, (before, during, after) in ((first, (1, 10, 2)), (second, (3, 20, 4))):
        links.carry(0, before, 0)
        links.wire.begin(0, log, 100)
        links.carry(0, during, 2 * during)
        links.wire.end(0, log)
        links.carry(0, after, 0)
        links.wire.end_round(0, log)

    assert first.wire_bytes.tolist() == [13, 20]
    assert second.wire_bytes.tolist() == [27, 40]


def test_bytes_of_operations_under_way_at_once_are_shared_by_payload() -> None:
    links, large, small = Links(1), RoundLog([]), RoundLog([])
    links.wire.begin(0, large, 300)
    links.carry(0, 10, 0)
    links.wire.begin(0, small, 100)
    links.carry(0, 101, 8)
    links.wire.end(0, large)
    links.carry(0, 7, 0)
    links.wire.end(0, small)
    links.wire.end_round(0, large)
    links.wire.end_round(0, small)

    # 101 · 3/4 = 75 and what is left, 8 · 3/4 = 6.
    assert large.wire_bytes.tolist() == [10 + 75, 6]
    assert small.wire_bytes.tolist() == [26 + 7, 2]


def test_an_empty_payload_has_its_bytes_and_workers_count_for_themselves() -> None:
    links, log = Links(2), RoundLog([])
    for worker in (0, 1):
        links.wire.begin(worker, log, 0)
        links.carry(worker, 5 + worker, 1)
        links.wire.end(worker, log)
        links.wire.end_round(worker, log)

    assert log.wire_bytes.tolist() == [11, 2]


def test_activities_of_several_buckets() -> None:
    shown: list[tuple[int, str, int]] = []
    hosts = HostTimes(simpy.Environment(), [Condition(), Condition(crash_ps=50)])
    activities = WorkerActivities(hosts, 2, lambda *what: shown.append(what))
    activities.begin(4, 2)
    activities.compute(0, "computes bucket 0 of step 4", 0, 10)
    activities.set(0, 1, "sends b", 20)
    activities.compute(0, "computes bucket 1 of step 4", 20, 30)  # not shown: a bucket is in flight
    activities.set(0, 0, "sends a", 25)
    activities.land(0, 0, 26)
    activities.land(0, 1, 27)

    assert shown == [
        (0, "computes bucket 0 of step 4", 10),
        (0, "sends b", 20),
        (0, "sends a; sends b", 25),
        (0, "sends b", 26),
        (0, "is done with step 4", 27),
    ]
    activities.begin(5, 1)
    activities.land(0, 0, 28)  # a bucket without operations lands too
    assert shown[-1] == (0, "is done with step 5", 28)
    activities.set(1, 0, "encodes", 49)
    activities.set(1, 0, "encodes", 50)
    assert shown[-2:] == [(1, "encodes", 49), (1, HAS_CRASHED, 50)]


US = 10**6
SEEN: list[tuple[int, Step, list[Gradient]]] = []  # worker, step, gradients at the kept weights
TENSORS: set[tuple[int, tuple[Tensor, ...]]] = set()  # of each bucket
UPDATE = np.float32(0.125)


class Looking(Encoder):
    """Keeps the weights of the first step, and asks for gradients at them from then on.

    Of the bucket that a test names it returns an update instead of the sum.
    """

    def __init__(self, encoder: Encoder, rank: int, codec: LookingCodec) -> None:
        self._encoder, self._rank, self._codec = encoder, rank, codec

    def begin(self, step: Step) -> None:
        kept: list[Gradient] = []
        if self._codec.wrong and step.number == 1 and self._rank == 1:
            raise ValueError("it does not begin")
        if StepFact.KEPT_WEIGHTS in self._codec.needs:
            if step.number == 0:
                step.keep_weights()
            else:
                kept = list(step.kept_gradients())
        copied = [one.copy() for one in step.gradients]
        SEEN.append((self._rank, Step(step.number, step.learning_rate, step.update_norm, copied), kept))

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        TENSORS.add((round.bucket, round.tensors))
        decoded = yield from self._encoder.exchange(gradient, round)
        if round.bucket != self._codec.updated:
            return decoded
        return Decoded(np.full_like(gradient, UPDATE), decoded.contribution, is_update=True)


@dataclass(frozen=True)
class LookingCodec(Dense):
    """Dense values whose encoders look."""

    kind: ClassVar[str] = "looking"

    facts: tuple[str, ...] = ()
    wrong: bool = False
    updated: int = -1

    @property
    def needs(self) -> frozenset[StepFact]:
        return frozenset(StepFact[name] for name in self.facts)

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return Looking(super().worker(rank, workers, seed), rank, self)


@pytest.fixture(autouse=True)
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    TENSORS.clear()
    known(monkeypatch, LookingCodec)


def run(folder: Path, *facts: str, sections: dict[str, Any] | None = None, **more: Any) -> netfold.Run:
    scenario = {
        "name": "looking",
        "topology": {"kind": "star", "hosts": 2},
        "workers": 2,
        "workload": {
            **{"kind": "training", "model": "mlp", "batch": 4, "learning_rate": 0.5, "steps": 3},
            "fusion": {"kind": "none"},
        },
        "device": {"kind": "fixed", "forward": "20us", "backward": "30us"},
        "codec": {"kind": "looking", "facts": list(facts), **more},
        "collective": {"kind": "ring"},
        **(sections or {}),
    }
    return netfold.run(scenario, out=folder)


def phases(run: netfold.Run, step: int) -> list[tuple[str, int, int]]:
    """Kind, start and end of worker 0's passes in a step, from the step's start on, in µs."""
    start = run.steps.row(step, named=True)["start_ps"]
    return [
        (row["phase"], (row["start_ps"] - start) // US, (row["end_ps"] - start) // US)
        for row in run.phases.iter_rows(named=True)
        if (row["step"], row["worker"], row["bucket"]) == (step, 0, -1)
    ]


def first_sent_us(run: netfold.Run, step: int) -> int:
    row = run.steps.row(step, named=True)
    return int(row["aggregation_start_ps"] - row["start_ps"]) // US


def test_without_needs_nothing_waits(tmp_path: Path) -> None:
    found = run(tmp_path, "LEARNING_RATE", "UPDATE_NORM")

    assert found.verdict == "pass"
    assert phases(found, 1) == [("forward", 0, 20), ("backward", 20, 50)]
    assert first_sent_us(found, 1) < 50
    assert {step.learning_rate for _, step, _ in SEEN} == {0.5}
    norms = [step.update_norm for rank, step, _ in SEEN if rank == 0]
    assert norms[0] is None
    assert all(norm is not None and norm > 0 for norm in norms[1:])
    assert all(not step.gradients for _, step, _ in SEEN)


def test_all_gradients_are_there_when_backward_has_ended(tmp_path: Path) -> None:
    found = run(tmp_path, "ALL_BUCKETS")

    assert found.verdict == "pass"
    assert phases(found, 1) == [("forward", 0, 20), ("backward", 20, 50)]
    assert first_sent_us(found, 1) == 50
    assert [len(step.gradients) for _, step, _ in SEEN] == [2] * 6
    assert [one.size for one in SEEN[0][1].gradients] == [1290, 8320]  # the last layer is ready first


def test_gradients_at_kept_weights_take_a_second_pass(tmp_path: Path) -> None:
    """In step 0 the weights are kept, and nothing is asked for."""
    found = run(tmp_path, "ALL_BUCKETS", "KEPT_WEIGHTS")

    assert found.verdict == "pass"
    assert phases(found, 0) == [("forward", 0, 20), ("backward", 20, 50)]
    assert phases(found, 1) == [("forward", 0, 20), ("backward", 20, 50), ("more passes", 50, 100)]
    assert [first_sent_us(found, step) for step in range(3)] == [50, 100, 100]
    last = found.steps.row(1, named=True)
    assert last["backward_end_ps"] - last["start_ps"] == 50 * US
    for _, step, kept in SEEN[2:]:
        assert [one.size for one in kept] == [1290, 8320]
        assert any(not np.array_equal(a, b) for a, b in zip(kept, step.gradients, strict=True))


@pytest.mark.parametrize("facts", [(), ("ALL_BUCKETS",)])
def test_an_encoder_that_cannot_begin_ends_its_variant(tmp_path: Path, facts: tuple[str, ...]) -> None:
    found = run(tmp_path, *facts, wrong=True)
    checks = {one["name"]: one for one in found.summary["variants"][0]["checks"]}

    assert found.verdict == "fail"
    told = r"worker 1, step 1: `begin`: ValueError: it does not begin \(test_step.py, line \d+, in begin\)"
    assert re.fullmatch(told, checks["finishes"]["detail"])


# What they see of a bucket, and what becomes of an update.


MLP = "workload={{kind: training, model: mlp, batch: 8, learning_rate: 0.5, fusion: {}}}"


def test_encoders_see_the_tensors_of_their_bucket(tmp_path: Path) -> None:
    simulate(tmp_path, MLP.format("{kind: none}"), RING, "codec={kind: looking}", "workload.steps=2")

    assert {bucket: [tuple(tensor) for tensor in tensors] for bucket, tensors in TENSORS} == {
        0: [("2.bias", (10,), "2", 0), ("2.weight", (10, 128), "2", 10)],
        1: [("0.bias", (128,), "0", 0), ("0.weight", (128, 64), "0", 128)],
    }
    assert len(TENSORS) == 2


@pytest.mark.parametrize("updated", [-1, 0, 1])
def test_an_update_is_subtracted_as_it_is(tmp_path: Path, trained: list[Workload], updated: int) -> None:
    codec = f"codec={{kind: looking, values: float32, updated: {updated}}}"
    simulate(tmp_path, MLP.format("{kind: none}"), RING, codec)
    (workload,) = trained
    assert isinstance(workload, TrainingWorkload)
    after = weights_of(workload)
    workload.restart()
    before = weights_of(workload)

    for bucket in workload.buckets:
        for tensor in bucket.tensors:
            as_it_is = np.array_equal(before[tensor.name] - UPDATE, after[tensor.name])
            assert as_it_is == (bucket.index == updated)
            assert not np.array_equal(before[tensor.name], after[tensor.name])


def test_layers_that_lie_apart_may_share_a_bucket(tmp_path: Path) -> None:
    """Two buckets of three layers: the first and the last together are ready when the last is."""
    tensors = "[a.weight=10x20, a.bias=10, b=30x30, c.weight=5x5, c.bias=5]"
    fusion = "{kind: partition, buckets: [[a, c], [b]]}"
    workload = f"workload={{kind: synthetic, tensors: {tensors}, fusion: {fusion}}}"
    result = simulate(tmp_path, workload, RING, "codec={kind: looking}")

    assert {check.verdict for check in result.checks} == {"pass"}
    assert [record.elements for record in result.rounds] == [900, 240]
    assert {bucket: [tensor.name for tensor in tensors] for bucket, tensors in TENSORS} == {
        0: ["b"],
        1: ["a.weight", "a.bias", "c.weight", "c.bias"],
    }
