"""Who uploads when: against the notebook's loop, and against what follows from its rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.codecs.sasg.lists import Sasg, SasgEncoder
from netfold.homomorphic.round import Round, Step
from tests.homomorphic.codecs.sasg.tiny import ELEMENTS, Tiny, Trained, Training, flat
from tests.reference.systems.sasg import Settings, lasg, train

RATE, WORKERS = 0.5, 10
GAMMA = RATE / WORKERS
NEVER = 1e300  # alpha: only staleness makes a worker upload


def assert_as_published(run: Trained, codec: Sasg, rate: float, workers: int) -> None:
    """The same uploads, and the same weights bit for bit, as the notebook's loop in float32."""
    alpha = workers / rate if codec.alpha is None else codec.alpha
    settings = Settings(rate / workers, alpha, codec.staleness, codec.share, workers)
    twin = train(Tiny().gradient, Tiny().start, settings, len(run.weights))

    assert run.uploads == twin.uploads
    assert [own.tobytes() for own in run.weights] == [flat(own).tobytes() for own in twin.weights]
    for folded, sent in zip(run.rounds, twin.sent, strict=True):
        for contribution, tensors in zip(folded.contributions, sent, strict=True):
            assert contribution.tobytes() == flat(tensors).tobytes()


@pytest.mark.parametrize(
    ("codec", "rate", "workers"),
    [
        (Sasg(share=0.1), RATE, WORKERS),
        (Sasg(share=0.1), 0.1, 1),
        (Sasg(share=0.3, alpha=3.0), RATE, 4),
        (Sasg(share=0.1, staleness=3, alpha=200.0), RATE, 4),
        (Sasg(share=0.1, staleness=1), 2.0, 3),
    ],
)
def test_workers_decide_and_train_as_published(codec: Sasg, rate: float, workers: int) -> None:
    run = Training(codec, Tiny(), workers, rate).run(60)

    assert run.upload_share < 1 or codec.staleness == 1
    assert_as_published(run, codec, rate, workers)


def test_without_changes_that_count_uploads_are_as_rare_as_staleness_allows() -> None:
    """10 of the warm start, and then one in 11 steps: 145 in 1,500, 9.67 %."""
    run = Training(Sasg(share=0.1, alpha=NEVER), Tiny(), 2, RATE).run(60)

    steps = [step for step in range(1500) if step < 10 or (step - 9) % 11 == 0]
    own = [step for step in steps if step < 60]
    assert [np.flatnonzero(one).tolist() for one in np.array(run.uploads).T] == [own, own]
    assert len(steps) == 145


def test_gradients_are_compared_only_where_it_matters() -> None:
    """Neither in the warm start, nor where an upload is due; never with alpha 0."""
    training = Training(Sasg(share=0.1, alpha=NEVER), Tiny(), 2, RATE)
    training.run(32)
    assert training.passes == 2 * (32 - 10 - 2)

    training = Training(Sasg(share=0.1, alpha=0.0), Tiny(), 2, RATE)
    assert training.run(20).upload_share == 1
    assert (training.passes, training.kept) == (0, {})


def test_the_distance_is_that_of_all_buckets_together() -> None:
    """The threshold is 18; the first bucket alone is 9 away, both are 18 or 18.01 away."""

    def uploads(second: float) -> bool:
        encoder = Sasg(alpha=72.0, staleness=2).worker(0, 2, 0)
        now = np.array([3, 0], np.float32), np.array([second], np.float32)
        for number, norm in enumerate((None, 9.0, 1.0)):  # D − 1 = 1: the last counts alone

            def then() -> list[Any]:
                return [np.zeros(2, np.float32), np.zeros(1, np.float32)]

            encoder.begin(Step(number, 0.1, norm, now, then))
        assert isinstance(encoder, SasgEncoder)
        return encoder.rule.uploads

    assert not uploads(3.0)
    assert uploads(float(np.sqrt(9.01)))


def test_a_step_that_was_not_begun_is_refused() -> None:
    encoder = Sasg(share=0.5).worker(0, 1, 0)
    gradient = np.ones(ELEMENTS, np.float32)
    with pytest.raises(RuntimeError, match="step 3 was not begun: call `begin` before"):
        next(encoder.exchange(gradient, Round(3, 0, 1, 0)))
    encoder.begin(Step(3, 0.1, None, (gradient,)))
    next(encoder.exchange(gradient, Round(3, 0, 1, 0)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.0}, "share is 0.0: must be above 0 and at most 1"),
        ({"alpha": -1.0}, "alpha is -1.0: must be finite and not below 0; leave it out for 1 / γ"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"staleness": 0}, "staleness is 0: must be at least 1 step"),
        ({"fraction_bits": 24}, "fraction_bits belongs to aggregation incremental, found last; remove it"),
        ({"aggregation": "incremental", "fraction_bits": 61}, "fraction_bits is 61: must be from 0 to 60"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sasg(**options)


def test_whole_uploads_are_lasg() -> None:
    codec = Sasg(share=1.0)
    run = Training(codec, Tiny(), WORKERS, RATE).run(60)
    twin = lasg(Tiny().gradient, Tiny().start, Settings(GAMMA, 1 / GAMMA), 60)

    assert 0.1 < run.upload_share < 0.9
    assert run.uploads == twin.uploads
    assert [own.tobytes() for own in run.weights] == [flat(own).tobytes() for own in twin.weights]
