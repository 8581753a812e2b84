"""What a built model shows: tensors, layers and operations of a step, times, the density of its gradients."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from netfold.homomorphic.message import Tensor as Described
from netfold.sim.workload.device_rooflines import (
    CONVOLUTION,
    CONVOLUTION_BACKWARD,
    MATMUL,
    OTHER,
    KernelCost,
    Passes,
    Stage,
    StepCost,
)
from netfold.sim.workload.layers import place_tensors
from netfold.sim.workload.model import Model, TaskSettings
from netfold.sim.workload.weights import drawing, one_thread


def measure(model: Model, settings: TaskSettings) -> tuple[float, float, float]:
    """Shares of a model's elements that are not zero at the first step, from random weights.

    Those of one worker, the mean over workers; at any worker; at all workers. Workers take turns, so memory
    is that of one. The same settings give the same gradients as in a run.

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
    at_any, at_all = (float(sum(map(np.count_nonzero, masks))) / model.elements for masks in (union, common))
    return float(np.mean(counts)) / model.elements, at_any, at_all


def _masks(module: nn.Module) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Which elements of each parameter's gradient are not zero; gradients are dropped one by one."""
    for parameter in module.parameters():
        gradient = parameter.grad
        dense = torch.zeros_like(parameter) if gradient is None else gradient
        yield ((dense.to_dense() if dense.is_sparse else dense) != 0).numpy()
        parameter.grad = None


# Counts the kernels of a pass: operators of PyTorch that compute something, with their FLOPs and bytes.
#
# An operator that returns a view of what it was given computes nothing and is not counted, nor is one that
# only allocates. All others count as one kernel each, and move the bytes of the tensors that they are given
# and return: each tensor once, and once more if it is changed in place. Of a table from which rows are
# taken, the rows count. A library may fuse several operators, or take several kernels for one.


_aten = torch.ops.aten
_ALLOCATING = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_OVERWRITING = ("zero_", "fill_", "copy_")
"""Operators that do not read what they change."""
_GATHERING = ("embedding", "index_select", "gather", "index")
"""Operators that read of their first tensor only what they take."""
_KINDS = {
    "convolution": CONVOLUTION,
    "_convolution": CONVOLUTION,
    "convolution_backward": CONVOLUTION_BACKWARD,
}


def _lstm_flops(inputs: Tensor, weight: Tensor, recurrent: Tensor, *_: Any, **__: Any) -> int:
    # Matrix products over a sequence, which oneDNN fuses; inputs are (steps, batch, …).
    return 2 * inputs.shape[0] * inputs.shape[1] * (weight.numel() + recurrent.numel())


def _lstm_backward_flops(*args: Any, **named: Any) -> int:
    # As many for the gradients of the inputs as for those of the weights.
    return 2 * _lstm_flops(*args, **named)


_FORMULAS: dict[Any, Callable[..., int]] = {
    _aten.mkldnn_rnn_layer: _lstm_flops,
    _aten.mkldnn_rnn_layer_backward: _lstm_backward_flops,
}
"""FLOPs of operators for which PyTorch has no formula."""


class KernelCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts FLOPs as PyTorch's `FlopCounterMode` does, by the same formulas, and bytes, kernel by kernel.

    `FlopCounterMode` imports PyTorch's compiler, which takes a second and 90 MB.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0  # FLOPs
        self._kernels: list[KernelCost] = []

    def take(self) -> tuple[KernelCost, ...]:
        """The kernels since the last call."""
        kernels = tuple(self._kernels)
        self._kernels = []
        return kernels

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # A private hook of PyTorch, which otherwise imports its compiler.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        keywords = kwargs or {}
        with self:
            parts = func.decompose(*args, **keywords)  # counted one by one
        if parts is not NotImplemented:
            return parts
        result = func(*args, **keywords)
        self._count(func, args, keywords, result)
        return result

    def _count(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        packet = func._overloadpacket
        formula = flop_registry.get(packet) or _FORMULAS.get(packet)
        flops = formula(*args, **keywords, out_val=result) if formula is not None else 0
        self.total += flops
        name = packet.__name__
        inputs, returned = list(_tensors((args, keywords))), list(_tensors(result))
        if not flops and (name in _ALLOCATING or _is_view(func, inputs, returned)):
            return
        kind = _KINDS.get(name, MATMUL) if flops else OTHER
        self._kernels.append(KernelCost(kind, flops, _moved_bytes(name, inputs, returned)))


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in nested arguments."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for argument in value:
            yield from _tensors(argument)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _is_view(func: Any, operands: list[Tensor], returned: list[Tensor]) -> bool:
    """Whether all that an operator returns is a part of what it was given, unchanged."""
    if func._schema.is_mutable or not returned or any(map(_is_compound, (*operands, *returned))):
        return False
    operand_storages = {tensor.untyped_storage().data_ptr() for tensor in operands}
    return all(tensor.untyped_storage().data_ptr() in operand_storages for tensor in returned)


def _moved_bytes(name: str, operands: list[Tensor], returned: list[Tensor]) -> int:
    """Bytes that an operator reads and writes; a tensor that it returns as given was changed in place."""
    written = sum(map(_bytes, returned))
    distinct = list({id(tensor): tensor for tensor in operands}.values())
    if name in _OVERWRITING:
        distinct = [tensor for tensor in distinct if not any(tensor is other for other in returned)]
    sizes = [_bytes(tensor) for tensor in distinct]
    if name in _GATHERING and sizes:
        sizes[0] = min(sizes[0], written)
    return sum(sizes) + written


def _bytes(tensor: Tensor) -> int:
    """Bytes that hold a tensor: an expanded one has fewer than its elements."""
    if _is_compound(tensor):
        parts = (tensor._indices(), tensor._values()) if tensor.is_sparse else ()
        return sum(map(_bytes, parts))
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _is_compound(tensor: Tensor) -> bool:
    # Sparse tensors are made of others; libraries have layouts of their own.
    return tensor.layout is not torch.strided


# Layers of a model, found from the order in which its modules run.
#
# A layer is a module with parameters of its own, such as a convolution, a linear map or an embedding. A norm
# that runs after it, before the next layer, belongs to it: its gradients are ready at the same time, and
# methods that prune or compress by layer treat both as one. So do other modules that have nothing but vectors
# (learned scales, PReLU). Layers that share a parameter are one layer.


_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)  # _NormBase: all of BatchNorm, InstanceNorm


