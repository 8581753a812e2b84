"""The task of a recommender: which items does a user choose?"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.training.data.ratings import Ratings
from netfold.sim.workload.workload import Score, keyed, shards

# He et al., Neural Collaborative Filtering, WWW 2017, §4.1
NEGATIVES = 4  # unrated items per rated one, in training
RIVALS = 99  # unrated items beside the held-out one, in tests
TOP = 10  # the held-out item must be among so many

_USERS_AT_ONCE = 64  # in a test: activations stay in the cache


class HeldOut(NamedTuple):
    """What is held out, one test per user who has rated something."""

    ratings: NDArray[np.int64]  # (users,): which ratings
    users: NDArray[np.int64]  # (users,)
    items: NDArray[np.int64]  # (users, 1 + rivals): the held-out item, then items that the user never rated


class RecommenderTask:
    """Prediction of whether a user has rated an item, on ratings expanded to any size.

    The expansion is the Kronecker product of the ratings with a small copy of themselves, which keeps the
    uneven popularity of users and items at the larger size (Belletti et al., Scalable Realistic
    Recommendation Datasets through Fractal Expansions, arXiv:1901.08910; the small copy here is block
    counts, in the paper a factorisation). With `copies` (a, b) user u's copy x is number u + x·users, item
    i's copy y is i + y·items, and the small copy has a·b blocks of neighbouring users and items. An
    expanded rating is a pair of ratings, one for (u, i) and one whose block is (x, y), so the product is
    sampled and never built.

    The last rating of each user can be held out (`tests` says which), if nothing is expanded.
    """

    def __init__(
        self,
        network: Callable[[int, int], nn.Module],
        ratings: Ratings,
        copies: tuple[int, int],
        *,
        batch: int,
        workers: int,
        seed: int,
        holds_out: bool = False,
    ) -> None:
        """`network` makes the model for a number of users and one of items."""
        self.tests = held_out(ratings, seed) if holds_out else None
        if self.tests is not None:
            ratings = without(ratings, self.tests.ratings)
        self._ratings = ratings
        self._network, self._copies = network, copies
        self._rated = _table(ratings.users, ratings.items, (ratings.users_count, ratings.items_count))
        self._user_blocks = ratings.users * copies[0] // ratings.users_count
        self._item_blocks = ratings.items * copies[1] // ratings.items_count
        self._rated_blocks = _table(self._user_blocks, self._item_blocks, copies)
        self._shards = shards(len(ratings.users), workers, seed)
        self._batch = batch
        self._seed = seed

    def build(self) -> nn.Module:
        """The model for the expanded users and items."""
        users, items = (count * copies for count, copies in zip(self._ratings[3:], self._copies, strict=True))
        return self._network(users, items)

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Users and items, both `(batch,)` int64, and labels `(batch,)`: 1, 0, 0, 0, 0, 1, 0 …

        Each rated pair is followed by `NEGATIVES` random items that the same user has not rated.
        """
        generator = keyed(self._seed, "batch", step, worker)
        groups = -(-self._batch // (1 + NEGATIVES))
        base = generator.choice(self._shards[worker], groups)
        blocks = generator.integers(len(self._ratings.users), size=groups)
        users = self._ratings.users[base] + self._ratings.users_count * self._user_blocks[blocks]
        rated = self._ratings.items[base] + self._ratings.items_count * self._item_blocks[blocks]
        items = np.column_stack((rated, self._unrated(users, generator)))
        labels = np.zeros(items.shape, np.float32)
        labels[:, 0] = 1
        flat = (users.repeat(1 + NEGATIVES), items.reshape(-1), labels.reshape(-1))
        user_batch, item_batch, targets = (torch.from_numpy(part[: self._batch]) for part in flat)
        return (user_batch, item_batch), targets

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Binary cross entropy of logits."""
        return functional.binary_cross_entropy_with_logits(outputs, targets)

    def score(self, model: nn.Module) -> Score | None:
        """HR@10: the share of held-out items that are among the ten with the largest logits of their 100.

        Items of the same logit count as better, so that a model that cannot tell items apart has 0; so do
        logits that are not numbers.
        """
        if self.tests is None:
            return None
        hits = 0
        for first in range(0, len(self.tests.users), _USERS_AT_ONCE):
            users, items = (part[first : first + _USERS_AT_ONCE] for part in self.tests[1:])
            pairs = (users.repeat(items.shape[1]), items.reshape(-1))
            logits = model(*map(torch.from_numpy, pairs)).reshape(items.shape)
            better = (~(logits[:, 1:] < logits[:, :1])).sum(1)
            hits += int((better < TOP).sum())
        return Score(f"HR@{TOP}", hits / len(self.tests.users))

    def is_rated(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the expanded ratings hold these pairs of expanded users and items; arguments broadcast.

        Held-out ratings are not among them: in training their items are unrated ones, as others are.
        """
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
    is_rated = _table(ratings.users, ratings.items, (ratings.users_count, ratings.items_count))
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


def _table(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Mask of the given shape, set at the given places."""
    mask = np.zeros(shape, np.bool_)
    mask[rows, columns] = True
    return mask
