"""Speed of count sketches and of selecting the largest elements, beside the usual formulations in PyTorch.

The sketch's is that of csvec (nikitaivkin/csh, `accumulateVec`): tables of all buckets and signs, made in
advance, and a weighted `bincount` for each row; its estimates gather by the same tables.
"""

from __future__ import annotations

import numpy as np
import torch

from netfold.homomorphic.kernels.largest import largest
from netfold.homomorphic.sketch.counts import count, estimate, make_rows
from tests.bench.rates import Bar, Load

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

    def bincount(self, begin: int, end: int) -> None:
        """Sketch, in PyTorch."""
        self.table.zero_()
        for row in range(ROWS):
            weights = self.signs[row] * self.tensor
            self.table[row] += torch.bincount(self.buckets[row], weights=weights, minlength=self.columns)

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


def loads(elements: int) -> list[Load]:
    """Sketching, estimating and selecting, each beside PyTorch."""
    both = Sketches(elements)
    sketch_bytes, chosen_bytes = both.sketch.nbytes, 8 * both.chosen
    csvec, topk = "  in PyTorch, as csvec: bincount", f"  torch.topk(|x|, {SHARE:.0%})"
    counting = Load(f"count sketch, {ROWS} rows", both.count, False, sketch_bytes, bar=Bar(csvec, 5))
    estimating = Load("count sketch: estimates of all", both.estimate, False)
    return [
        counting._replace(divides_itself=True),
        Load(csvec, both.bincount, False, sketch_bytes),
        estimating._replace(divides_itself=True),
        Load("  in PyTorch, gather and median", both.gather, False),
        Load(f"the largest {SHARE:.0%}", both.select, False, chosen_bytes, bar=Bar(topk, 15)),
        Load(topk, both.topk, False, chosen_bytes),
    ]
