"""Models learn: they reach scores that another implementation reached, or beat a closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from netfold.sim.workload.training.data.text import load_characters, load_words
from netfold.sim.workload.training.models.ncf import Ncf
from netfold.sim.workload.training.models.perceptrons import Mlp
from netfold.sim.workload.training.models.spec import Model, TaskSettings
from netfold.sim.workload.training.models.text.bert import BertQa
from netfold.sim.workload.training.models.text.gpt import Gpt
from netfold.sim.workload.training.models.text.lstm import LstmBillion, LstmModel
from netfold.sim.workload.training.tasks.task import Task
from netfold.sim.workload.training.workload import one_thread
from tests.examples import nightly
from tests.sim.workload.training.text.given import Step, adam, module_of, momentum, task_of, train


def scores(task: Task, step: Step, workers: int, stops: list[int]) -> list[float]:
    """Scores after so many steps."""
    module, found, before = module_of(task), [], 0
    for stop in stops:
        train(task, module, workers, range(before, stop), step)
        with one_thread():
            score = task.score(module)
        assert score is not None
        found.append(score.value)
        before = stop
    return found


def unigram(tokens: np.ndarray, vocabulary: int) -> float:
    """The perplexity of a text by its own frequencies: e to their entropy."""
    shares = np.bincount(tokens, minlength=vocabulary) / len(tokens)
    shares = shares[shares > 0]
    return math.exp(-(shares * np.log(shares)).sum())


def test_the_perceptron_knows_most_digits() -> None:
    """Accuracies of another implementation of the same training: 93.6 % and 96.7 %, less one point."""
    task = Mlp().task(TaskSettings("digits", 16, 8, 1, True))
    early, late = scores(task, momentum(0.1, 0.9), 8, [50, 150])

    assert early >= 0.926
    assert late >= 0.957


@nightly
def test_the_recommender_finds_films() -> None:
    """HR@10 of another implementation: 48.7 % and 59.6 %, less one point; 15 s on one core."""
    task = Ncf().task(TaskSettings("movielens-100k", 320, 8, 1, True))
    early, late = scores(task, adam(0.002), 8, [200, 400])

    assert early >= 0.477
    assert late >= 0.586


SMALL_LSTM = LstmModel(vocabulary=500, embedding=32, hidden=64, bptt=16)
SMALL_GPT = Gpt(context=32, layers=1, heads=2, width=48, dropout=0.0)


@pytest.mark.parametrize(("model", "steps"), [(SMALL_LSTM, 120), (SMALL_GPT, 120)], ids=["lstm", "gpt"])
def test_language_models_do_better_than_frequencies(model: LstmModel | Gpt, steps: int) -> None:
    load = load_words if isinstance(model, LstmModel) else load_characters
    tokens = load(model.data[0].name, model.vocabulary).numbers
    before, after = scores(task_of(model, 16, 2, holds_out=True), adam(0.01), 2, [0, steps])

    assert before == pytest.approx(model.vocabulary, rel=0.15)
    assert after < 0.85 * unigram(tokens, model.vocabulary)


@nightly
def test_the_lstm_does_better_than_frequencies() -> None:
    """In 200 steps of 8 workers; 100 s on one core."""
    model = LstmModel()
    tokens = load_words("shakespeare-kjv", model.vocabulary).numbers
    (after,) = scores(task_of(model, 4, 8, holds_out=True), adam(0.002), 8, [200])

    assert after < unigram(tokens, model.vocabulary)


def test_a_sampled_softmax_learns_the_whole_one() -> None:
    """Of 2000 words 100 are sampled; the test is over all."""
    model = LstmBillion(vocabulary=2000, embedding=32, hidden=64, samples=100, bptt=16)
    tokens = load_words(model.data[0].name, model.vocabulary).numbers
    (after,) = scores(task_of(model, 16, 2, holds_out=True), adam(0.01), 2, [120])

    assert after < unigram(tokens, model.vocabulary)


TINY_BERT = BertQa(
    vocabulary=1200, sequence=32, positions=32, layers=2, heads=2, width=32, inner=64, dropout=0.0
)


@pytest.mark.parametrize("model", [TINY_BERT], ids=["bert"])
def test_answers_to_the_same_questions_are_learned(model: Model) -> None:
    task = task_of(model, 8, 1)
    losses = train(task, module_of(task), 1, range(60), adam(0.003), is_same=True)

    assert losses[0] == pytest.approx(math.log(32), rel=0.05)
    assert losses[-1] < 0.3
