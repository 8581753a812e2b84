"""What the processes of tests do: train small models with DDP and FSDP2; codecs that break rules there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import netfold.torch
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange, Request, Server, State
from netfold.homomorphic.error_bounds import ErrorBound
from netfold.homomorphic.merge import Merge, Words
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.sim.workload.training import TrainingWorkload
from netfold.sim.workload.workload_keys import Training

FAULTS = ("longer", "more", "early", "late error", "other bits", "update", "no tuple")


@dataclass(frozen=True)
class Faulty(Codec):
    """Adds float32 words twice, and does something else at one worker."""

    fault: str
    at: int = 1
    kind: ClassVar[str] = "faulty"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.FLOAT_ADD})

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return _FaultyEncoder(self.fault if rank == self.at or self.fault == "update" else "")

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        raise AssertionError("nothing here asks for it")


class _FaultyEncoder(Encoder):
    def __init__(self, fault: str) -> None:
        self._fault = fault

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        fault = self._fault if round.step == 1 or self._fault == "update" else ""
        words = np.append(gradient, np.float32(0)) if fault == "longer" else gradient
        messages = [Message(words, Merge.FLOAT_ADD, "values")] * (8 if fault == "more" else 7)
        (merged, *_) = yield tuple(messages) if fault != "no tuple" else messages  # type: ignore[misc]
        if fault == "early":
            return Decoded(merged.words, gradient)
        yield (Message(gradient, Merge.FLOAT_ADD, "again"),)
        if fault == "late error":
            raise KeyError("what the codec says")
        total = merged.words.copy()
        if fault == "other bits":
            total[0] = np.nextafter(total[0], np.float32(np.inf))
        return Decoded(total, gradient, is_update=fault == "update")


@dataclass(frozen=True)
class Counting(Codec):
    """The server adds the gradients, and the number of its answers so far to every element."""

    kind: ClassVar[str] = "counting"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD, Merge.GATHER})

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return _GatheredEncoder()

    def server(self, workers: int, seed: int) -> Server:
        return _CountingServer()

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        raise AssertionError("nothing here asks for it")


class _GatheredEncoder(Encoder):
    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        nothing = Message(np.empty(0, np.int32), Merge.ADD, "nothing")
        _, merged = yield (nothing, Message(gradient, Merge.GATHER, "values"))
        return Decoded(merged.words, gradient)


class _CountingServer(Server):
    def __init__(self) -> None:
        self._answers = 0

    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        self._answers += 1
        total = np.float32(self._answers) + sum(parts)
        return np.asarray(total, np.float32)

    def state(self) -> State:
        return {"answers": np.array(self._answers)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._answers = int(state["answers"])


Weights = NDArray[np.float32]


class Trained(NamedTuple):
    """What one worker has after a training."""

    weights: Weights
    payload_bytes: list[int]  # of each round
    notes: list[tuple[int, int, str, int]]  # step, bucket, kind, count


def weights_of(model: nn.Module) -> Weights:
    return np.concatenate([one.detach().numpy().reshape(-1) for one in model.parameters()])


def train_as_simulated(
    rank: int, spec: Training, workers: int, seed: int, steps: int, codecs: list[tuple[str, int]]
) -> list[Trained]:
    """Train a workload of the simulator with DDP, once with each codec and size of its buckets.

    As a user does: the optimizer has the learning rate, unless the codec needs it and makes updates.
    """
    results = []
    for codec, bucket in codecs:
        workload = spec.workload(workers, seed)
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
