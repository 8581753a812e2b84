"""A probe of one forward and backward pass: layers, the order in which gradients become ready, the cost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from netfold.sim.workload.device_model import Kernel, Stage, StepCost
from netfold.sim.workload.training.kernels import KernelCounter
from netfold.sim.workload.training.modules import ModuleLayers

_SGD_FLOATS = 3  # an element's weight and gradient are read, its weight is written


class ProbedStep(NamedTuple):
    """Results of the probed pass."""

    order: tuple[str, ...]  # names of all trained parameters as their gradients became ready
    flops: tuple[int, ...]  # of the backward pass until each of them was ready
    layers: dict[str, str]  # the layer of each parameter
    cost: StepCost
    sparse: frozenset[str] = frozenset()  # parameters whose gradients are rows of a table


def probe(model: nn.Module, loss: Callable[[], Tensor]) -> ProbedStep:
    """Run `loss()` and its backward pass; weights and gradients of `model` are as before.

    FLOPs are counted by PyTorch (matrix products, convolutions, attention; a multiply-add is 2), and for each
    kernel also the bytes of the tensors that it reads and writes (`kernels.py`).

    The bytes of whole passes are another estimate, from the tensors autograd saves, that is weights used and
    activations: forward moves each of them twice (written or loaded, then read), backward reads each, writes
    a gradient of the same size, and writes every parameter's gradient: whole, since embedding gradients are
    dense tables, unless they are made sparse.
    """
    saved_bytes: dict[int, int] = {}  # by address: several operators may save the same tensor
    stages: list[Stage] = []
    flops: list[int] = []
    gradients: dict[str, tuple[bool, int]] = {}  # of each parameter: whether it is rows, and its bytes
    layers, forward, backward = ModuleLayers(model), KernelCounter(), KernelCounter()

    def ready(name: str, parameter: nn.Parameter) -> None:
        stages.append(Stage(name, backward.taken()))
        flops.append(backward.total)
        if parameter.grad is not None:
            gradients[name] = _is_rows(parameter.grad), _stored_bytes(parameter.grad)
            parameter.grad = None  # not all at the same time in memory

    def save(tensor: Tensor) -> Tensor:
        saved_bytes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    hooks = [
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda parameter, name=name: ready(name, parameter)
        )
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    with forward, torch.autograd.graph.saved_tensors_hooks(save, _same):
        value = loss()
    with backward:
        value.backward()  # type: ignore[no-untyped-call]
    for hook in hooks:
        hook.remove()
    _insert_unused(stages, flops, [name for name, one in model.named_parameters() if one.requires_grad])
    model.zero_grad(set_to_none=True)
    moved_bytes = 2 * sum(saved_bytes.values())
    gradient_bytes = sum(size for _, size in gradients.values())
    cost = StepCost(
        forward.total,
        backward.total,
        moved_bytes,
        moved_bytes + gradient_bytes,
        forward.taken(),
        (*stages, *_rest(backward.taken())),
        _SGD_FLOATS * sum(one.numel() * one.element_size() for one in model.parameters()),
    )
    sparse = frozenset(name for name, (is_rows, _) in gradients.items() if is_rows)
    order = tuple(one.tensor for one in stages)
    return ProbedStep(order, tuple(flops), layers.found(), cost, sparse)


def _insert_unused(stages: list[Stage], flops: list[int], trained: list[str]) -> None:
    """Insert parameters that the loss does not depend on, each after its neighbour, as in DDP's buckets."""
    order = [stage.tensor for stage in stages]
    for before, name in pairwise(["", *reversed(trained)]):
        if name not in order:
            place = order.index(before) + 1 if before else 0
            order.insert(place, name)
            stages.insert(place, Stage(name, ()))
            flops.insert(place, flops[place - 1] if place else 0)


def _is_rows(gradient: Tensor) -> bool:
    """Whether a gradient is some rows of a table: sparse in its first dimension alone."""
    return gradient.is_sparse and gradient.sparse_dim() == 1


def _stored_bytes(gradient: Tensor) -> int:
    """Bytes of its values: of a sparse gradient those of its rows, else of the whole table."""
    values = gradient._values() if gradient.is_sparse else gradient
    return values.numel() * values.element_size()


def _rest(kernels: tuple[Kernel, ...]) -> tuple[Stage, ...]:
    """The stage after the last gradient, if there is any."""
    return (Stage("", kernels),) if kernels else ()


def _same(tensor: Tensor) -> Tensor:
    return tensor
