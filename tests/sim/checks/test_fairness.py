"""What fairness allows: probabilities of binomial tails, the union bound, and simulated honest runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from netfold.sim.checks.rounds.merges import fairness
from netfold.sim.checks.rounds.merges.fairness import Sums, allowed, allowed_over_rounds, worst
from netfold.sim.checks.rounds.merges.signs import Signs
from tests.examples import nightly
from tests.sim.checks.signs import chosen, correlated, examine, words_of


def log_tail(count: int, share: float, excess: float) -> float:
    """The logarithm of P(X − count · share ≥ excess) of a binomial X, exact but for float64."""
    first = math.ceil(count * share + excess - 1e-9)
    terms = [
        math.lgamma(count + 1)
        - math.lgamma(k + 1)
        - math.lgamma(count - k + 1)
        + k * math.log(share)
        + (count - k) * math.log1p(-share)
        for k in range(first, count + 1)
    ]
    if not terms:
        return -math.inf
    largest = max(terms)
    return largest + math.log(sum(math.exp(term - largest) for term in terms))


@pytest.mark.parametrize("level", [1.0, 5.0, 20.0, 45.0])
@pytest.mark.parametrize("share", [1 / 32, 1 / 3, 7 / 8])
@pytest.mark.parametrize("count", [1, 100, 3000])
def test_what_is_allowed_is_exceeded_as_rarely_as_it_must(count: int, share: float, level: float) -> None:
    """Against binomial tails; and in long messages at two thirds of it, no longer so rarely."""
    variance = count * share * (1 - share)
    excess = float(allowed(np.array([variance]), level)[0])

    assert log_tail(count, share, excess) <= -level
    if level >= 5 and variance > 20 * level:
        assert log_tail(count, share, excess * 2 / 3) > -level


@pytest.mark.parametrize("level", [5.0, 30.0])
def test_variances_that_are_not_known_have_shares_that_add_up(level: float) -> None:
    """Each grid point's level gives it a share of the false alarms; a variance is rounded up to its point."""
    points = np.exp2(np.arange(400) / 4)
    excess = allowed_over_rounds(points * (1 - 1e-9), level)
    levels = excess**2 / (2 * (points + excess / 3))  # what `allowed` solves

    assert np.exp(level - levels).sum() <= 1
    between = points[:-1] * 2 ** (1 / 8)
    assert np.allclose(allowed_over_rounds(between, level), excess[1:])
    assert allowed_over_rounds(np.array([0.0, 0.3, 1.0]), level) == pytest.approx([excess[0]] * 3)


@pytest.mark.parametrize("is_over_rounds", [False, True])
@pytest.mark.parametrize("stretches", [1, 2, 64])
def test_the_shares_of_all_statistics_add_up(
    stretches: int, is_over_rounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sides, each worker and the ones, each stretch of each division: together the share, and no more."""
    spent = []
    name = "allowed_over_rounds" if is_over_rounds else "allowed"
    original = getattr(fairness, name)

    def recording(variances: np.ndarray, level: float) -> np.ndarray:
        spent.append(variances.size * 6 * 2 * math.exp(-level))
        found: np.ndarray = original(variances, level)
        return found

    monkeypatch.setattr(fairness, name, recording)
    worst(Sums(np.zeros((stretches, 6)), np.full(stretches, 1e6)), 0.25, is_over_rounds)

    assert len(spent) == math.log2(stretches) + 1
    assert sum(spent) == pytest.approx(0.25 * fairness.FALSE_ALARMS)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("worker", [0, 1, 2])
def test_just_inside_and_just_outside(sign: int, worker: int) -> None:
    """Of one stretch; the last column is the ones."""
    variances = np.full(4, 1000.0)
    level = math.log(3 * 4 * 3 * 2) - math.log(0.5) - math.log(fairness.FALSE_ALARMS)
    limit = float(allowed(variances[:1], level)[0])
    deviations = np.zeros((4, 3))

    deviations[2, worker] = sign * limit * (1 - 1e-6)
    assert worst(Sums(deviations, variances), 0.5, is_over_rounds=False) is None
    deviations[2, worker] = sign * limit * (1 + 1e-6)
    found = worst(Sums(deviations, variances), 0.5, is_over_rounds=False)

    assert found is not None
    assert (found.worker, found.stretch, found.stretches) == (None if worker == 2 else worker, 2, 4)
    assert found.excess == deviations[2, worker]
    assert found.sigmas == pytest.approx(deviations[2, worker] / math.sqrt(1000))


def alarms(runs: int, rounds: int) -> int:
    """Honest runs with an alarm; what is sent depends on what was merged, as in training."""
    found = 0
    for run in range(runs):
        random = np.random.default_rng([7, run])
        workers, size = int(random.integers(2, 5)), int(random.integers(1, 9))
        signs, bias = Signs(), 0.5
        for step in range(rounds):
            bits = correlated(random, workers, size, agreement=0.3) ^ (random.random(32 * size) < bias)
            merged = chosen(random, bits)
            bias = float(merged.mean())
            examine(signs, list(words_of(bits)), [words_of(merged)] * workers, step)
        found += signs.first_unfair is not None
        assert signs.wrong_words == 0
    return found


@pytest.mark.parametrize(
    ("share", "runs", "least", "most"),
    [
        pytest.param(0.5, 200, 0, 100, marks=nightly),  # one in two may raise one if told so
        (None, 50, 0, 0),  # with the probability that is used none does
        (50, 20, 4, 20),  # allowed fifty each, many do
    ],
)
def test_honest_runs_raise_as_few_alarms_as_they_say(
    share: float | None, runs: int, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if share is not None:
        monkeypatch.setattr(fairness, "FALSE_ALARMS", share)

    assert least <= alarms(runs, 10) <= most
