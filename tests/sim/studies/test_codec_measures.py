"""What a study finds, from closed forms and from codecs that are known to do it."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from rich.table import Table

from netfold.errors import RunError
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.error_bounds import ErrorBound
from netfold.homomorphic.fold import fold
from netfold.homomorphic.merge import Merge, Work
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round
from netfold.sim.studies.codec_measures import MeasuredEncoder
from netfold.sim.studies.codec_study import CodecStudy, run_study, study_figures
from netfold.sim.studies.codec_study_inputs import (
    GradientsCell,
    NamedCodec,
    Source,
    read_codecs,
    synthetic_source,
)
from netfold.sim.workload.synthetic import SyntheticSpec
from tests.command_line import run_command
from tests.homomorphic.test_law_twins import Constant


@dataclass
class Clock:
    """A CPU clock that codecs move on."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def unchanged(rank: int, total: Gradient) -> Gradient:
    return total


@dataclass(frozen=True)
class Fake(Codec):
    """Sums in float32, with an operation before it and one after; notes, times and mistakes on demand."""

    kind: ClassVar[str] = "fake"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.FLOAT_ADD, Merge.OR})

    notes: Sequence[Note] = ()
    bound: float = 1e-3
    change: Callable[[int, Gradient], Gradient] = unchanged  # of what a worker decodes
    clock: Clock = field(default_factory=Clock)
    seconds: Sequence[float] = (0, 0, 0, 0)  # of each leg of a worker's exchange

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return FakeEncoder(self, rank)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        return Constant(self.bound)


@dataclass(frozen=True)
class FakeEncoder(Encoder):
    codec: Fake
    rank: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        clock, seconds = self.codec.clock, self.codec.seconds
        clock.now_s += seconds[0]
        yield (Message(np.zeros(3, np.uint32), Merge.OR, "index"),)
        clock.now_s += seconds[1]
        (merged,) = yield (Message(gradient, Merge.FLOAT_ADD, "values"),)
        clock.now_s += seconds[2]
        for note in self.codec.notes:
            round.report(note)
        yield (Message(np.zeros(5, np.uint32), Merge.OR, "fallback"),)
        clock.now_s += seconds[3]
        return Decoded(self.codec.change(self.rank, merged.words.copy()), gradient)


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
    size = gradients[0].size
    cell = GradientsCell(
        "given", 0.5, lambda count: (list(gradients) for _ in range(count)), SyntheticSpec(size)
    )
    return Source((cell,), len(gradients), size, {})


def studied(codec: Fake, gradients: Sequence[Gradient] = GRADIENTS, rounds: int = 1) -> CodecStudy:
    return run_study([NamedCodec("fake", codec)], given(*gradients), rounds, 1, lambda *_: None)


@pytest.fixture(scope="module")
def study() -> CodecStudy:
    codecs = read_codecs(["none", "fixed_point", "packed", "packed:block_elements=64", "lossless"])
    return run_study(codecs, synthetic_source(OPTIONS, WORKERS, 1), ROUNDS, 1, lambda *_: None)


def test_bytes_are_those_of_the_closed_forms(study: CodecStudy) -> None:
    cells = synthetic_source(OPTIONS, WORKERS, 1).cells
    records = {(record.codec, record.pattern, record.density): record for record in study.records}
    for cell in cells:
        place = cell.pattern, cell.density
        density = np.mean([np.any(gradients, axis=0) for gradients in cell.rounds(ROUNDS)])
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


def test_released_codecs_keep_their_word(study: CodecStudy) -> None:
    for record in study.records:
        assert (record.recovery, record.replicas_agree, record.infinite_elements) == (1.0, True, 0)
        assert record.max_error_over_bound is not None
        assert 0 < record.max_error_over_bound <= 1
        assert not record.exact_sums  # float32 additions, or integers of a common step
    assert study.faults == ()
    assert all(speed.encode_s > 0 and speed.decode_s > 0 for speed in study.timed)


