"""Packing signs with what is held back, beside reading memory and PyTorch."""

from __future__ import annotations

import numpy as np
import torch

from netfold.homomorphic.codecs.signs.bits import pack_owed, words_of
from tests.bench.rates import Bar, Load


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


def loads(elements: int) -> list[Load]:
    """Reading two arrays, and packing, which reads them too."""
    signs = Signs(elements)
    packed = signs.words.nbytes
    return [
        Load("read", signs.read, read_bytes=8),
        Load("marsit: encode (signs, residual)", signs.pack, True, packed, 8, Bar("read", 0.8)),
        Load("  in PyTorch", signs.pack_in_torch, False, packed),
    ]
