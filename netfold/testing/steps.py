"""Steps without a model, for codecs that look at a step before its first bucket."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from netfold.homomorphic.codec import Decoded, Encoder
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Step

LEARNING_RATE = 0.01


class Steps:
    """The facts of steps with one bucket: made-up ones, but all of them, as a training knows them.

    The gradient at kept weights is the gradient of the step in which they were kept.
    """

    def __init__(self, workers: int) -> None:
        self._kept: list[Gradient | None] = [None] * workers
        self._update_norm: float | None = None

    def copied(self) -> Steps:
        """A copy, for encoders that go on from the same point."""
        copy = Steps(len(self._kept))
        copy._kept, copy._update_norm = list(self._kept), self._update_norm
        return copy

    def begin(self, encoders: Sequence[Encoder], gradients: Sequence[Gradient], step: int) -> None:
        """Let every encoder look at a step."""
        for rank, (encoder, own) in enumerate(zip(encoders, gradients, strict=True)):
            facts = partial(Step, step, LEARNING_RATE, self._update_norm, (own,))
            encoder.begin(facts(self._kept_gradients(rank), partial(self._keep, rank, own.copy())))

    def end(self, decoded: Decoded) -> None:
        """Apply a total, as far as its norm goes."""
        rate = 1.0 if decoded.is_update else LEARNING_RATE / len(self._kept)
        with np.errstate(over="ignore"):
            squares = np.square(decoded.total, dtype=np.float64)
        self._update_norm = rate * math.sqrt(float(squares.sum()))

    def _keep(self, rank: int, gradient: Gradient) -> None:
        self._kept[rank] = gradient

    def _kept_gradients(self, rank: int) -> Callable[[], Sequence[Gradient]]:
        def gradients() -> Sequence[Gradient]:
            kept = self._kept[rank]
            if kept is None:
                raise RuntimeError(f"worker {rank} has kept no weights: call keep_weights before")
            return (kept.copy(),)

        return gradients
