"""What the processes of tests do wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import netfold.torch
from tests.torch.trainings import FAULTS, Faulty, hooked, loss_of, small_model, train, with_codec


def _error_of(action: Callable[[], object]) -> str:
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def every_error(rank: int) -> dict[str, list[str]]:
    """The texts of errors by what goes wrong; of training, in three backward passes one after another."""
    found: dict[str, list[str]] = {}

    def three(name: str, codec: Any, weight: Callable[[int], float] = lambda step: 1.0) -> None:
        model, _ = with_codec(small_model(), codec)
        found[name] = [
            _error_of(lambda step=step: (loss_of(model, rank, step) * weight(step)).backward())  # type: ignore[misc]
            for step in range(3)
        ]
        dist.barrier()

    for fault in FAULTS:
        three(fault, Faulty(fault))
    three("infinite", "exact", lambda step: float("inf") if (rank, step) == (1, 1) else 1.0)
    found["settings"] = [_error_of(lambda: netfold.torch.State("topk" if rank == 2 else "packed"))]
    found["seeds"] = [_error_of(lambda: netfold.torch.State("packed", seed=rank // 2))]
    found["type"] = [_error_of(lambda: _train_double(rank))]
    found["sparse"] = [_error_of(_train_sparse)]
    found["models"] = [_error_of(lambda: _two_models(rank))]
    found["names"] = [_error_of(lambda: _names_of_another(rank))]
    found["joined"] = [_error_of(lambda: _fail_in_join(rank))]  # the last, as it leaves DDP's messages behind
    return found


def _train_double(rank: int) -> None:
    train(with_codec(small_model().double(), "packed")[0], rank, 1, torch.float64)


def _train_sparse() -> None:
    model, _ = with_codec(nn.Embedding(5, 2, sparse=True), "packed")
    model(torch.tensor([1])).sum().backward()


def _two_models(rank: int) -> None:
    model, state = with_codec(small_model(), "packed")
    train(model, rank, 2)
    train(hooked(small_model(), state), rank, 1)


def _names_of_another(rank: int) -> None:
    model, _ = with_codec(small_model(), "packed", parameters=small_model().named_parameters())
    train(model, rank, 1)


def _fail_in_join(rank: int) -> None:
    """A codec fails in step 1, at a worker that has no more batches."""
    model, _ = with_codec(small_model(), Faulty("late error", at=1))
    with model.join():
        train(model, rank, 1 if rank == 1 else 3)


def uncaught(rank: int) -> None:
    """One worker's codec fails, and nobody catches it."""
    model, _ = with_codec(small_model(), Faulty("late error"))
    train(model, rank, 3)


def asleep(rank: int, timeout_s: int, is_default: bool) -> tuple[str, float]:
    """One worker sleeps longer than the process group waits: what the others get, and after which time."""
    timeout = timedelta(seconds=timeout_s)
    if is_default:
        dist.distributed_c10d._set_pg_timeout(timeout)
    group = None if is_default else dist.new_group(timeout=timeout)
    state = netfold.torch.State("exact", process_group=group)
    model = hooked(small_model(), state, process_group=group)
    train(model, rank, 3)  # DDP itself sends messages in its first steps
    dist.distributed_c10d._set_pg_timeout(timedelta(minutes=5))  # for the end of the test
    if rank == 1:
        time.sleep(timeout_s + 10)
        return "", 0.0
    start_s = time.monotonic()
    error = _error_of(lambda: loss_of(model, rank, 3).backward())
    return error, time.monotonic() - start_s


def lost(rank: int) -> None:
    """One worker is gone after its third step."""
    model, _ = with_codec(small_model(), "exact")
    train(model, rank, 3)  # DDP itself sends messages in its first steps
    if rank == 1:
        os._exit(9)
    train(model, rank, 1)
