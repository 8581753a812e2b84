"""A small GPT."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from netfold.homomorphic.message import Tensor
from netfold.sim.keys import Count, Share
from netfold.sim.workload.layers import placed
from netfold.sim.workload.model import Data, Model, TaskSettings, Tokens, check_heads, embedding, linear, norm

if TYPE_CHECKING:
    from torch import nn

    from netfold.sim.workload.model import Task


class Gpt(Model):
    """A small GPT, which predicts the next character or word of a text."""

    kind: Literal["gpt"] = "gpt"
    unit: Literal["characters", "words"] = "characters"
    """What its tokens are."""
    vocabulary: Tokens = 65
    """Tokens with weights of their own: the most frequent ones; one stands for all others."""
    context: Count = 256
    """Tokens of a sample."""
    layers: Count = 6
    """Transformer layers."""
    heads: Count = 6
    """Heads of an attention; they divide the width."""
    width: Count = 384
    """Values of a token's state."""
    bias: bool = False
    """Whether linear layers and norms have biases, as in GPT-2."""
    dropout: Share = 0.2
    """Share of values that are dropped in training."""

    title: ClassVar[str] = "GPT"
    source: ClassVar[str] = (
        "nanoGPT (github.com/karpathy/nanoGPT): model.py, and config/train_shakespeare_char.py for the sizes"
    )
    data: ClassVar[tuple[Data, ...]] = (
        Data("shakespeare", "tiny Shakespeare: all 38 plays, with stage directions"),
        Data("shakespeare-kjv", "tiny Shakespeare: all 38 plays, and the King James Bible"),
    )
    metric: ClassVar[str] = "perplexity"

    @model_validator(mode="after")
    def _heads_divide(self) -> Gpt:
        check_heads(self.heads, self.width)
        return self

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """From the last norm to the tables; that of tokens is the output's, too, so it is ready last."""
        width = self.width
        last = f"blocks.{self.layers - 1}.contract"
        found = [*self._norm("norm", layer=last)]
        for index in reversed(range(self.layers)):
            name = f"blocks.{index}."
            before = f"blocks.{index - 1}.contract" if index else "positions"
            found += self._linear(name + "contract", 4 * width, width)
            found += self._linear(name + "expand", width, 4 * width)
            found += self._norm(name + "norm2", layer=name + "project")
            found += self._linear(name + "project", width, width)
            found += self._linear(name + "attend", width, 3 * width)
            found += self._norm(name + "norm1", layer=before)
        found += embedding("positions", self.context, width)
        return placed([*found, *embedding("tokens", self.vocabulary, width)])

    def _linear(self, name: str, inputs: int, outputs: int) -> tuple[Tensor, ...]:
        both = linear(name, inputs, outputs)
        return both if self.bias else both[1:]

    def _norm(self, name: str, layer: str) -> tuple[Tensor, ...]:
        both = norm(name, self.width, layer)
        return both if self.bias else both[:1]

    def module(self) -> nn.Module:
        """A GptNetwork."""
        from netfold.sim.workload.networks import GptNetwork

        sizes = self.layers, self.heads, self.width
        return GptNetwork(self.vocabulary, self.context, sizes, self.dropout, self.bias)

    def task(self, settings: TaskSettings) -> Task:
        """Which token comes next?"""
        from netfold.sim.workload.data_readers import load_characters, load_words
        from netfold.sim.workload.tasks import LanguageTask

        load = load_words if self.unit == "words" else load_characters
        tokens = load(settings.data, self.vocabulary)
        return LanguageTask(tokens.numbers, self.module, settings, self.context)
