"""NeuMF, the recommender of NCF."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class NeuMF(nn.Module):
    """Neural matrix factorisation for recommendation: a product of embeddings and an MLP, joined at the end.

    He et al., Neural Collaborative Filtering, WWW 2017, §3.4; `factors` and `mlp` are the widths of
    both. Gradients of the embeddings are dense tables in which only the rows of the batch are
    non-zero, or with `sparse` these rows alone.
    """

    def __init__(
        self, users: int, items: int, *, factors: int, mlp: Sequence[int], sparse: bool = False
    ) -> None:
        super().__init__()
        self.factors_user = _table(users, factors, sparse)
        self.factors_item = _table(items, factors, sparse)
        self.mlp_user = _table(users, mlp[0] // 2, sparse)
        self.mlp_item = _table(items, mlp[0] // 2, sparse)
        self.mlp = nn.Sequential(
            *(nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU()) for inputs, outputs in pairwise(mlp))
        )
        self.output = nn.Linear(factors + mlp[-1], 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits `(batch,)` of "this user has chosen this item", for indices `(batch,)` int64."""
        product = self.factors_user(users) * self.factors_item(items)
        hidden = self.mlp(torch.cat((self.mlp_user(users), self.mlp_item(items)), dim=1))
        logits: Tensor = self.output(torch.cat((product, hidden), dim=1)).squeeze(1)
        return logits


def _table(rows: int, columns: int, sparse: bool) -> nn.Embedding:
    """Embedding with the small normal start of He et al. (σ 0.01)."""
    table = nn.Embedding(rows, columns, sparse=sparse)
    nn.init.normal_(table.weight, std=0.01)
    return table
