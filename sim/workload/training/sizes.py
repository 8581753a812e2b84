"""Tensors of the models, without building them or importing PyTorch."""

from __future__ import annotations

from itertools import pairwise

from netfold.homomorphic.round import Tensor
from netfold.sim.workload.layers import placed, tensor_of

MOVIELENS_USERS, MOVIELENS_ITEMS = 943, 1682  # of MovieLens-100K

NCF_FACTORS = 64
NCF_MLP = (256, 256, 128, 64)
DIGITS_MLP = (64, 128, 10)


def ncf_tensors(users: int, items: int) -> tuple[Tensor, ...]:
    """The weights of a NeuMF, in gradient-ready order: the layers from the last on, then four tables."""
    hidden = [
        tensor
        for index, (inputs, outputs) in reversed(list(enumerate(pairwise(NCF_MLP))))
        for tensor in _dense(f"mlp.{index}.0", inputs, outputs)
    ]
    tables = [
        tensor_of(f"{name}.weight", (rows, columns))
        for name, rows, columns in (
            ("mlp_item", items, NCF_MLP[0] // 2),
            ("mlp_user", users, NCF_MLP[0] // 2),
            ("factors_item", items, NCF_FACTORS),
            ("factors_user", users, NCF_FACTORS),
        )
    ]
    return placed([*_dense("output", NCF_FACTORS + NCF_MLP[-1], 1), *hidden, *tables])


def digits_tensors() -> tuple[Tensor, ...]:
    """The weights of the small perceptron, in gradient-ready order; every other module is a ReLU."""
    layers = reversed(list(enumerate(pairwise(DIGITS_MLP))))
    return placed(tensor for index, sizes in layers for tensor in _dense(str(2 * index), *sizes))


def _dense(layer: str, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Bias and weight of a linear layer: the bias is ready first."""
    return tensor_of(f"{layer}.bias", (outputs,)), tensor_of(f"{layer}.weight", (outputs, inputs))
