"""How many elements of a model's gradients are not zero: of one worker, and of the sum of several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from netfold.sim.workload.training.loop.passes import drawing, one_thread
from netfold.sim.workload.training.models.spec import Model, TaskSettings


class Measured(NamedTuple):
    """Shares of non-zero elements at the first step, from random weights."""

    own: float  # mean over workers
    union: float  # of any worker
    common: float  # of all workers


def measure(model: Model, settings: TaskSettings) -> Measured:
    """The densities of a model's gradients; workers take turns, so memory is that of one.

    The same settings give the same gradients as in a run.

    Raises
    ------
    DataError
        The data set is not available, or has fewer samples than there are workers.
    """
    task = model.task(settings)
    with drawing(settings.seed, "weights"):
        module = task.build()
    counts: list[int] = []
    union = [np.zeros(parameter.shape, np.bool_) for parameter in module.parameters()]
    common = [~mask for mask in union]
    for worker in range(settings.workers):
        inputs, targets = task.samples(0, worker)
        with one_thread(), drawing(settings.seed, "forward", 0, worker):
            task.loss(module(*inputs), targets).backward()  # type: ignore[no-untyped-call]
        counts.append(0)
        for index, mask in enumerate(_masks(module)):
            counts[-1] += int(np.count_nonzero(mask))
            union[index] |= mask
            common[index] &= mask
    shares = (float(sum(map(np.count_nonzero, masks))) / model.elements for masks in (union, common))
    return Measured(float(np.mean(counts)) / model.elements, *shares)


def _masks(module: nn.Module) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Which elements of each parameter's gradient are not zero; gradients are dropped one by one."""
    for parameter in module.parameters():
        gradient = parameter.grad
        dense = torch.zeros_like(parameter) if gradient is None else gradient
        yield ((dense.to_dense() if dense.is_sparse else dense) != 0).numpy()
        parameter.grad = None
