"""Virtual workers against backward passes written out by hand; models learn.

To scores that other implementations reached, or that beat a closed form; lossy codecs, too: means over five
seeds of the loss in the last steps, relative to float32's, are in docs/systems/marsit.md: 1.02, 1.71 and 5.5.
CI has one short training of each sort, all others run at night.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs.cascaded_sign import CascadedSign
from netfold.homomorphic.codecs.marsit import Marsit
from netfold.homomorphic.codecs.none import Uncompressed
from netfold.homomorphic.codecs.topk import TopK
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Round, Step
from netfold.sim.workload.data_readers import Digits, load_characters, load_words
from netfold.sim.workload.fusion import ONE_BUCKET, AsGiven, BySize, Fusion, NoFusion
from netfold.sim.workload.model import TaskSettings
from netfold.sim.workload.models.bert import BertQa
from netfold.sim.workload.models.gpt import Gpt
from netfold.sim.workload.models.lstm import LstmBillion, LstmModel
from netfold.sim.workload.optimizers import Adam, Sgd
from netfold.sim.workload.training import TrainingWorkload
from netfold.sim.workload.training_keys import Recipe
from netfold.sim.workload.workload_keys import Evaluate, Training
from tests.examples import nightly
from tests.sim.workload.given import by_name, bytes_of, images_task, totals, train, weights_of

ORDER = ["2.bias", "2.weight", "0.bias", "0.weight"]  # back to front, bias before weight


def mlp_gradient(
    weights: dict[str, NDArray[np.float64]], images: NDArray[np.float64], labels: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Gradient of the mean cross entropy of the 64-128-10 perceptron, by the chain rule."""
    hidden = np.maximum(images @ weights["0.weight"].T + weights["0.bias"], 0)
    logits = hidden @ weights["2.weight"].T + weights["2.bias"]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1
    at_logits = shares / len(labels)
    at_hidden = (at_logits @ weights["2.weight"]) * (hidden > 0)
    return {
        "2.bias": at_logits.sum(axis=0),
        "2.weight": at_logits.T @ hidden,
        "0.bias": at_hidden.sum(axis=0),
        "0.weight": at_hidden.T @ images,
    }


def test_one_step_of_sgd_by_hand(digits: Digits) -> None:
    task = images_task(digits, TaskSettings("digits", batch=16, workers=3, seed=7))
    workload = TrainingWorkload(task, 3, learning_rate=0.5, fusion=BySize(2**20), seed=7)
    before = {name: weights.astype(np.float64) for name, weights in weights_of(workload).items()}
    assert workload.loss is None
    gradients = workload.gradients(4)
    by_hand, losses = [], []
    for worker in range(3):
        (images,), labels = task.samples(4, worker)
        losses.append(task.loss(workload.model(images), labels).item())
        by_hand.append(mlp_gradient(before, images.numpy().astype(np.float64), labels.numpy()))
        expected = np.concatenate([by_hand[worker][name].ravel() for name in ORDER])

        np.testing.assert_allclose(np.concatenate(gradients[worker]), expected, rtol=1e-4, atol=1e-7)

    assert workload.loss == pytest.approx(np.mean(losses))
    workload.apply(4, [np.sum(parts, axis=0) for parts in zip(*gradients, strict=True)])
    for name, weights in weights_of(workload).items():
        moved = before[name] - 0.5 / 3 * sum(gradient[name] for gradient in by_hand)

        np.testing.assert_allclose(weights, moved, rtol=1e-5, atol=1e-7)


WORKERS, LAST = 8, 10
ADAM, MOMENTUM = Recipe(optimizer=Adam()), Recipe(optimizer=Sgd(0.9))
DIGITS = Training("mlp", batch=16, learning_rate=0.1, optimizer=MOMENTUM.optimizer, evaluate=Evaluate(1000))
FILMS = Training("ncf", batch=320, learning_rate=0.002, optimizer=ADAM.optimizer, evaluate=Evaluate(1000))
MNIST = Training("mlp_784", batch=64, learning_rate=0.5, data="mnist-5k", evaluate=Evaluate(1000))


