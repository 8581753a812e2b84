"""NCF: a recommender with embedding tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.keys import Pair
from netfold.sim.workload.data_readers import Ratings, load_movielens
from netfold.sim.workload.model import Data, Density, ModelFacts, Parts, Rows, TaskSettings
from netfold.sim.workload.model_task import Batches, Draw
from netfold.sim.workload.models.built_in import BuiltIn
from netfold.sim.workload.models.text import no_tokens
from netfold.sim.workload.workload import keyed

USERS, ITEMS = 943, 1682
"""Numbers of users and items of MovieLens-100K."""
FACTORS = 64
MLP = (256, 256, 128, 64)
EXPANDED = {  # copies, and the ratings whose numbers of users and items they come near
    (7, 3): "MovieLens-1M",
    (147, 16): "MovieLens-20M",
    (587, 254): "MovieLens-20M, expanded 4 x 16 as in MLPerf training",
}


@dataclass(frozen=True)
class Ncf(BuiltIn):
    """Neural collaborative filtering (NeuMF) with 611,073 parameters: which films does a user rate?"""

    kind: ClassVar[str] = "ncf"
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
    chance: ClassVar[float] = 0.1  # ten of a hundred films

    @property
    def users(self) -> int:
        """Rows of the users' tables."""
        return USERS * self.expand[0]

    @property
    def items(self) -> int:
        """Rows of the items' tables."""
        return ITEMS * self.expand[1]

    def known(self) -> ModelFacts:
        """Expanded ratings take the place of a larger data set; they are sampled and never built."""
        facts, (users, items) = super().known(), self.expand
        facts = facts.model_copy(update={"table_bytes": users * items})  # which blocks have ratings
        if self.expand == (1, 1):
            return facts
        larger = EXPANDED.get(self.expand, "a larger data set")
        stands_in_for = f"{larger}: each user {users} times and each item {items} times"
        data = tuple(data_set._replace(stands_in_for=stands_in_for) for data_set in self.data)
        untestable = "expanded ratings cannot be held out\nremove evaluate, or expand"
        return facts.model_copy(update={"data": data, "untestable": untestable})

    @property
    def rows(self) -> Mapping[str, Rows]:
        """The users and the items of a batch."""
        if not self.sparse:
            return {}
        users, items = Rows(per=1 + NEGATIVES), Rows()
        return {
            "mlp_item.weight": items,
            "mlp_user.weight": users,
            "factors_item.weight": items,
            "factors_user.weight": users,
        }

    def module(self) -> nn.Module:
        """Its network."""
        return NeuMF(self.users, self.items, self.sparse)

    def make(self, settings: TaskSettings) -> Parts:
        """Which items does a user choose?"""
        return self.choosing(load_movielens(), settings)

    def choosing(self, ratings: Ratings, settings: TaskSettings) -> Parts:
        """The parts of a training on these ratings."""
        tests = held_out(ratings, settings.seed) if settings.holds_out else None
        data = ExpandedRatings(ratings, self.expand, tests)
        loss, score = functional.binary_cross_entropy_with_logits, data.hit_rate if tests else None
        return Parts(self.module(), data, loss, score)

    def inputs(self) -> tuple[Tensor, ...]:
        """A user and an item."""
        return no_tokens(1), no_tokens(1)


# The network.


