"""A softmax regression of 52 weights, and a driver that trains it with a codec in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from netfold.homomorphic.codec import Codec, Encoder
from netfold.homomorphic.fold import Folded, fold
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Round, Step, Tensor
from tests.reference.systems.sasg import Array, Tensors

SHAPES = (4, 12), (4,)
TENSORS = Tensor("weight", SHAPES[0], "all"), Tensor("bias", SHAPES[1], "all", 48)
ELEMENTS = 52


@dataclass(frozen=True)
class Tiny:
    """Four noisy clusters; a batch depends on seed, step and worker alone."""

    seed: int = 1
    batch: int = 4
    noise: float = 1.0

    @property
    def start(self) -> Tensors:
        return [np.zeros(shape, np.float32) for shape in SHAPES]

    def gradient(self, weights: Tensors, step: int, worker: int) -> Tensors:
        """Of the mean cross entropy, in the type of the weights."""
        random = np.random.default_rng([self.seed, step, worker])
        labels = random.integers(4, size=self.batch)
        images = self.noise * random.standard_normal((self.batch, 12))
        images[np.arange(self.batch), labels] += 3
        logits = images.astype(weights[0].dtype) @ weights[0].T + weights[1]
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        odds[np.arange(self.batch), labels] -= 1
        odds /= self.batch
        return [odds.T @ images.astype(weights[0].dtype), odds.sum(axis=0)]


def flat(tensors: Sequence[Array]) -> Gradient:
    return np.concatenate([one.reshape(-1) for one in tensors]).astype(np.float32)


def cut(flat: Gradient) -> Tensors:
    return [flat[tensor.place].reshape(tensor.shape) for tensor in TENSORS]


@dataclass
class Trained:
    """What a training did."""

    weights: list[Gradient] = field(default_factory=list)  # after each step
    rounds: list[Folded] = field(default_factory=list)

    @property
    def uploads(self) -> list[list[bool]]:
        """By step and worker: whether it sent any words."""
        return [
            [any(op[rank][0].words.size > 0 for op in one.messages) for rank in range(len(one.results))]
            for one in self.rounds
        ]

    @property
    def upload_share(self) -> float:
        return float(np.mean(self.uploads))


@dataclass
class Training:
    """Trains with a codec; `buckets` cut the weights, of whole tensors."""

    codec: Codec
    model: Tiny
    workers: int
    learning_rate: float

    def __post_init__(self) -> None:
        self.encoders: list[Encoder] = [
            self.codec.worker(rank, self.workers, 1) for rank in range(self.workers)
        ]
        self.server = self.codec.server(self.workers, 1)
        self.weights = flat(self.model.start)
        self.kept: dict[int, Gradient] = {}
        self.passes = 0  # at kept weights
        self.update_norm: float | None = None
        self.done = Trained()

    def run(self, steps: int) -> Trained:
        for _ in range(steps):
            self.step()
        return self.done

    def gradients(self, step: int) -> list[Gradient]:
        weights = cut(self.weights)
        return [flat(self.model.gradient(weights, step, rank)) for rank in range(self.workers)]

    def step(self) -> None:
        number = len(self.done.weights)
        gradients = self.gradients(number)
        for rank, encoder in enumerate(self.encoders):
            kept = partial(self._kept_gradients, number, rank)
            keep = partial(self._keep, rank)
            encoder.begin(Step(number, self.learning_rate, self.update_norm, (gradients[rank],), kept, keep))
        round = Round(number, 0, self.workers, 1, tensors=TENSORS)
        folded = fold(self.encoders, gradients, round, server=self.server)
        total = folded.decoded[0]
        if not folded.results[0].is_update:
            total = np.float32(self.learning_rate / self.workers) * total
        self.weights = self.weights - total
        self.update_norm = float(np.sqrt(np.square(total, dtype=np.float64).sum()))
        self.done.weights.append(self.weights)
        self.done.rounds.append(replace(folded))

    def _keep(self, rank: int) -> None:
        self.kept[rank] = self.weights

    def _kept_gradients(self, step: int, rank: int) -> list[Gradient]:
        self.passes += 1
        return [flat(self.model.gradient(cut(self.kept[rank]), step, rank))]
