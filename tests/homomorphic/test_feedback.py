"""Error feedback: what a worker holds back comes with its next gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Decoded, Encoder, Exchange
from netfold.homomorphic.codecs.topk import TopK
from netfold.homomorphic.feedback import FeedbackEncoder, with_feedback
from netfold.homomorphic.fold import fold
from netfold.homomorphic.merge import Merge, Work
from netfold.homomorphic.message import Gradient, Message, Round, Step
from tests.examples import examples


class EveryThird(Encoder):
    """Contributes every third element, another third each step."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    def begin(self, step: Step) -> None:
        self.begun.append(step.number)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        own = np.where(np.arange(gradient.size) % 3 == round.step % 3, gradient, np.float32(0))
        (merged,) = yield (Message(own, Merge.FLOAT_ADD, "own", Work(10, 20, flops=5, launches=3)),)
        return Decoded(merged.words, own)


def rounds(encoders: list[Encoder], gradients: list[list[Gradient]], first: int = 0) -> list[Any]:
    """`gradients[step][worker]`."""
    workers = len(encoders)
    return [
        fold(encoders, own, Round(step, 0, workers, 1)) for step, own in enumerate(gradients, start=first)
    ]


def test_by_hand() -> None:
    encoder = FeedbackEncoder(EveryThird())

    assert encoder.residual(0) is None
    found = rounds([encoder], [[np.array(one, np.float32)] for one in ([1, 2, 3], [10, 20, 30], [5, 5, 5])])

    assert [one.contributions[0].tolist() for one in found] == [[1, 0, 0], [0, 22, 0], [0, 0, 38]]
    residual = encoder.residual(0)
    assert residual is not None
    assert residual.tolist() == [15, 5, 0]
    assert encoder.residual(1) is None


@examples(40)
@given(
    workers=st.integers(1, 4), elements=st.integers(1, 40), steps=st.integers(1, 12), seed=st.integers(0, 99)
)
def test_all_contributions_and_the_residual_are_all_gradients(
    workers: int, elements: int, steps: int, seed: int
) -> None:
    """Whole numbers, so that no addition of float32 rounds."""
    random = np.random.default_rng(seed)
    gradients = random.integers(-1000, 1000, (steps, workers, elements)).astype(np.float32)
    encoders = [with_feedback(TopK(share=0.2).worker(rank, workers, 0), True) for rank in range(workers)]

    found = rounds(encoders, [list(own) for own in gradients])

    for rank, encoder in enumerate(encoders):
        residual = encoder.residual(0)
        assert residual is not None
        paid = np.sum([one.contributions[rank] for one in found], axis=0) + residual
        assert paid.tolist() == gradients[:, rank].sum(axis=0).tolist()


def test_a_bucket_that_changes_its_length_is_refused() -> None:
    encoder = FeedbackEncoder(EveryThird())
    fold([encoder], [np.zeros(3, np.float32)], Round(0, 4, 1, 1))

    with pytest.raises(ValueError, match="bucket 4 has 2 elements, its residual has 3"):
        fold([encoder], [np.zeros(2, np.float32)], Round(1, 4, 1, 1))


def test_its_two_additions_are_charged_with_the_first_message() -> None:
    encoder = FeedbackEncoder(EveryThird())
    (message,) = next(encoder.exchange(np.zeros(100, np.float32), Round(0, 0, 1, 1)))

    assert message.work == Work(10 + 4 * 400, 20 + 2 * 400, flops=5 + 200, launches=3)


def test_the_step_is_passed_on() -> None:
    inner = EveryThird()
    FeedbackEncoder(inner).begin(Step(7))

    assert inner.begun == [7]