def test_all_but_speeds_is_the_same_twice(study: CodecStudy) -> None:
    codecs = read_codecs(["packed", "lossless"])
    told: list[Any] = []
    source = synthetic_source(OPTIONS, WORKERS, 1)
    again = run_study(codecs, source, ROUNDS, 1, lambda *step: told.append(step))
    other = run_study(codecs, synthetic_source(OPTIONS, WORKERS, 2), ROUNDS, 2, lambda *_: None)
    names = ("packed", "lossless")

    assert again.records == tuple(record for record in study.records if record.codec in names)
    assert again.sent == tuple(one for one in study.sent if one.codec in names)
    assert again.records != other.records
    assert (told[0], told[-1]) == (("iid, 1 %", 0, 8), ("rows, 20 %", 7, 8))
    assert [done for _, done, _ in told] == list(range(8))


NOTES = [
    Note(NoteKind.CHOICE, "packed: the union is small"),
    Note(NoteKind.FALLBACK, "tiles", 2, 10),
    Note(NoteKind.FORECAST, "digits", 4, 10),
    Note(NoteKind.INFINITE, "beyond", 1, 6),
]


def test_notes_of_one_worker_are_counted() -> None:
    estimate = Note(NoteKind.ESTIMATE, "medians", 3, 6, np.array([0, 3, 4]))  # element 0 is in no union
    record = studied(Fake([estimate, *NOTES]), rounds=2).records[0]

    assert record.recovery == pytest.approx(1 - 2 / 3)  # the union is elements 1, 3 and 4
    assert (record.fallback_parts, record.fallback_of) == (4, 20)
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


def differing(rank: int, total: Gradient) -> Gradient:
    return total + np.float32(rank * 1e-6)


NONE_ALLOWED = "an error where the codec's bound allows none"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The CPU clock of a study, which only codecs move on; memory is copied at 10 GB/s."""
    clock = Clock()
    monkeypatch.setattr("netfold.sim.studies.codec_measures.time.process_time", clock)
    monkeypatch.setattr("netfold.sim.studies.codec_study.copy_rate_gb_per_s", lambda: 10.0)
    return clock


@pytest.mark.parametrize(
    ("codec", "found", "fault"),
    [  # the largest error, and over the bound; whether sums are exact, and how many are not; replicas agree
        (Fake(), (0.0, 0.0, True, 0, True), ""),
        (
            Fake(bound=0.25, change=off_by(0.5, 3)),
            (0.5, 2.0, False, 1, True),
            "an error beyond the codec's bound",
        ),
        (Fake(bound=0.0, change=off_by(0.5, 3)), (0.5, None, False, 1, True), NONE_ALLOWED),
        (Fake(change=differing), (0.0, 0.0, True, 0, False), "workers decoded different bits"),
    ],
)
def test_errors_and_workers_that_differ_are_faults(
    codec: Fake, found: tuple[object, ...], fault: str
) -> None:
    """In records without NumPy's scalars, which JSON does not know."""
    study = studied(codec)
    (record,) = study.records
    sums = record.exact_sums, record.inexact_elements

    assert (record.max_abs_error, record.max_error_over_bound, *sums, record.replicas_agree) == found
    assert study.faults == ((f"fake, given, 50 %: {fault}",) if fault else ())
    assert (record.recovery, record.union_density, record.choices) == (1.0, 0.5, "")
    assert {type(value) for value in dataclasses.astuple(record)} <= {str, int, float, bool, type(None)}


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


def test_times_are_cut_at_the_last_hand_over_that_is_no_fall_back(clock: Clock) -> None:
    speed = studied(Fake(clock=clock, seconds=(0.5, 0.25, 0.125, 1.0))).timed[0]

    assert (speed.encode_s, speed.decode_s) == (0.75, 1.125)
    assert speed.encode_gb_per_s == pytest.approx(6 * 4 / 0.75 / 1e9)
    assert speed.decode_gb_per_s == pytest.approx(6 * 4 / 1.125 / 1e9)
    speed = studied(Fake(clock=clock, seconds=(0, 2**-17, 0, 0))).timed[0]  # too little says nothing
    assert (speed.encode_s, speed.encode_gb_per_s, speed.decode_gb_per_s) == (2**-17, None, None)


