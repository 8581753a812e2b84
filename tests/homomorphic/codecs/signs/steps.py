"""Steps of a training with one bucket, without a network."""

from __future__ import annotations

from collections.abc import Sequence

from netfold.homomorphic.codecs.signs.marsit import Marsit, MarsitEncoder
from netfold.homomorphic.fold import Folded, fold
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Round, Step

RATE = 0.01


def team(codec: Marsit, workers: int) -> list[MarsitEncoder]:
    return [MarsitEncoder(codec) for _ in range(workers)]


def stepped(
    encoders: Sequence[MarsitEncoder], gradients: list[Gradient], step: int, rate: float = RATE
) -> Folded:
    """One step of a training with one bucket."""
    for encoder in encoders:
        encoder.begin(Step(step, rate))
    return fold(encoders, gradients, Round(step, 0, len(encoders), seed=3))
