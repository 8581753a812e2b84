"""BERT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from netfold.homomorphic.message import Tensor
from netfold.sim.keys import Count, Share
from netfold.sim.workload.layers import placed
from netfold.sim.workload.model import (
    Data,
    Density,
    Model,
    Pieces,
    Sequence,
    TaskSettings,
    check_heads,
    embedding,
    linear,
    norm,
)

if TYPE_CHECKING:
    from torch import nn

    from netfold.sim.workload.model import Task


_SPANS = "and the question repeats the answer, a span drawn at random"


class BertQa(Model):
    """BERT-base, which finds the answer to a question in a text."""

    kind: Literal["bert_qa"] = "bert_qa"
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

    @model_validator(mode="after")
    def _has_positions(self) -> BertQa:
        check_heads(self.heads, self.width)
        if self.sequence > self.positions:
            raise ValueError(
                f"sequence is {self.sequence}, more than the {self.positions} positions\n"
                "make positions larger"
            )
        return self

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """From the head to the embeddings; the tables of these after their norm."""
        width = self.width
        found = [*linear("answer", width, 2)]
        for index in reversed(range(self.layers)):
            name = f"layers.{index}."
            found += norm(name + "norm2", width, layer=name + "contract")
            found += linear(name + "contract", self.inner, width)
            found += linear(name + "expand", width, self.inner)
            found += norm(name + "norm1", width, layer=name + "project")
            for part in ("project", "value", "key", "query"):
                found += linear(name + part, width, width)
        found += norm("norm", width, layer="segments")
        tables = (("segments", 2), ("positions", self.positions), ("tokens", self.vocabulary))
        return placed([*found, *(table for name, rows in tables for table in embedding(name, rows, width))])

    def row_tables(self, batch: int) -> Mapping[str, int]:
        """The tokens of a batch."""
        return {"tokens.weight": min(self.vocabulary, batch * self.sequence)}

    def module(self) -> nn.Module:
        """A BertQuestions."""
        from netfold.sim.workload.networks import BertQuestions

        sizes = self.layers, self.heads, self.width, self.inner
        return BertQuestions(self.vocabulary, self.positions, sizes, self.dropout)

    def task(self, settings: TaskSettings) -> Task:
        """Where in the text is the answer?"""
        from netfold.sim.workload.data_readers import load_pieces
        from netfold.sim.workload.tasks import QuestionsTask

        pieces = load_pieces(settings.data, self.vocabulary)
        return QuestionsTask(pieces.numbers, self.module, settings, self.sequence)
