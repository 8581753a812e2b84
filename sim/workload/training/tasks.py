"""Training tasks: a model, its loss, and the samples of each worker at each step.

Samples depend on (seed, step, worker) alone. Each worker draws from its own shard of the data, with
replacement.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.draws import keyed, shards
from netfold.sim.workload.training.images import Digits
from netfold.sim.workload.training.models import NeuMF, Perceptron
from netfold.sim.workload.training.ratings import Ratings

NEGATIVES = 4  # unrated items per rated one: He et al., Neural Collaborative Filtering, WWW 2017, §4.1


class Task(Protocol):
    """A model with data for a fixed number of workers."""

    def build(self) -> nn.Module:
        """Return the model with new weights from PyTorch's global generator."""
        ...

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs of the model and targets of the loss: one batch."""
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean over the batch, a scalar."""
        ...


class DigitsTask:
    """Recognition of handwritten digits by a perceptron of the given sizes."""

    def __init__(
        self, digits: Digits, sizes: tuple[int, int, int], batch: int, workers: int, seed: int
    ) -> None:
        self._sizes = sizes
        self._images = torch.from_numpy(digits.images)
        self._labels = torch.from_numpy(digits.labels)
        self._shards = shards(len(digits.labels), workers, seed)
        self._batch = batch
        self._seed = seed

    def build(self) -> nn.Module:
        """Return a Perceptron."""
        return Perceptron(self._sizes)

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Images `(batch, pixels)` and labels `(batch,)`."""
        chosen = keyed(self._seed, "batch", step, worker).choice(self._shards[worker], self._batch)
        return (self._images[chosen],), self._labels[chosen]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy."""
        return functional.cross_entropy(outputs, targets)


class RecommenderTask:
    """Prediction of whether a user has rated an item, on ratings expanded to any size.

    The expansion is the Kronecker product of the ratings with a small copy of themselves, which keeps the
    uneven popularity of users and items at the larger size (Belletti et al., Scalable Realistic
    Recommendation Datasets through Fractal Expansions, arXiv:1901.08910; the small copy here is block
    counts, in the paper a factorisation). With `copies` (a, b) user u's copy x is number u + x·users, item
    i's copy y is i + y·items, and the small copy has a·b blocks of neighbouring users and items. An
    expanded rating is a pair of ratings, one for (u, i) and one whose block is (x, y), so the product is
    sampled and never built.
    """

    def __init__(
        self, ratings: Ratings, copies: tuple[int, int], batch: int, workers: int, seed: int
    ) -> None:
        self._ratings = ratings
        self._copies = copies
        self._rated = _table(ratings.users, ratings.items, (ratings.users_count, ratings.items_count))
        self._user_blocks = ratings.users * copies[0] // ratings.users_count
        self._item_blocks = ratings.items * copies[1] // ratings.items_count
        self._rated_blocks = _table(self._user_blocks, self._item_blocks, copies)
        self._shards = shards(len(ratings.users), workers, seed)
        self._batch = batch
        self._seed = seed

    def build(self) -> nn.Module:
        """Return a NeuMF for the expanded users and items."""
        return NeuMF(self._ratings.users_count * self._copies[0], self._ratings.items_count * self._copies[1])

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

    def is_rated(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the expanded ratings hold these pairs of expanded users and items; arguments broadcast."""
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


def _table(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Mask of the given shape, set at the given places."""
    mask = np.zeros(shape, np.bool_)
    mask[rows, columns] = True
    return mask
