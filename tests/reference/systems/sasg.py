"""SASG as the authors' notebooks train: one loop over steps and workers, in plain NumPy.

All numbers have the type of the first weights: float64, or float32 to compare bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Tensors = list[Array]
GradientOf = Callable[[Tensors, int, int], Tensors]  # of weights, for the batch of a step and a worker


@dataclass(frozen=True)
class Settings:
    """Named as in the notebooks: γ, alpha, D, h, M."""

    gamma: float
    alpha: float
    D: int = 10
    h: float = 0.01
    M: int = 10


@dataclass
class Worker:
    error: Tensors
    stale: Tensors
    tau: int = 0


@dataclass
class Run:
    """What a training did, step by step."""

    weights: list[Tensors] = field(default_factory=list)  # after each step
    uploads: list[list[bool]] = field(default_factory=list)  # by step and worker
    sent: list[list[Tensors]] = field(default_factory=list)  # what each worker contributes


def top_k(tensor: Array, h: float) -> Array:
    """The k entries of largest magnitude of one tensor, zero elsewhere; of equal ones the first."""
    flat = tensor.reshape(-1)
    k = max(1, int(h * flat.size))
    chosen = sorted(range(flat.size), key=lambda i: (-abs(flat[i]), i))[:k]
    kept = np.zeros_like(flat)
    for i in chosen:
        kept[i] = flat[i]
    return kept.reshape(tensor.shape)


def distance(one: Sequence[Array], other: Sequence[Array]) -> float:
    """‖one − other‖² over all tensors, in float64."""
    return sum(
        float(((a.astype(np.float64) - b.astype(np.float64)) ** 2).sum())
        for a, b in zip(one, other, strict=True)
    )


def train(gradient_of: GradientOf, weights: Tensors, settings: Settings, steps: int) -> Run:
    gamma = weights[0].dtype.type(settings.gamma)
    theta = [one.copy() for one in weights]
    history = [theta]  # at most D sets of weights
    workers = [Worker([np.zeros_like(w) for w in theta], theta) for _ in range(settings.M)]
    last: list[Tensors] = [[np.zeros_like(w) for w in theta] for _ in range(settings.M)]
    run = Run()
    for t in range(steps):
        has_uploaded = []
        for m, worker in enumerate(workers):
            g = gradient_of(theta, t, m)
            upload = True
            if t >= settings.D:
                g_old = gradient_of(worker.stale, t, m)
                moved = sum(distance(history[i], history[i - 1]) for i in range(1, len(history)))
                threshold = settings.alpha / settings.M**2 * moved
                upload = distance(g, g_old) > threshold or worker.tau > settings.D
            if upload:
                z = [gamma * own + held for own, held in zip(g, worker.error, strict=True)]
                s = [top_k(tensor, settings.h) for tensor in z]
                worker.error = [owed - sent for owed, sent in zip(z, s, strict=True)]
                last[m], worker.stale, worker.tau = s, theta, 1
            else:
                worker.tau += 1
            has_uploaded.append(upload)
        total = [np.zeros_like(w) for w in theta]
        for sent in last:
            total = [own + more for own, more in zip(total, sent, strict=True)]
        theta = [w - own for w, own in zip(theta, total, strict=True)]
        history = [*history, theta][-settings.D :]
        run.weights.append(theta)
        run.uploads.append(has_uploaded)
        run.sent.append(list(last))
    return run
