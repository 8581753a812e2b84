"""Kernels of BIRD's rows, of signs and of count sketches, beside their usual formulations in PyTorch.

The sketch's is that of csvec (nikitaivkin/csh, `accumulateVec`): tables of all buckets and signs, made in
advance, and a weighted `bincount` for each row; its estimates gather by the same tables.
"""

from __future__ import annotations

import numpy as np
import torch

from netfold.homomorphic.codecs.bird import Bird
from netfold.homomorphic.codecs.count_sketch import count, estimate, make_rows
from netfold.homomorphic.codecs.sign_bits import pack_owed, words_of
from netfold.homomorphic.message import Round, Tensor
from netfold.kernels.bits import largest
from tests.bench.rates import Bar, Load

ROW_ELEMENTS = 2500  # of a layer, as long as the rows of a ResNet-18 are on average
ROWS_SHARE = 0.1
_SORTING = "top-k by sorting all"


def row_loads(elements: int) -> list[Load]:
    """One layer, whole."""
    rows = max(1, elements // ROW_ELEMENTS)
    gradient = np.random.default_rng(3).standard_normal(rows * ROW_ELEMENTS, np.float32)
    tensors = torch.from_numpy(gradient).view(rows, ROW_ELEMENTS)
    one_layer = (Tensor("weight", (rows, ROW_ELEMENTS), "layer"),)
    encoder = Bird(ROWS_SHARE).worker(0, 1, 0)
    round = Round(0, 0, 1, 1, tensors=one_layer)

    def encode(begin: int, end: int) -> int:
        (message,) = next(encoder.exchange(gradient, round))
        return message.size_bytes

    def sort(begin: int, end: int) -> object:
        return torch.sort(tensors.abs().view(-1), descending=True).indices[: int(ROWS_SHARE * elements)]

    return [
        Load("read once", lambda a, b: gradient.max(), False),
        Load(_SORTING, sort, False, 8 * int(ROWS_SHARE * elements)),
        Load("bird in PyTorch", lambda a, b: rows_in_torch(tensors), False),
        Load("bird: encode", encode, False, encode(0, elements), bar=Bar(_SORTING, 10)),
    ]


def rows_in_torch(tensors: torch.Tensor) -> tuple[torch.Tensor, np.ndarray, torch.Tensor]:
    """Scale, sign bits and indices: norms, two samplings, signs of the rows that are left."""
    norms = tensors.abs().sum(dim=1)
    kept = torch.bernoulli(norms / norms.max()).nonzero().view(-1)
    count = -(-len(norms) // round(1 / ROWS_SHARE))
    factor = max(1.0, len(kept) / count)
    kept = kept[torch.randperm(len(kept))[:count]].sort().values
    signs = np.packbits((tensors[kept] < 0).numpy())
    return norms.max() / tensors.shape[1] * factor, signs, kept


class Signs:
    """A gradient, what is held back, and room for their signs, already touched."""

    def __init__(self, elements: int) -> None:
        random = np.random.default_rng(3)
        self.gradient, self.residual = random.standard_normal((2, elements), np.float32)
        self.words = np.ones(words_of(elements), np.uint32)
        whole = elements // 8 * 8
        self._pair = [torch.from_numpy(one[:whole]) for one in (self.gradient, self.residual)]
        self._places = torch.arange(8, dtype=torch.uint8)
        self.bytes = torch.ones(whole // 8, dtype=torch.uint8)

    def read(self, begin: int, end: int) -> None:
        """Read the same arrays: two of 100 MB do not stay in a cache that keeps a part of one."""
        self.gradient[begin:end].max()
        self.residual[begin:end].max()

    def pack(self, begin: int, end: int) -> None:
        """Write the signs of the sums."""
        pack_owed(self.gradient[begin:end], self.residual[begin:end], self.words[begin // 32 : -(-end // 32)])

    def pack_in_torch(self, begin: int, end: int) -> None:
        """The same, as one writes it with tensors."""
        gradient, residual = self._pair
        positive = (gradient + residual >= 0).view(-1, 8).to(torch.uint8)
        self.bytes = (positive << self._places).sum(1, dtype=torch.uint8)


def sign_loads(elements: int) -> list[Load]:
    """Reading two arrays, and packing, which reads them too."""
    signs = Signs(elements)
    packed = signs.words.nbytes
    return [
        Load("read", signs.read, read_bytes=8),
        Load("marsit: encode (signs, residual)", signs.pack, True, packed, 8, Bar("read", 0.8)),
        Load("  in PyTorch", signs.pack_in_torch, False, packed),
    ]


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
        self.chosen = max(1, int(SHARE * elements))  # how many elements are selected

    def count(self, begin: int, end: int) -> None:
        count(self.rows, self.values)

    def bincount(self, begin: int, end: int) -> None:
        self.table.zero_()
        for row in range(ROWS):
            weights = self.signs[row] * self.tensor
            self.table[row] += torch.bincount(self.buckets[row], weights=weights, minlength=self.columns)

    def estimate(self, begin: int, end: int) -> None:
        estimate(self.rows, self.sketch, self.values.size)

    def gather(self, begin: int, end: int) -> None:
        torch.median(torch.gather(self.table, 1, self.buckets) * self.signs, dim=0)

    def select(self, begin: int, end: int) -> None:
        largest(self.values, self.chosen)

    def topk(self, begin: int, end: int) -> None:
        torch.topk(self.tensor.abs(), self.chosen, sorted=False)


def sketch_loads(elements: int) -> list[Load]:
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
