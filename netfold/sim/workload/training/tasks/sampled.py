"""The task of a language model whose softmax is over sampled words, with a log-uniform sampler."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.kernels.functions import expm1s, exps, log1ps, logs
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.networks.lstm import SampledLstm
from netfold.sim.workload.training.tasks.language import LanguageTask
from netfold.sim.workload.workload import keyed

_TESTED_TOKENS = 1024  # the softmax of a test is over the whole vocabulary


class Sampled(NamedTuple):
    """Different words, and in how many draws they were found."""

    words: NDArray[np.int64]  # (count,), in the order in which they were drawn
    draws: int


class SampledTask(LanguageTask):
    """A language model that is trained with a sampled softmax; all words of a batch share the samples.

    Words are numbered by how often they occur, from 0, as the sampler assumes.
    """

    def __init__(
        self,
        tokens: NDArray[np.int64],
        build: Callable[[], nn.Module],
        settings: TaskSettings,
        time: int,
        words: tuple[int, int],  # the vocabulary, and how many of it are sampled
    ) -> None:
        super().__init__(tokens, build, settings, time, _TESTED_TOKENS)
        self._seed = settings.seed
        self._vocabulary, self._samples = words

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs of `SampledLstm`, and the column of the right class: 0 for each word."""
        (words,), successors = super().samples(step, worker)
        generator = keyed(self._seed, "sampled words", step, worker)
        sampled = log_uniform(self._samples, self._vocabulary, generator)
        classes = np.concatenate((successors.flatten().numpy(), sampled.words))
        counts = expected_counts(classes, self._vocabulary, sampled.draws)
        inputs = words, torch.from_numpy(classes), torch.from_numpy(logs(counts).astype(np.float32))
        return inputs, torch.zeros(successors.numel(), dtype=torch.int64)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of a word among the samples."""
        return functional.cross_entropy(outputs, targets)

    def losses(self, model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy of each target by the softmax over the whole vocabulary."""
        assert isinstance(model, SampledLstm)
        return model.losses(tokens, targets.flatten())


def log_uniform(count: int, vocabulary: int, generator: np.random.Generator) -> Sampled:
    """Draw words until `count` different ones are found; word k has the probability of `probabilities`.

    It is the distribution of words by rank (Zipf), and TensorFlow's log_uniform_candidate_sampler. `count` is
    at most the vocabulary.
    """
    drawn = np.empty(0, np.int64)
    while True:
        more = exps(generator.random(2 * count), math.log(vocabulary + 1)).astype(np.int64) - 1
        drawn = np.concatenate((drawn, np.clip(more, 0, vocabulary - 1)))  # exp may round up
        first = np.sort(np.unique(drawn, return_index=True)[1])
        if len(first) >= count:
            return Sampled(drawn[first[:count]], int(first[count - 1]) + 1)


def probabilities(words: NDArray[np.int64], vocabulary: int) -> NDArray[np.float64]:
    """Of drawing a word: log((k + 2) / (k + 1)) / log(vocabulary + 1)."""
    found: NDArray[np.float64] = log1ps(1 / (words + 1.0)) / math.log(vocabulary + 1)
    return found


def expected_counts(words: NDArray[np.int64], vocabulary: int, draws: int) -> NDArray[np.float64]:
    """How often each word is expected among the different words that so many draws find: 0 to 1."""
    found: NDArray[np.float64] = -expm1s(draws * log1ps(-probabilities(words, vocabulary)))
    return found
