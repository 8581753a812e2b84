"""What a codec promises of its sums, and the bound of its error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange, Promise, Variance
from netfold.homomorphic.codecs.auto import Auto
from netfold.homomorphic.codecs.block_sparse import BlockSparse
from netfold.homomorphic.codecs.exact import DenseExact
from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.codecs.lossless import Lossless, float_error_bound
from netfold.homomorphic.codecs.none import Uncompressed
from netfold.homomorphic.codecs.packed import Packed
from netfold.homomorphic.error_bounds import (
    PART_ELEMENTS,
    Doubles,
    Drift,
    ErrorBound,
    FloatAddBound,
    RoundingBound,
    Sums,
    count_inexact,
    exact_sums,
    largest_bias,
    sums_of_parts,
    whole_bound,
)
from netfold.homomorphic.fold import fold
from netfold.homomorphic.merge import Merge
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round
from netfold.kernels.keyed_random import mix_plain
from netfold.testing import check_round
from tests.examples import examples, nightly
from tests.homomorphic.gradients import bound_of, rows_of
from tests.homomorphic.test_law_twins import Constant, Half
from tests.registry import known
from tests.sim.scenes import entry_of, simulated

GRADIENTS = [np.random.default_rng(rank).standard_normal(500).astype(np.float32) for rank in range(3)]


# A family of codecs: floats that are added, and twins with one thing wrong each.


@dataclass(frozen=True)
class Rounded(Codec):
    """Floats rounded up or down at random, by their fraction of a step.

    wrong: what is wrong.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "rounded"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.FLOAT_ADD})
    promise: ClassVar[Promise] = Promise.UNBIASED
    step: ClassVar[float] = 0.25

    wrong: str = ""

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return RoundedEncoder(self, rank)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return Constant(np.inf if self.wrong == "bound" else len(contributions) * self.step)

    def variance(self, contributions: Sequence[Gradient]) -> Variance:
        return Constant(len(contributions) * self.step**2 / 4)


@dataclass(frozen=True)
class RoundedEncoder(Encoder):
    codec: Rounded
    rank: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        key = [mix_plain(round.seed, round.step, self.rank)]
        draws = np.random.default_rng(key).random(gradient.size)
        if self.codec.wrong == "down":
            draws = np.ones(gradient.size)
        if self.codec.wrong == "towards zero":
            draws = (gradient > 0).astype(np.float64)
        steps = np.floor(gradient / self.codec.step + draws)
        own = (steps * self.codec.step).astype(np.float32)
        (merged,) = yield (Message(own, Merge.FLOAT_ADD, "values"),)
        return Decoded(merged.words.copy(), gradient)


