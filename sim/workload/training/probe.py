"""A probe of one forward and backward pass: layers, the order in which gradients become ready, the cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from netfold.sim.workload.devices.cost import Kernel, Stage, StepCost
from netfold.sim.workload.training.kernels import KernelCounter
from netfold.sim.workload.training.modules import ModuleLayers

_SGD_FLOATS = 3  # an element's weight and gradient are read, its weight is written


class ProbedStep(NamedTuple):
    """Results of the probed pass."""

    order: tuple[str, ...]  # parameter names as their gradients became ready
    flops: tuple[int, ...]  # of the backward pass until each of them was ready
    layers: dict[str, str]  # the layer of each parameter
    cost: StepCost


def probe(model: nn.Module, loss: Callable[[], Tensor]) -> ProbedStep:
    """Run `loss()` and its backward pass; weights and gradients of `model` are as before.

    FLOPs are counted by PyTorch (matrix products, convolutions, attention; a multiply-add is 2), and for each
    kernel also the bytes of the tensors that it reads and writes (`kernels.py`).

    The bytes of whole passes are another estimate, from the tensors autograd saves, that is weights used and
    activations: forward moves each of them twice (written or loaded, then read), backward reads each, writes
    a gradient of the same size, and writes every parameter's gradient whole, since embedding gradients are
    dense tables.
    """
    saved_bytes: dict[int, int] = {}  # by address: several operators may save the same tensor
    stages: list[Stage] = []
    flops: list[int] = []
    layers, forward, backward = ModuleLayers(model), KernelCounter(), KernelCounter()

    def ready(name: str) -> None:
        stages.append(Stage(name, backward.taken()))
        flops.append(backward.total)

    def save(tensor: Tensor) -> Tensor:
        saved_bytes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    hooks = [
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda _, name=name: ready(name)
        )
        for name, parameter in model.named_parameters()
    ]
    with forward, torch.autograd.graph.saved_tensors_hooks(save, _same):
        value = loss()
    with backward:
        value.backward()  # type: ignore[no-untyped-call]
    for hook in hooks:
        hook.remove()
    model.zero_grad(set_to_none=True)
    moved_bytes = 2 * sum(saved_bytes.values())
    gradient_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    cost = StepCost(
        forward.total,
        backward.total,
        moved_bytes,
        moved_bytes + gradient_bytes,
        forward.taken(),
        (*stages, *_rest(backward.taken())),
        _SGD_FLOATS * gradient_bytes,
    )
    return ProbedStep(tuple(one.tensor for one in stages), tuple(flops), layers.found(), cost)


def _rest(kernels: tuple[Kernel, ...]) -> tuple[Stage, ...]:
    """The stage after the last gradient, if there is any."""
    return (Stage("", kernels),) if kernels else ()


def _same(tensor: Tensor) -> Tensor:
    return tensor
