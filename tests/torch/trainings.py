"""What the processes of tests do: train small models with DDP and FSDP2."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import netfold.torch
from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.training.workload import TrainingWorkload

Weights = NDArray[np.float32]


class Trained(NamedTuple):
    """What one worker has after a training."""

    weights: Weights
    payload_bytes: list[int]  # of each round
    notes: list[tuple[int, int, str, int]]  # step, bucket, kind, count


def weights_of(model: nn.Module) -> Weights:
    return np.concatenate([one.detach().numpy().reshape(-1) for one in model.parameters()])


def train_as_simulated(
    rank: int, spec: TrainingSpec, workers: int, seed: int, steps: int, codecs: list[tuple[str, int]]
) -> list[Trained]:
    """Train a workload of the simulator with DDP, once with each codec and size of its buckets.

    As a user does: the optimizer has the learning rate, unless the codec needs it and makes updates.
    """
    results = []
    for codec, bucket in codecs:
        workload = training_workload(spec, workers, seed)
        assert isinstance(workload, TrainingWorkload)
        model, task = workload.model, workload._task
        makes_updates = codec.startswith(("marsit", "sasg"))
        options = {"learning_rate": spec.learning_rate} if makes_updates else {}
        names = model.named_parameters()
        ddp, state = with_codec(model, codec, parameters=names, bucket=bucket, seed=seed, **options)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0 if makes_updates else spec.learning_rate)
        for step in range(steps):
            inputs, targets = task.samples(step, rank)
            optimizer.zero_grad()
            task.loss(ddp(*inputs), targets).backward()
            optimizer.step()
        report = state.report()
        notes = report.notes.select("step", "bucket", "kind", "count").rows()
        state.close()
        results.append(Trained(weights_of(model), report.rounds["payload_bytes"].to_list(), notes))
    return results


def hooked(model: nn.Module, state: netfold.torch.State, **options: Any) -> DistributedDataParallel:
    """A model in DDP with a state's hook."""
    ddp = DistributedDataParallel(model, **options)
    ddp.register_comm_hook(state, netfold.torch.hook)
    return ddp


def with_codec(
    model: nn.Module, codec: Any, **options: Any
) -> tuple[DistributedDataParallel, netfold.torch.State]:
    """A model in DDP with the hook of a new state."""
    state = netfold.torch.State(codec, **options)
    return hooked(model, state), state


def small_model(seed: int = 0) -> nn.Sequential:
    """Two linear layers and a norm, with the same weights at all workers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 20), nn.LayerNorm(20), nn.ReLU(), nn.Linear(20, 3))


def train(model: Any, rank: int, steps: int, dtype: torch.dtype = torch.float32, start: int = 0) -> None:
    """Steps of plain SGD on random batches, which depend on step and rank alone."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(start, start + steps):
        optimizer.zero_grad()
        loss_of(model, rank, step, dtype).backward()
        optimizer.step()


def loss_of(model: Any, rank: int, step: int, dtype: torch.dtype = torch.float32) -> Any:
    random = torch.Generator().manual_seed(1000 * step + rank)
    outputs = model(torch.randn(8, 12, generator=random).to(dtype))
    return outputs.square().mean()