@pytest.mark.parametrize(
    ("spec", "steps", "least"),
    [
        (DIGITS, 50, 0.926),  # of another implementation 93.6 % and 96.7 %, less one point
        pytest.param(DIGITS, 150, 0.957, marks=nightly),
        pytest.param(FILMS, 200, 0.477, marks=nightly),  # 48.7 % and 59.6 %
        pytest.param(FILMS, 400, 0.586, marks=nightly),
        pytest.param(MNIST, 150, 0.9, marks=nightly),
    ],
    ids=lambda one: one.model if isinstance(one, Training) else None,
)
def test_scores_of_other_implementations_are_reached(spec: Training, steps: int, least: float) -> None:
    workload = spec.workload(WORKERS, 1)
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
    workload = Training(
        model, batch=batch, learning_rate=rate, optimizer=ADAM.optimizer, evaluate=Evaluate(1000)
    ).workload(workers, 1)
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
    model = BertQa(**sizes, width=32, inner=64, dropout=0.0)
    workload = Training(model, batch=8, learning_rate=0.003, optimizer=ADAM.optimizer).workload(1, 1)
    losses = []
    for _ in range(60):
        found = totals(workload, 0)
        losses.append(workload.loss)
        workload.apply(0, found)

    assert losses[0] == pytest.approx(math.log(32), rel=0.05)
    assert losses[-1] is not None
    assert losses[-1] < 0.3


def last_loss(codec: Codec, seed: int, steps: int, workers: int = WORKERS) -> float:
    """Mean training loss of the last steps of the digits model."""
    workload = Training("mlp", batch=16, learning_rate=0.2).workload(workers, seed)
    encoders = [codec.worker(rank, workers, seed) for rank in range(workers)]
    losses = []
    for step in range(steps):
        gradients = workload.gradients(step)
        losses.append(workload.loss or math.nan)
        for encoder in encoders:
            encoder.begin(Step(step, 0.2))
        results = [
            fold(encoders, [own[index] for own in gradients], Round(step, index, workers, seed)).results[0]
            for index in range(len(workload.buckets))
        ]
        workload.apply(step, [one.total for one in results], [one.is_update for one in results])
    return float(np.mean(losses[-LAST:]))


def of_five_seeds(steps: int, *codecs: Codec) -> NDArray[np.float64]:
    """The last losses of each codec."""
    return np.array([[last_loss(codec, seed, steps) for seed in range(1, 6)] for codec in codecs])


def test_feedback_and_compensation_make_a_difference_from_the_start() -> None:
    """Of a short training: what is sent trains less the more it loses."""
    codecs = Uncompressed(), TopK(0.01), TopK(0.01, feedback=False), CascadedSign()
    dense, kept, lost, signs = (last_loss(codec, 2, 60, workers=4) for codec in codecs)

    assert dense < 0.9 < kept < 1.3
    assert min(lost, signs) > 1.7


@nightly
def test_one_percent_trains_as_dense_gradients_do_with_feedback_only() -> None:
    """Means of five seeds: within 10 % of the dense loss with feedback, more than double without."""
    dense, kept, lost = of_five_seeds(200, Uncompressed(), TopK(0.01), TopK(0.01, feedback=False))

    assert dense.mean() < 0.25
    assert abs(kept.mean() / dense.mean() - 1) < 0.1
    assert (lost > 2 * dense).all()


@nightly
def test_compensated_signs_train_as_floats_do_and_others_do_not() -> None:
    codecs = Uncompressed(), Marsit(), Marsit(compensation=False), CascadedSign()
    floats, one_bit, plain, cascaded = of_five_seeds(300, *codecs).mean(axis=1)

    assert floats < 0.25
    assert one_bit <= 1.1 * floats
    assert plain >= 1.5 * floats
    assert cascaded >= 2 * floats


RATE, FACTS_WORKERS = 0.3, 3


def made(digits: Digits, fusion: Fusion = NoFusion(), recipe: Recipe = Recipe()) -> TrainingWorkload:
    task = images_task(digits, TaskSettings("digits", 16, FACTS_WORKERS, 7))
    return TrainingWorkload(task, FACTS_WORKERS, RATE, fusion, 7, recipe=recipe)


@pytest.mark.parametrize("fusion", [NoFusion(), ONE_BUCKET])
def test_gradients_at_kept_weights_are_those_of_a_model_with_these_weights(
    digits: Digits, fusion: Fusion
) -> None:
    """Workers keep at different steps; the batch is that of the step, the weights those of the keeping."""
    workload, other = made(digits, fusion), made(digits, fusion)
    kept: dict[int, dict[str, Any]] = {}
    for step in range(4):
        for worker in {0: (0, 1, 2), 2: (1,)}.get(step, ()):
            workload.keep_weights(worker)
            kept[worker] = {"weights": {name: one.ravel() for name, one in weights_of(workload).items()}}
        before = [[part.tobytes() for part in parts] for parts in workload.gradients(step)]
        model = bytes_of(workload)
        for worker in range(FACTS_WORKERS):
            found = workload.kept_gradients(step, worker)
            other.restore({**other.state(), **kept[worker]})
            expected = other.gradients(step)[worker]
            assert [part.tobytes() for part in found] == [part.tobytes() for part in expected]
            assert [part.shape for part in found] == [(bucket.elements,) for bucket in workload.buckets]
        assert [[part.tobytes() for part in parts] for parts in workload.gradients(step)] == before
        assert bytes_of(workload) == model
        train(workload, range(step, step + 1))


