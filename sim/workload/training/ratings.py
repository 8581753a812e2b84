"""Ratings to train a recommender with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.workload.training.data import fetch


class Ratings(NamedTuple):
    """Pairs of user and rated item, both `(ratings,)` and numbered from 0."""

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    users_count: int
    items_count: int


def load_movielens() -> Ratings:
    """Return all 100 000 ratings of `movielens-100k`, without stars and dates."""
    table = np.loadtxt(fetch("movielens-100k"), skiprows=1, usecols=(0, 1), dtype=np.int64)
    users, items = np.ascontiguousarray(table.T) - 1
    return Ratings(users, items, int(users.max()) + 1, int(items.max()) + 1)
