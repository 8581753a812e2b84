"""Tensors of the models, without building them or importing PyTorch."""

from __future__ import annotations

from itertools import pairwise

from netfold.homomorphic.round import Tensor
from netfold.sim.workload.layers import placed, tensor_of

MOVIELENS_USERS, MOVIELENS_ITEMS = 943, 1682  # of MovieLens-100K

NCF_FACTORS = 64
NCF_MLP = (256, 256, 128, 64)

PERCEPTRONS = {"mlp": (64, 128, 10), "mlp_784": (784, 512, 10)}  # inputs, hidden, outputs

DATA = {"ncf": ("movielens-100k",), "mlp": ("digits",), "mlp_784": ("digits", "mnist-5k")}
"""Names of the data sets that a model can be trained on; without a choice it is the first."""


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


def perceptron_tensors(sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """The weights of a perceptron, in gradient-ready order; every other module is a ReLU."""
    layers = reversed(list(enumerate(pairwise(sizes))))
    return placed(tensor for index, pair in layers for tensor in _dense(str(2 * index), *pair))


def _dense(layer: str, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Bias and weight of a linear layer: the bias is ready first."""
    return tensor_of(f"{layer}.bias", (outputs,)), tensor_of(f"{layer}.weight", (outputs, inputs))
