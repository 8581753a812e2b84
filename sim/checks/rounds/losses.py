"""How far a decoded total is from the sum of all gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import Sums
from netfold.homomorphic.message import Gradient
from netfold.sim.checks.rounds import kernels


@dataclass
class Likeness:
    """Squares and products of totals and of what they should be."""

    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(4))  # see `kernels.add_likeness`

    @property
    def nmse(self) -> float | None:
        """‖total − Σ gradients‖² / ‖Σ gradients‖²; None if that is not finite."""
        error, right, _, _ = self.sums.tolist()
        return _finite(error / right) if right > 0 else (0.0 if error == 0 else None)

    @property
    def cosine(self) -> float | None:
        """Cosine of the angle between total and Σ gradients; None if one is zero or not finite."""
        _, right, own, product = self.sums.tolist()
        if not (right > 0 and own > 0 and np.isfinite(right) and np.isfinite(own)):
            return None
        return _finite(max(-1.0, min(1.0, product / (np.sqrt(right) * np.sqrt(own)))))


@dataclass
class Loss(Likeness):
    """One round's loss, and the supports of its gradients; it grows part by part."""

    nonzeros: int = 0  # at worker 0
    union_nonzeros: int = 0  # at any worker
    largest: float = 0.0  # |total − Σ gradients|; infinite if either is not finite

    def add(self, total: Gradient, gradient: Gradient, sums: Sums) -> None:
        """Add a part of worker 0's total and gradient, and the sums of all gradients there."""
        self.nonzeros += kernels.count_nonzeros(gradient)
        self.union_nonzeros += kernels.count_nonzeros(sums.magnitude)
        self.largest = max(self.largest, kernels.add_likeness(total, sums.total, self.sums))


class Beyond(NamedTuple):
    """An infinite element of a total: contributions add up to more than float32 has."""

    element: int
    sum: float
    workers: int


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
