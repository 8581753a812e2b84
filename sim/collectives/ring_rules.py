"""What a plan has to know of a ring, without the engine that carries it."""

from __future__ import annotations

from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.keyed import mix_plain


def ring_route(seed: int, job: int, worker: int) -> int:
    """What picks a worker's path to the next among equal ones."""
    return mix_plain(seed, purposes.RING_ROUTE, job, worker) >> 33
