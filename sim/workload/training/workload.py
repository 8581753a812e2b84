"""Real training: virtual workers in one process, each with separate data, all with the same weights.

Synchronous data parallelism keeps the weights of all workers equal, so they share one set: each worker's
gradient is a real backward pass on its own batch, and the decoded sum updates the shared set. (Models here
have no per-worker state such as batch-norm statistics.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from netfold.sim.workload.draws import keyed
from netfold.sim.workload.training.probe import probe
from netfold.sim.workload.training.tasks import Task
from netfold.sim.workload.workload import Bucket, Gradient, GradientPart, StepCost, group, make_buckets

_SLICE = 1 << 16  # elements


class TrainingWorkload:
    """A `Workload` that trains a task's model with plain SGD.

    The same task and seed give the same bits on any number of cores. PyTorch's global generator is unchanged.
    """

    def __init__(self, task: Task, workers: int, learning_rate: float, bucket_bytes: int, seed: int) -> None:
        self._task = task
        self._workers = workers
        self._learning_rate = learning_rate
        self._model = _build(task, seed)
        self._loss: float | None = None
        self._step: int | None = None  # the step whose gradients `_gradients` holds
        self._start: list[list[Gradient]] | None = None  # weights before the first update, once it is made
        probed = probe(self._model, lambda: self._loss_of(step=0, worker=0))
        self._cost = probed.cost
        self._parameters = [self._model.get_parameter(name) for name in probed.order]
        parts = [
            GradientPart(name, parameter.numel())
            for name, parameter in zip(probed.order, self._parameters, strict=True)
        ]
        self._buckets = make_buckets(parts, bucket_bytes)
        self._members = group(parts, bucket_bytes)
        # Views that share memory with the model, by bucket: what `apply` subtracts from.
        self._weights = [
            [self._parameters[member].detach().numpy().reshape(-1) for member in members]
            for members in self._members
        ]
        self._gradients: list[list[Gradient]] = [[] for _ in range(workers)]

    @property
    def workers(self) -> int:
        """How many workers take part."""
        return self._workers

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Slices of the flat gradient in gradient-ready order."""
        return self._buckets

    @property
    def cost(self) -> StepCost:
        """Work of one step of one worker, measured on worker 0's first batch."""
        return self._cost

    @property
    def loss(self) -> float | None:
        """Mean over workers of the last `gradients()`; None before the first."""
        return self._loss

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
            with one_thread():
                loss = self._loss_of(step, worker)
                loss.backward()  # type: ignore[no-untyped-call]
            self._keep(worker)
            self._model.zero_grad(set_to_none=True)
            losses.append(loss.item())
        self._loss = sum(losses) / len(losses)
        self._step = step
        return self._gradients

    def restart(self) -> None:
        """Reset the weights to their start; gradients of the first step stay valid."""
        if self._start is not None:
            for bucket_weights, bucket_start in zip(self._weights, self._start, strict=True):
                for weights, start in zip(bucket_weights, bucket_start, strict=True):
                    np.copyto(weights, start)
        if self._step != 0:
            self._step = None

    def apply(self, step: int, sums: Sequence[Gradient]) -> None:
        """SGD: weights -= learning_rate / workers · sum, in float32."""
        if self._start is None:
            self._start = [[weights.copy() for weights in own] for own in self._weights]
        rate = np.float32(self._learning_rate / self._workers)
        for bucket_weights, total in zip(self._weights, sums, strict=True):
            start = 0
            for weights in bucket_weights:
                _move(weights, total[start : start + weights.size], rate)
                start += weights.size

    def _keep(self, worker: int) -> None:
        """Store a worker's gradients; later steps overwrite the arrays of the first."""
        found = [self._gradient(members) for members in self._members]
        if self._gradients[worker]:
            for own, gradient in zip(self._gradients[worker], found, strict=True):
                np.copyto(own, gradient)
        else:
            self._gradients[worker] = found

    def _gradient(self, members: list[int]) -> Gradient:
        """The gradient of a bucket; PyTorch's own array if the bucket is one parameter."""
        own: list[Gradient] = []
        for member in members:
            gradient = self._parameters[member].grad
            assert gradient is not None  # the probe found one for each
            own.append(gradient.reshape(-1).numpy())
        return own[0] if len(own) == 1 else np.concatenate(own)

    def _loss_of(self, step: int, worker: int) -> torch.Tensor:
        inputs, targets = self._task.samples(step, worker)
        return self._task.loss(self._model(*inputs), targets)


def _move(weights: Gradient, total: Gradient, rate: np.float32) -> None:
    """weights -= rate · total, in slices, so that temporaries stay in the cache."""
    for first in range(0, weights.size, _SLICE):
        part = slice(first, first + _SLICE)
        weights[part] -= rate * total[part]


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
