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
    sparse: frozenset[str] = frozenset()  # parameters whose gradients are rows of a table


def probe(model: nn.Module, loss: Callable[[], Tensor]) -> ProbedStep:
    """Run `loss()` and its backward pass; weights and gradients of `model` are as before.

    FLOPs are counted by PyTorch (matrix products, convolutions, attention; a multiply-add is 2). Bytes are
    estimated from the tensors autograd saves, that is weights used and activations: forward moves each of
    them twice (written or loaded, then read), backward reads each, writes a gradient of the same size, and
    writes every parameter's gradient: whole, since embedding gradients are dense tables, unless they are made
    sparse.
    """
    saved_bytes: dict[int, int] = {}  # by address: several operators may save the same tensor
    order: list[str] = []
    flops: list[int] = []
    gradients: dict[str, tuple[bool, int]] = {}  # of each parameter: whether it is rows, and its bytes
    layers, forward, backward = ModuleLayers(model), _FlopCounter(), _FlopCounter()

    def ready(name: str, parameter: nn.Parameter) -> None:
        order.append(name)
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
    model.zero_grad(set_to_none=True)
    moved_bytes = 2 * sum(saved_bytes.values())
    gradient_bytes = sum(size for _, size in gradients.values())
    cost = StepCost(forward.total, backward.total, moved_bytes, moved_bytes + gradient_bytes)
    sparse = frozenset(name for name, (is_rows, _) in gradients.items() if is_rows)
    return ProbedStep(tuple(order), tuple(flops), layers.found(), cost, sparse)


def _is_rows(gradient: Tensor) -> bool:
    """Whether a gradient is some rows of a table: sparse in its first dimension alone."""
    return gradient.is_sparse and gradient.sparse_dim() == 1


def _stored_bytes(gradient: Tensor) -> int:
    """Bytes of its values: of a sparse gradient those of its rows, else of the whole table."""
    values = gradient._values() if gradient.is_sparse else gradient
    return values.numel() * values.element_size()


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
