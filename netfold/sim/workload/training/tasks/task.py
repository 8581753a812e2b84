"""Training tasks: a model, its loss, the samples of each worker at each step, and a test on others.

Samples depend on (seed, step, worker) alone. Each worker draws from its own shard of the data, with
replacement. A task that holds out a part of its data for tests divides only the rest into shards.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from netfold.sim.workload.workload import Score


class Task(Protocol):
    """A model with data for a fixed number of workers."""

    def build(self) -> nn.Module:
        """Return the model with new weights from PyTorch's global generator."""
        ...

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs of the model and targets of the loss: one batch."""
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean over the batch, a scalar."""
        ...

    def score(self, model: nn.Module) -> Score | None:
        """How well a model in evaluation mode does on the held-out data; None if nothing is held out."""
        ...
