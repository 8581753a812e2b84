"""What a study finds, from closed forms and from codecs that are known to do it."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.codec import Decoded, Encoder, Exchange
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Gradient, Merge, Message, Work
from netfold.homomorphic.round import Note, NoteKind, Round
from netfold.sim.errors import RunError
from netfold.sim.study.measure import Study, run_study
from netfold.sim.study.measured_encoder import MeasuredEncoder
from netfold.sim.study.options import read_codecs
from netfold.sim.study.source import Cell, Source, synthetic_source
from netfold.sim.workload import SyntheticSpec
from tests.sim.study.fakes import Clock, Fake, named

ELEMENTS, WORKERS, ROUNDS = 51_200, 3, 2
OPTIONS = {
    "elements": str(ELEMENTS),
    "density": "1%,20%",
    "pattern": "iid,rows",
    "row_elements": "64",
    "overlap": "30%",
    "distribution": "normal",
}
GRADIENTS = [np.array([0, 1, 0, 2, 0, 0], np.float32), np.array([0, 0, 0, 3, 4, 0], np.float32)]


def given(*gradients: Gradient) -> Source:
    """The same gradients in every round."""

    def rounds(count: int) -> Iterator[list[Gradient]]:
        return (list(gradients) for _ in range(count))

    return Source(
        (Cell("given", 0.5, rounds, SyntheticSpec(gradients[0].size)),), len(gradients), gradients[0].size, {}
    )


def studied(codec: Fake, gradients: Sequence[Gradient] = GRADIENTS, rounds: int = 1) -> Study:
    return run_study([named(codec)], given(*gradients), rounds, seed=1, progress=lambda *_: None)


@pytest.fixture(scope="module")
def study() -> Study:
    codecs = read_codecs(["none", "fixed_point", "packed", "packed:block_elements=64", "lossless"])
    return run_study(codecs, synthetic_source(OPTIONS, WORKERS, 1), ROUNDS, 1, lambda *_: None)


def test_bytes_are_those_of_the_closed_forms(study: Study) -> None:
    cells = synthetic_source(OPTIONS, WORKERS, 1).cells
    records = {(record.codec, record.pattern, record.density): record for record in study.records}
    for cell in cells:
        place = cell.pattern, cell.density
        union = sum(
            np.count_nonzero(np.any([gradient != 0 for gradient in gradients], axis=0))
            for gradients in cell.rounds(ROUNDS)
        )
        density = union / (ROUNDS * ELEMENTS)
        index = 4 * -(-ELEMENTS // 32)
        for codec, up_bytes, operations in (
            ("none", 4 * ELEMENTS, 1),
            ("fixed_point", 4 * ELEMENTS + -(-ELEMENTS // 256), 1),
            ("packed", index + 4 * -(-ELEMENTS // 4096) + 4 * density * ELEMENTS, 2),
            ("packed:block_elements=64", index + 4 * -(-ELEMENTS // 64) + 4 * density * ELEMENTS, 2),
        ):
            record = records[(codec, *place)]

            assert (record.up_bytes, record.operations) == (pytest.approx(up_bytes), operations)
            assert record.wire_ratio == pytest.approx(4 * ELEMENTS / up_bytes)
            assert record.union_density == pytest.approx(density)
            assert sum(study.bytes_of(record).values()) == pytest.approx(up_bytes)
        packed = study.bytes_of(records[("packed", *place)])
        assert packed["values"] == pytest.approx(4 * density * ELEMENTS)
        assert packed["index"] == index


def test_released_codecs_keep_their_word(study: Study) -> None:
    for record in study.records:
        assert (record.recovery, record.replicas_agree, record.infinite_elements) == (1.0, True, 0)
        assert record.max_error_over_bound is not None
        assert 0 < record.max_error_over_bound <= 1
        assert not record.exact_sums  # float32 additions, or integers of a common step
    assert study.faults == ()
    assert all(speed.encode_s > 0 and speed.decode_s > 0 for speed in study.speeds)


def test_all_but_speeds_is_the_same_twice(study: Study) -> None:
    codecs = read_codecs(["packed", "lossless"])
    told: list[Any] = []
    source = synthetic_source(OPTIONS, WORKERS, 1)
    again = run_study(codecs, source, ROUNDS, 1, lambda *step: told.append(step))
    other = run_study(codecs, synthetic_source(OPTIONS, WORKERS, 2), ROUNDS, 2, lambda *_: None)
    names = ("packed", "lossless")

    assert again.records == tuple(record for record in study.records if record.codec in names)
    assert again.messages == tuple(one for one in study.messages if one.codec in names)
    assert again.records != other.records
    assert (told[0], told[-1]) == (("iid, 1 %", 0, 8), ("rows, 20 %", 7, 8))
    assert [done for _, done, _ in told] == list(range(8))


def test_notes_of_one_worker_are_counted() -> None:
    notes = [
        Note(NoteKind.ESTIMATE, "medians", 3, 6, np.array([0, 3, 4])),  # element 0 is in no union
        Note(NoteKind.REDO, "tiles", 2, 10),
        Note(NoteKind.FORECAST, "digits", 4, 10),
        Note(NoteKind.CHOICE, "packed: the union is small"),
        Note(NoteKind.INFINITE, "beyond", 1, 6),
    ]

    record = studied(Fake(notes), rounds=2).records[0]

    assert record.recovery == pytest.approx(1 - 2 / 3)  # the union is elements 1, 3 and 4
    assert (record.redone_parts, record.redone_of) == (4, 20)
    assert (record.forecast_misses, record.infinite_elements) == (8, 2)
    assert record.choices == "packed (2 of 2 rounds)"
    assert (record.operations, record.up_bytes) == (3, 3 * 4 + 6 * 4 + 5 * 4)
    without_places = Note(NoteKind.ESTIMATE, "medians", 1, 3)
    assert studied(Fake([without_places])).records[0].recovery == pytest.approx(1 - 1 / 3)


def off_by(amount: float, *elements: int) -> Any:
    def change(rank: int, total: Gradient) -> Gradient:
        total[list(elements)] += np.float32(amount)
        return total

    return change


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The CPU clock of a study, which only codecs move on; memory is copied at 10 GB/s."""
    clock = Clock()
    monkeypatch.setattr("netfold.sim.study.measured_encoder.time.process_time", clock)
    monkeypatch.setattr("netfold.sim.study.measure._copy_gb_per_s", lambda: 10.0)
    return clock