class ModuleLayers:
    """Watches a forward pass of a model, and says afterwards to which layer each parameter belongs.

    A module that does not run as one (its parameters are used by another) is a layer of its own, as is a norm
    before the first layer. If a module runs several times, its first run counts.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._names = {
            module: name or type(model).__name__
            for name, module in model.named_modules()
            if next(module.parameters(recurse=False), None) is not None
        }
        self._ran: list[nn.Module] = []  # sorted by their first run
        self._last: nn.Module | None = None  # the last layer that ran
        self._follows: dict[nn.Module, nn.Module | None] = {}  # the layer before each norm
        self._hooks = [hook for module in self._names for hook in self._watch(module)]

    def _watch(self, module: nn.Module) -> Iterator[Any]:
        if _is_follower(module):
            yield module.register_forward_pre_hook(self._begin_follower)
        else:
            yield module.register_forward_hook(self._end_layer)

    def _begin_follower(self, module: nn.Module, *_: Any) -> None:
        self._follows.setdefault(module, self._last)

    def _end_layer(self, module: nn.Module, *_: Any) -> None:
        self._last = module
        if module not in self._ran:
            self._ran.append(module)

    def finish(self) -> dict[str, str]:
        """The name of the layer of each parameter, by the parameter's name; ends the watch.

        A layer has the name of its first module to run; the model itself has that of its class.
        """
        for hook in self._hooks:
            hook.remove()
        heads = {module: self._follows.get(module) or module for module in self._names}
        owners: dict[int, list[nn.Module]] = {}
        for module in self._names:
            for parameter in module.parameters(recurse=False):
                owners.setdefault(id(parameter), []).append(heads[module])
        order = [*self._ran, *(module for module in self._names if module not in self._ran)]
        united = {module: module for module in order}
        for sharing in owners.values():
            first = min((united[module] for module in sharing), key=order.index)
            same = {united[module] for module in sharing}
            united = {module: first if head in same else head for module, head in united.items()}
        return {
            name: self._names[united[owners[id(parameter)][0]]]
            for name, parameter in self._model.named_parameters()
        }


def _is_follower(module: nn.Module) -> bool:
    """Whether a module belongs to the layer that runs before it."""
    return isinstance(module, _NORMS) or all(
        parameter.dim() <= 1 for parameter in module.parameters(recurse=False)
    )


# A probe of one forward and backward pass: layers, the order in which gradients become ready, the cost.


_SGD_FLOATS = 3  # an element's weight and gradient are read, its weight is written


class ProbedStep(NamedTuple):
    """Results of the probed pass."""

    order: tuple[str, ...]
    """Names of all trained parameters as their gradients became ready."""
    flops: tuple[int, ...]
    """Operations of the backward pass until each of them was ready."""
    layers: dict[str, str]
    cost: StepCost
    sparse: frozenset[str] = frozenset()
    """Parameters whose gradients are rows of a table."""


def probe(model: nn.Module, loss: Callable[[], Tensor]) -> ProbedStep:
    """Run `loss()` and its backward pass; weights and gradients of `model` are as before.

    FLOPs are counted by PyTorch (matrix products, convolutions, attention; a multiply-add is 2), and for each
    kernel also the bytes of the tensors that it reads and writes (`KernelCounter`).

    The bytes of whole passes are another estimate, from the tensors autograd saves, that is weights used and
    activations: forward moves each of them twice (written or loaded, then read), backward reads each, writes
    a gradient of the same size, and writes every parameter's gradient: whole, since embedding gradients are
    dense tables, unless they are made sparse.
    """
    saved_bytes: dict[int, int] = {}  # keys are addresses: several operators may save the same tensor
    stages: list[Stage] = []
    flops: list[int] = []
    gradients: dict[str, tuple[bool, int]] = {}  # whether each is rows, and its bytes
    layers, forward, backward = ModuleLayers(model), KernelCounter(), KernelCounter()

    def ready(name: str, parameter: nn.Parameter) -> None:
        stages.append(Stage(name, backward.take()))
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
    _insert_unused(
        stages, flops, [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    )
    model.zero_grad(set_to_none=True)
    moved_bytes = 2 * sum(saved_bytes.values())
    gradient_bytes = sum(size for _, size in gradients.values())
    last = backward.take()  # what follows the last gradient
    cost = StepCost(
        forward.total,
        backward.total,
        moved_bytes,
        moved_bytes + gradient_bytes,
        forward.take(),
        (*stages, *((Stage("", last),) if last else ())),
        _SGD_FLOATS * sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
    )
    sparse = frozenset(name for name, (is_rows, _) in gradients.items() if is_rows)
    order = tuple(stage.tensor for stage in stages)
    return ProbedStep(order, tuple(flops), layers.finish(), cost, sparse)


def tensors_of(module: nn.Module, loss: Callable[[], Tensor]) -> tuple[Described, ...]:
    """The trained parameters in gradient-ready order, from a pass (`probe`).

    On PyTorch's meta device a layer of an LSTM is many operators. The order is that of other devices.
    """
    probed = probe(module, loss)
    parameters = dict(module.named_parameters())
    places = {name: position for position, name in enumerate(probed.order)}
    for name, part in module.named_modules():
        if isinstance(part, nn.LSTM) and part.weight_ih_l0.is_meta:
            places |= _places_of_lstm(part, name, places)
    return place_tensors(
        Described(name, tuple(parameters[name].shape), probed.layers[name])
        for name in sorted(places, key=places.__getitem__)
    )


def _places_of_lstm(lstm: nn.LSTM, name: str, places: Mapping[str, int]) -> dict[str, int]:
    """The order where a layer of an LSTM is one operator, which gives all of its gradients at once."""
    names = [
        f"{name}.{part}_l{layer}"
        for layer in reversed(range(lstm.num_layers))
        for part in ("weight_ih", "weight_hh", "bias_hh", "bias_ih")
    ]
    return dict(zip(names, sorted(places[parameter] for parameter in names), strict=True))


def _insert_unused(stages: list[Stage], flops: list[int], trained: list[str]) -> None:
    """Insert parameters that the loss does not depend on, each after its neighbour, as in DDP's buckets."""
    order = [stage.tensor for stage in stages]
    for before, name in pairwise(["", *reversed(trained)]):
        if name not in order:
            position = order.index(before) + 1 if before else 0
            order.insert(position, name)
            stages.insert(position, Stage(name, ()))
            flops.insert(position, flops[position - 1] if position else 0)


def _is_rows(gradient: Tensor) -> bool:
    # Sparse in the first dimension alone: rows of a table.
    return gradient.is_sparse and gradient.sparse_dim() == 1


def _stored_bytes(gradient: Tensor) -> int:
    """Bytes of its values: of a sparse gradient those of its rows, else of the whole table."""
    values = gradient._values() if gradient.is_sparse else gradient
    return values.numel() * values.element_size()


def _same(tensor: Tensor) -> Tensor:
    return tensor


# Wall times of real passes of a model on this machine.


WARM_UPS, RUNS = 1, 5
_PS_PER_NS = 1000


def timed_passes(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> tuple[Passes, int]:
    # Wall times, in the threads that PyTorch is set to. That step counts whose passes took the median time.
    # The copy keeps the model's buffers as they are.
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
