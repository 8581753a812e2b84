"""Messages of codecs over an emulated network: several rounds, their times, their sums."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pytest

from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.codecs.auto import CarriedAuto, Choice
from netfold.homomorphic.error_bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.fold import fold
from netfold.homomorphic.merge import Merge, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.sim.collectives.in_network.job_plan import WindowCarrier
from netfold.sim.collectives.schedule_costs import HostCarrier
from netfold.sim.engine.engine_data import Frame
from netfold.sim.plan.plan import frame_of
from netfold.sim.report.html_report import build_report
from netfold.sim.report.words import codec_events
from netfold.sim.results.breakdown import RANK_SKEW
from netfold.sim.results.folder import load
from netfold.sim.run.run import run_variant
from netfold.sim.workload.devices import FixedDevice
from netfold.sim.workload.synthetic import SyntheticSpec, SyntheticWorkload
from tests.examples import nightly
from tests.sim.scenes import DENSE, RING, job_plan, measure, metrics_of, only, plan, run, simulate

SCENE = """\
name: choice
seed: 7
topology: {kind: star, hosts: 8, rate: 100Gbps, delay: 1us, switch: tofino1}
workers: 8
workload: {kind: synthetic, elements: 1000}
codec: {kind: auto}
collective: {kind: in_network}
"""
SMALL_FRAMES = "collective={kind: in_network, frame: udp-256}"
SWITCH = "collective={kind: in_network}"
FAR = "topology.delay=10us"
SLOW = "topology.rate=10Gbps"
MEMORY = "device={kind: fixed, forward: 0us, backward: 0us, memory_rate: 800Gbps}"
A100 = "device={kind: roofline, model: a100}"
DENSE_KINDS = {"block_exponent": "fixed_point", "float32": "none", "exact": "exact"}


class Cell(NamedTuple):
    """A place of the study grid."""

    network: tuple[str, ...]
    elements: int
    density: float
    pattern: str = "iid"
    overlap: float = 0.0
    values: str = "block_exponent"

    @property
    def sets(self) -> tuple[str, ...]:
        """Its settings in a scenario."""
        return (
            *self.network,
            f"workload.elements={self.elements}",
            f"workload.density={self.density}",
            f"workload.pattern={self.pattern}",
            f"workload.overlap={self.overlap}",
        )


GRID = [  # the first ones in every run, the others at night
    Cell((SWITCH,), 10_000, 0.02),
    Cell((RING, MEMORY), 20_000, 0.02),
    Cell((SWITCH, A100), 20_000, 0.05),
    Cell((RING,), 10_000, 0.1),
    *(Cell((SWITCH,), *place) for place in itertools.product((10_000, 100_000), (0.002, 0.05, 1.0))),
    *(Cell((RING,), *place) for place in itertools.product((10_000, 100_000), (0.002, 0.3))),
    Cell((SWITCH,), 100_000, 0.01, "rows", 0.5),
    Cell((SWITCH,), 100_000, 0.001, "blocks", 1.0),
    Cell((RING,), 100_000, 0.1, "columns", 1.0),
    Cell((RING,), 100_000, 0.01, "blocks", 1.0),
    Cell((SWITCH, A100), 50_000, 0.02),
    Cell((SWITCH, MEMORY), 50_000, 0.02),
    Cell((RING, MEMORY), 50_000, 0.02),
    Cell((SWITCH, SLOW), 50_000, 0.02),
    Cell((RING, FAR), 50_000, 0.1),
    Cell((SMALL_FRAMES,), 50_000, 0.3),
    Cell((RING,), 50_000, 0.02, values="float32"),
    Cell((SWITCH,), 50_000, 0.05, values="exact"),
]


def fixed(values: str) -> dict[Choice, str]:
    """Every choice as a codec of a scenario."""
    return {
        Choice.DENSE: f"codec={{kind: {DENSE_KINDS[values]}}}",
        Choice.PACKED: f"codec={{kind: packed, values: {values}}}",
        Choice.TWO_LEVEL: f"codec={{kind: packed, values: {values}, index: two_level}}",
        Choice.CONCURRENT: f"codec={{kind: lossless, values: {values}, schedule: concurrent}}",
        Choice.BITMAP: f"codec={{kind: block_sparse, values: {values}, blocks: bitmap}}",
    }


class Ran(NamedTuple):
    """A job's steps."""

    times_us: list[float]
    notes: list[str]


def ran(folder: Path, cell: Cell, codec: str, steps: int) -> Ran:
    result = simulate(folder, *cell.sets, f"workload.steps={steps}", codec, text=SCENE)
    assert {check.verdict for check in result.checks} == {"pass"}
    (job,) = result.jobs
    return Ran([step.aggregation_ps / 1e6 for step in job.journal.steps], [n.text for n in job.journal.notes])


