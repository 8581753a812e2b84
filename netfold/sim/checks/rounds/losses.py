"""How far a decoded total is from the sum of all gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import Sums, addition_error
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.promises import count_inexact
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
    is_exact: bool = True  # the total is Σ gradients, rounded once; of float32 additions: within their errors

    def add(self, total: Gradient, gradients: Sequence[Gradient], sums: Sums) -> None:
        """Add a part of worker 0's total, the workers' gradients there, and their sums."""
        self.nonzeros += kernels.count_nonzeros(gradients[0])
        self.union_nonzeros += kernels.count_nonzeros(sums.magnitude)
        self.largest = max(self.largest, kernels.add_likeness(total, sums.total, self.sums))

    def judge(self, total: Gradient, gradients: Sequence[Gradient], sums: Sums, is_float: bool) -> None:
        """Find out whether a part of the total is exact, unless an earlier part was not.

        A codec that rounds is found out by its first element that differs from the float64 sum.
        """
        if not self.is_exact:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            if is_float:
                allowed = addition_error(len(gradients) - 1, sums.magnitude)
                is_off = np.isfinite(sums.total) & ~(np.abs(total - sums.total) <= allowed)
                self.is_exact = not is_off.any()
                return
            unlike = np.flatnonzero(total != sums.total.astype(np.float32))[:1]
        self.is_exact = not (
            count_inexact(total[unlike], [own[unlike] for own in gradients])
            or count_inexact(total, gradients)
        )


class Beyond(NamedTuple):
    """An infinite element of a total: contributions add up to more than float32 has."""

    element: int
    sum: float
    workers: int


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
