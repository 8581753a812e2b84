"""Error bounds are never passed and nearly reached: by gradients that are as hard as each bound allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from homomorphic.auto import Auto
from homomorphic.block_sparse import BlockSparse
from homomorphic.codec import Codec, Gradient, Note, NoteKind, Round
from homomorphic.dense import DenseExact
from homomorphic.fixed_point import FixedPoint
from homomorphic.fold import fold
from homomorphic.lossless import Lossless
from homomorphic.none import Uncompressed
from homomorphic.packed import Packed
from tests.homomorphic.gradients import bound_of

ELEMENTS = 5000
SEEDS = range(4)
WORKERS = [2, 3, 8, 64]
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
        decoded = fold(encoders, list(gradients), Round(step, 0, workers, 7, tell=notes.append)).decoded[0]
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
    "packed": (Packed(), half_steps),
    "block_sparse bitmap": (BlockSparse(blocks="bitmap"), half_steps),
    "lossless": (Lossless(), half_steps),
    "lossless rotated": (Lossless(setting="rotated"), half_steps),
    "lossless published": (
        Lossless(setting="published", values="block_exponent", ratio=1.0, index_bits=1),
        half_steps,
    ),
    "exact": (DenseExact(), ties),
    "packed exact": (Packed("exact"), ties),
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


SKETCHES = {
    "load 0.81": (Lossless(values="float32", load=0.81), 300_000, 0.3, 1),
    "load 0.77": (Lossless(values="float32"), 1_000_000, 0.3, 0),
    "published": (Lossless(setting="published", index_bits=1, ratio=10), 2_000_000, 0.07, 0),
}


@pytest.mark.parametrize("name", SKETCHES)
def test_the_measured_bound_of_a_float_sketch(name: str) -> None:
    """Values of one sign and size, half of each from both workers: counters are as full as can be.

    Long ways through the peeling order are rare, so this takes large gradients that were looked for.
    """
    codec, elements, density, seed = SKETCHES[name]
    random = np.random.default_rng(seed)
    total = np.where(random.random(elements) < density, 1 - random.random(elements) * 2.0**-10, 0)

    worst = worst_ratio(codec, [[(total / 2).astype(np.float32)] * 2])

    assert 0.25 <= worst <= 1
