"""LSTM language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from netfold.homomorphic.message import Tensor
from netfold.sim.keys import Count
from netfold.sim.workload.model import (
    Data,
    Density,
    Model,
    TaskSettings,
    Tokens,
    embedding,
    in_ready_order,
    linear,
    lstm,
)

if TYPE_CHECKING:
    from torch import nn

    from netfold.sim.workload.model import Task


_PLAYS = "38 plays by Shakespeare"
_BOTH = f"{_PLAYS} and the King James Bible"


class LstmModel(Model):
    """An LSTM that predicts the next word of a text, with a softmax over its vocabulary."""

    kind: Literal["lstm"] = "lstm"
    vocabulary: Tokens = 10_000
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
    def tensors(self) -> tuple[Tensor, ...]:
        """From the output to the embedding."""
        return in_ready_order(
            [
                embedding("embedding", self.vocabulary, self.embedding),
                lstm("lstm", self.embedding, self.hidden, self.layers),
                linear("output", self.hidden, self.vocabulary),
            ]
        )

    def row_tables(self, batch: int) -> Mapping[str, int]:
        """The words of a batch."""
        return {"embedding.weight": min(self.vocabulary, batch * self.bptt)}

    def module(self) -> nn.Module:
        """An LstmLanguageModel."""
        from netfold.sim.workload.networks import LstmLanguageModel

        return LstmLanguageModel(self.vocabulary, self.embedding, self.hidden, self.layers)

    def task(self, settings: TaskSettings) -> Task:
        """Which word comes next?"""
        from netfold.sim.workload.data_readers import load_words
        from netfold.sim.workload.tasks import LanguageTask

        words = load_words(settings.data, self.vocabulary)
        return LanguageTask(words.numbers, self.module, settings, self.bptt)


class LstmBillion(Model):
    """An LSTM of the shape for the One Billion Word benchmark, with a sampled softmax."""

    kind: Literal["lstm_1b"] = "lstm_1b"
    vocabulary: Tokens = 793_471
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

    @model_validator(mode="after")
    def _samples_are_found(self) -> LstmBillion:
        if 2 * self.samples > self.vocabulary:
            raise ValueError(
                f"samples is {self.samples:,}, more than half of the vocabulary of {self.vocabulary:,}\n"
                f"use {self.vocabulary // 2:,} at most, or model lstm, whose softmax is over all words"
            )
        return self

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """From the softmax to the embedding."""
        return in_ready_order(
            [
                embedding("embedding", self.vocabulary, self.embedding),
                lstm("lstm", self.embedding, self.hidden, 1),
                linear("projection", self.hidden, self.embedding),
                embedding("softmax", self.vocabulary, self.embedding),
                embedding("softmax_bias", self.vocabulary, 1),
            ]
        )

    def row_tables(self, batch: int) -> Mapping[str, int]:
        """The words of a batch; in the softmax the samples, too."""
        words = batch * self.bptt
        classes = min(self.vocabulary, words + self.samples)
        return {
            "embedding.weight": min(self.vocabulary, words),
            "softmax.weight": classes,
            "softmax_bias.weight": classes,
        }

    def module(self) -> nn.Module:
        """A SampledLstm."""
        from netfold.sim.workload.networks import SampledLstm

        return SampledLstm(self.vocabulary, self.embedding, self.hidden)

    def task(self, settings: TaskSettings) -> Task:
        """Which word comes next?"""
        from netfold.sim.workload.data_readers import load_words
        from netfold.sim.workload.tasks import SampledTask

        words = load_words(settings.data, self.vocabulary)
        sizes = self.vocabulary, self.samples
        return SampledTask(words.numbers, self.module, settings, self.bptt, sizes)
