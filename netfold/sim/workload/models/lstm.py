"""LSTM language models: with a full softmax, and with a sampled one over a large vocabulary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.kernels.exp_log import expm1s, exps, log1ps, logs
from netfold.sim.keys import Count
from netfold.sim.workload.data_readers import load_words
from netfold.sim.workload.model import Data, Density, Parts, Rows, TaskSettings
from netfold.sim.workload.model_task import Draw
from netfold.sim.workload.models.built_in import BuiltIn
from netfold.sim.workload.models.text import NextTokens, Vocabulary, next_token_loss, no_tokens

_PLAYS = "38 plays by Shakespeare"
_BOTH = f"{_PLAYS} and the King James Bible"


@dataclass(frozen=True)
class LstmModel(BuiltIn):
    """An LSTM that predicts the next word of a text, with a softmax over its words: 9,266,960 parameters."""

    kind: ClassVar[str] = "lstm"
    vocabulary: Vocabulary = 10_000
    """Words with weights of their own: the most frequent ones; one stands for all others."""
    embedding: Count = 256
    """Values of a word's embedding."""
    hidden: Count = 512
    """Values of the state of a layer."""
    layers: Count = 1
    """LSTM layers."""
    bptt: Count = 35
    """Words of a sample, through which the gradient goes back."""

    title: ClassVar[str] = "LSTM"
    source: ClassVar[str] = (
        "W. Zaremba et al., Recurrent Neural Network Regularization, arXiv:1409.2329, without dropout; "
        "vocabulary and bptt as for Penn Treebank in PyTorch's examples (word_language_model)"
    )
    data: ClassVar[tuple[Data, ...]] = (
        Data("shakespeare-kjv", f"Penn Treebank: words of {_BOTH}"),
        Data("shakespeare", f"Penn Treebank: words of {_PLAYS}"),
    )
    metric: ClassVar[str] = "perplexity"
    densities: ClassVar[tuple[Density, ...]] = (Density(4, 0.726, 0.735),)

    @property
    def rows(self) -> Mapping[str, Rows]:
        """The words of a batch."""
        return {"embedding.weight": Rows(self.bptt)}

    def module(self) -> nn.Module:
        """Its network."""
        return LstmLanguageModel(self)

    def make(self, settings: TaskSettings) -> Parts:
        """Which word comes next?"""
        words = load_words(settings.data, self.vocabulary)
        data = NextTokens(words.numbers, self.bptt, settings.holds_out)
        return Parts(self.module(), data, next_token_loss, data.perplexity if settings.holds_out else None)

    def inputs(self) -> tuple[Tensor, ...]:
        """The words of a sample."""
        return (no_tokens(1, self.bptt),)


@dataclass(frozen=True)
class LstmBillion(BuiltIn):
    """An LSTM as for the One Billion Word benchmark, with a sampled softmax: 426,465,919 parameters."""

    kind: ClassVar[str] = "lstm_1b"
    vocabulary: Vocabulary = 793_471
    """Words with weights of their own."""
    embedding: Count = 256
    """Values of a word's embedding, in the input and in the softmax."""
    hidden: Count = 2048
    """Values of the LSTM's state, before a linear projection to those of an embedding."""
    samples: Count = 8192
    """Words that a worker draws per step for its softmax, half of the vocabulary at most."""
    bptt: Count = 20
    """Words of a sample, through which the gradient goes back."""

    title: ClassVar[str] = "LSTM (one billion words)"
    source: ClassVar[str] = (
        "R. Jozefowicz et al., Exploring the Limits of Language Modeling, arXiv:1602.02410, in the sizes of "
        "OmniReduce's experiments (J. Fei et al., SIGCOMM 2021)"
    )
    data: ClassVar[tuple[Data, ...]] = (
        Data("shakespeare-kjv", f"the One Billion Word benchmark: words of {_BOTH}, of which it has fewer"),
        Data("shakespeare", f"the One Billion Word benchmark: words of {_PLAYS}, of which it has fewer"),
    )
    metric: ClassVar[str] = "perplexity"
    densities: ClassVar[tuple[Density, ...]] = (Density(16, 0.0506, 0.0737), Density(128, 0.0511, 0.0754))

    def __post_init__(self) -> None:
        if 2 * self.samples > self.vocabulary:
            raise ValueError(
                f"samples is {self.samples:,}, more than half of the vocabulary of {self.vocabulary:,}\n"
                f"use {self.vocabulary // 2:,} at most, or model lstm, whose softmax is over all words"
            )

    @property
    def rows(self) -> Mapping[str, Rows]:
        """The words of a batch; in the softmax the samples, too."""
        classes = Rows(self.bptt, more=self.samples)
        return {
            "embedding.weight": Rows(self.bptt),
            "softmax.weight": classes,
            "softmax_bias.weight": classes,
        }

    def module(self) -> nn.Module:
        """Its network."""
        return SampledLstm(self)

    def make(self, settings: TaskSettings) -> Parts:
        """Which word comes next?"""
        words = load_words(settings.data, self.vocabulary)
        data = SampledTokens(words.numbers, self, settings.holds_out)
        score = data.perplexity if settings.holds_out else None
        return Parts(self.module(), data, functional.cross_entropy, score)

    def inputs(self) -> tuple[Tensor, ...]:
        """Words, classes, and the logarithms of their counts."""
        classes = self.bptt + self.samples
        return no_tokens(1, self.bptt), no_tokens(classes), torch.zeros(classes)