@pytest.mark.parametrize(
    ("codec", "found", "faults"),
    [  # the largest error, and over the bound; whether sums are exact, and how many are not; replicas agree
        (Fake(), (0.0, 0.0, True, 0, True), []),
        (
            Fake(bound=0.25, change=off_by(0.5, 3)),
            (0.5, 2.0, False, 1, True),
            ["an error beyond the codec's bound"],
        ),
        (
            Fake(bound=0.0, change=off_by(0.5, 3)),
            (0.5, None, False, 1, True),
            ["an error where the codec's bound allows none"],
        ),
        (
            Fake(change=lambda rank, total: total + np.float32(rank * 1e-6)),
            (0.0, 0.0, True, 0, False),
            ["workers decoded different bits"],
        ),
    ],
)
def test_errors_and_workers_that_differ_are_faults(
    codec: Fake, found: tuple[object, ...], faults: list[str]
) -> None:
    """In records without NumPy's scalars, which JSON does not know."""
    study = studied(codec)
    one = study.records[0]

    assert found == (
        *(
            one.max_abs_error,
            one.max_error_over_bound,
            one.exact_sums,
            one.inexact_elements,
            one.replicas_agree,
        ),
    )
    assert list(study.faults) == [f"fake, given, 50 %: {fault}" for fault in faults]
    assert (one.recovery, one.union_density, one.choices) == (1.0, 0.5, "")
    assert {type(value) for value in dataclasses.astuple(one)} <= {str, int, float, bool, type(None)}


def test_estimates_are_not_held_to_the_bound() -> None:
    note = Note(NoteKind.ESTIMATE, "medians", 1, 6, np.array([3]))

    estimated = studied(Fake([note], bound=0.25, change=off_by(0.5, 3)))
    also_wrong = studied(Fake([note], bound=0.25, change=off_by(0.5, 3, 4)))

    assert estimated.faults == ()
    assert (estimated.records[0].max_abs_error, estimated.records[0].max_error_over_bound) == (0.5, 0.0)
    assert also_wrong.records[0].max_error_over_bound == 2.0


def test_a_sum_beyond_float32_is_infinite_and_right() -> None:
    large = np.full(2, 3e38, np.float32)
    with np.errstate(over="ignore"):
        right = studied(Fake(), [large, large]).records[0]
        wrong = studied(Fake(change=lambda rank, total: -total), [large, large]).records[0]

    assert (right.exact_sums, right.max_abs_error, right.max_error_over_bound) == (True, 0.0, 0.0)
    nan = studied(Fake(change=off_by(np.nan, 0))).records[0]
    for record in (wrong, nan):
        assert (record.exact_sums, record.max_abs_error, record.max_error_over_bound) == (False, None, None)


def test_times_are_cut_at_the_last_hand_over_that_is_no_redo(clock: Clock) -> None:
    speed = studied(Fake(clock=clock, seconds=(0.5, 0.25, 0.125, 1.0))).speeds[0]

    assert (speed.encode_s, speed.decode_s) == (0.75, 1.125)
    assert speed.encode_gb_per_s == pytest.approx(6 * 4 / 0.75 / 1e9)
    assert speed.decode_gb_per_s == pytest.approx(6 * 4 / 1.125 / 1e9)


@dataclasses.dataclass
class Uneven(Encoder):
    """A codec's encoder that takes other times in every round."""

    encoder: Encoder
    clock: Clock
    rounds: Iterator[tuple[float, float]]  # to encode, to decode

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        encode_s, decode_s = next(self.rounds)
        self.clock.now_s += encode_s
        decoded = yield from self.encoder.exchange(gradient, round)
        self.clock.now_s += decode_s
        return decoded


