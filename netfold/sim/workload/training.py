"""Training workloads: models, data sets and tasks, and the gradients of virtual workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from netfold.homomorphic.message import Gradient, StepFact
from netfold.homomorphic.message import Tensor as Described
from netfold.sim.workload.device_rooflines import Passes as PassTimes
from netfold.sim.workload.device_rooflines import StepCost
from netfold.sim.workload.fusion import Bucket, Fusion, fuse
from netfold.sim.workload.layers import layers_of, place_tensors
from netfold.sim.workload.model import Task
from netfold.sim.workload.model_probe import ProbedStep, probe, timed_passes
from netfold.sim.workload.optimizers import Sgd
from netfold.sim.workload.training_keys import Recipe
from netfold.sim.workload.weights import (
    Arena,
    ModelPasses,
    Move,
    OptimizerMemory,
    Sink,
    TableRows,
    Usage,
    Weights,
    drawing,
    evaluating,
    one_thread,
)
from netfold.sim.workload.workload import Score

# What a model keeps beside its weights and changes as it runs: running statistics of batch norms.
#
# They are worker 0's, as in PyTorch's DistributedDataParallel (`broadcast_buffers=True`, its default): at
# every step all workers begin with those that worker 0 had after the step before, and what the passes of
# the others change is dropped. Tests use them as they are after the step. The normalisation itself, in
# training, is by the statistics of each worker's own batch, which are never exchanged: a model with
# SyncBatchNorm is refused.


Copied = dict[str, Tensor]


class Buffers:
    """The buffers of a model that all workers share."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.has_any = next(model.buffers(), None) is not None
        self._start: Copied = self._copy()  # buffers of the model as it was built
        self._before: Copied = self._start  # buffers at the beginning of the step
        self._after: Copied = {}  # those of worker 0

    @contextmanager
    def of(self, worker: int) -> Iterator[None]:
        """The passes of a worker in a step; worker 0 comes first."""
        if not self.has_any:
            yield
            return
        if worker == 0:
            self._before = self._copy()
        else:
            self._write(self._before)
        yield
        if worker == 0:
            self._after = self._copy()
        else:
            self._write(self._after)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Passes of this step whose changes are dropped; they begin as all of the step's do."""
        if not self.has_any:
            yield
            return
        now = self._copy()
        self._write(self._before)
        try:
            yield
        finally:
            self._write(now)

    def restart(self) -> None:
        self._write(self._start)

    def state(self) -> dict[str, NDArray[Any]]:
        return {name: buffer.numpy() for name, buffer in self._copy().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._write({name: torch.from_numpy(array) for name, array in state.items()})

    def _copy(self) -> Copied:
        return {name: buffer.detach().clone() for name, buffer in self._model.named_buffers()}

    def _write(self, values: Copied) -> None:
        with torch.no_grad():
            for name, value in values.items():
                self._model.get_buffer(name).copy_(value)


# Local steps: each worker takes optimizer steps of its own, then the difference of weights is exchanged.
#
# Stich, "Local SGD converges fast and communicates little", ICLR 2019: after every k steps the workers go
# on with the mean of their weights. What a worker sends is its weights before less its weights after; with
# the sum of these, weights −= sum / workers. The optimizer's state (momentum, Adam's means) stays with the
# worker, who keeps it from one exchange to the next.


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
        self, weights: Weights, passes: ModelPasses, recipe: Recipe, learning_rate: float, workers: int
    ) -> None:
        self._weights, self._passes, self._recipe = weights, passes, recipe
        self._learning_rate = learning_rate
        self._memories = [OptimizerMemory(recipe.optimizer) for _ in range(workers)]

    def run(self, step: int, worker: int, sink: Sink, start: Mapping[str, Gradient] | None = None) -> float:
        """The worker's steps before the exchange of a step; its mean loss.

        The differences of weights, before less after, go to the sink, by tensor, of those that the worker
        used. With `start` the worker begins with these weights.
        """
        weights_before = self._weights.flat if start is None else start
        weights = {name: array.copy() for name, array in weights_before.items()}
        used: set[str] = set()
        with self._weights.replaced_by(weights):
            losses = [
                self._one(step, local, worker, weights, used) for local in range(self._recipe.local_steps)
            ]
        for name, after in weights.items():
            if name in used:
                np.subtract(weights_before[name], after, out=after)
                sink(name, self._weights.tensor_of(name, after))
        return sum(losses) / len(losses)

    def _one(
        self, step: int, local: int, worker: int, start: Mapping[str, Gradient], used: set[str]
    ) -> float:
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
                self._memories[worker].step(name, start[name], gradient, rate)
        used.update(gradients)
        return loss

    def restart(self) -> None:
        """Forget the optimizers' states."""
        for memory in self._memories:
            memory.restart()

    def state(self) -> list[Any]:
        return [memory.state() for memory in self._memories]

    def restore(self, state: Sequence[Any]) -> None:
        for memory, snapshot in zip(self._memories, state, strict=True):
            memory.restore(snapshot)


