"""NCF: a recommender with embedding tables."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal

from netfold.homomorphic.message import Tensor
from netfold.sim.keys import Pair
from netfold.sim.workload.layers import placed
from netfold.sim.workload.model import Data, Density, Model, TaskSettings, embedding, linear

if TYPE_CHECKING:
    from torch import nn

    from netfold.sim.workload.model import Task


USERS, ITEMS = 943, 1682
"""Numbers of users and items of MovieLens-100K."""
FACTORS = 64
MLP = (256, 256, 128, 64)
EXPANDED = {  # copies, and the ratings whose numbers of users and items they come near
    (7, 3): "MovieLens-1M",
    (147, 16): "MovieLens-20M",
    (587, 254): "MovieLens-20M, expanded 4 x 16 as in MLPerf training",
}
POSITIVES = 5  # one sample in so many is a rating; the others have its user


class Ncf(Model):
    """Neural collaborative filtering (NeuMF): which films does a user rate?"""

    kind: Literal["ncf"] = "ncf"
    expand: Pair = (1, 1)
    """Copies of the users and of the items; [147, 16] gives the size of MovieLens-20M."""
    sparse: bool = False
    """Whether gradients of the tables are computed as the rows that a batch uses, instead of whole tables."""

    title: ClassVar[str] = "NCF (NeuMF)"
    source: ClassVar[str] = (
        "He et al., Neural Collaborative Filtering, WWW 2017, §3.4; sizes as in MLPerf training 0.5"
    )
    data: ClassVar[tuple[Data, ...]] = (Data("movielens-100k"),)
    densities: ClassVar[tuple[Density, ...]] = (
        Density(256, 0.180, 0.549),
        Density(2048, 0.191, 0.576, {"expand": (7, 3)}),
        Density(4096, 0.0293, 0.147, {"expand": (147, 16)}),
        Density(131_072, 0.136, 0.514, {"expand": (587, 254)}),
    )
    metric: ClassVar[str] = "HR@10"

    @property
    def users(self) -> int:
        """Rows of the users' tables."""
        return USERS * self.expand[0]

    @property
    def items(self) -> int:
        """Rows of the items' tables."""
        return ITEMS * self.expand[1]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The layers from the last on, then four tables."""
        hidden = [
            tensor
            for index, (inputs, outputs) in reversed(list(enumerate(pairwise(MLP))))
            for tensor in linear(f"mlp.{index}.0", inputs, outputs)
        ]
        tables = [
            tensor
            for name, rows, columns in (
                ("mlp_item", self.items, MLP[0] // 2),
                ("mlp_user", self.users, MLP[0] // 2),
                ("factors_item", self.items, FACTORS),
                ("factors_user", self.users, FACTORS),
            )
            for tensor in embedding(name, rows, columns)
        ]
        return placed([*linear("output", FACTORS + MLP[-1], 1), *hidden, *tables])

    @property
    def untestable(self) -> str:
        """Expanded ratings are sampled and never built."""
        if self.expand == (1, 1):
            return ""
        return "expanded ratings cannot be held out\nremove evaluate, or expand"

    @property
    def table_bytes(self) -> int:
        """Which blocks of the small copy have ratings."""
        return self.expand[0] * self.expand[1]

    def stands_in_for(self, data: str | None) -> str:
        """Expanded ratings take the place of a larger data set."""
        if self.expand == (1, 1):
            return super().stands_in_for(data)
        users, items = self.expand
        larger = EXPANDED.get(self.expand, "a larger data set")
        return f"{larger}: each user {users} times and each item {items} times"

    def row_tables(self, batch: int) -> Mapping[str, int]:
        """The users and the items of a batch."""
        if not self.sparse:
            return {}
        users, items = min(self.users, -(-batch // POSITIVES)), min(self.items, batch)
        return {
            "mlp_item.weight": items,
            "mlp_user.weight": users,
            "factors_item.weight": items,
            "factors_user.weight": users,
        }

    def module(self) -> nn.Module:
        """A NeuMF."""
        return self.network(self.users, self.items)

    def network(self, users: int, items: int) -> nn.Module:
        """A NeuMF for so many users and items."""
        from netfold.sim.workload.networks import NeuMF

        return NeuMF(users, items, factors=FACTORS, mlp=MLP, sparse=self.sparse)

    def task(self, settings: TaskSettings) -> Task:
        """Which items does a user choose?"""
        from netfold.sim.workload.data_readers import load_movielens
        from netfold.sim.workload.tasks import RecommenderTask

        _, batch, workers, seed, holds_out = settings
        return RecommenderTask(
            self.network,
            load_movielens(),
            self.expand,
            batch=batch,
            workers=workers,
            seed=seed,
            holds_out=holds_out,
        )
