"""Random numbers keyed by their purpose, so that they do not depend on earlier draws."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from netfold.errors import DataError


def keyed(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """Generator for one purpose and key (such as step and worker), each ≥ 0, independent of all others."""
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32(purpose.encode()), *key]))


def shards(samples: int, workers: int, seed: int) -> list[NDArray[np.int64]]:
    """Sample indices of each worker: disjoint, together all of them, sizes differing by one at most.

    Raises
    ------
    DataError
        There are more workers than samples.
    """
    if workers > samples:
        raise DataError(
            f"{workers} workers cannot share {samples} samples",
            f"use at most {samples} workers, or more data",
        )
    order = keyed(seed, "shards").permutation(samples)
    return [order[worker::workers] for worker in range(workers)]
