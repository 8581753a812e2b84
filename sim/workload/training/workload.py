"""Real training: virtual workers in one process, each with separate data, all with the same weights.

Synchronous data parallelism keeps the weights of all workers equal, so they share one set: each worker's
gradient is a real backward pass on its own batch, and the decoded sum updates the shared set. (Models here
have no per-worker state such as batch-norm statistics.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from netfold.homomorphic.codec import State
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import StepFact, Tensor
from netfold.sim.workload.buckets import Bucket, fuse
from netfold.sim.workload.draws import keyed
from netfold.sim.workload.fusion.rule import Fusion
from netfold.sim.workload.layers import layers_of, placed
from netfold.sim.workload.training.probe import probe
from netfold.sim.workload.training.tasks import Task
from netfold.sim.workload.training.weights import Weights
from netfold.sim.workload.workload import ALL_FACTS, Score, StepCost


class TrainingWorkload:
    """A `Workload` that trains a task's model with plain SGD.

    The same task and seed give the same bits on any number of cores. PyTorch's global generator is unchanged.
    With `test_every` the model is tested on the task's held-out data after every so many steps and the last.
    """

    def __init__(
        self,
        task: Task,
        workers: int,
        learning_rate: float,
        fusion: Fusion,
        seed: int,
        test_every: int | None = None,
    ) -> None:
        self._test_every = test_every
        self._task = task
        self._workers = workers
        self._learning_rate = learning_rate
        self._model = _build(task, seed)
        self._loss: float | None = None
        self._step: int | None = None  # the step whose gradients `_gradients` holds
        self._next_step = 0
        probed = probe(self._model, lambda: self._loss_of(self._model, step=0, worker=0))
        self._cost = probed.cost
        tensors = placed(
            Tensor(name, tuple(self._model.get_parameter(name).shape), probed.layers[name])
            for name in probed.order
        )
        layers = layers_of(tensors, probed.flops)
        self._buckets, _ = fuse(tensors, layers, fusion.partition(layers))
        self._names = [[tensor.name for tensor in bucket.tensors] for bucket in self._buckets]
        self._weights = Weights(self._model, probed.order)
        self._gradients: list[list[Gradient]] = [[] for _ in range(workers)]

    @property
    def workers(self) -> int:
        """How many workers take part."""
        return self._workers

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Whole layers in gradient-ready order."""
        return self._buckets

    @property
    def cost(self) -> StepCost:
        """Work of one step of one worker, measured on worker 0's first batch."""
        return self._cost

    def recorded(self, step: int, worker: int) -> None:
        """None: a device says how long its passes take."""

    @property
    def loss(self) -> float | None:
        """Mean over workers of the last `gradients()`; None before the first."""
        return self._loss

    @property
    def facts(self) -> frozenset[StepFact]:
        """All."""
        return ALL_FACTS

    @property
    def learning_rate(self) -> float:
        """Step size: weights −= learning_rate · sum / workers."""
        return self._learning_rate

    @property
    def update_norm(self) -> float | None:
        """L2 norm, in float64, of what the last `apply` subtracted from the weights; None before it."""
        return self._weights.update_norm

    @property
    def next_step(self) -> int:
        """The step after the last `apply`; 0 before the first."""
        return self._next_step

    @property
    def model(self) -> nn.Module:
        """The model, whose weights all workers share."""
        return self._model

    def gradients(self, step: int) -> list[list[Gradient]]:
        """Gradients as `[worker][bucket]`, of one backward pass per worker at the current weights."""
        if self._step == step:
            return self._gradients
        self._step = None
        losses = []
        for worker in range(self._workers):
            found, loss = self._backward(self._model, step, worker)
            self._store(worker, found)
            losses.append(loss)
        self._loss = sum(losses) / len(losses)
        self._step = step
        return self._gradients

    def keep_weights(self, worker: int) -> None:
        """Keep the weights as they are now for a worker; workers who keep the same share a copy."""
        self._weights.keep(worker)

    def kept_gradients(self, step: int, worker: int) -> list[Gradient]:
        """Gradients of the worker's batch of a step at the weights it kept, `[bucket]`, in new arrays.

        Raises
        ------
        RuntimeError
            The worker has kept no weights.
        """
        found, _ = self._backward(self._weights.model_at_kept(worker), step, worker)
        return found

    def restart(self) -> None:
        """Reset the weights to their start; gradients of the first step stay valid."""
        self._weights.restart()
        self._next_step = 0
        if self._step != 0:
            self._step = None

    def apply(self, step: int, totals: Sequence[Gradient], are_updates: Sequence[bool] = ()) -> None:
        """SGD: weights -= learning_rate / workers · total, in float32; updates are subtracted as they are."""
        rate = np.float32(self._learning_rate / self._workers)
        updates = are_updates or [False] * len(totals)
        self._weights.move(
            [
                (names, total, None if is_update else rate)
                for names, total, is_update in zip(self._names, totals, updates, strict=True)
            ]
        )
        self._next_step = step + 1

    def score(self, step: int, is_last: bool) -> Score | None:
        """Test the weights on held-out data, in one thread; None if no test is due or nothing is held out."""
        if not self._test_every or not (is_last or (step + 1) % self._test_every == 0):
            return None
        with one_thread(), torch.no_grad():
            return self._task.score(self._model)

    def state(self) -> State:
        """Weights, those that workers keep, the norm of the last update, and the number of the next step."""
        return {**self._weights.state(self._workers), "step": np.array(self._next_step)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the state of a workload of the same task, workers and seed.

        Raises
        ------
        ValueError
            The state is of another model or number of workers.
        """
        if "step" not in state:
            raise ValueError(f"the state has no step, but {', '.join(state) or 'nothing'}")
        weights = {name: array for name, array in state.items() if name != "step"}
        self._weights.restore(weights, self._workers)
        self._next_step = int(state["step"])
        self._step = None

    def _backward(self, model: nn.Module, step: int, worker: int) -> tuple[list[Gradient], float]:
        """A worker's gradients by bucket, and its loss; the model keeps no gradients."""
        with one_thread():
            loss = self._loss_of(model, step, worker)
            loss.backward()  # type: ignore[no-untyped-call]
        found = [_gradient(model, names) for names in self._names]
        model.zero_grad(set_to_none=True)
        return found, loss.item()

    def _store(self, worker: int, found: list[Gradient]) -> None:
        """Store a worker's gradients; later steps overwrite the arrays of the first."""
        if self._gradients[worker]:
            for own, gradient in zip(self._gradients[worker], found, strict=True):
                np.copyto(own, gradient)
        else:
            self._gradients[worker] = found

    def _loss_of(self, model: nn.Module, step: int, worker: int) -> torch.Tensor:
        inputs, targets = self._task.samples(step, worker)
        return self._task.loss(model(*inputs), targets)


def _gradient(model: nn.Module, names: Sequence[str]) -> Gradient:
    """The gradient of a bucket; PyTorch's own array if the bucket is one parameter."""
    own: list[Gradient] = []
    for name in names:
        gradient = model.get_parameter(name).grad
        assert gradient is not None  # the probe found one for each
        own.append(gradient.reshape(-1).numpy())
    return own[0] if len(own) == 1 else np.concatenate(own)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread, so that sums have the same bits on any number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _build(task: Task, seed: int) -> nn.Module:
    """Build the task's model from a keyed seed; PyTorch's global CPU generator is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(keyed(seed, "weights").integers(2**63)))
        return task.build()