@dataclass
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
    codec = Fake()
    monkeypatch.setattr(Fake, "worker", lambda *_: Uneven(FakeEncoder(codec, 0), clock, iter([times.pop(0)])))

    speed = studied(codec).timed[0]

    assert (speed.encode_s, speed.decode_s) == (2.0, 1.0)


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
    """Work after the values is decoding, fallbacks included.

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
    speed = studied(codec).timed[0]

    assert (speed.encode_s, speed.decode_s) == (1.0, 2.0)
    assert (speed.encode_bytes, speed.decode_bytes) == (0, 0)
    assert speed.encode_charge == 0.0
    work = Work(4 * 10**9, 10**9)
    monkeypatch.setattr("netfold.sim.studies.codec_measures.together", lambda works: work)
    speed = studied(codec).timed[0]
    assert (speed.encode_bytes, speed.decode_bytes) == (5 * 10**9, 5 * 10**9)
    assert (speed.encode_charge, speed.decode_charge) == (0.25, 0.125)  # 5 GB at 20 GB/s take 0.25 s
    shown = printed(studied(codec).tables()[-1], 200)
    assert cells(shown)[-1][-6:] == ["1.00 s", "250 ms", "0.250 ×", "2.00 s", "250 ms", "0.125 ×"]


@dataclass
class Counted(Encoder):
    """Three operations, the last a fallback, each with work before and after it."""

    works: Iterator[Work]

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        for label in ("index", "values", "fallback"):
            words = np.zeros(3, np.uint32)
            yield (Message(words, Merge.OR, label, next(self.works), decode_work=next(self.works)),)
        return Decoded(gradient, gradient)


SMALL = "--elements 20000 --workers 2 --rounds 2 --density 1%,20% --pattern iid,rows".split()  # noqa: SIM905
MEASURED = {"run.json", "speed.svg"}


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]


def printed(table: Table, width: int) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    return text.getvalue()


def test_codecs_are_listed_with_meanings_and_defaults() -> None:
    text = run_command("codecs").stdout

    assert (
        "fixed_point (published; SwitchML: Sapio et al., NSDI 2021; with a factor, ATP: Lao et al., NSDI\n"
        "    2021): Dense gradients as int32 words with an agreed exponent per block, or with a constant\n"
        "    factor.\n"
        "  block_elements=null: elements that share an exponent; "
    ) in text
    assert (
        "\n  factor=null: integers per unit of value, the same for all elements, "
        "instead of exponents; ATP's is\n      1e6.\n"
    ) in text
    assert "\n  load=0.77: members per counter; " in text
    assert max(map(len, text.splitlines())) <= 100


def test_codecs_are_listed_as_json() -> None:
    """Each says its origin once, and what every option means."""
    listed = {codec["kind"]: codec for codec in json.loads(run_command("codecs", "--json").stdout)["codecs"]}

    assert listed["none"]["options"] == []
    assert listed["none"]["meaning"].startswith("Dense float32 gradients; ")
    assert {codec["status"] for codec in listed.values()} == {"published", "reconstructed", "ours"}
    assert listed["block_sparse"]["source"] == "OmniReduce: Fei et al., SIGCOMM 2021"
    assert listed["fixed_point"]["options"][1] == {
        "name": "factor",
        "default": None,
        "is_required": False,
        "meaning": "integers per unit of value, the same for all elements, instead of exponents; "
        "ATP's is 1e6.",
    }
    for codec in listed.values():
        assert codec["status"] not in codec["meaning"].lower().rstrip(".").split(), codec["kind"]
        assert all(option["meaning"] for option in codec["options"]), codec["kind"]


def test_a_study_is_printed_and_kept(tmp_path: Path) -> None:
    """The same bytes for the same seed, but for what is measured."""
    words = ("codecs", "study", "packed", "lossless:load=0.5", *SMALL, "--seed", 5, "--out")
    result, _ = (run_command(*words, tmp_path / name) for name in ("one", "other"))
    (folder,), (other,) = ((tmp_path / name / "study").iterdir() for name in ("one", "other"))
    rows = [row for row in cells(result.stdout) if row[0] in ("packed", "lossless:load=0.5")]

    assert (result.exit_code, result.stderr) == (0, "")
    assert "elements 20000, workers 2, rounds 2, seed 5\n" in result.stdout
    assert [row[:3] for row in rows[:8:2]] == [
        ["packed", pattern, density] for pattern in ("iid", "rows") for density in ("1 %", "20 %")
    ]
    assert len(rows) == 24  # again with the bytes of each message, and with charged times
    assert result.stdout.endswith(f"Study: {folder}\n")
    assert folder.name.endswith("-seed5")
    kept = {"study.json", "study.parquet", "messages.parquet", "study.svg"}
    assert {path.name for path in folder.iterdir()} == kept | MEASURED
    assert [name for name in kept if (folder / name).read_bytes() != (other / name).read_bytes()] == []
    table = pl.read_parquet(folder / "study.parquet")
    assert table.height == 8
    assert table["wire_ratio"].min() > 1
    messages = pl.read_parquet(folder / "messages.parquet")
    totals = messages.group_by("codec", "pattern", "density", maintain_order=True).agg(pl.col("bytes").sum())
    assert totals["bytes"].to_list() == pytest.approx(table["up_bytes"].to_list())
    lines = [
        f"{codec}, {pattern}" for codec in ("packed", "lossless:load=0.5") for pattern in ("iid", "rows")
    ]
    for name, own in (
        ("study.svg", "Compression of what a worker sends|Sums that are not estimates|dense float32"),
        ("speed.svg", "Encoding on this machine|Decoding on this machine|copying memory"),
    ):
        text = (folder / name).read_text("utf-8")
        assert [one for one in (*own.split("|"), *lines, "density, %") if f">{one}</text>" not in text] == []


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies without figures."""
    monkeypatch.setattr("netfold.sim.studies.codec_study.study_figures", lambda study: {})


