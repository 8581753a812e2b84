"""Ratings to train a recommender with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.workload.training.data.fetch import fetch


class Ratings(NamedTuple):
    """Pairs of user and rated item, both `(ratings,)` and numbered from 0, and when they were rated."""

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    times: NDArray[np.int64]  # seconds
    users_count: int
    items_count: int


def load_movielens() -> Ratings:
    """Return all 100 000 ratings of `movielens-100k`, without stars."""
    table = np.loadtxt(fetch("movielens-100k"), skiprows=1, usecols=(0, 1, 3), dtype=np.int64)
    users, items, times = np.ascontiguousarray(table.T)
    return Ratings(users - 1, items - 1, times, int(users.max()), int(items.max()))