def expected_us(note: str) -> dict[Choice, float]:
    """The times in a note about a choice."""
    found = re.findall(
        r"(dense|packed, two_level|packed|lossless, concurrent|block_sparse, bitmap):? (\S+)", note
    )
    return {Choice(name): float(time.rstrip(",;")) for name, time in found}


@pytest.mark.parametrize(
    "cell", [*GRID[:2], *(pytest.param(cell, marks=nightly) for cell in GRID[2:])], ids=str
)
def test_at_most_5_percent_slower_than_the_best_fixed_choice(tmp_path: Path, cell: Cell) -> None:
    """From the third step on: the first measures, and the second has no older rounds to forecast from."""
    auto = ran(tmp_path, cell, f"codec={{kind: auto, values: {cell.values}}}", 3)
    others = {name: ran(tmp_path, cell, codec, 3) for name, codec in fixed(cell.values).items()}
    expected = expected_us([note for note in auto.notes if "expected" in note][-1])

    assert auto.times_us[2] <= 1.05 * min(one.times_us[2] for one in others.values())
    assert set(expected) == set(others)
    for name, one in others.items():
        assert not one.notes or name is Choice.CONCURRENT
        if not one.notes:  # else something was sent again by chance
            assert expected[name] == pytest.approx(one.times_us[2], rel=0.05), name


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(Cell((RING, SLOW), 100_000, 0.02), marks=nightly),
        Cell((RING,), 10_000, 1.0),
        pytest.param(Cell((RING,), 100_000, 0.01, "blocks", 1.0), marks=nightly),
    ],
    ids=str,
)
def test_at_most_5_percent_slower_where_workers_cancel_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: Cell
) -> None:
    """Every sum is zero: rounds that do not measure the union must not be used."""
    draw = SyntheticWorkload.gradients

    def cancelled(self: SyntheticWorkload, step: int) -> list[list[Gradient]]:
        workers = draw(self, step)
        for mine, other in zip(workers[::2], workers[1::2], strict=True):
            for one, negated in zip(mine, other, strict=True):
                np.negative(one, out=negated)
        return workers

    monkeypatch.setattr(SyntheticWorkload, "gradients", cancelled)
    auto = ran(tmp_path, cell, "codec={kind: auto}", 4)
    others = [ran(tmp_path, cell, codec, 4) for codec in fixed("block_exponent").values()]

    for step in (2, 3):
        assert auto.times_us[step] <= 1.05 * min(one.times_us[step] for one in others)


def test_a_run_notes_each_choice_and_its_reason(tmp_path: Path, plain: None) -> None:
    outcome = run(tmp_path, "codec={kind: auto}", "workload.density=5%", "workload.steps=3", text=SCENE)

    kept = load(outcome.run_dir)
    texts = [row["text"] for row in kept.notes.iter_rows(named=True)]
    assert texts[0] == "packed: nothing has been measured yet"
    assert re.fullmatch(
        r"lossless, concurrent: \S+ us expected, dense \S+, .*; the last round had \d+ of 1000 elements",
        texts[1],
    )
    (variant,) = kept.summary["variants"]
    names = Counter(text.partition(":")[0] for text in texts if ": " in text)
    assert variant["metrics"]["codec_choice"] == dict(names)
    assert sum(names.values()) == 3
    report = build_report(outcome.run_dir).read_text(encoding="utf-8")
    assert texts[1] in report
    assert codec_events(variant["metrics"]) == "lossless, concurrent in 2 rounds, packed in 1 rounds"


def test_codecs_know_their_network(tmp_path: Path) -> None:
    def told(*sets: str) -> CarriedAuto:
        codec = job_plan(only(tmp_path, "codec={kind: auto}", *sets, text=SCENE)).codec
        assert isinstance(codec, CarriedAuto)
        return codec

    # RoCE: 4 packets of 1024 B to a unit; 82 B of headers each; 512 under way. Two delays, eleven passes.
    switch = told("collective={kind: in_network, slots: 512}").carrier
    assert isinstance(switch, WindowCarrier)
    assert (switch.unit_elements, switch.window_words) == (1024, 512 * 256)
    assert (switch.sends_exponents_ahead, switch.memory_bps) == (True, None)
    assert switch.rate_bps == pytest.approx(100e9 * 1024 / (1024 + 82), rel=0.01)
    assert switch.latency_ps == pytest.approx(2e6 + 11 * 0.6e6, rel=0.05)

    # 14 hops of two links and a switch, headers of 82 B on both; each word is sent 14/8 times, and merged at
    # half of the hops.
    ring = told(RING).carrier
    assert isinstance(ring, HostCarrier)
    assert ring.latency_ps == pytest.approx(14 * (2e6 + 0.6e6 + 2 * 82 * 80))
    assert ring.rate_bps == pytest.approx(100e9 * 1024 / (1024 + 82) * 8 / 14, rel=0.01)
    loaded = told(RING, MEMORY).carrier
    assert loaded.memory_bps == pytest.approx(800e9)
    assert 32 / loaded.rate_bps - 32 / ring.rate_bps == pytest.approx(7 / 8 * 12 * 8 / 800e9)