@pytest.mark.usefixtures("plain")
def test_a_study_as_json(tmp_path: Path) -> None:
    result = run_command("codecs", "study", "packed", "none", *SMALL, "--out", tmp_path, "--json")
    message = json.loads(result.stdout)
    first, second = message["codecs"][:2]

    assert (message["elements"], message["workers"], message["rounds"], message["seed"]) == (20_000, 2, 2, 1)
    assert message["gradients"] == {"row_elements": 64, "overlap": 0.0, "distribution": "normal"}
    assert (first["codec"], first["pattern"], first["density"]) == ("packed", "iid", 0.01)
    assert set(first["bytes_by_message"]) == {"index", "exponents", "values"}
    assert second["bytes_by_message"] == {"values": 80_000.0}
    assert message["speeds"]["codecs"][0]["encode_s"] > 0
    kept = json.loads((Path(message["study_dir"]) / "study.json").read_text())
    assert kept == {key: value for key, value in message.items() if key not in ("speeds", "study_dir")}


@pytest.mark.usefixtures("plain")
def test_a_file_is_studied(tmp_path: Path) -> None:
    gradients = np.zeros((2, 3200), np.float32)
    gradients[0, :32] = gradients[1, 16:48] = 1.0
    np.save(tmp_path / "g.npy", gradients)

    words = ("packed", "--input", tmp_path / "g.npy", "--out", tmp_path, "--json")
    message = json.loads(run_command("codecs", "study", *words).stdout)
    (record,) = message["codecs"]

    assert (message["workers"], record["pattern"], record["density"]) == (2, "input", 0.01)
    assert record["bytes_by_message"] == {"index": 400.0, "exponents": 4.0, "values": 4.0 * 48}
    assert message["gradients"]["input"] == str(tmp_path / "g.npy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["losless"], "losless: cannot use 'losless' as a kind\n  did you mean 'lossless'? allowed: "),
        (
            ["packed", "--input", "g.txt"],
            "g.txt: must be a .npy, .npz, .safetensors, .pt or .pth file, found .txt\n",
        ),
        (
            ["packed", "--input", "g.npy", "--row-elements", "8", "--density", "1%"],
            "--density, --row-elements: gradients come from g.npy\n"
            "  leave out --density, --row-elements, or --input\n",
        ),
        ([], "Usage: netfold codecs study"),
        (["packed", "--workers", "0"], "Usage: netfold codecs study"),
        (["packed", "--out", ""], "Usage: netfold codecs study"),
    ],
)
def test_bad_usage_is_reported_and_exits_with_2(arguments: Sequence[str], message: str) -> None:
    result = run_command("codecs", "study", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)