def test_both_times_are_of_one_round(clock: Clock) -> None:
    """Other rounds encode faster, or decode faster, but none does both together."""
    times = iter([(1.0, 4.0), (2.0, 1.0), (6.0, 0.5)])
    encoder = MeasuredEncoder(Uneven(Fake().worker(0, 1, 1), clock, times))
    for step in range(3):
        fold([encoder], GRADIENTS[:1], Round(step, 0, 1, 1))

    assert encoder.fastest[:2] == (2.0, 1.0)


def test_both_times_are_of_one_worker(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [(1.0, 4.0), (2.0, 1.0), (0.0, 0.0), (0.0, 0.0)]  # the last two are of the round that compiles
    original = Fake.worker

    def worker(self: Fake, rank: int, workers: int, seed: int) -> Encoder:
        return Uneven(original(self, rank, workers, seed), clock, iter([times.pop(0)]))

    monkeypatch.setattr(Fake, "worker", worker)

    speed = studied(Fake()).speeds[0]

    assert (speed.encode_s, speed.decode_s) == (2.0, 1.0)


def test_too_little_time_says_nothing(clock: Clock) -> None:
    speed = studied(Fake(clock=clock, seconds=(0, 2**-17, 0, 0))).speeds[0]

    assert (speed.encode_s, speed.encode_gb_per_s, speed.decode_gb_per_s) == (2**-17, None, None)


def test_a_codec_that_cannot_go_on_is_named() -> None:
    large = np.full(2, 3e38, np.float32)
    with pytest.raises(RunError) as caught:
        run_study(read_codecs(["packed"]), given(large, large), 1, 1, lambda *_: None)

    assert str(caught.value) == (
        "packed, given, 50 %: gradient[0] is 3e+38: with 2 workers fixed point carries magnitudes below "
        "8.50706e+37; clip or scale the gradient\n  leave out this codec, or use other gradients"
    )
    assert caught.value.exit_code == 1


def test_too_little_memory_is_reported() -> None:
    source = synthetic_source({**OPTIONS, "elements": "1e15"}, 2, 1)
    with pytest.raises(RunError) as caught:
        run_study(read_codecs(["none"]), source, 1, 1, lambda *_: None)

    assert str(caught.value).startswith("not enough memory: ")
    assert str(caught.value).endswith("\n  use fewer elements or workers")


def test_codecs_that_hold_back_are_held_to_what_workers_contribute() -> None:
    source = synthetic_source({"elements": "5000", "density": "100%"}, 4, 1)
    kinds = ("topk", "random_k", "majority", "fp16", "none")
    study = run_study(read_codecs(kinds), source, 2, 1, lambda *_: None)
    found = {record.codec: record for record in study.records}

    assert study.faults == ()
    assert [record.holds_back for record in study.records] == [True, True, True, True, False]
    assert found["majority"].max_error_over_bound == 0
    assert found["fp16"].nmse is not None
    assert 0 < found["fp16"].nmse < 1e-5
    # One percent of the elements; the second round also has what the first one kept.
    assert found["topk"].nmse == pytest.approx(1, abs=0.1)
    assert found["topk"].cosine is not None
    assert 0.1 < found["topk"].cosine < 0.4
    assert found["none"].cosine == pytest.approx(1)


def test_charges_are_the_counted_bytes_at_the_rate_of_a_copy(clock: Clock) -> None:
    """Work after the values is decoding, redo included.

    What follows the first operation belongs to the second one's encoding. Work without bytes is not counted.
    """
    encoding = [Work(100, 50), Work(7, 0, launches=2), Work(1000, 0)]
    works = [*encoding, Work(10, 20), Work(0, 300), Work(launches=9)]
    encoder = MeasuredEncoder(Counted(iter(works)))
    fold([encoder], GRADIENTS[:1], Round(0, 0, 1, 1))
    found = encoder.fastest

    assert found.encode_work == Work(100 + 7 + 1000, 50, launches=1 + 2 + 1)
    assert found.decode_work == Work(10, 20 + 300, launches=2)


def test_a_study_compares_charged_with_measured_times(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    codec = Fake(clock=clock, seconds=(0.5, 0.5, 1.5, 0.5))
    speed = studied(codec).speeds[0]

    assert (speed.encode_s, speed.decode_s) == (1.0, 2.0)
    assert (speed.encode_bytes, speed.decode_bytes) == (0, 0)
    assert speed.encode_charge == 0.0
    work = Work(4 * 10**9, 10**9)
    monkeypatch.setattr("netfold.sim.study.measured_encoder.together", lambda works: work)
    speed = studied(codec).speeds[0]
    assert (speed.encode_bytes, speed.decode_bytes) == (5 * 10**9, 5 * 10**9)
    assert (speed.encode_charge, speed.decode_charge) == (0.25, 0.125)  # 5 GB at 20 GB/s take 0.25 s


@dataclass
class Counted(Encoder):
    """Three operations, the last a redo, each with work before and after it."""

    works: Iterator[Work]

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        for label in ("index", "values", "redo"):
            words = np.zeros(3, np.uint32)
            yield (Message(words, Merge.OR, label, next(self.works), decode_work=next(self.works)),)
        return Decoded(gradient, gradient)
