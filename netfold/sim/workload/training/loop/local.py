"""Local steps: each worker takes optimizer steps of its own, then the difference of weights is exchanged.

Stich, "Local SGD converges fast and communicates little", ICLR 2019: after every k steps the workers go on
with the mean of their weights. What a worker sends is its weights before less its weights after; with the
sum of these, weights −= sum / workers. The optimizer's state (momentum, Adam's means) stays with the worker,
who keeps it from one exchange to the next.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from netfold.homomorphic.codec import State
from netfold.homomorphic.message import Gradient
from netfold.sim.workload.training.loop.memory import OptimizerMemory
from netfold.sim.workload.training.loop.passes import Passes, Sink, one_thread
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.weights import Weights


class LocalSteps:
    """The local steps of all workers, one worker after the other.

    Parameters
    ----------
    weights
        The shared weights, which stay as they are.
    passes
        The passes of the model that has them.
    learning_rate
        Before the schedule of the recipe.
    """

    def __init__(
        self, weights: Weights, passes: Passes, recipe: Recipe, learning_rate: float, workers: int
    ) -> None:
        self._weights, self._passes, self._recipe = weights, passes, recipe
        self._learning_rate = learning_rate
        self._memories = [
            OptimizerMemory(recipe.optimizer, weights.shapes, f"worker{worker}") for worker in range(workers)
        ]

    def run(self, step: int, worker: int, sink: Sink, start: Mapping[str, Gradient] | None = None) -> float:
        """The worker's steps before the exchange of a step; its mean loss.

        The differences of weights, before less after, go to the sink, by tensor, of those that the worker
        used. With `start` the worker begins with these weights.
        """
        before = self._weights.flat if start is None else start
        own = {name: one.copy() for name, one in before.items()}
        used: set[str] = set()
        with self._weights.replaced_by(own):
            losses = [self._one(step, local, worker, own, used) for local in range(self._recipe.local_steps)]
        for name, after in own.items():
            if name in used:
                np.subtract(before[name], after, out=after)
                sink(name, self._weights.tensor_of(name, after))
        return sum(losses) / len(losses)

    def _one(self, step: int, local: int, worker: int, own: Mapping[str, Gradient], used: set[str]) -> float:
        """One optimizer step of a worker on its own weights, of which it tells those used; its loss."""
        recipe = self._recipe
        gradients: dict[str, Gradient] = {}

        def take(name: str, gradient: Tensor) -> None:
            dense = gradient.to_dense() if gradient.is_sparse else gradient
            flat = dense.detach().reshape(-1).numpy()
            gradients[name] = gradients[name] + flat if name in gradients else flat

        loss = self._passes.run(step * recipe.local_steps + local, worker, take)
        rate = self._learning_rate * recipe.factor(step, local)
        with one_thread():
            for name, gradient in gradients.items():
                self._memories[worker].step(name, own[name], gradient, rate)
        used.update(gradients)
        return loss

    def restart(self) -> None:
        """Forget the optimizers' states."""
        for memory in self._memories:
            memory.restart()

    def is_own(self, name: str) -> bool:
        """Whether a name of a state is that of a worker's optimizer."""
        return any(memory.is_own(name) for memory in self._memories)

    def state(self) -> State:
        """A copy of the optimizers' states."""
        found: State = {}
        for memory in self._memories:
            found.update(memory.state())
        return found

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from a state.

        Raises
        ------
        ValueError
            The state is of another model or optimizer.
        """
        for memory in self._memories:
            memory.restore(state)
