"""The gradient of a table in which only some rows are non-zero, as PyTorch's sparse embeddings give it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netfold.homomorphic.message import Gradient


class Rows(NamedTuple):
    """Rows of a table; all others are zero."""

    places: NDArray[np.int64]  # (n,) which rows, ascending, each once
    values: NDArray[np.float32]  # (n, elements of a row)

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return self.places.nbytes + self.values.nbytes

    def write(self, table: Gradient) -> None:
        """Write them into a flat table `(rows · elements of a row,)` whose other elements stay."""
        if self.places.size:
            table.reshape(-1, self.values.shape[1])[self.places] = self.values

    def plus(self, other: Rows) -> Rows:
        """The sum, in float32."""
        places = np.union1d(self.places, other.places)
        values = np.zeros((places.size, self.values.shape[1]), np.float32)
        for one in (self, other):
            values[np.searchsorted(places, one.places)] += one.values
        return Rows(places, values)


def rows_of(gradient: Tensor) -> Rows:
    """The rows of a gradient, dense or with one sparse dimension; a row that occurs twice is summed.

    Rows of a dense gradient without a non-zero element are left out.
    """
    row_elements = math.prod(gradient.shape[1:])
    if not gradient.is_sparse:
        table = gradient.detach().reshape(-1, row_elements).numpy()
        places = np.flatnonzero(table.any(axis=1))
        return Rows(places, table[places])
    # One after the other, as whole tables are summed: `coalesce` takes them in no certain order.
    places, row = torch.unique(gradient._indices()[0], return_inverse=True)
    values = torch.zeros(places.numel(), row_elements)
    values.index_add_(0, row, gradient.detach()._values().reshape(-1, row_elements))
    return Rows(places.numpy(), values.numpy())


def no_rows(row_elements: int) -> Rows:
    """A table of zeros."""
    return Rows(np.empty(0, np.int64), np.empty((0, row_elements), np.float32))