class NeuMF(nn.Module):
    """Neural matrix factorisation for recommendation: a product of embeddings and an MLP, joined at the end.

    He et al., Neural Collaborative Filtering, WWW 2017, §3.4. Gradients of the embeddings are dense tables in
    which only the rows of the batch are non-zero, or with `sparse` these rows alone. A pass looks up each of
    the `tables` once.
    """

    def __init__(self, users: int, items: int, sparse: bool = False) -> None:
        super().__init__()
        self.factors_user = _embedding(users, FACTORS, sparse)
        self.factors_item = _embedding(items, FACTORS, sparse)
        self.mlp_user = _embedding(users, MLP[0] // 2, sparse)
        self.mlp_item = _embedding(items, MLP[0] // 2, sparse)
        self.tables = self.factors_user, self.factors_item, self.mlp_user, self.mlp_item
        self.mlp = nn.Sequential(
            *(nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU()) for inputs, outputs in pairwise(MLP))
        )
        self.output = nn.Linear(FACTORS + MLP[-1], 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits `(batch,)` of "this user has chosen this item", for indices `(batch,)` int64."""
        product = self.factors_user(users) * self.factors_item(items)
        hidden = self.mlp(torch.cat((self.mlp_user(users), self.mlp_item(items)), dim=1))
        logits: Tensor = self.output(torch.cat((product, hidden), dim=1)).squeeze(1)
        return logits


def _embedding(rows: int, columns: int, sparse: bool) -> nn.Embedding:
    """Embedding with the small normal start of He et al. (σ 0.01)."""
    embedding = nn.Embedding(rows, columns, sparse=sparse)
    nn.init.normal_(embedding.weight, std=0.01)
    return embedding


# The data: which items has a user rated?


# He et al., Neural Collaborative Filtering, WWW 2017, §4.1
NEGATIVES = 4  # unrated items per rated one, in training
RIVALS = 99  # unrated items beside the held-out one, in tests
TOP = 10  # the held-out item must be among so many

_USERS_AT_ONCE = 64
"""Users that are tested at once: activations stay in the cache."""


class HeldOut(NamedTuple):
    """What is held out, one test per user who has rated something."""

    ratings: NDArray[np.int64]  # (users,): which ratings
    users: NDArray[np.int64]  # (users,)
    items: NDArray[np.int64]  # (users, 1 + rivals): the held-out item, then items that the user never rated


class ExpandedRatings(Batches):
    """Prediction of whether a user has rated an item, on ratings expanded to any size.

    The expansion is the Kronecker product of the ratings with a small copy of themselves, which keeps the
    uneven popularity of users and items at the larger size (Belletti et al., Scalable Realistic
    Recommendation Datasets through Fractal Expansions, arXiv:1901.08910; the small copy here is block
    counts, in the paper a factorisation). With `copies` (a, b) user u's copy x is number u + x·users, item
    i's copy y is i + y·items, and the small copy has a·b blocks of neighbouring users and items. An
    expanded rating is a pair of ratings, one for (u, i) and one whose block is (x, y), so the product is
    sampled and never built.

    The last rating of each user can be held out (`held_out`), if nothing is expanded.
    """

    def __init__(self, ratings: Ratings, copies: tuple[int, int], tests: HeldOut | None = None) -> None:
        self.tests = tests
        if tests is not None:
            ratings = without(ratings, tests.ratings)
        self._ratings, self._copies = ratings, copies
        self._rated = _mask(ratings.users, ratings.items, (ratings.users_count, ratings.items_count))
        self._user_blocks = ratings.users * copies[0] // ratings.users_count
        self._item_blocks = ratings.items * copies[1] // ratings.items_count
        self._rated_blocks = _mask(self._user_blocks, self._item_blocks, copies)

    def __len__(self) -> int:
        return len(self._ratings.users)

    def batch(self, shard: NDArray[np.int64], draw: Draw) -> tuple[tuple[Tensor, ...], Tensor]:
        """Users and items, both `(batch,)` int64, and labels `(batch,)`: 1, 0, 0, 0, 0, 1, 0 …

        Each rated pair is followed by `NEGATIVES` random items that the same user has not rated.
        """
        generator, groups = draw.generator, -(-draw.batch // (1 + NEGATIVES))
        base = generator.choice(shard, groups)
        blocks = generator.integers(len(self._ratings.users), size=groups)
        users = self._ratings.users[base] + self._ratings.users_count * self._user_blocks[blocks]
        rated = self._ratings.items[base] + self._ratings.items_count * self._item_blocks[blocks]
        items = np.column_stack((rated, self._unrated(users, generator)))
        labels = np.zeros(items.shape, np.float32)
        labels[:, 0] = 1
        flat = (users.repeat(1 + NEGATIVES), items.reshape(-1), labels.reshape(-1))
        user_batch, item_batch, targets = (torch.from_numpy(part[: draw.batch]) for part in flat)
        return (user_batch, item_batch), targets

    def hit_rate(self, module: nn.Module) -> float:
        """HR@10: the share of held-out items that are among the ten with the largest logits of their 100.

        Items of the same logit count as better, so that a model that cannot tell items apart has 0; so do
        logits that are not numbers.
        """
        assert self.tests is not None
        hits = 0
        for first in range(0, len(self.tests.users), _USERS_AT_ONCE):
            users, items = (part[first : first + _USERS_AT_ONCE] for part in self.tests[1:])
            pairs = (users.repeat(items.shape[1]), items.reshape(-1))
            logits = module(*map(torch.from_numpy, pairs)).reshape(items.shape)
            better = (~(logits[:, 1:] < logits[:, :1])).sum(1)
            hits += int((better < TOP).sum())
        return hits / len(self.tests.users)

    def is_rated(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether expanded users have rated expanded items."""
        # Held-out ratings do not count: in training their items are
        # unrated ones, as others are.
        user_copies, base_users = np.divmod(users, self._ratings.users_count)
        item_copies, base_items = np.divmod(items, self._ratings.items_count)
        return self._rated[base_users, base_items] & self._rated_blocks[user_copies, item_copies]

    def _unrated(self, users: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
        """Uniform items `(users, NEGATIVES)` that the user has not rated: rated ones are drawn again."""
        items_count = self._ratings.items_count * self._copies[1]
        items = generator.integers(items_count, size=(len(users), NEGATIVES))
        while (rated := self.is_rated(users[:, None], items)).any():
            items[rated] = generator.integers(items_count, size=int(rated.sum()))
        return items


def held_out(ratings: Ratings, seed: int) -> HeldOut:
    """The last rating of each user (of several at the same time, the last in the file), and its rivals.

    A user has `RIVALS` different rivals, all items that it has not rated in any order if they are fewer.
    """
    order = np.lexsort((np.arange(len(ratings.times)), ratings.times, ratings.users))
    last = order[np.flatnonzero(np.diff(ratings.users[order], append=-1))]
    is_rated = _mask(ratings.users, ratings.items, (ratings.users_count, ratings.items_count))
    rivals_count = min(RIVALS, ratings.items_count - int(is_rated.sum(1).max()))
    users = ratings.users[last]
    rivals = [
        keyed(seed, "rivals", user).permutation(np.flatnonzero(~is_rated[user]))[:rivals_count]
        for user in users.tolist()
    ]
    return HeldOut(last, users, np.column_stack((ratings.items[last], np.array(rivals))))


def without(ratings: Ratings, left_out: NDArray[np.int64]) -> Ratings:
    """Ratings without some, for the same users and items."""
    users, items, times = (np.delete(part, left_out) for part in ratings[:3])
    return ratings._replace(users=users, items=items, times=times)


def _mask(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Mask of the given shape, set at the given places."""
    mask = np.zeros(shape, np.bool_)
    mask[rows, columns] = True
    return mask
