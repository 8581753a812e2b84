"""Held-out data: nobody is trained on it, and what a model scores on it, against plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.draws import keyed, shards
from netfold.sim.workload.training.data.images import Digits
from netfold.sim.workload.training.data.ratings import Ratings
from netfold.sim.workload.training.models.perceptrons import Mlp
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.tasks.images import ImagesTask
from netfold.sim.workload.training.tasks.recommender import RecommenderTask
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.examples import examples
from tests.sim.workload.training.loop.given import totals, train

SAMPLES, WORKERS, BATCH, STEPS = 60, 3, 20, 40


class Spy(nn.Module):
    """A model that answers as it is told, and remembers what it was asked."""

    def __init__(self, answer: Callable[..., Tensor]) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[tuple[Tensor, ...]] = []

    def forward(self, *inputs: Tensor) -> Tensor:
        self.asked.append(inputs)
        return self.answer(*inputs)


def settings(workers: int, seed: int, holds_out: bool = True) -> TaskSettings:
    return TaskSettings("digits", BATCH, workers, seed, holds_out)


def numbered_digits(labels: NDArray[np.int64] | None = None) -> Digits:
    """Images whose first pixel is their number."""
    images = np.zeros((SAMPLES, 64), np.float32)
    images[:, 0] = np.arange(SAMPLES)
    return Digits(images, np.arange(SAMPLES) % 10 if labels is None else labels)


def held_out_digits(workers: int, seed: int) -> set[int]:
    spy = Spy(lambda images: torch.zeros(len(images), 10))
    ImagesTask(numbered_digits(), Mlp().module, settings(workers, seed)).score(spy)
    return {int(number) for (images,) in spy.asked for number in images[:, 0]}


Seen = Callable[[int, int], list[int]]  # the samples of a step and worker


def digits_seen(holds_out: bool = False) -> Seen:
    task = ImagesTask(numbered_digits(), Mlp().module, settings(WORKERS, 1, holds_out))
    return lambda step, worker: [int(one) for one in task.samples(step, worker)[0][0][:, 0]]


def ratings_seen() -> Seen:
    """Every user has rated one item, that of its own number."""
    numbers = np.arange(SAMPLES)
    task = RecommenderTask(Ratings(numbers, numbers, numbers, SAMPLES, SAMPLES), (1, 1), BATCH, WORKERS, 1)
    return lambda step, worker: [int(one) for one in task.samples(step, worker)[0][0]]


@pytest.mark.parametrize("seen", [digits_seen, ratings_seen])
def test_workers_share_the_samples_without_overlap(seen: Callable[[], Seen]) -> None:
    """Every step and worker has a batch of its own."""
    samples = seen()
    batches = [[tuple(samples(step, worker)) for step in range(STEPS)] for worker in range(WORKERS)]
    own = [{one for batch in found for one in batch} for found in batches]

    # A sample of 20 that is never among STEPS · 4 draws or more has odds of 0.95^160, 0.03 %.
    assert [len(one) for one in own] == [SAMPLES // WORKERS] * WORKERS
    assert set.union(*own) == set(range(SAMPLES))
    assert len({batch for found in batches for batch in found}) == STEPS * WORKERS


def test_no_worker_draws_a_digit_that_is_tested() -> None:
    """An image of 16 that is never among 800 drawn ones: less than once in 10 to the 21."""
    samples = digits_seen(holds_out=True)
    own = [{one for step in range(STEPS) for one in samples(step, worker)} for worker in range(WORKERS)]
    tested = held_out_digits(WORKERS, 1)

    assert len(tested) == SAMPLES // 5
    assert tested == held_out_digits(8, 1) == held_out_digits(3, 2)  # for all seeds and workers
    assert sum(map(len, own)) + len(tested) == SAMPLES
    assert set().union(*own) | tested == set(range(SAMPLES))


def test_without_tests_all_digits_are_trained_on_as_ever() -> None:
    task = ImagesTask(numbered_digits(), Mlp().module, settings(WORKERS, 7, holds_out=False))
    for worker, shard in enumerate(shards(SAMPLES, WORKERS, 7)):
        expected = keyed(7, "batch", 2, worker).choice(shard, BATCH)
        assert expected.tolist() == task.samples(2, worker)[0][0][:, 0].tolist()

    assert task.score(Spy(lambda images: torch.zeros(len(images), 10))) is None


@pytest.mark.parametrize("data", ["digits", "mnist-5k"])
def test_accuracy_is_that_of_numpy(data: str, large_digits: Digits, mnist: Digits) -> None:
    spec = TrainingSpec("mlp_784", batch=16, learning_rate=0.1, data=data, test_every=20)
    workload = training_workload(spec, workers=2, seed=3)
    train(workload, range(20))
    score = workload.score(19, is_last=False)
    assert isinstance(workload, TrainingWorkload)
    weights = {name: one.detach().numpy().astype(float) for name, one in workload.model.named_parameters()}

    images, labels = large_digits if data == "digits" else mnist
    tested = keyed(0, "held-out digits").permutation(len(labels))[: len(labels) // 5]
    hidden = np.maximum(images[tested].astype(float) @ weights["0.weight"].T + weights["0.bias"], 0)
    logits = hidden @ weights["2.weight"].T + weights["2.bias"]
    right = [max(range(10), key=row.__getitem__) for row in logits.tolist()] == labels[tested]

    assert score is not None
    assert score.metric == "accuracy"
    assert 0.3 < score.value < 1  # it has learned something, and not everything
    assert score.value == pytest.approx(right.mean(), abs=1.5 / len(tested))  # float32 may tie once
    counts = np.bincount(labels[tested], minlength=10)
    assert counts.min() > 0.5 * len(tested) / 10  # sorted data would leave classes out


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_wrong(value: float) -> None:
    task = ImagesTask(numbered_digits(np.zeros(SAMPLES, np.int64)), Mlp().module, settings(1, 1))

    def answer(logit: float) -> Callable[[Tensor], Tensor]:
        return lambda images: torch.tensor([[logit] + [0.0] * 9]).repeat(len(images), 1)

    assert task.score(Spy(answer(1.0))) == ("accuracy", 1.0)
    assert task.score(Spy(answer(-1.0))) == ("accuracy", 0.0)
    assert task.score(Spy(answer(value))) == ("accuracy", 0.0)


@st.composite
def timed_ratings(draw: st.DrawFn) -> Ratings:
    """Ratings in any order, some at the same time, more than one of some user; all leave items unrated."""
    users_count, items_count = draw(st.integers(1, 5)), draw(st.integers(4, 130))
    chosen = st.sets(st.integers(0, items_count - 1), max_size=min(8, items_count - 3))
    pairs = [(user, item) for user in range(users_count) for item in sorted(draw(chosen))]
    pairs = draw(st.permutations(sorted({*pairs, (0, 0), (0, 1)})))
    times = draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)))
    users, items = np.array(pairs).T
    return Ratings(users, items, np.array(times), users_count, items_count)


def last_ratings(ratings: Ratings) -> dict[int, int]:
    """By user, which rating is the last: later ones in the file win among those of one time."""
    last: dict[int, int] = {}
    for index, (user, time) in enumerate(zip(ratings.users.tolist(), ratings.times.tolist(), strict=True)):
        if user not in last or time >= ratings.times[last[user]]:
            last[user] = index
    return last


def hit_rate(asked: list[tuple[list[int], list[int]]], logits: dict[tuple[int, int], float]) -> float:
    """HR@10 in plain Python: of each list of items, is the first among the ten of the largest logits?"""
    hits = 0
    for users, items in asked:
        own = [logits[pair] for pair in zip(users, items, strict=True)]
        hits += sum(rival >= own[0] for rival in own[1:]) < 10
    return hits / len(asked)


@examples(40)
@given(timed_ratings(), st.integers(0, 99))
def test_hit_rate_is_that_of_plain_python(ratings: Ratings, seed: int) -> None:
    task = RecommenderTask(ratings, (1, 1), batch=4, workers=1, seed=seed, holds_out=True)
    table = np.random.default_rng(seed).integers(
        0, 40, (ratings.users_count, ratings.items_count)
    )  # with ties
    spy = Spy(lambda users, items: torch.from_numpy(table)[users, items].float())
    score = task.score(spy)
    users = torch.cat([asked[0] for asked in spy.asked]).tolist()
    items = torch.cat([asked[1] for asked in spy.asked]).tolist()

    last = last_ratings(ratings)
    rated = set(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True))
    most = max(Counter(ratings.users.tolist()).values())
    count = 1 + min(99, ratings.items_count - most)
    asked = [(users[at : at + count], items[at : at + count]) for at in range(0, len(users), count)]
    assert [own[0] for own, _ in asked] == sorted(last)
    for own, ranked in asked:
        user = own[0]
        assert set(own) == {user}
        assert ranked[0] == ratings.items[last[user]]
        assert len(set(ranked)) == count
        assert not rated & {(user, item) for item in ranked[1:]}
    logits = {(user, item): float(table[user, item]) for user in last for item in range(table.shape[1])}
    assert score == ("HR@10", hit_rate(asked, logits))


def test_no_worker_draws_the_last_rating_of_a_user(movielens: Ratings) -> None:
    task = RecommenderTask(movielens, (1, 1), batch=20_000, workers=2, seed=5, holds_out=True)
    last = last_ratings(movielens)
    held_out = {(user, int(movielens.items[index])) for user, index in last.items()}
    drawn: set[tuple[int, int]] = set()
    for worker in range(2):
        for step in range(10):
            (users, items), _ = task.samples(step, worker)
            drawn |= set(zip(users[::5].tolist(), items[::5].tolist(), strict=True))

    assert len(held_out) == 943
    assert not drawn & held_out
    # 2 · 10 · 4000 draws with replacement of 99 057 ratings leave e^-0.81 of them out
    assert len(drawn) == pytest.approx(99_057 * (1 - np.exp(-80_000 / 99_057)), rel=0.01)


def test_chance_finds_one_film_in_ten(movielens: Ratings) -> None:
    """Within 5 sigma of 943 draws at 0.1; and a model that knows the held-out film finds it."""
    task = RecommenderTask(movielens, (1, 1), batch=4, workers=1, seed=5, holds_out=True)
    generator = torch.Generator().manual_seed(1)
    score = task.score(Spy(lambda users, _: torch.rand(len(users), generator=generator)))
    last = {user: int(movielens.items[index]) for user, index in last_ratings(movielens).items()}
    films = torch.tensor([last[user] for user in range(943)])
    knowing = task.score(Spy(lambda users, items: (films[users] == items).float()))

    assert score is not None
    assert score.value == pytest.approx(0.1, abs=5 * np.sqrt(0.09 / 943))
    for logit in (0.0, float("nan")):  # of a model that cannot tell films apart
        assert task.score(Spy(lambda users, _, logit=logit: torch.full((len(users),), logit))) == (
            "HR@10",
            0.0,
        )
    assert knowing == ("HR@10", 1.0)


def scores(every: int | None, steps: int) -> list[Any]:
    workload = training_workload(TrainingSpec("mlp", 16, 0.5, test_every=every), workers=2, seed=1)
    found = []
    for step in range(steps):
        workload.apply(step, totals(workload, step))
        found.append((workload.loss, workload.score(step, is_last=step + 1 == steps)))
    return found


def test_tests_come_after_every_few_steps_and_the_last_and_change_nothing() -> None:
    found = scores(every=3, steps=7)

    assert [step for step, (_, score) in enumerate(found) if score] == [2, 5, 6]
    assert [loss for loss, _ in found] == [loss for loss, _ in scores(every=100, steps=7)]
    assert [score for _, score in scores(every=None, steps=7)] == [None] * 7
