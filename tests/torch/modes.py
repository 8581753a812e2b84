"""Trainings with every mode of DDP and with FSDP2, by PyTorch's own sums and by those of exact codecs."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import netfold.torch
from netfold.torch import State
from tests.torch.trainings import (
    Counting,
    Weights,
    hooked,
    loss_of,
    small_model,
    train,
    weights_of,
    with_codec,
)

STEPS = 4
EXACT = ("packed", {"values": "exact"}), ("exact", {})
Codec = tuple[Any, dict[str, Any]] | None  # None: PyTorch's own sums


def wrapped(model: nn.Module, codec: Codec, names: bool = False, **options: Any) -> DistributedDataParallel:
    """A model in DDP, with a codec's hook or without one."""
    if codec is None:
        return DistributedDataParallel(model, **options)
    parameters = model.named_parameters() if names else None
    return hooked(model, State(codec[0], bucket=700, parameters=parameters, **codec[1]), **options)


class Branching(nn.Module):
    """A layer that only every other step uses, and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(12, 6), nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs) * self.scale
        self.calls += 1
        return hidden if self.calls % 2 else self.second(hidden).square()


def _trained(make: Callable[[], nn.Module], **options: Any) -> Callable[[int, Codec], Weights]:
    def trained(rank: int, codec: Codec) -> Weights:
        model = make()
        train(wrapped(model, codec, **options), rank, STEPS)
        return weights_of(model)

    return trained


def _uneven(rank: int, codec: Codec) -> Weights:
    """A worker with fewer batches, which adds zeros once it has none left."""
    model = small_model()
    ddp = wrapped(model, codec, bucket_cap_mb=0.0005)
    with ddp.join():
        train(ddp, rank, STEPS + 2 * rank)
    return weights_of(model)


def _accumulated(rank: int, codec: Codec) -> Weights:
    model = small_model()
    ddp = wrapped(model, codec)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(2 * STEPS):
        with nullcontext() if step % 2 else ddp.no_sync():
            loss_of(ddp, rank, step).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    return weights_of(model)


def _half(dtype: torch.dtype) -> Callable[[int, Codec], Weights]:
    def trained(rank: int, codec: Codec) -> Weights:
        model = small_model().to(dtype)
        train(wrapped(model, codec), rank, STEPS, dtype)
        return weights_of(model.float())

    return trained


def _two_models(rank: int, codec: Codec) -> Weights:
    """Two models with a state each; both in the same backward pass, then one after the other."""
    models = [small_model(seed) for seed in (1, 2)]
    one, other = (wrapped(model, codec, bucket_cap_mb=0.0005) for model in models)
    for step in range(STEPS):
        (loss_of(one, rank, step) + loss_of(other, rank, step)).backward()
    for ddp in (one, other):
        train(ddp, rank, STEPS)
    return np.concatenate([weights_of(model) for model in models])


def _channels_last(rank: int, codec: Codec) -> Weights:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).to(
        memory_format=torch.channels_last
    )  # type: ignore[call-overload]
    ddp = wrapped(model, codec)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(STEPS):
        optimizer.zero_grad()
        random = torch.Generator().manual_seed(100 * step + rank)
        images = torch.randn(2, 3, 4, 4, generator=random).contiguous(memory_format=torch.channels_last)
        ddp(images).square().mean().backward()
        optimizer.step()
    return weights_of(model)


def _sharded(dtype: torch.dtype) -> Callable[[int, Codec], Weights]:
    def trained(rank: int, codec: Codec) -> Weights:
        model = small_model().to(dtype)
        for module in model:
            if not isinstance(module, nn.ReLU):
                fully_shard(module)
        fully_shard(model)
        if codec is not None:
            netfold.torch.set_reduce_scatter(model, State(codec[0], **codec[1]))
        train(model, rank, STEPS, dtype)
        whole: Any = model.parameters()
        return np.concatenate([one.full_tensor().detach().float().numpy().reshape(-1) for one in whole])

    return trained


MODES: dict[str, Callable[[int, Codec], Weights]] = {
    "default": _trained(small_model, bucket_cap_mb=0.0005),
    "names": _trained(small_model, names=True),
    "bucket views": _trained(small_model, bucket_cap_mb=0.0005, gradient_as_bucket_view=True),
    "static graph": _trained(small_model, bucket_cap_mb=0.0005, static_graph=True),
    "unused parameters": _trained(Branching, bucket_cap_mb=0.0003, find_unused_parameters=True),
    "no_sync": _accumulated,
    "uneven inputs": _uneven,
    "bfloat16": _half(torch.bfloat16),
    "float16": _half(torch.float16),
    "two models": _two_models,
    "channels last": _channels_last,
    "fully sharded": _sharded(torch.float32),
    "fully sharded bfloat16": _sharded(torch.bfloat16),
    "fully sharded float16": _sharded(torch.float16),
}


def resumed(rank: int, codec: Any, options: dict[str, Any]) -> tuple[Weights, Weights, list[int]]:
    """Weights after six steps without a stop, and with one after three; and the steps of the report."""
    whole = small_model()
    train(wrapped(whole, (codec, options)), rank, 6)

    model = small_model()
    ddp, state = with_codec(model, codec, bucket=700, **options)
    train(ddp, rank, 3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "netfold": state.state_dict()}, file)
    state.close()

    saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    other = small_model(seed=9)
    other.load_state_dict(saved["model"])
    again = State(codec, bucket=700, **options)
    again.load_state_dict(saved["netfold"])
    train(hooked(other, again), rank, 3, start=3)
    return weights_of(whole), weights_of(other), again.report().rounds["step"].to_list()


def of_another_model(rank: int) -> list[str]:
    """The errors of states that do not fit: of another model, and of another worker."""
    ddp, state = with_codec(small_model(), "topk", bucket=700)
    train(ddp, rank, 1)
    found = []
    saved = [None, None]
    dist.all_gather_object(saved, state.state_dict())
    for own, model in ((saved[rank], nn.Linear(12, 3)), (saved[1 - rank], small_model())):
        other = State("topk", bucket=700)
        try:
            other.load_state_dict(own)  # type: ignore[arg-type]
            train(hooked(model, other), rank, 1)
        except netfold.NetfoldError as error:
            found.append(str(error))
    return found


def every_training(rank: int) -> dict[str, Any]:
    """All of the above, in the same processes; modes with PyTorch's own sums and with exact codecs."""
    return {
        "modes": {
            name: {str(codec and codec[0]): trained(rank, codec) for codec in (None, *EXACT)}
            for name, trained in MODES.items()
        },
        "topk": resumed(rank, "topk", {"share": 0.1}),
        "marsit": resumed(rank, "marsit", {"learning_rate": 0.1, "every": 4}),
        "sasg": resumed(rank, "sasg", {"learning_rate": 0.1, "alpha": 0, "share": 0.2}),
        "a server": resumed(rank, Counting(), {}),
        "others": of_another_model(rank),
    }