def test_an_honest_codec_keeps_its_promise() -> None:
    for seed in range(5):
        check_round(Rounded(), GRADIENTS, Round(0, 0, 3, seed))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("down", "totals are biased: errors add up to"),
        ("towards zero", "totals are biased: errors add up to"),
        ("bound", "the error bound of 500 elements is infinite"),
    ],
)
def test_twins_that_are_biased_or_unbounded_fail(wrong: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_round(Rounded(wrong), GRADIENTS)


class OneBitOff(Encoder):
    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        decoded = yield from self.encoder.exchange(gradient, round)
        total = decoded.total.copy()  # workers that received the same words share it
        total[7] = np.nextafter(total[7], np.float32(np.inf))
        return replace(decoded, total=total)


@pytest.fixture
def off_by_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codec exact is wrong, and its bound so wide that only the promise can fail."""
    monkeypatch.setattr(DenseExact, "worker", lambda self, *rest: OneBitOff(self.setting.encoder))
    monkeypatch.setattr(DenseExact, "error_bound", lambda self, gradients: FloatAddBound(1000))


@pytest.mark.usefixtures("off_by_a_bit")
def test_an_exact_codec_that_is_off_by_a_bit_fails() -> None:
    with pytest.raises(AssertionError, match="1 sums are not exact"):
        check_round(DenseExact(), GRADIENTS)


# What the statistics find, and what they leave alone.


def drift_of(errors: Doubles, ideal: Doubles, variance: float, largest: float) -> Drift:
    drift = Drift.empty(errors.size)
    for first in range(0, errors.size, PART_ELEMENTS):
        own = slice(first, first + PART_ELEMENTS)
        size = errors[own].size
        drift.add(first, errors[own], ideal[own], np.full(size, variance), np.full(size, largest))
    return drift


def test_honest_errors_are_far_below_what_chance_allows() -> None:
    """A million drawn statistics would be needed for the rate; here 1,000 must all be within."""
    random = np.random.default_rng(1)
    worst = 0.0
    for _ in range(500):
        errors = random.choice([-1.0, 1.0], 200)
        worst = max(worst, largest_bias({0: drift_of(errors, np.ones(200), 1.0, 1.0)}).over_allowed)

    assert 0.3 < worst < 1


@pytest.mark.parametrize(("share", "is_found"), [(0.0, False), (0.02, True)])
def test_a_small_bias_is_found_in_many_elements(share: float, is_found: bool) -> None:
    random = np.random.default_rng(2)
    errors = np.where(random.random(200_000) < 0.5 + share, 1.0, -1.0)
    bias = largest_bias({3: drift_of(errors, np.ones(errors.size), 1.0, 1.0)})

    assert (bias.over_allowed > 1) == is_found
    assert bias.statistics == 2 * -(-200_000 // PART_ELEMENTS)
    assert bias.bucket == (3 if bias.over_allowed else 0)


def test_a_total_that_shrinks_is_found_although_its_errors_cancel() -> None:
    random = np.random.default_rng(4)
    ideal = random.choice([-1.0, 1.0], 20_000)
    errors = -0.1 * ideal + random.choice([-1.0, 1.0], ideal.size)

    drift = drift_of(errors, ideal, 1.0, 1.1)

    assert np.abs(drift.sums[0]).max() < 1000 < np.abs(drift.sums[1]).max()
    assert largest_bias({0: drift}).over_allowed > 1


def test_a_bias_in_one_stretch_is_found_there() -> None:
    random = np.random.default_rng(3)
    errors = random.choice([-1.0, 1.0], 10 * PART_ELEMENTS)
    errors[4 * PART_ELEMENTS : 5 * PART_ELEMENTS] += 0.1

    bias = largest_bias({0: drift_of(errors, np.zeros(errors.size), 1.0, 1.1)})

    assert (bias.over_allowed > 1, bias.stretch) == (True, 4)


def test_small_biases_add_up_over_rounds() -> None:
    random = np.random.default_rng(5)
    total = Drift.empty(100)
    for _ in range(2000):
        errors = random.choice([-1.0, 1.0], 100) + 0.05
        total = total.join(drift_of(errors, np.zeros(100), 1.0, 1.05))

    assert largest_bias({0: drift_of(errors, np.zeros(100), 1.0, 1.05)}).over_allowed < 1
    assert largest_bias({0: total}).over_allowed > 1


def test_errors_without_variance_may_not_be() -> None:
    assert largest_bias({0: drift_of(np.zeros(3), np.ones(3), 0.0, 0.0)}).over_allowed == 0
    assert largest_bias({0: drift_of(np.full(3, 1e-9), np.ones(3), 0.0, 0.0)}).over_allowed == np.inf
    assert largest_bias({0: drift_of(np.full(3, np.nan), np.ones(3), 1.0, 1.0)}).over_allowed == np.inf
    assert largest_bias({}).over_allowed == 0


def test_exact_sums_are_counted_by_hand() -> None:
    """1 + 2⁻²⁴ + 2⁻⁶⁰ is just above the middle between two float32; 1 + 2⁻²⁴ rounds to even."""
    columns = [[1.0, 1.0], [2.0**-24, 2.0**-24], [2.0**-60, 0.0]]
    contributions = [np.array(one, np.float32) for one in columns]
    above = np.nextafter(np.float32(1), np.float32(2))

    assert count_inexact(np.array([above, 1], np.float32), contributions) == 0
    assert count_inexact(np.array([1, above], np.float32), contributions) == 2
    assert count_inexact(np.array([-0.0], np.float32), [np.zeros(1, np.float32)]) == 0
    assert count_inexact(np.zeros(2, np.float32), [np.array([np.inf, 0], np.float32)]) == 2


# The same twins in a run.


SCENARIO = {
    "name": "promises",
    "topology": {"kind": "star", "hosts": 3},
    "workers": 3,
    "workload": {"kind": "synthetic", "elements": 20000, "density": "100%", "steps": 2},
    "collective": {"kind": "ring"},
}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, Rounded)


def sum_is_right(codec: dict[str, str]) -> tuple[str, str]:
    checks = {check.name: check for check in simulated({**SCENARIO, "codec": codec}).checks}
    return checks["sum_is_right"].verdict, checks["sum_is_right"].detail


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("wrong", "verdict", "words"),
    [
        ("", "pass", "; no bias: 4 sums of errors are at most 0."),
        ("towards zero", "fail", "totals are biased: the errors from element 0 of bucket 0 add up to"),
    ],
)
def test_a_run_holds_codecs_to_their_promise(wrong: str, verdict: str, words: str) -> None:
    found, detail = sum_is_right({"kind": "rounded", "wrong": wrong})

    assert found == verdict
    assert words in detail


@pytest.mark.usefixtures("off_by_a_bit")
def test_a_run_finds_an_exact_codec_that_is_off_by_a_bit() -> None:
    verdict, detail = sum_is_right({"kind": "exact"})

    assert verdict == "fail"
    assert detail == "2 elements are not the exact sum of the contributions, first in step 0, bucket 0"


@pytest.mark.usefixtures("registered")
def test_the_loss_is_measured_against_all_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other element is held back, so half of the squares are missing."""
    monkeypatch.setattr(Rounded, "worker", lambda self, *rest: Half())
    monkeypatch.setattr(Rounded, "promise", Promise.BOUNDED)
    entry = entry_of(simulated({**SCENARIO, "codec": {"kind": "rounded"}}))
    metrics = entry["metrics"]
    (sums,) = [one for one in entry["checks"] if one["name"] == "sum_is_right"]

    assert sums["verdict"] == "pass"
    assert "of the codec's bound around the sum of the contributions" in sums["detail"]
    assert metrics["nmse"] == pytest.approx(0.5, abs=0.02)
    assert metrics["cosine"] == pytest.approx(np.sqrt(0.5), abs=0.02)
    assert metrics["max_abs_error"] > 1
    assert (metrics["uploads"], metrics["skips"]) == (6, 0)
    assert (metrics["bits_per_element_up"], metrics["bits_per_element_down"]) == (32, 32)


LARGEST = float(np.finfo(np.float32).max)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
near = st.sampled_from(
    [1.0, -1.0, 2.0**-24, -(2.0**-24), 2.0**-25, 3 * 2.0**-25, 2.0**-78, -(2.0**-149), 2.0**100]
)


def rounded(total: Fraction) -> np.float32:
    """The float32 next to a rational number, ties to even, from the distances to its neighbours."""
    if abs(total) >= Fraction(2) ** 128 - Fraction(2) ** 103:  # half a step beyond the largest
        return np.float32(np.inf if total > 0 else -np.inf)
    guess = np.float32(max(-LARGEST, min(LARGEST, float(total))))
    with np.errstate(over="ignore"):
        neighbours = [
            guess,
            np.nextafter(guess, np.float32(np.inf)),
            np.nextafter(guess, np.float32(-np.inf)),
        ]
    finite = [one for one in neighbours if np.isfinite(one)]
    return min(finite, key=lambda one: (abs(Fraction(float(one)) - total), int(one.view(np.int32)) & 1))


@examples(60)
@given(rows_of(floats | near, 9, 6))
def test_sums_are_exact_and_rounded_once(rows: list[list[float]]) -> None:
    gradients = [np.array(row, np.float32) for row in rows]

    sums = exact_sums(gradients)

    for element, values in enumerate(zip(*rows, strict=True)):
        total = sum(map(Fraction, values))
        assert rounded(total) == sums.rounded[element]
        assert float(total) == pytest.approx(
            sums.totals[element], rel=2.0**-40, abs=sum(map(abs, values)) * 2.0**-50
        )
        assert sums.is_member[element] == any(values)


def test_chunks_join() -> None:
    random = np.random.default_rng(0)
    gradients = [random.standard_normal(600_001).astype(np.float32) for _ in range(3)]
    wide = [gradient.astype(np.longdouble) for gradient in gradients]  # 64 bits hold these sums exactly

    sums = exact_sums(gradients)

    assert np.array_equal(sums.rounded, (wide[0] + wide[1] + wide[2]).astype(np.float32))
    assert sums.is_member.all()


ELEMENTS = 5000
SEEDS = range(2)
WORKERS = [3, 64]
U = 2.0**-24
Draw = Callable[[int, np.random.Generator], list[Gradient]]  # one gradient per worker


def half_steps(workers: int, random: np.random.Generator, block_elements: int = 256) -> list[Gradient]:
    """One value just below 1 per block, so that a step is n / 2^31; the others half way between two steps.

    Just above half way, as a tie may round either way: to the same side at all workers.
    """
    step = workers * 2.0**-31
    halves = (random.integers(0, 2**9, ELEMENTS) + 0.5 + 2.0**-14) * step
    halves[random.random(ELEMENTS) < 0.5] = 0
    halves[::block_elements] = 1 - U
    return [halves.astype(np.float32)] * workers


def absorbed(workers: int, random: np.random.Generator) -> list[Gradient]:
    """A power of two, then as much from every other worker as the sum just does not take: a tie to even."""
    large = np.ldexp(random.choice([-1.0, 1.0], ELEMENTS), random.integers(-20, 20, ELEMENTS))
    large[random.random(ELEMENTS) < 0.5] = 0
    return [large.astype(np.float32), *[(large * U).astype(np.float32)] * (workers - 1)]


def ties(workers: int, random: np.random.Generator) -> list[Gradient]:
    """Sums that lie half way between two float32."""
    gradients = [np.zeros(ELEMENTS, np.float32) for _ in range(workers)]
    gradients[0] += np.float32(1)
    gradients[-1] += np.float32(U)
    return gradients


def factor_halves(workers: int, random: np.random.Generator) -> list[Gradient]:
    """Half way between two integers, just above, at all workers."""
    halves = (random.integers(-50, 50, ELEMENTS) + 0.5 + 2.0**-10) / 1e6
    return [halves.astype(np.float32)] * workers


def worst_ratio(codec: Codec, rounds: Sequence[Sequence[Gradient]]) -> float:
    """Largest error over bound in the last of some rounds of the same encoders; sums by rank."""
    workers = len(rounds[0])
    encoders = [codec.worker(rank, workers, 0) for rank in range(workers)]
    for step, gradients in enumerate(rounds):
        notes: list[Note] = []
        decoded = fold(encoders, list(gradients), Round(step, 0, workers, 7, report=notes.append)).decoded[0]
    total = np.sum(rounds[-1], axis=0, dtype=np.float64)
    error, bound = np.abs(decoded - total), bound_of(codec, list(rounds[-1]))
    for note in notes:
        if note.kind is NoteKind.ESTIMATE:
            error[note.elements] = 0
    assert (error <= bound).all()
    return float(np.divide(error, bound, out=np.zeros(error.size), where=bound > 0).max())


HARD: dict[str, tuple[Codec, Draw]] = {
    "none": (Uncompressed(), absorbed),
    "packed float32": (Packed("float32"), absorbed),
    "block_sparse float32": (BlockSparse("float32"), absorbed),
    "fixed_point": (FixedPoint(), half_steps),
    "fixed_point factor": (FixedPoint(factor=1e6), factor_halves),
    "block_sparse bitmap": (BlockSparse(blocks="bitmap"), half_steps),
    "lossless": (Lossless(), half_steps),
    "lossless published": (
        Lossless(setting="published", values="block_exponent", ratio=1.0, index_bits=1),
        half_steps,
    ),
    "exact": (DenseExact(), ties),
    "lossless exact": (Lossless(values="exact"), ties),
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", HARD)
def test_a_bound_is_within_four_times_of_what_can_happen(name: str, workers: int) -> None:
    codec, draw = HARD[name]

    worst = max(worst_ratio(codec, [draw(workers, np.random.default_rng(seed))]) for seed in SEEDS)

    assert 0.25 <= worst <= 1


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(
    "codec", [Lossless(schedule="concurrent"), Auto(latency_us=1000.0)], ids=["lossless", "auto"]
)
def test_the_bound_of_a_forecast_too(codec: Codec, workers: int) -> None:
    """Values two bits smaller than before: the forecast, one larger, is the largest that will do."""

    def rounds(seed: int) -> list[list[Gradient]]:
        last = half_steps(workers, np.random.default_rng(seed), 4096)
        # Steps are 8 times as large as without a forecast: what lies between those is hard.
        step = 8 * workers * 2.0**-31
        kept = last[0] != 0
        kept[::4096] = False
        hard = last[0].copy()
        hard[kept] = ((np.random.default_rng(seed).integers(0, 2**9, ELEMENTS) + 0.5 + 2.0**-14) * step)[kept]
        return [[np.float32(4) * last[0]] * workers] * 3 + [[hard] * workers]

    worst = max(worst_ratio(codec, rounds(seed)) for seed in SEEDS)

    assert 0.25 <= worst <= 1


@pytest.mark.parametrize(
    ("codec", "elements", "density", "seed", "least"),
    [
        (Lossless(values="float32", load=0.81), 300_000, 0.3, 1, 0.25),
        # Near the load that just peels; a sixth of the bound takes 8 million elements.
        pytest.param(
            Lossless(setting="published", index_bits=1, ratio=10), 2_000_000, 0.078, 0, 1 / 32, marks=nightly
        ),
    ],
)
def test_the_measured_bound_of_a_float_sketch(
    codec: Codec, elements: int, density: float, seed: int, least: float
) -> None:
    """Values of one sign and size, half of each from both workers: counters are as full as can be.

    Long ways through the peeling order are rare, so this takes large gradients that were looked for.
    """
    random = np.random.default_rng(seed)
    total = np.where(random.random(elements) < density, 1 - random.random(elements) * 2.0**-10, 0)

    assert least <= worst_ratio(codec, [[(total / 2).astype(np.float32)] * 2]) <= 1


def sums(magnitude: float, total: float = 0.0) -> Sums:
    return Sums(0, np.array([total]), np.array([magnitude]))


@pytest.mark.parametrize("workers", [1, 2, 3, 64])
def test_float_additions_by_hand(workers: int) -> None:
    """(n − 1) · (u + v) · Σ|x| to a millionth; and the least denormal per addition where that is nothing."""
    (bound,) = FloatAddBound(workers).of(sums(3.0))
    (least,) = FloatAddBound(workers).of(sums(0.0))

    assert bound == pytest.approx((workers - 1) * 2.0**-24 * 3, rel=1e-6)
    assert bound >= (workers - 1) * (2.0**-24 + 2.0**-53) * 3
    assert least == (workers - 1) * 2.0**-149


@pytest.mark.parametrize(
    "bound", [FloatAddBound(2), RoundingBound(2), float_error_bound([np.ones(1, np.float32)] * 2, 0.9)]
)
def test_a_bound_is_never_infinite(bound: ErrorBound) -> None:
    """An infinite one would let any sum pass, where values that cancel leave float32 on the way too."""
    largest = float(np.finfo(np.float32).max)

    assert np.isfinite(bound.of(sums(2 * largest, total=largest)))
    assert np.isfinite(bound.of(sums(2 * largest, total=2 * largest)))


def test_bounds_of_parts_are_those_of_the_whole() -> None:
    """Blocks that end within a part and parts that end within a block; and a last block that is short."""
    random = np.random.default_rng(2)
    gradients = [random.standard_normal(2 * PART_ELEMENTS + 77).astype(np.float32) for _ in range(3)]
    gradients[0][:300] = 0
    for block_elements in (100, 256, 3 * PART_ELEMENTS):
        bound = FixedPoint(block_elements).error_bound(gradients)
        whole = whole_bound(bound, gradients)

        assert whole.size == gradients[0].size
        for element in (0, 99, 100, 299, 300, PART_ELEMENTS - 1, PART_ELEMENTS, whole.size - 1):
            column = [float(one[element]) for one in gradients]
            block = slice(
                element // block_elements * block_elements, (element // block_elements + 1) * block_elements
            )
            largest = max(float(np.abs(one[block]).max()) for one in gradients)
            exponent = np.frexp(largest)[1] if largest else -98
            half_steps = 3 * 0.5 * 3 * 2.0**exponent / 2**31
            by_hand = half_steps + 2.0**-24 * sum(map(abs, column)) + 2.0**-23 * abs(sum(column))
            assert whole[element] == pytest.approx(by_hand, rel=1e-5, abs=2.0**-148)


def test_workers_that_a_result_does_not_hold_do_not_count() -> None:
    gradients = [np.full(5, value, np.float32) for value in (1, 10, 100)]
    bitmaps = np.array([0b101, 0b010, 0], np.uint32)

    (part,) = sums_of_parts(gradients, bitmaps, unit_elements=2)

    assert part.total.tolist() == part.magnitude.tolist() == [101, 101, 10, 10, 0]
