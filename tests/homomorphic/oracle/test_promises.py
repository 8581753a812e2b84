"""Promises, and wrong twins that break each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import netfold
from netfold.homomorphic import codec as registry
from netfold.homomorphic.bounds import PART_ELEMENTS, Doubles, ErrorBound, FloatAddBound, Sums
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange, Promise, Variance
from netfold.homomorphic.codecs.dense.kinds import DenseExact
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.message import Gradient, Merge, Message
from netfold.homomorphic.oracle.promises import Drift, count_inexact, largest_bias
from netfold.homomorphic.round import Round
from netfold.testing import check_round
from tests.homomorphic.test_law_twins import Half

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
class Constant(Variance):
    value: float

    def of(self, sums: Sums) -> Doubles:
        return np.full(sums.total.size, self.value)


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


class Rounds(DenseExact):
    """Says exact, and its total is off by the last bit in one element."""

    __doc__ = DenseExact.__doc__

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:  # type: ignore[override]
        return OneBitOff(super().worker(rank, workers, seed))

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        return FloatAddBound(1000)  # so wide that only the promise can fail


class OneBitOff(Encoder):
    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        decoded = yield from self.encoder.exchange(gradient, round)
        decoded.total[7] = np.nextafter(decoded.total[7], np.float32(np.inf))
        return decoded


def test_an_exact_codec_that_is_off_by_a_bit_fails() -> None:
    with pytest.raises(AssertionError, match="1 sums are not exact"):
        check_round(Rounds(), GRADIENTS)


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
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    netfold.register(Rounded)


def sum_is_right(tmp_path: object, codec: dict[str, str]) -> tuple[str, str]:
    run = netfold.run({**SCENARIO, "codec": codec}, out=tmp_path)  # type: ignore[arg-type]
    checks = {one["name"]: one for one in run.summary["variants"][0]["checks"]}
    return checks["sum_is_right"]["verdict"], checks["sum_is_right"]["detail"]


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("wrong", "verdict", "words"),
    [
        ("", "pass", "; no bias: 4 sums of errors are at most 0."),
        ("towards zero", "fail", "totals are biased: the errors from element 0 of bucket 0 add up to"),
    ],
)
def test_a_run_holds_codecs_to_their_promise(tmp_path: object, wrong: str, verdict: str, words: str) -> None:
    found, detail = sum_is_right(tmp_path, {"kind": "rounded", "wrong": wrong})

    assert found == verdict
    assert words in detail


def test_a_run_finds_an_exact_codec_that_is_off_by_a_bit(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DenseExact, "worker", lambda self, *rest: OneBitOff(self.setting.encoder))
    monkeypatch.setattr(DenseExact, "error_bound", lambda self, gradients: FloatAddBound(1000))

    verdict, detail = sum_is_right(tmp_path, {"kind": "exact"})

    assert verdict == "fail"
    assert detail == "2 elements are not the exact sum of the contributions, first in step 0, bucket 0"


@pytest.mark.usefixtures("registered")
def test_the_loss_is_measured_against_all_gradients(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other element is held back, so half of the squares are missing."""
    monkeypatch.setattr(Rounded, "worker", lambda self, *rest: Half())
    monkeypatch.setattr(Rounded, "promise", Promise.BOUNDED)
    run = netfold.run({**SCENARIO, "codec": {"kind": "rounded"}}, out=tmp_path)  # type: ignore[arg-type]
    metrics = run.summary["variants"][0]["metrics"]
    (sums,) = [one for one in run.summary["variants"][0]["checks"] if one["name"] == "sum_is_right"]

    assert sums["verdict"] == "pass"
    assert "of the codec's bound around the sum of the contributions" in sums["detail"]
    assert metrics["nmse"] == pytest.approx(0.5, abs=0.02)
    assert metrics["cosine"] == pytest.approx(np.sqrt(0.5), abs=0.02)
    assert metrics["max_abs_error"] > 1
    assert (metrics["uploads"], metrics["skips"]) == (6, 0)
    assert (metrics["bits_per_element_up"], metrics["bits_per_element_down"]) == (32, 32)