# Real training: virtual workers in one process, each with separate data, all with the same weights.
#
# Synchronous data parallelism keeps the weights of all workers equal, so they share one set: each worker's
# gradient is a real backward pass on its own batch, and the decoded sum updates the shared set. With local
# steps (`LocalSteps`) a worker's differences of weights take the place of its gradients. What else a model
# changes as it runs, such as the running statistics of batch norms, is worker 0's (`Buffers`).


_PLAIN = Recipe()


class TrainingWorkload:
    """A `Workload` that trains a task's model.

    The same task and seed give the same bits on any number of cores. PyTorch's global generator is unchanged.
    With `test_every` the model is tested on the task's held-out data after every so many steps and the last.
    A model that is not ours may differ each time it is built, which is looked for and refused; ours name the
    `tables` that a pass looks up once.
    """

    def __init__(
        self,
        task: Task,
        workers: int,
        learning_rate: float,
        fusion: Fusion,
        seed: int,
        test_every: int | None = None,
        recipe: Recipe = _PLAIN,
        is_ours: bool = False,
    ) -> None:
        self._test_every, self._is_ours = test_every, is_ours
        self._task, self._seed = task, seed
        # A task that runs a user's code tells what that raises, in backward passes too.
        self._blaming: Callable[[], AbstractContextManager[None]] = getattr(task, "blaming", nullcontext)
        self._workers = workers
        self._base_rate, self._recipe = learning_rate, recipe
        self._model = _build(task, seed)
        self._loss: float | None = None
        self._step: int | None = None  # the step whose gradients the arena holds
        self._next_step = 0
        self._buffers = Buffers(self._model)
        self._first = task.samples(0, 0)  # what is probed and timed: drawing samples is no part of it
        self._timed: tuple[PassTimes, int] | None = None
        probed, draws = self._probe()
        self._cost = recipe.cost(
            probed.cost, sum(parameter.numel() for parameter in self._model.parameters())
        )
        tensors = place_tensors(
            Described(name, tuple(self._model.get_parameter(name).shape), probed.layers[name])
            for name in probed.order
        )
        # Differences of weights are ready when the last local step is done.
        ready_shares = [1.0] * len(tensors) if recipe.is_local else ()
        layers = layers_of(tensors, probed.flops, ready_shares)
        self._buckets, _ = fuse(tensors, layers, fusion.partition(layers))
        self._names = [[tensor.name for tensor in bucket.tensors] for bucket in self._buckets]
        self._sparse = frozenset() if recipe.is_local else probed.sparse
        self._arena: Arena | None = None
        self._usage = Usage(probed.order)
        optimizer = Sgd() if recipe.is_local else recipe.optimizer  # moves by the mean of local steps
        self._weights = Weights(self._model, probed.order, OptimizerMemory(optimizer))
        # Differences of weights have no rows.
        tables = getattr(self._model, "tables", ()) if is_ours and not recipe.is_local else ()
        self._passes = ModelPasses(self._model, probed.order, self._loss_of, seed if draws else None, tables)
        self._local: LocalSteps | None = None
        if recipe.is_local:
            self._local = LocalSteps(self._weights, self._passes, recipe, learning_rate, workers)

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return self._buckets

    @property
    def cost(self) -> StepCost:
        # Measured on worker 0's first batch.
        return self._cost

    def recorded(self, step: int, worker: int) -> None:
        """None: a device says how long its passes take."""

    @property
    def notes(self) -> tuple[str, ...]:
        return self._usage.notes(self._next_step * self._workers)

    @property
    def loss(self) -> float | None:
        return self._loss

    @property
    def facts(self) -> frozenset[StepFact]:
        return self._recipe.facts

    @property
    def learning_rate(self) -> float:
        # That of the step whose gradients were asked for last, or of the one after the last `apply`. With
        # local steps, whose differences are exchanged, it is 1.
        return self._rate_of(max(self._next_step, self._step or 0))

    @property
    def update_norm(self) -> float | None:
        return self._weights.update_norm

    @property
    def weights(self) -> dict[str, NDArray[np.float32]]:
        flat, shapes = self._weights.flat, self._weights.shapes
        return {name: flat[name].reshape(shapes[name]) for names in self._names for name in names}

    @property
    def next_step(self) -> int:
        return self._next_step

    @property
    def model(self) -> nn.Module:
        return self._model

    def gradients(self, step: int) -> list[Sequence[Gradient]]:
        """Gradients as `[worker][bucket]`, of one backward pass per worker at the current weights.

        With local steps: the differences of a worker's weights, before its steps less after.
        """
        if self._arena is None:
            self._arena = Arena(self._buckets, self._workers, self._sparse)
        if self._step != step:
            self._step = None
            losses = []
            self._usage.begin()
            for worker in range(self._workers):
                with self._buffers.of(worker):
                    loss, used = self._run(step, worker, self._arena, worker)
                losses.append(loss)
                self._usage.add(used)
            self._loss = sum(losses) / len(losses)
            self._step = step
        return self._arena.gradients

    def rows(self, worker: int) -> dict[str, TableRows]:
        # Of the last `gradients`, what PyTorch gave as rows, by the tensor's name.
        return {} if self._arena is None else self._arena.rows(worker)

    def keep_weights(self, worker: int) -> None:
        self._weights.keep(worker)

    def kept_gradients(self, step: int, worker: int) -> Sequence[Gradient]:
        weights, arena = self._weights.kept(worker), Arena(self._buckets, 1, self._sparse)
        with self._buffers.unchanged():
            # With local steps: the differences that steps from the kept weights come to.
            if self._local is not None:
                self._run(step, worker, arena, 0, weights)
            else:
                with self._weights.replaced_by(weights):
                    self._run(step, worker, arena, 0)
        return arena.gradients[0]

    def restart(self) -> None:
        """Reset the weights to their start; gradients of the first step stay valid."""
        if self._weights.has_moved and not self._is_ours:
            self._weights.require_start(_build(self._task, self._seed))
        self._buffers.restart()
        self._weights.restart()
        if self._local is not None:
            self._local.restart()
        self._next_step = 0
        self._usage.restart()
        if self._step != 0 or self._has_memory:
            self._step = None

    def apply(self, step: int, totals: Sequence[Gradient], are_updates: Sequence[bool] = ()) -> None:
        """One step of the optimizer with total / workers; updates are subtracted as they are, past it.

        With local steps it is one of plain SGD at rate 1: all workers go on with the mean of their weights.
        Else what no worker used in this step stays as it is, as with DDP's `find_unused_parameters`, whatever
        the codec has decoded for it.
        """
        updates = are_updates or [False] * len(totals)
        moves = [
            Move(names, total, 0 if is_update else self._workers, self._rate_of(step))
            for names, total, is_update in zip(self._names, totals, updates, strict=True)
        ]
        unused = self._usage.close() if self._step == step else frozenset()
        self._weights.move(moves, frozenset() if self._recipe.is_local else unused)
        self._next_step = step + 1

    def score(self, step: int, is_last: bool) -> Score | None:
        if not self._test_every or not (is_last or (step + 1) % self._test_every == 0):
            return None
        # Without dropout, and with the running statistics of batch norms, which are worker 0's.
        with evaluating(self._model):
            return self._task.score(self._model)

    def state(self) -> dict[str, Any]:
        return {
            **self._weights.state(),
            "local": None if self._local is None else self._local.state(),
            "buffers": self._buffers.state(),
            "unused": self._usage.state(),
            "step": self._next_step,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._weights.restore(state)
        if self._local is not None:
            self._local.restore(state["local"])
        self._buffers.restore(state["buffers"])
        self._usage.restore(state["unused"])
        self._next_step, self._step = state["step"], None

    def timed_passes(self) -> tuple[PassTimes, int]:
        """Wall times of passes of worker 0's first batch, in one thread, and of an update; measured once."""
        if self._timed is None:
            with one_thread(), self._blaming():
                self._timed = timed_passes(self._model, self._first_loss)
        return self._timed

    @property
    def _has_memory(self) -> bool:
        # Workers' optimizers or buffers hold what gradients depend on.
        return self._local is not None or self._buffers.has_any

    def _rate_of(self, step: int) -> float:
        return 1.0 if self._recipe.is_local else self._base_rate * self._recipe.factor(step)

    def _run(
        self, step: int, worker: int, arena: Arena, row: int, start: Mapping[str, Gradient] | None = None
    ) -> tuple[float, frozenset[str]]:
        """A worker's passes of a step, into a place of an arena; its loss, and the parameters it used."""

        def put(name: str, gradient: torch.Tensor) -> None:
            arena.put(row, name, gradient)

        arena.begin(row)
        with self._blaming():
            if self._local is not None:
                loss = self._local.run(step, worker, put, start)
            else:
                loss = self._passes.run(step, worker, put)
        return loss, arena.end(row)

    def _probe(self) -> tuple[ProbedStep, bool]:
        """The probe of worker 0's first step, and whether the model draws random numbers in it."""
        with drawing(self._seed, "forward", 0, 0), self._buffers.unchanged(), self._blaming():
            rng_state = torch.get_rng_state()
            probed = probe(self._model, lambda: self._first_loss(self._model))
            return probed, not torch.equal(rng_state, torch.get_rng_state())

    def _first_loss(self, model: nn.Module) -> torch.Tensor:
        inputs, targets = self._first
        return self._task.loss(model(*inputs), targets)

    def _loss_of(self, model: nn.Module, step: int, worker: int) -> torch.Tensor:
        inputs, targets = self._task.samples(step, worker)
        return self._task.loss(model(*inputs), targets)


def _build(task: Task, seed: int) -> nn.Module:
    """Build the task's model from a keyed seed; PyTorch's global CPU generator is restored."""
    with drawing(seed, "weights"):
        return task.build()