LOSSY = ("faults=[{kind: loss, rate: 2%}]",)
WHOLE = "workload={kind: synthetic, elements: 20000, distribution: integer}"
CHARGED_SWITCH = "collective={kind: in_network, program: switchml, slots: 16}"


def times(folder: Path, seed: int, *sets: str) -> tuple[float, int]:
    """Times with dense gradients, whose packets do not depend on the values."""
    found = measure(folder, WHOLE, CHARGED_SWITCH, "codec={kind: fixed_point}", f"seed={seed}", *sets)
    return found["aggregation_time_us"], found["packets_retransmitted"]


def test_the_seed_decides_what_the_network_loses(tmp_path: Path) -> None:
    """Without loss all seeds take the same time: the workload's draws do not affect it."""
    assert len({times(tmp_path, seed) for seed in (1, 2, 3)}) == 1
    assert len({times(tmp_path, seed, *LOSSY) for seed in (1, 2, 3)}) == 3


@dataclass(frozen=True)
class Two(Codec):
    """Two messages in one operation, each with its own work."""

    kind: ClassVar[str] = "two"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return TwoEncoder()

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return FloatAddBound(len(contributions))


class TwoEncoder(Encoder):
    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        words = gradient.astype(np.int32)
        first, _ = yield (
            Message(words, Merge.ADD, "large", Work(5000, 2000), decode_work=Work(300, 100)),
            Message(words, Merge.ADD, "small", Work(1000, 500), decode_work=Work(70, 30)),
        )
        return Decoded(first.words.astype(np.float32), gradient)


def test_encoding_and_decoding_take_the_work_of_all_messages(tmp_path: Path) -> None:
    """At 8 Gbit/s, one byte a nanosecond: 7000 and 1500 B to encode, 400 and 100 B to decode."""
    resolved = plan(tmp_path, WHOLE, CHARGED_SWITCH, "codec={kind: fixed_point}")
    (variant,) = resolved.variants
    job = replace(
        variant.jobs[0], codec=Two(), device=FixedDevice(forward_ps=0, backward_ps=0, memory_bps=8 * 10**9)
    )
    result = run_variant(resolved, replace(variant, jobs=(job,)))

    spans = {
        phase: {one.end_ps - one.start_ps for one in result.phases if one.phase == phase}
        for phase in ("encode", "decode")
    }
    assert spans == {"encode": {8_500_000}, "decode": {500_000}}


ELEMENTS, ENCODINGS_WORKERS, STEP = 1_000_000, 8, 1  # the second step: the first is what a forecast rests on
STAR = (
    f"workers={ENCODINGS_WORKERS}",
    f"topology.hosts={ENCODINGS_WORKERS}",
    f"workload.elements={ELEMENTS}",
    "workload.density=2%",
    "workload.steps=2",
    "collective.frame=roce-1024",
    "collective.message_packets=4",
    "collective.slots=512",
)
FRAME: Frame = frame_of("roce-1024")
MESSAGE_WORDS = 4 * FRAME.elements
MESSAGE_US = 8 * (4 * FRAME.wire_bytes(FRAME.elements, first=False, last=False) + 20) / 100e3  # 100 Gbps
# Two links, a pass, 3 pipes and 7 passes to read a packet out, and the packet once on either link.
LATENCY_US = 2.0 + 0.6 + 10 * 0.6 + 2 * 8 * 1110 / 100e3


def second_step(folder: Path, *sets: str) -> tuple[float, list[int]]:
    """Microseconds of a round, and the words of each of its operations."""
    result = simulate(folder, *sets)
    operations = [
        phase.payload_bytes // 4
        for phase in result.phases
        if (phase.step, phase.worker, phase.phase) == (STEP, 0, "network")
    ]
    return result.steps[STEP].aggregation_ps / 1e6, operations


