"""Sizes of the models, without building them or importing PyTorch."""

from __future__ import annotations

from itertools import pairwise

MOVIELENS_USERS, MOVIELENS_ITEMS = 943, 1682  # of MovieLens-100K

NCF_FACTORS = 64
NCF_MLP = (256, 256, 128, 64)
DIGITS_MLP = (64, 128, 10)


def ncf_elements(users: int, items: int) -> int:
    """Number of weights of a NeuMF: four embedding tables, and the layers above them."""
    tables = (users + items) * (NCF_FACTORS + NCF_MLP[0] // 2)
    return tables + _dense_elements(NCF_MLP) + NCF_FACTORS + NCF_MLP[-1] + 1


def digits_elements() -> int:
    """Number of weights of the small perceptron."""
    return _dense_elements(DIGITS_MLP)


def _dense_elements(sizes: tuple[int, ...]) -> int:
    """Number of weights and biases of consecutive layers of these sizes."""
    return sum(inputs * outputs + outputs for inputs, outputs in pairwise(sizes))
