"""Wall times of real passes of a model on this machine."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from netfold.sim.workload.device_model import Passes

WARM_UPS, RUNS = 1, 5
_PS_PER_NS = 1000


def timed_passes(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> tuple[Passes, int]:
    """The passes of a step, and an update of the weights, in picoseconds of wall time.

    Several steps are run on a copy of the model; that whose passes took the median time counts. The threads
    are those that PyTorch is set to. Its global generator is as before.

    Parameters
    ----------
    model
        Stays as it is: its buffers too.
    loss
        What is differentiated, of a model: a scalar.
    """
    twin = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]):
        runs = [_run(twin, loss) for _ in range(WARM_UPS + RUNS)][WARM_UPS:]
    runs.sort(key=lambda passes: passes.forward_ps + passes.backward_ps)
    elements = sum(parameter.numel() for parameter in model.parameters())
    return runs[RUNS // 2], _update_ps(elements)


def _run(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Passes:
    """One forward and one backward pass."""
    ready_ns: dict[str, int] = {}

    def ready(name: str) -> None:
        ready_ns[name] = time.perf_counter_ns()

    hooks = [
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda _, name=name: ready(name)
        )
        for name, parameter in model.named_parameters()
    ]
    start_ns = time.perf_counter_ns()
    value = loss(model)
    forward_ns = time.perf_counter_ns()
    value.backward()  # type: ignore[no-untyped-call]
    end_ns = time.perf_counter_ns()
    for hook in hooks:
        hook.remove()
    model.zero_grad(set_to_none=True)
    return Passes(
        (forward_ns - start_ns) * _PS_PER_NS,
        (end_ns - forward_ns) * _PS_PER_NS,
        {name: (at_ns - forward_ns) * _PS_PER_NS for name, at_ns in ready_ns.items()},
    )


def _update_ps(elements: int) -> int:
    """The median time of weights -= rate * gradient."""
    weights, gradient, rate = np.zeros(elements, np.float32), np.ones(elements, np.float32), np.float32(0.1)
    times_ns = []
    for _ in range(RUNS):
        start_ns = time.perf_counter_ns()
        weights -= rate * gradient
        times_ns.append(time.perf_counter_ns() - start_ns)
    return sorted(times_ns)[RUNS // 2] * _PS_PER_NS
