"""Models learn: to scores that other implementations reached, or that beat a closed form; lossy codecs, too.

Means over five seeds of the loss in the last steps, relative to float32's, are in docs/systems/marsit.md:
1.02, 1.71 and 5.5. CI has one short training of each sort, all others run at night.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs.dense.kinds import Uncompressed
from netfold.homomorphic.codecs.signs.cascaded_sign import CascadedSign
from netfold.homomorphic.codecs.signs.marsit import Marsit
from netfold.homomorphic.codecs.sparse.topk import TopK
from netfold.homomorphic.fold import fold
from netfold.homomorphic.round import Round, Step
from netfold.sim.workload import TrainingSpec, Workload, training_workload
from netfold.sim.workload.training.data.text import load_characters, load_words
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.models.text.bert import BertQa
from netfold.sim.workload.training.models.text.gpt import Gpt
from netfold.sim.workload.training.models.text.lstm import LstmBillion, LstmModel
from netfold.sim.workload.training.optimizers.adam import Adam
from netfold.sim.workload.training.optimizers.sgd import Sgd
from tests.examples import nightly
from tests.sim.workload.training.loop.given import totals, train

WORKERS, LAST = 8, 10
ADAM, MOMENTUM = Recipe(Adam()), Recipe(Sgd(0.9))
DIGITS = TrainingSpec("mlp", 16, 0.1, recipe=MOMENTUM, test_every=1000)
FILMS = TrainingSpec("ncf", 320, 0.002, recipe=ADAM, test_every=1000)
MNIST = TrainingSpec("mlp_784", 64, 0.5, data="mnist-5k", test_every=1000)


@pytest.mark.parametrize(
    ("spec", "steps", "least"),
    [
        (DIGITS, 50, 0.926),  # of another implementation 93.6 % and 96.7 %, less one point
        pytest.param(DIGITS, 150, 0.957, marks=nightly),
        pytest.param(FILMS, 200, 0.477, marks=nightly),  # 48.7 % and 59.6 %
        pytest.param(FILMS, 400, 0.586, marks=nightly),
        pytest.param(MNIST, 150, 0.9, marks=nightly),
    ],
    ids=lambda one: one.model if isinstance(one, TrainingSpec) else None,
)
def test_scores_of_other_implementations_are_reached(spec: TrainingSpec, steps: int, least: float) -> None:
    workload = training_workload(spec, WORKERS, 1)
    train(workload, range(steps))
    score = workload.score(steps - 1, is_last=True)

    assert score is not None
    assert score.value >= least


@nightly
@pytest.mark.parametrize(
    ("model", "batch", "workers", "rate", "steps", "share"),
    [
        (LstmModel(vocabulary=500, embedding=32, hidden=64, bptt=16), 16, 2, 0.01, 120, 0.85),
        (Gpt(context=32, layers=1, heads=2, width=48, dropout=0.0), 16, 2, 0.01, 120, 0.85),
        # 100 of 2000 words are sampled; the test is over all
        (LstmBillion(vocabulary=2000, embedding=32, hidden=64, samples=100, bptt=16), 16, 2, 0.01, 120, 1.0),
        (LstmModel(), 4, 8, 0.002, 200, 1.0),  # 100 s on one core
    ],
    ids=["lstm", "gpt", "sampled", "lstm of 10,000 words"],
)
def test_language_models_do_better_than_frequencies(
    model: LstmModel | LstmBillion | Gpt, batch: int, workers: int, rate: float, steps: int, share: float
) -> None:
    """The perplexity of a text by its own frequencies is e to their entropy."""
    load = load_characters if isinstance(model, Gpt) else load_words
    tokens = load(model.data[0].name, model.vocabulary).numbers
    shares = np.bincount(tokens) / len(tokens)
    shares = shares[shares > 0]
    workload = training_workload(TrainingSpec(model, batch, rate, recipe=ADAM, test_every=1000), workers, 1)
    before = workload.score(0, is_last=True)
    train(workload, range(steps))
    after = workload.score(steps - 1, is_last=True)

    assert before is not None
    assert after is not None
    assert before.value == pytest.approx(model.vocabulary, rel=0.15)
    assert after.value < share * math.exp(-(shares * np.log(shares)).sum())


@nightly
def test_answers_to_the_same_questions_are_learned() -> None:
    sizes = {"vocabulary": 1200, "sequence": 32, "positions": 32, "layers": 2, "heads": 2}
    model = BertQa.model_validate({**sizes, "width": 32, "inner": 64, "dropout": 0.0})
    workload = training_workload(TrainingSpec(model, 8, 0.003, recipe=ADAM), 1, 1)
    losses = []
    for _ in range(60):
        found = totals(workload, 0)
        losses.append(workload.loss)
        workload.apply(0, found)

    assert losses[0] == pytest.approx(math.log(32), rel=0.05)
    assert losses[-1] is not None
    assert losses[-1] < 0.3


def last_losses(codec: Codec, seeds: Sequence[int], steps: int, workers: int = WORKERS) -> np.ndarray:
    """Mean training loss of the last steps of the digits model, for every seed."""
    return np.array([np.mean(_losses(codec, seed, steps, workers)[-LAST:]) for seed in seeds])


def _losses(codec: Codec, seed: int, steps: int, workers: int) -> list[float]:
    spec = TrainingSpec("mlp", 16, 0.2)
    workload: Workload = training_workload(spec, workers, seed)
    encoders = [codec.worker(rank, workers, seed) for rank in range(workers)]
    losses = []
    for step in range(steps):
        gradients = workload.gradients(step)
        losses.append(workload.loss or math.nan)
        for encoder in encoders:
            encoder.begin(Step(step, spec.learning_rate))
        results = [
            fold(encoders, [own[index] for own in gradients], Round(step, index, workers, seed)).results[0]
            for index in range(len(workload.buckets))
        ]
        workload.apply(step, [one.total for one in results], [one.is_update for one in results])
    return losses


def test_feedback_and_compensation_make_a_difference_from_the_start() -> None:
    """Of a short training: what is sent trains less the more it loses."""
    codecs = Uncompressed(), TopK(0.01), TopK(0.01, feedback=False), CascadedSign()
    dense, kept, lost, signs = (last_losses(codec, [2], 60, workers=4)[0] for codec in codecs)

    assert dense < 0.9 < kept < 1.3
    assert min(lost, signs) > 1.7


@nightly
def test_one_percent_trains_as_dense_gradients_do_with_feedback_only() -> None:
    """Means of five seeds: within 10 % of the dense loss with feedback, more than double without."""
    codecs = Uncompressed(), TopK(0.01), TopK(0.01, feedback=False)
    dense, kept, lost = (last_losses(codec, range(1, 6), 200) for codec in codecs)

    assert dense.mean() < 0.25
    assert abs(kept.mean() / dense.mean() - 1) < 0.1
    assert (lost > 2 * dense).all()


@nightly
def test_compensated_signs_train_as_floats_do_and_others_do_not() -> None:
    codecs = Uncompressed(), Marsit(), Marsit(compensation=False), CascadedSign()
    floats, one_bit, plain, cascaded = (last_losses(codec, range(1, 6), 300).mean() for codec in codecs)

    assert floats < 0.25
    assert one_bit <= 1.1 * floats
    assert plain >= 1.5 * floats
    assert cascaded >= 2 * floats
