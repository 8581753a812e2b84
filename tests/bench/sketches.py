"""Speed of count sketches and of selecting the largest elements, beside the usual formulations in PyTorch.

The sketch's is that of csvec (nikitaivkin/csh): tables of all buckets and signs, made in advance, and a
scatter for each row; its estimates gather by the same tables.
"""

from __future__ import annotations

import numpy as np
import torch

from netfold.homomorphic.kernels.largest import largest
from netfold.homomorphic.sketch.counts import count, estimate, make_rows

ROWS, RATIO, SHARE = 3, 0.1, 0.01


class Sketches:
    """Normal values, and what sketches of them need."""

    def __init__(self, elements: int) -> None:
        random = np.random.default_rng(3)
        self.values = random.standard_normal(elements, np.float32)
        self.columns = max(1, int(RATIO * elements / ROWS))
        self.rows = make_rows(ROWS, self.columns, 1)
        self.sketch = count(self.rows, self.values)
        self.tensor = torch.from_numpy(self.values)
        self.buckets = torch.from_numpy(random.integers(0, self.columns, (ROWS, elements)))
        self.signs = torch.from_numpy(random.choice(np.array([-1, 1], np.float32), (ROWS, elements)))
        self.table = torch.zeros(ROWS, self.columns)

    @property
    def chosen(self) -> int:
        """How many elements are selected."""
        return max(1, int(SHARE * self.values.size))

    def count(self, begin: int, end: int) -> None:
        """Sketch."""
        count(self.rows, self.values)

    def scatter(self, begin: int, end: int) -> None:
        """Sketch, in PyTorch."""
        self.table.zero_()
        for row in range(ROWS):
            self.table[row].scatter_add_(0, self.buckets[row], self.signs[row] * self.tensor)

    def estimate(self, begin: int, end: int) -> None:
        """Estimate all elements."""
        estimate(self.rows, self.sketch, self.values.size)

    def gather(self, begin: int, end: int) -> None:
        """Estimate all elements, in PyTorch."""
        torch.median(torch.gather(self.table, 1, self.buckets) * self.signs, dim=0)

    def select(self, begin: int, end: int) -> None:
        """Select the largest."""
        largest(self.values, self.chosen)

    def topk(self, begin: int, end: int) -> None:
        """Select the largest, in PyTorch."""
        torch.topk(self.tensor.abs(), self.chosen, sorted=False)
