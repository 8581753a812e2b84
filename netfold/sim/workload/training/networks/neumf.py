"""NeuMF, the recommender of NCF."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from netfold.sim.workload.training.models.ncf import FACTORS, MLP


class NeuMF(nn.Module):
    """Neural matrix factorisation for recommendation: a product of embeddings and an MLP, joined at the end.

    He et al., Neural Collaborative Filtering, WWW 2017, §3.4; sizes as in MLPerf training 0.5: factors 64,
    MLP 256-256-128-64. Gradients of the embeddings are dense tables in which only the rows of the batch are
    non-zero, or with `sparse` these rows alone.
    """

    FACTORS = FACTORS
    MLP = MLP

    def __init__(self, users: int, items: int, sparse: bool = False) -> None:
        super().__init__()
        self.factors_user = _table(users, self.FACTORS, sparse)
        self.factors_item = _table(items, self.FACTORS, sparse)
        self.mlp_user = _table(users, self.MLP[0] // 2, sparse)
        self.mlp_item = _table(items, self.MLP[0] // 2, sparse)
        self.mlp = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU())
                for inputs, outputs in zip(self.MLP, self.MLP[1:], strict=False)
            )
        )
        self.output = nn.Linear(self.FACTORS + self.MLP[-1], 1)

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