# The networks.


_RANGE = 0.1
"""Bound of new embeddings, on either side of 0."""
_CLASSES_AT_ONCE = 1 << 15
"""Classes that a test takes at a time."""


class LstmLanguageModel(nn.Module):
    """Words `(batch, time)`, int64, to logits of the word after each, `(batch, time, vocabulary)`.

    The state is zero before the first word. The gradient of the embedding is sparse: rows of a table.
    """

    def __init__(self, options: LstmModel) -> None:
        super().__init__()
        self.embedding = _table(options.vocabulary, options.embedding)
        self.lstm = nn.LSTM(options.embedding, options.hidden, options.layers, batch_first=True)
        self.output = nn.Linear(options.hidden, options.vocabulary)
        nn.init.uniform_(self.output.weight, -_RANGE, _RANGE)
        nn.init.zeros_(self.output.bias)

    def forward(self, words: Tensor) -> Tensor:
        """Logits."""
        states, _ = self.lstm(self.embedding(words))
        logits: Tensor = self.output(states)
        return logits


class SampledLstm(nn.Module):
    """An LSTM, a linear projection to the size of the embedding, and a softmax over some words only.

    Gradients of both tables and of the biases are sparse: rows of a table.
    """

    def __init__(self, options: LstmBillion) -> None:
        super().__init__()
        vocabulary, embedding = options.vocabulary, options.embedding
        self.embedding = _table(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, options.hidden, batch_first=True)
        self.projection = nn.Linear(options.hidden, embedding)
        self.softmax = _table(vocabulary, embedding)
        self.softmax_bias = nn.Embedding(vocabulary, 1, sparse=True, _weight=torch.zeros(vocabulary, 1))

    def forward(self, words: Tensor, classes: Tensor, log_counts: Tensor) -> Tensor:
        """Logits of each word's successor (column 0) and of the sampled words, `(batch · time, 1 + samples)`.

        From each logit the logarithm of how often its word is expected among the samples is subtracted, and a
        sample that is the successor itself does not count (S. Jean et al., On Using Very Large Target
        Vocabulary for Neural Machine Translation, ACL 2015, §3; as TensorFlow's sampled_softmax_loss).

        Parameters
        ----------
        words
            `(batch, time)`, int64.
        classes
            `(batch · time + samples,)`, int64: the successors, then the samples.
        log_counts
            Of the classes, float32.
        """
        hidden = self.project(words)
        count = len(hidden)
        weights, biases = self.softmax(classes), self.softmax_bias(classes).squeeze(1) - log_counts
        true_logits = (hidden * weights[:count]).sum(1) + biases[:count]
        others = torch.addmm(biases[count:], hidden, weights[count:].t())
        others = others.masked_fill(classes[count:] == classes[:count, None], -torch.inf)
        return torch.cat((true_logits[:, None], others), dim=1)

    def project(self, words: Tensor) -> Tensor:
        """The projected state after each word, `(batch · time, embedding)`."""
        states, _ = self.lstm(self.embedding(words))
        hidden: Tensor = self.projection(states).flatten(0, 1)
        return hidden

    def losses(self, words: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy of each target `(batch · time,)` by the softmax over the whole vocabulary."""
        hidden = self.project(words)
        parts = zip(
            torch.split(self.softmax.weight, _CLASSES_AT_ONCE),
            torch.split(self.softmax_bias.weight.squeeze(1), _CLASSES_AT_ONCE),
            strict=True,
        )
        sums = [torch.addmm(biases, hidden, weights.t()).logsumexp(1) for weights, biases in parts]
        target_logits = (hidden * self.softmax(targets)).sum(1) + self.softmax_bias(targets).squeeze(1)
        losses: Tensor = torch.stack(sums).logsumexp(0) - target_logits
        return losses


def _table(rows: int, columns: int) -> nn.Embedding:
    """An embedding with new weights and a sparse gradient."""
    weights = torch.empty(rows, columns).uniform_(-_RANGE, _RANGE)
    return nn.Embedding(rows, columns, sparse=True, _weight=weights)


# The data of the sampled softmax, with a log-uniform sampler.


_TESTED_TOKENS = 1024  # the softmax of a test is over the whole vocabulary


class SampledTokens(NextTokens):
    """The next word, with a softmax over sampled words, which all words of a batch share.

    Words are numbered by how often they occur, from 0, as the sampler assumes.
    """

    def __init__(self, tokens: NDArray[np.int64], options: LstmBillion, holds_out: bool) -> None:
        super().__init__(tokens, options.bptt, holds_out, _TESTED_TOKENS)
        self._vocabulary, self._samples = options.vocabulary, options.samples

    def batch(self, shard: NDArray[np.int64], draw: Draw) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs of `SampledLstm`, and the column of the right class: 0 for each word."""
        (words,), successors = super().batch(shard, draw)
        sampled_words, draws = log_uniform(self._samples, self._vocabulary, draw.keyed("sampled words"))
        classes = np.concatenate((successors.flatten().numpy(), sampled_words))
        counts = expected_counts(classes, self._vocabulary, draws)
        inputs = words, torch.from_numpy(classes), torch.from_numpy(logs(counts).astype(np.float32))
        return inputs, torch.zeros(successors.numel(), dtype=torch.int64)

    def losses(self, module: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy of each target by the softmax over the whole vocabulary."""
        assert isinstance(module, SampledLstm)
        return module.losses(tokens, targets.flatten())


def log_uniform(count: int, vocabulary: int, generator: np.random.Generator) -> tuple[NDArray[np.int64], int]:
    """Draw words until `count` different ones are found, and count the draws.

    Word k has the probability of `probabilities`, and words are in the order in which they were drawn.

    It is the distribution of words by rank (Zipf), and TensorFlow's log_uniform_candidate_sampler. `count` is
    at most the vocabulary.
    """
    samples = np.empty(0, np.int64)
    while True:
        more = exps(generator.random(2 * count), math.log(vocabulary + 1)).astype(np.int64) - 1
        samples = np.concatenate((samples, np.clip(more, 0, vocabulary - 1)))  # exp may round up
        first = np.sort(np.unique(samples, return_index=True)[1])
        if len(first) >= count:
            return samples[first[:count]], int(first[count - 1]) + 1


def probabilities(words: NDArray[np.int64], vocabulary: int) -> NDArray[np.float64]:
    """Of drawing a word: log((k + 2) / (k + 1)) / log(vocabulary + 1)."""
    shares: NDArray[np.float64] = log1ps(1 / (words + 1.0)) / math.log(vocabulary + 1)
    return shares


def expected_counts(words: NDArray[np.int64], vocabulary: int, draws: int) -> NDArray[np.float64]:
    """How often each word is expected among the different words that so many draws find: 0 to 1."""
    counts: NDArray[np.float64] = -expm1s(draws * log1ps(-probabilities(words, vocabulary)))
    return counts
