"""A probe of one forward and backward pass: layers, the order in which gradients become ready, the cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from netfold.sim.workload.training.modules import ModuleLayers
from netfold.sim.workload.workload import StepCost


class ProbedStep(NamedTuple):
    """Results of the probed pass."""

    order: tuple[str, ...]  # parameter names as their gradients became ready
    flops: tuple[int, ...]  # of the backward pass until each of them was ready
    layers: dict[str, str]  # the layer of each parameter
    cost: StepCost


def probe(model: nn.Module, loss: Callable[[], Tensor]) -> ProbedStep:
    """Run `loss()` and its backward pass; weights and gradients of `model` are as before.

    FLOPs are counted by PyTorch (matrix products, convolutions, attention; a multiply-add is 2). Bytes are
    estimated from the tensors autograd saves, that is weights used and activations: forward moves each of
    them twice (written or loaded, then read), backward reads each, writes a gradient of the same size, and
    writes every parameter's gradient whole, since embedding gradients are dense tables.
    """
    saved_bytes: dict[int, int] = {}  # by address: several operators may save the same tensor
    order: list[str] = []
    flops: list[int] = []
    layers, forward, backward = ModuleLayers(model), _FlopCounter(), _FlopCounter()

    def ready(name: str) -> None:
        order.append(name)
        flops.append(backward.total)

    def save(tensor: Tensor) -> Tensor:
        saved_bytes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    hooks = [
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda _, name=name: ready(name)
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
    model.zero_grad(set_to_none=True)
    moved_bytes = 2 * sum(saved_bytes.values())
    gradient_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    cost = StepCost(forward.total, backward.total, moved_bytes, moved_bytes + gradient_bytes)
    return ProbedStep(tuple(order), tuple(flops), layers.found(), cost)


class _FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts FLOPs as PyTorch's `FlopCounterMode` does, by the same formulas.

    `FlopCounterMode` imports PyTorch's compiler, which takes a second and 90 MB.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False (a private hook of PyTorch): otherwise PyTorch imports its compiler."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        with self:
            parts = func.decompose(*args, **named)  # counted one by one
        if parts is not NotImplemented:
            return parts
        result = func(*args, **named)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **named, out_val=result)
        return result


def _same(tensor: Tensor) -> Tensor:
    return tensor