def test_where_nothing_can_be_written_nothing_is_studied(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    place = tmp_path / "file"
    result = run_command("codecs", "study", "packed", *SMALL, "--out", place)

    assert (result.exit_code, result.stdout) == (2, "")
    told = f"no run folder can be made in {place}: {place} is not a folder\n  use --out DIR\n"
    assert result.stderr == told


@pytest.mark.usefixtures("plain")
def test_a_fault_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = studied(Fake(bound=0.0, change=lambda rank, total: total + np.float32(1)))
    monkeypatch.setattr("netfold.sim.studies.codec_study.run_study", lambda *_: wrong)

    result = run_command("codecs", "study", "packed", "--out", tmp_path)

    assert result.exit_code == 1
    assert f"\nfake, given, 50 %: {NONE_ALLOWED}\nStudy: " in result.stdout


def test_codec_events_are_below_the_table() -> None:
    text = printed(studied(Fake(NOTES)).table(), 120)

    assert text.endswith(
        "fake, given, 50 %: packed (1 of 1 rounds)\n"
        "fake, given, 50 %: 2 of 10 parts did not decode and were sent again\n"
        "fake, given, 50 %: 4 parts did not match their forecast and were sent again\n"
        "fake, given, 50 %: 1 sums are beyond float32 and became infinite\n"
    )


@pytest.mark.parametrize(
    ("recovery", "shown"), [(1.0, "100 %"), (0.999_999, "99.99 %"), (0.771_23, "77.12 %"), (0.0, "0 %")]
)
def test_recovery_is_never_rounded_up_to_all(recovery: float, shown: str) -> None:
    study = studied(Fake())
    records = tuple(dataclasses.replace(record, recovery=recovery) for record in study.records)

    assert cells(printed(dataclasses.replace(study, records=records).table(), 120))[0][7] == shown


def test_tables_fit_narrow_terminals() -> None:
    study = studied(Fake())
    name = "lossless:load=0.7,block_elements=1024"
    records = tuple(dataclasses.replace(record, codec=name) for record in study.records)
    messages = tuple(dataclasses.replace(message, codec=name) for message in study.sent)
    study = dataclasses.replace(study, records=records, sent=messages)

    for width, tables in ((120, 1), (100, 2), (76, 2)):
        lines = [line for line in printed(study.table(), width).splitlines() if line[0] in "┃│"]
        headings = [line.strip("┃").split("┃") for line in lines if line.startswith("┃")]
        assert len(headings) == tables
        assert len({heading.strip() for line in headings for heading in line}) == 10
        assert max(map(len, lines)) <= width
        assert [row[0] for row in cells("\n".join(lines))] == tables * [
            *("lossless:", "load=0.7,", "block_elements=1024")
        ]
    assert max(map(len, printed(study.tables()[1], 80).splitlines())) <= 80
    assert cells(printed(study.tables()[1], 84))[0][3:] == ["12.0 B", "24.0 B", "20.0 B", "56.0 B"]


def test_figures_show_a_single_point_and_density_zero() -> None:
    assert set(study_figures(studied(Fake()))) == {"study.svg", "speed.svg"}
    empty = studied(Fake(), [np.zeros(4, np.float32)] * 2)
    assert all(b"</svg>" in content for content in study_figures(empty).values())
    infinite = studied(Fake(bound=0.0, change=lambda rank, total: total + np.float32(np.inf)))
    assert json.dumps(infinite.content(), allow_nan=False)