@pytest.mark.parametrize(
    ("codec", "operations"),
    [
        ("{kind: packed}", 2),
        ("{kind: packed, index: two_level}", 3),
        ("{kind: lossless, schedule: concurrent}", 1),
        ("{kind: block_sparse, blocks: bitmap}", 2),
    ],
)
def test_every_operation_takes_its_words_at_line_rate_and_one_round_trip(
    tmp_path: Path, codec: str, operations: int
) -> None:
    """Within 3 %; a partly filled message takes as long as its packets."""
    time_us, sizes = second_step(tmp_path, *STAR, f"codec={codec}")

    assert len(sizes) == operations
    assert time_us == pytest.approx(
        sum(sizes) / MESSAGE_WORDS * MESSAGE_US + operations * LATENCY_US, rel=0.03
    )


FEW, SHORT = 3, 50_000
PACKED = (f"workload.elements={SHORT}", "codec={kind: packed}")
UDP = "collective.frame=udp-256"
TREE = ("topology.switch=sharp", "collective={kind: in_network, program: tree, frame: roce-1024}")


@pytest.mark.parametrize(
    ("collective", "density"), [((UDP,), "1%"), ((RING,), "30%"), (TREE, "0%"), ((UDP,), "100%")]
)
def test_the_sum_is_exact_in_a_word_per_member(
    tmp_path: Path, collective: tuple[str, ...], density: str
) -> None:
    """As announced by encoders without a network; each message of a worker fills separate packets."""
    sets = (*PACKED, f"workload.density={density}", *collective)
    job = job_plan(only(tmp_path, *sets))
    assert isinstance(job.workload, SyntheticSpec)
    gradients = [own[0] for own in job.workload.workload(FEW, 7).gradients(0)]
    encoders = [job.codec.worker(rank, FEW, 7) for rank in range(FEW)]
    sent = [own for ranks in fold(encoders, gradients, Round(0, 0, FEW, 7)).messages for own in ranks[0]]
    union = int(np.count_nonzero(np.any(gradients, axis=0)))
    words = -(-SHORT // 32) + -(-SHORT // 4096) + union  # index, exponents, values

    found = measure(tmp_path, *sets)

    assert sum(message.size_bytes for message in sent) == 4 * words
    assert found["compression_ratio"] == SHORT / words
    assert (found["density"], found["union_density"]) == (float(density.rstrip("%")) / 100, union / SHORT)
    assert found["merges_verified"]
    if collective == (UDP,):
        frame = frame_of("udp-256")
        packets = FEW * sum(-(-message.words.size // frame.elements) for message in sent)
        assert found["packets"] == packets
        assert found["wire_bytes_up"] == packets * frame.wire_bytes(frame.elements, first=True, last=True)


DENSE_ELEMENTS = 40_000
TIMED_STAR = (
    f"workers={ENCODINGS_WORKERS}",
    f"topology.hosts={ENCODINGS_WORKERS}",
    f"workload.elements={DENSE_ELEMENTS}",
    "workload.density=3%",
    "workload.steps=2",
    "collective.frame=udp-256",
    "device={kind: fixed, forward: 1ms, backward: 1ms, memory_rate: 800Gbps}",
)


VARIANTS = {
    "ring": (RING, DENSE),
    "ring-lossless": (RING, "codec={kind: lossless}"),
    "switchml": (),
    "lossless": ("codec={kind: lossless}",),
    "packed": ("codec={kind: packed}",),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_phases_explain_the_aggregation_time(tmp_path: Path, name: str) -> None:
    """And each is the mean of what workers took for it, as they are in step."""
    result = simulate(tmp_path, *TIMED_STAR, *VARIANTS[name])
    found = metrics_of(result)
    sums_us: dict[tuple[str, str], float] = defaultdict(float)
    for phase in result.phases:
        if phase.bucket >= 0:
            sums_us[phase.phase, phase.label] += (phase.end_ps - phase.start_ps) / 1e6

    *rows, rest = found["breakdown"]
    assert rest["phase"] == RANK_SKEW
    assert abs(rest["share"]) <= 0.03
    assert sum(row["time_us"] for row in rows) == pytest.approx(found["aggregation_time_us"], rel=0.03)
    assert sum(row["payload_bytes"] for row in rows) == pytest.approx(found["payload_bytes_up"])
    means_us = {what: time / ENCODINGS_WORKERS / 2 for what, time in sums_us.items()}
    assert {(row["phase"], row["label"]): row["time_us"] for row in rows} == pytest.approx(means_us, rel=0.03)


def test_a_late_worker_explains_the_rest(tmp_path: Path) -> None:
    """All wait a millisecond for the last worker, which spends it outside the round."""
    late = "faults=[{kind: worker_pause, worker: 3, at: 0ms, for: 1ms}]"
    found = measure(tmp_path, *TIMED_STAR, "workload.steps=1", late)

    assert found["breakdown"][-1]["time_us"] == pytest.approx(1000, rel=1e-6)
