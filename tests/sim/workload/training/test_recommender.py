"""Expanded ratings, against the expanded table written out with numpy.kron."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.sim.workload.training.data.ratings import Ratings
from netfold.sim.workload.training.tasks.recommender import RecommenderTask
from tests.examples import examples


@st.composite
def small_ratings(draw: st.DrawFn) -> Ratings:
    """A few users who each leave at least three items unrated."""
    users_count, items_count = draw(st.integers(1, 6)), draw(st.integers(4, 9))
    chosen = draw(
        st.lists(
            st.sets(st.integers(0, items_count - 1), max_size=items_count - 3),
            min_size=users_count,
            max_size=users_count,
        ).filter(any)
    )
    pairs = np.array([(user, item) for user, items in enumerate(chosen) for item in sorted(items)])
    return Ratings(pairs[:, 0], pairs[:, 1], np.arange(len(pairs)), users_count, items_count)


def expanded(ratings: Ratings, copies: tuple[int, int]) -> NDArray[np.bool_]:
    """The whole expanded table, copies outermost: small copy ⊗ ratings."""
    table = np.zeros((ratings.users_count, ratings.items_count), bool)
    blocks = np.zeros(copies, bool)
    for user, item in zip(ratings.users, ratings.items, strict=True):
        table[user, item] = True
        blocks[user * copies[0] // ratings.users_count, item * copies[1] // ratings.items_count] = True
    return np.kron(blocks, table)


@examples(30)
@given(
    small_ratings(), st.tuples(st.integers(1, 4), st.integers(1, 4)), st.integers(1, 40), st.integers(0, 99)
)
def test_samples_are_rated_and_unrated_pairs(
    ratings: Ratings, copies: tuple[int, int], batch: int, seed: int
) -> None:
    task = RecommenderTask(ratings, copies, batch, workers=1, seed=seed)
    (users, items), labels = task.samples(step=3, worker=0)
    table = expanded(ratings, copies)

    assert ([1.0, 0, 0, 0, 0] * batch)[:batch] == labels.tolist()
    assert table[users.numpy(), items.numpy()].tolist() == (labels == 1).tolist()
    assert torch.int64 == users.dtype == items.dtype
    assert torch.float32 == labels.dtype
    for start in range(0, batch, 5):
        assert len(set(users[start : start + 5].tolist())) == 1


@examples(30)
@given(small_ratings(), st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_is_rated_is_the_kronecker_product(ratings: Ratings, copies: tuple[int, int]) -> None:
    task = RecommenderTask(ratings, copies, batch=1, workers=1, seed=0)
    table = expanded(ratings, copies)
    indices = np.indices(table.shape)

    assert np.array_equal(table, task.is_rated(indices[0], indices[1]))


def test_copies_keep_popularity_uneven(movielens: Ratings) -> None:
    """Blocks of a fractal expansion are as uneven as the ratings, in the frequencies of the small copy."""
    task = RecommenderTask(movielens, (1, 4), batch=100_000, workers=1, seed=2)
    (_, items), _ = task.samples(step=0, worker=0)
    small = np.bincount(movielens.items * 4 // 1682) / 100_000
    drawn = np.bincount(items[::5] // 1682) / 20_000

    np.testing.assert_allclose(drawn, small, atol=5 * np.sqrt(0.25 / 20_000))
