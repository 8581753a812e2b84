"""BERT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.keys import Count, Share, count_of
from netfold.sim.workload.data_readers import CLASSIFY, SEPARATE, load_pieces
from netfold.sim.workload.model import Data, Density, Parts, Rows, TaskSettings
from netfold.sim.workload.model_task import Batches, Draw
from netfold.sim.workload.models.built_in import BuiltIn
from netfold.sim.workload.models.text import Windows, attend, check_heads, no_tokens
from netfold.sim.workload.workload import keyed

if TYPE_CHECKING:
    Pieces = int
    Sequence = int
else:
    Pieces = count_of(1000)
    """Size of a vocabulary of pieces: more than the special ones and the characters."""
    Sequence = count_of(16)
    """Tokens of a sequence, with room for a question and a text."""

_SPANS = "and the question repeats the answer, a span drawn at random"


@dataclass(frozen=True)
class BertQa(BuiltIn):
    """BERT-base, which finds the answer to a question in a text: 108,893,186 parameters (Hugging Face's)."""

    kind: ClassVar[str] = "bert_qa"
    vocabulary: Pieces = 30_522
    """Pieces of words (WordPiece); they are learned from the data and kept in the cache."""
    sequence: Sequence = 384
    """Tokens of a sample."""
    positions: Count = 512
    """Tokens of the longest sample that has weights."""
    layers: Count = 12
    """Transformer layers."""
    heads: Count = 12
    """Heads of an attention; they divide the width."""
    width: Count = 768
    """Values of a token's state."""
    inner: Count = 3072
    """Values of the hidden layer of an MLP."""
    dropout: Share = 0.1
    """Share of values that are dropped in training."""

    title: ClassVar[str] = "BERT-base (QA head)"
    source: ClassVar[str] = (
        "J. Devlin et al., BERT, NAACL 2019, §3 and §4.2; as bert-base-uncased for question answering"
    )
    data: ClassVar[tuple[Data, ...]] = (
        Data("shakespeare-kjv", f"SQuAD: the text is Shakespeare and the King James Bible, {_SPANS}"),
        Data("shakespeare", f"SQuAD: the text is Shakespeare, {_SPANS}"),
    )
    metric: ClassVar[str] = "exact match"
    densities: ClassVar[tuple[Density, ...]] = (Density(1, 0.7819, 0.7831, {"sequence": 64}),)

    def __post_init__(self) -> None:
        check_heads(self.heads, self.width)
        if self.sequence > self.positions:
            raise ValueError(
                f"sequence is {self.sequence}, more than the {self.positions} positions\n"
                "make positions larger"
            )

    @property
    def rows(self) -> Mapping[str, Rows]:
        """The tokens of a batch."""
        return {"tokens.weight": Rows(self.sequence)}

    def module(self) -> nn.Module:
        """Its network."""
        return BertQuestions(self)

    def make(self, settings: TaskSettings) -> Parts:
        """Where in the text is the answer?"""
        pieces = load_pieces(settings.data, self.vocabulary)
        data = Questions(pieces.numbers, self.sequence, settings.holds_out)
        # The loss is the mean over first and last places.
        score = data.exact_match if settings.holds_out else None
        return Parts(self.module(), data, functional.cross_entropy, score)

    def inputs(self) -> tuple[Tensor, ...]:
        """Tokens and segments."""
        return no_tokens(1, self.sequence), no_tokens(1, self.sequence)


# The network.


_DEVIATION = 0.02
"""Standard deviation of new weights."""
_EPSILON = 1e-12
"""What norms add to the variance."""


class BertQuestions(nn.Module):
    """Tokens and their segments, both `(batch, time)` int64, to logits `(batch, time, 2)`: start, end.

    Google's modeling.py of BERT without the pooler, with exact GELU. The gradient of the token embedding is
    sparse: rows of a table.
    """

    def __init__(self, options: BertQa) -> None:
        super().__init__()
        width = options.width
        self.tokens = nn.Embedding(options.vocabulary, width, sparse=True)
        self.positions = nn.Embedding(options.positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.drop = nn.Dropout(options.dropout)
        self.layers = nn.ModuleList([_Layer(options) for _ in range(options.layers)])
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

    def __init__(self, options: BertQa) -> None:
        super().__init__()
        width, inner = options.width, options.inner
        self._heads = options.heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.project = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=_EPSILON)
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.norm2 = nn.LayerNorm(width, eps=_EPSILON)
        self.drop = nn.Dropout(options.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        parts = self.query(hidden), self.key(hidden), self.value(hidden)
        mixed = attend(parts, self._heads, self.drop.p if self.training else 0.0)
        hidden = self.norm1(hidden + self.drop(self.project(mixed)))
        inner = functional.gelu(self.expand(hidden))
        normed: Tensor = self.norm2(hidden + self.drop(self.contract(inner)))
        return normed


# The data: windows of a text, and in front of each a question, which repeats a span of it, the answer.


SHORTEST, LONGEST = 4, 16  # tokens of a question; the longest is also a quarter of the sequence at most

_TESTED = 64  # windows
_TESTED_AT_ONCE = 4


class Questions(Windows, Batches):
    """Which span of a text does the question repeat? Spans are drawn at random.

    A sequence is as in BERT's use of SQuAD: [CLS] question [SEP] text [SEP]; the question is of segment 0,
    and from the text on it is segment 1. It has no padding.
    """

    def __init__(self, tokens: NDArray[np.int64], sequence: int, holds_out: bool) -> None:
        super().__init__(tokens, sequence, holds_out, _TESTED)

    def batch(self, shard: NDArray[np.int64], draw: Draw) -> tuple[tuple[Tensor, ...], Tensor]:
        """Tokens and segments `(batch, sequence)`, and the answers' places `(batch, 2)`, all int64."""
        return asked(self.drawn(shard, draw), draw.keyed("spans"))

    def exact_match(self, module: nn.Module) -> float:
        """The share of held-out answers of which both places have the largest finite logit."""
        (tokens, segments), answers = asked(self.tested, keyed(0, "held-out spans"))
        parts = zip(
            *(torch.split(part, _TESTED_AT_ONCE) for part in (tokens, segments, answers)), strict=True
        )
        rights = [_is_right(module(words, kinds), places) for words, kinds, places in parts]
        return torch.cat(rights).double().mean().item()


def asked(windows: NDArray[np.int64], generator: np.random.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Sequences of windows `(batch, sequence)` of text, whose last tokens make room for the question."""
    sequence = windows.shape[1]
    longest = min(LONGEST, sequence // 4)
    tokens, segments = np.empty_like(windows), np.zeros_like(windows)
    answers = np.empty((len(windows), 2), np.int64)
    for row, window in enumerate(windows):
        size = int(generator.integers(SHORTEST, longest + 1))
        text = window[: sequence - size - 3]
        start = int(generator.integers(len(text) - size + 1))
        question = text[start : start + size]
        tokens[row] = [CLASSIFY, *question, SEPARATE, *text, SEPARATE]
        segments[row, size + 2 :] = 1
        answers[row] = size + 2 + start, size + 1 + start + size
    return (torch.from_numpy(tokens), torch.from_numpy(segments)), torch.from_numpy(answers)


def _is_right(logits: Tensor, answers: Tensor) -> Tensor:
    """Whether both places of each answer are found."""
    is_right: Tensor = (logits.argmax(1) == answers).all(1) & logits.isfinite().flatten(1).all(1)
    return is_right
