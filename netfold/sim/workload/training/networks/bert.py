"""BERT with a head that finds the answer to a question in a text."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.training.networks.attention import attend

_DEVIATION = 0.02  # of new weights
_EPSILON = 1e-12  # of norms


class BertQuestions(nn.Module):
    """Tokens and their segments, both `(batch, time)` int64, to logits `(batch, time, 2)`: start, end.

    Google's modeling.py of BERT without the pooler, with exact GELU. The gradient of the token embedding is
    sparse: rows of a table.
    """

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        sizes: tuple[int, int, int, int],  # layers, heads, width, inner width
        dropout: float,
    ) -> None:
        super().__init__()
        layers, heads, width, inner = sizes
        self.tokens = nn.Embedding(vocabulary, width, sparse=True)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList([_Layer(width, heads, inner, dropout) for _ in range(layers)])
        self.answer = nn.Linear(width, 2)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """Logits."""
        places = torch.arange(tokens.shape[1])
        embedded = self.tokens(tokens) + self.positions(places) + self.segments(segments)
        hidden = self.drop(self.norm(embedded))
        for layer in self.layers:
            hidden = layer(hidden)
        logits: Tensor = self.answer(hidden)
        return logits


class _Layer(nn.Module):
    """Attention and an MLP, each added to its input, with a norm after it."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self._heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.project = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=_EPSILON)
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.norm2 = nn.LayerNorm(width, eps=_EPSILON)
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        parts = self.query(hidden), self.key(hidden), self.value(hidden)
        mixed = attend(parts, self._heads, self.drop.p if self.training else 0.0)
        hidden = self.norm1(hidden + self.drop(self.project(mixed)))
        inner = functional.gelu(self.expand(hidden))
        found: Tensor = self.norm2(hidden + self.drop(self.contract(inner)))
        return found
