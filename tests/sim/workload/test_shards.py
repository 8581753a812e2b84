"""Every worker trains on separate samples: counted on data whose samples all differ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from netfold.sim.workload.training.data.images import Digits
from netfold.sim.workload.training.data.ratings import Ratings
from netfold.sim.workload.training.models.perceptrons import Mlp
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.tasks.images import ImagesTask
from netfold.sim.workload.training.tasks.recommender import RecommenderTask

WORKERS, SAMPLES, BATCH, STEPS = 3, 60, 20, 40


def digits_seen() -> Callable[[int, int], list[int]]:
    """Images whose first pixel is their number."""
    images = np.zeros((SAMPLES, 64), np.float32)
    images[:, 0] = np.arange(SAMPLES)
    task = ImagesTask(
        Digits(images, np.zeros(SAMPLES, np.int64)),
        Mlp().module,
        TaskSettings("digits", BATCH, WORKERS, 1),
    )
    return lambda step, worker: [int(one) for one in task.samples(step, worker)[0][0][:, 0]]


def ratings_seen() -> Callable[[int, int], list[int]]:
    """Every user has rated one item, that of its own number."""
    numbers = np.arange(SAMPLES)
    task = RecommenderTask(Ratings(numbers, numbers, numbers, SAMPLES, SAMPLES), (1, 1), BATCH, WORKERS, 1)
    return lambda step, worker: [int(one) for one in task.samples(step, worker)[0][0]]


@pytest.mark.parametrize("seen", [digits_seen, ratings_seen])
def test_workers_share_the_samples_without_overlap(
    seen: Callable[[], Callable[[int, int], list[int]]],
) -> None:
    samples = seen()
    own = [{one for step in range(STEPS) for one in samples(step, worker)} for worker in range(WORKERS)]

    # A sample of 20 that is never among STEPS · 4 draws or more has odds of 0.95^160, 0.03 %.
    assert [len(one) for one in own] == [SAMPLES // WORKERS] * WORKERS
    assert set.union(*own) == set(range(SAMPLES))


@pytest.mark.parametrize("seen", [digits_seen, ratings_seen])
def test_every_step_and_worker_has_a_batch_of_its_own(
    seen: Callable[[], Callable[[int, int], list[int]]],
) -> None:
    samples = seen()
    batches = [tuple(samples(step, worker)) for step in range(STEPS) for worker in range(WORKERS)]

    assert len(set(batches)) == len(batches)
