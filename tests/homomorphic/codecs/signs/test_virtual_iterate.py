"""Marsit's virtual iterate: weights less the mean of what is held back are uncompressed SGD."""

from __future__ import annotations

import numpy as np
import pytest

from netfold.homomorphic.codec import Exchange
from netfold.homomorphic.codecs.signs.marsit import Marsit, MarsitEncoder
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Round, Step
from tests.homomorphic.codecs.signs.steps import RATE, stepped, team
from tests.reference.systems.marsit import MarsitTwin


def noisy(step: int, weights: np.ndarray, target: np.ndarray, workers: int) -> list[Gradient]:
    """Gradients of |x − target|² / 2, with heavy-tailed noise of each worker's own."""
    random = np.random.default_rng([11, step])
    noise = random.standard_t(4, (workers, target.size))
    return list((weights - target + 0.5 * noise).astype(np.float32))


def quadratic_twin(workers: int, **control: bool) -> float:
    """Largest distance of the twin's virtual iterate from uncompressed SGD, in 1,000 steps."""
    target = np.random.default_rng(5).standard_normal(40)
    model = MarsitTwin(np.zeros(40), workers, RATE, 0.02, every=100, seed=1, **control)
    sgd, worst = np.zeros(40), 0.0
    for step in range(1000):
        gradients = np.array(noisy(step, model.x, target, workers), np.float64)
        sgd -= RATE * gradients.mean(axis=0)
        model.step(gradients)
        worst = max(worst, float(np.abs(model.virtual - sgd).max()))
    return worst


def test_the_virtual_iterate_of_the_reference_is_uncompressed_sgd() -> None:
    assert quadratic_twin(5) < 1e-12
    assert quadratic_twin(5, flushes_residuals=False) > 1e-3  # the control
    assert quadratic_twin(5, compensates=False) > 1e-3


class Forgetful(MarsitEncoder):
    """The control: full precision does not include what is held back."""

    def _exchange_values(self, gradient: Gradient, held: Gradient | None, round: Round) -> Exchange:
        return super()._exchange_values(gradient, None, round)


@pytest.mark.parametrize(
    ("codec", "kind", "is_kept"),
    [
        (Marsit(), MarsitEncoder, True),
        (Marsit(eta_s=0.02), MarsitEncoder, True),
        (Marsit(values="block_exponent"), MarsitEncoder, True),
        (Marsit(), Forgetful, False),
        (Marsit(compensation=False), MarsitEncoder, False),
    ],
    ids=str,
)
def test_the_virtual_iterate_in_float32(codec: Marsit, kind: type[MarsitEncoder], is_kept: bool) -> None:
    """x − η · mean c follows SGD on the same gradients to 1e-5 · max|x|, over 1,000 steps with flushes."""
    workers, target = 5, np.random.default_rng(5).standard_normal(40)
    encoders = [kind(codec) for _ in range(workers)]
    weights, sgd, worst, largest = np.zeros(40, np.float32), np.zeros(40), 0.0, 0.0
    for step in range(1000):
        gradients = noisy(step, weights, target, workers)
        result = stepped(encoders, gradients, step).results[0]
        rate = np.float32(1) if result.is_update else np.float32(RATE / workers)
        weights = weights - rate * result.total
        sgd -= RATE * np.mean(gradients, axis=0, dtype=np.float64)
        held = [encoder._residuals.get(0, np.zeros(40)) for encoder in encoders]
        virtual = weights - RATE * np.mean(held, axis=0, dtype=np.float64)
        worst = max(worst, float(np.abs(virtual - sgd).max()))
        largest = max(largest, float(np.abs(weights).max()))
    assert (worst <= 1e-5 * largest) is is_kept
    if not is_kept:
        assert worst > 1e-3 * largest


def test_another_learning_rate_keeps_what_is_owed_in_weights() -> None:
    encoders = team(Marsit(every=0, eta_s=0.1), 2)
    gradients = [np.full(3, 2, np.float32), np.full(3, -1, np.float32)]
    stepped(encoders, gradients, 0, rate=0.5)
    before = [0.5 * encoder._residuals[0] for encoder in encoders]
    for encoder in encoders:
        encoder.begin(Step(1, 0.125))
    after = [0.125 * encoder._residuals[0] for encoder in encoders]
    assert np.allclose(before, after, rtol=1e-6)
