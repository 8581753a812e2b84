"""Small trainings with DDP, run in real processes, with what DDP's sums were."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

Sums = dict[str, Any]  # of each parameter, NumPy; where nobody has a gradient, there is none


def trained(rank: int, folder: Path, mode: str, steps: int, wanted: int) -> list[Sums]:
    """Train, recorded; returns for every step what DDP summed: its means times the ranks."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import netfold

    torch.manual_seed(0)
    model, inputs, options = _model(mode)
    ddp = DistributedDataParallel(model, **options)
    draws = torch.Generator().manual_seed(100 + rank)
    found = []
    with netfold.capture(ddp, folder / mode, steps=wanted):
        for step in range(steps):
            if mode == "failing" and rank == 1 and step == 2:
                raise ValueError("a bad sample")
            ddp.zero_grad(set_to_none=mode != "zeroed")
            micro_batches = 3 if mode.startswith("accumulated") else 1
            for micro in range(micro_batches):
                with contextlib.nullcontext() if micro + 1 == micro_batches else ddp.no_sync():
                    _loss(mode, ddp, inputs(draws), step, micro, rank).backward()
            with torch.no_grad():  # an evaluation, which is no part of a step
                ddp(*_called(mode, inputs(draws), step, 0, rank))
            found.append(
                {
                    name: _numpy(one.grad) * np.float32(dist.get_world_size())
                    for name, one in model.named_parameters()
                    if one.grad is not None
                }
            )
    return found


def waited(rank: int, folder: Path) -> None:
    """Train by a clock that goes on by 1 ns whenever the device is waited for, and only then."""
    from netfold.sim.capture import capture

    with (
        mock.patch.object(capture.Recorder, "_wait_for_device") as waits,
        mock.patch.object(capture, "time") as clock,
    ):
        clock.perf_counter_ns.side_effect = lambda: waits.call_count
        trained(rank, folder, "plain", 2, 1)


def _numpy(gradient: Any) -> Any:
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    return dense.detach().float().clone().numpy()


def _called(mode: str, drawn: Any, step: int, micro: int, rank: int) -> tuple[Any, ...]:
    """The arguments of the model: of some, one branch is used by one rank, or in one micro-batch."""
    uses_side = {"unused": step % 3 == rank, "accumulated_unused": micro == 0}  # rank 0, rank 1, nobody
    return (drawn, uses_side[mode]) if mode in uses_side else (drawn,)


def _loss(mode: str, ddp: Any, drawn: Any, step: int, micro: int, rank: int) -> Any:
    output = ddp(*_called(mode, drawn, step, micro, rank))
    output = output["out"] if isinstance(output, dict) else output
    loss = output.float().square().mean()
    if mode == "overflowing" and step == 2 and rank == 1:
        return loss * float("inf")
    return loss


def _model(mode: str) -> tuple[Any, Any, dict[str, Any]]:
    """A model, what draws its input, and the options of DDP: buckets of a few kilobytes."""
    import torch
    from torch import nn

    class Branched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.side, self.last = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)

        def forward(self, drawn: Any, uses_side: bool) -> Any:
            hidden = self.first(drawn)
            return {"out": self.last(self.side(hidden) if uses_side else hidden)}

    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.last = nn.Embedding(500, 8, sparse=True), nn.Linear(8, 4)

        def forward(self, drawn: Any) -> Any:
            return self.last(self.table(drawn).mean(1))

    class Scaled(nn.Module):  # a parameter without dimensions
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.last = nn.Parameter(torch.tensor(2.0)), nn.Linear(16, 4)

        def forward(self, drawn: Any) -> Any:
            return self.last(drawn) * self.scale

    def dense(draws: Any) -> Any:
        return torch.randn(8, 16, generator=draws)

    if mode in ("unused", "accumulated_unused"):
        return Branched(), dense, {"find_unused_parameters": True, "bucket_cap_mb": 0.002}
    if mode == "rows":
        return Looked(), lambda draws: torch.randint(0, 500, (6, 3), generator=draws), {}
    if mode == "scalar":
        return Scaled(), dense, {}
    chain = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    if mode == "half":
        return chain.bfloat16(), lambda draws: dense(draws).bfloat16(), {"bucket_cap_mb": 0.002}
    if mode == "double":
        return chain.double(), lambda draws: dense(draws).double(), {}
    return chain, dense, {"bucket_cap_mb": 0.002, "gradient_as_bucket_view": mode == "view"}


def all_trained(rank: int, folder: Path, modes: tuple[str, ...], steps: int, wanted: int) -> dict[str, Any]:
    """Several trainings, one after the other, or the errors with which they end."""
    found: dict[str, Any] = {}
    for mode in modes:
        try:
            found[mode] = trained(rank, folder, mode, steps, wanted)
        except Exception as error:
            found[mode] = f"{type(error).__name__}: {error}"
    return found
