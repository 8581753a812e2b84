"""A GPT: a transformer that predicts the next token."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.training.networks.attention import attend

_DEVIATION = 0.02  # of new weights


class GptNetwork(nn.Module):
    """Tokens `(batch, time)`, int64, to logits of the token after each, `(batch, time, vocabulary)`.

    As nanoGPT's model.py: norms before attention and MLP, exact GELU, and an output that shares the weights
    of the token embedding.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int,
        sizes: tuple[int, int, int],  # layers, heads, width
        dropout: float,
        has_bias: bool,
    ) -> None:
        super().__init__()
        layers, heads, width = sizes
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([_Block(width, heads, dropout, has_bias) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, bias=has_bias)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                is_residual = name.endswith(("project.weight", "contract.weight"))
                nn.init.normal_(parameter, std=_DEVIATION / math.sqrt(2 * layers if is_residual else 1))
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

    def __init__(self, width: int, heads: int, dropout: float, has_bias: bool) -> None:
        super().__init__()
        self._heads = heads
        self.norm1 = nn.LayerNorm(width, bias=has_bias)
        self.attend = nn.Linear(width, 3 * width, bias=has_bias)  # queries, keys, values
        self.project = nn.Linear(width, width, bias=has_bias)
        self.norm2 = nn.LayerNorm(width, bias=has_bias)
        self.expand = nn.Linear(width, 4 * width, bias=has_bias)
        self.contract = nn.Linear(4 * width, width, bias=has_bias)
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        queries, keys, values = self.attend(self.norm1(hidden)).chunk(3, dim=2)
        dropout = self.drop.p if self.training else 0.0
        mixed = attend((queries, keys, values), self._heads, dropout, is_causal=True)
        hidden = hidden + self.drop(self.project(mixed))
        inner = functional.gelu(self.expand(self.norm2(hidden)))
        added: Tensor = hidden + self.drop(self.contract(inner))
        return added
