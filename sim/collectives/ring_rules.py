"""What a plan has to know of a ring, without the engine that carries it."""

from __future__ import annotations

from netfold.homomorphic.codec import Merge
from netfold.homomorphic.kernels.keyed import mix_plain

MERGES = frozenset(Merge) - {Merge.GATHER}  # what hosts can do to words on their way round


def ring_route(seed: int, job: int, worker: int) -> int:
    """What picks a worker's path to the next among equal ones."""
    return mix_plain(seed, 7, job, worker) >> 33
