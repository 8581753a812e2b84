"""A small GPT."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.keys import Count, Share
from netfold.sim.workload.data_readers import load_characters, load_words
from netfold.sim.workload.model import Data, Parts, TaskSettings
from netfold.sim.workload.models.built_in import BuiltIn
from netfold.sim.workload.models.text import (
    NextTokens,
    Vocabulary,
    attend,
    check_heads,
    next_token_loss,
    no_tokens,
)


@dataclass(frozen=True)
class Gpt(BuiltIn):
    """A small GPT, which predicts the next character or word of a text: 10,745,088 parameters (nanoGPT's)."""

    kind: ClassVar[str] = "gpt"
    unit: Literal["characters", "words"] = "characters"
    """What its tokens are."""
    vocabulary: Vocabulary = 65
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

    def __post_init__(self) -> None:
        check_heads(self.heads, self.width)

    def module(self) -> nn.Module:
        """Its network."""
        return GptNetwork(self)

    def make(self, settings: TaskSettings) -> Parts:
        """Which token comes next?"""
        load = load_words if self.unit == "words" else load_characters
        tokens = load(settings.data, self.vocabulary)
        data = NextTokens(tokens.numbers, self.context, settings.holds_out)
        return Parts(self.module(), data, next_token_loss, data.perplexity if settings.holds_out else None)

    def inputs(self) -> tuple[Tensor, ...]:
        """The tokens of a sample."""
        return (no_tokens(1, self.context),)


_DEVIATION = 0.02
"""Standard deviation of new weights."""


class GptNetwork(nn.Module):
    """Tokens `(batch, time)`, int64, to logits of the token after each, `(batch, time, vocabulary)`.

    As nanoGPT's model.py: norms before attention and MLP, exact GELU, and an output that shares the weights
    of the token embedding.
    """

    def __init__(self, options: Gpt) -> None:
        super().__init__()
        self.tokens = nn.Embedding(options.vocabulary, options.width)
        self.positions = nn.Embedding(options.context, options.width)
        self.drop = nn.Dropout(options.dropout)
        self.blocks = nn.ModuleList([_Block(options) for _ in range(options.layers)])
        self.norm = nn.LayerNorm(options.width, bias=options.bias)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                is_residual = name.endswith(("project.weight", "contract.weight"))
                added = 2 * options.layers if is_residual else 1
                nn.init.normal_(parameter, std=_DEVIATION / math.sqrt(added))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        places = torch.arange(tokens.shape[1])
        hidden = self.drop(self.tokens(tokens) + self.positions(places))
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.norm(hidden), self.tokens.weight)


class _Block(nn.Module):
    """Attention to earlier places, and an MLP, each added to its input."""

    def __init__(self, options: Gpt) -> None:
        super().__init__()
        width, has_bias = options.width, options.bias
        self._heads = options.heads
        self.norm1 = nn.LayerNorm(width, bias=has_bias)
        self.attend = nn.Linear(width, 3 * width, bias=has_bias)  # queries, keys, values
        self.project = nn.Linear(width, width, bias=has_bias)
        self.norm2 = nn.LayerNorm(width, bias=has_bias)
        self.expand = nn.Linear(width, 4 * width, bias=has_bias)
        self.contract = nn.Linear(4 * width, width, bias=has_bias)
        self.drop = nn.Dropout(options.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        queries, keys, values = self.attend(self.norm1(hidden)).chunk(3, dim=2)
        dropout = self.drop.p if self.training else 0.0
        mixed = attend((queries, keys, values), self._heads, dropout, is_causal=True)
        hidden = hidden + self.drop(self.project(mixed))
        inner = functional.gelu(self.expand(self.norm2(hidden)))
        added: Tensor = hidden + self.drop(self.contract(inner))
        return added