def test_workers_that_keep_nothing_are_told(digits: Digits) -> None:
    """After a restart nobody has kept anything, and weights are those of the start, whatever was restored."""
    workload, other = made(digits), made(digits)
    start = bytes_of(workload)
    workload.keep_weights(0)

    with pytest.raises(RuntimeError, match="worker 1 has kept no weights: call keep_weights before"):
        workload.kept_gradients(0, 1)
    train(workload, range(3))
    other.restore(workload.state())
    for one in (workload, other):
        one.restart()
        with pytest.raises(RuntimeError, match="worker 0 has kept no weights"):
            one.kept_gradients(0, 0)
        assert bytes_of(one) == start


def distance(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """L2, in float64."""
    return math.sqrt(math.fsum(((before[name].astype(float) - after[name]) ** 2).sum() for name in after))


@pytest.mark.parametrize("recipe", [Recipe(), ADAM])
def test_the_norm_of_an_update_is_the_distance_that_weights_move(digits: Digits, recipe: Recipe) -> None:
    workload = made(digits, recipe=recipe)
    assert (workload.update_norm, workload.learning_rate, workload.next_step) == (None, RATE, 0)
    for step in range(3):
        before = weights_of(workload)
        workload.apply(step, totals(workload, step))

        assert workload.update_norm == pytest.approx(distance(before, weights_of(workload)), rel=1e-14)
        assert workload.next_step == step + 1
    workload.restart()
    assert (workload.update_norm, workload.next_step) == (None, 0)


@pytest.mark.parametrize("recipe", [Recipe(), ADAM])
def test_updates_are_subtracted_as_they_are_and_sums_as_ever(digits: Digits, recipe: Recipe) -> None:
    """They pass the optimizer by, which remembers nothing of them."""
    workload, plain = (made(digits, recipe=recipe) for _ in range(2))
    found = totals(workload, 0)
    before = weights_of(workload)
    workload.apply(0, found, [False, True])
    plain.apply(0, found)
    after, alone = weights_of(workload), weights_of(plain)
    names, updated = ([tensor.name for tensor in bucket.tensors] for bucket in workload.buckets)

    assert [after[name].tobytes() for name in names] == [alone[name].tobytes() for name in names]
    updates = by_name(workload, found)
    for name in updated:
        assert after[name].tobytes() == (before[name] - updates[name]).tobytes()
    moved = distance(before, {name: after[name] for name in names})
    update = np.linalg.norm(found[1].astype(np.float64))
    assert workload.update_norm == pytest.approx(math.hypot(moved, update), rel=1e-14)
    kept = {name for name, own in workload.state()["optimizer"].items() if own}
    assert kept == ({*names} if recipe == ADAM else set())


@pytest.mark.parametrize("fusion", [NoFusion(), AsGiven((("2", "0"),))])
def test_weights_that_workers_keep_outlive_a_stop(digits: Digits, fusion: Fusion) -> None:
    """In a new workload, which may even have other buckets."""

    def kept(workload: TrainingWorkload) -> list[dict[str, bytes]]:
        every = (by_name(workload, workload.kept_gradients(9, worker)) for worker in (0, 2))
        return [{name: part.tobytes() for name, part in one.items()} for one in every]

    first, resumed = made(digits), made(digits, fusion)
    for step in range(5):
        if step in (0, 3):
            first.keep_weights(2 if step else 0)
        first.apply(step, totals(first, step))
    resumed.restore(first.state())

    assert (resumed.next_step, bytes_of(resumed)) == (5, bytes_of(first))
    assert kept(resumed) == kept(first)


def test_workers_that_keep_the_same_share_a_copy(digits: Digits) -> None:
    workload = made(digits)
    for worker in range(FACTS_WORKERS):
        workload.keep_weights(worker)
    assert len({id(one) for one in workload.state()["kept"].values()}) == 1
    train(workload, range(1))
    workload.keep_weights(1)

    kept = workload.state()["kept"]
    assert kept[0] is kept[2]
    assert kept[0] is not kept[1]
