"""Error bounds are never passed and nearly reached: by gradients that are as hard as each bound allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from netfold.homomorphic.bounds import (
    PART_ELEMENTS,
    ErrorBound,
    FloatAddBound,
    RoundingBound,
    Sums,
    sums_of_parts,
    whole_bound,
)
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs.auto.codec import Auto
from netfold.homomorphic.codecs.dense.kinds import DenseExact, FixedPoint, Uncompressed
from netfold.homomorphic.codecs.sketched.lossless import Lossless
from netfold.homomorphic.codecs.sparse.block_sparse import BlockSparse
from netfold.homomorphic.codecs.sparse.packed import Packed
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Note, NoteKind, Round
from netfold.homomorphic.sketch.released import float_error_bound
from tests.examples import nightly
from tests.homomorphic.gradients import bound_of

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
    """(n − 1) · u · Σ|x| to a millionth; and the smallest denormal per addition where that is nothing."""
    (bound,) = FloatAddBound(workers).of(sums(3.0))
    (least,) = FloatAddBound(workers).of(sums(0.0))

    assert bound == pytest.approx((workers - 1) * 2.0**-24 * 3, rel=1e-6)
    assert bound >= (workers - 1) * 2.0**-24 * 3
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
