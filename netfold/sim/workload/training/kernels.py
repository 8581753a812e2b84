"""Counts the kernels of a pass: operators of PyTorch that compute something, with their FLOPs and bytes.

An operator that returns a view of what it was given computes nothing and is not counted, nor is one that only
allocates. All others count as one kernel each, and move the bytes of the tensors that they are given and
return: each tensor once, and once more if it is changed in place. Of a table from which rows are taken, the
rows count. A library may fuse several operators, or take several kernels for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from netfold.sim.workload.device_model import CONVOLUTION, CONVOLUTION_BACKWARD, MATMUL, OTHER, Kernel

_aten = torch.ops.aten
_ALLOCATING = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_OVERWRITING = ("zero_", "fill_", "copy_")  # what they change they do not read
_GATHERING = ("embedding", "index_select", "gather", "index")  # of the first tensor they read what they take
_KINDS = {
    "convolution": CONVOLUTION,
    "_convolution": CONVOLUTION,
    "convolution_backward": CONVOLUTION_BACKWARD,
}


def _lstm_flops(inputs: Tensor, weight: Tensor, recurrent: Tensor, *_: Any, **__: Any) -> int:
    """Matrix products of a layer of an LSTM over a sequence, which oneDNN fuses: inputs (steps, batch, …)."""
    return 2 * inputs.shape[0] * inputs.shape[1] * (weight.numel() + recurrent.numel())


def _lstm_backward_flops(*args: Any, **named: Any) -> int:
    """As many for the gradients of the inputs, and for those of the weights."""
    return 2 * _lstm_flops(*args, **named)


_FORMULAS: dict[Any, Callable[..., int]] = {  # that PyTorch has none for
    _aten.mkldnn_rnn_layer: _lstm_flops,
    _aten.mkldnn_rnn_layer_backward: _lstm_backward_flops,
}


class KernelCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts FLOPs as PyTorch's `FlopCounterMode` does, by the same formulas, and bytes, kernel by kernel.

    `FlopCounterMode` imports PyTorch's compiler, which takes a second and 90 MB.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0  # FLOPs
        self._kernels: list[Kernel] = []

    def taken(self) -> tuple[Kernel, ...]:
        """The kernels since the last call."""
        found = tuple(self._kernels)
        self._kernels = []
        return found

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
        self._count(func, args, named, result)
        return result

    def _count(self, func: Any, args: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        packet = func._overloadpacket
        formula = flop_registry.get(packet) or _FORMULAS.get(packet)
        flops = formula(*args, **named, out_val=result) if formula is not None else 0
        self.total += flops
        name = packet.__name__
        given, returned = list(_tensors((args, named))), list(_tensors(result))
        if not flops and (name in _ALLOCATING or _is_view(func, given, returned)):
            return
        kind = _KINDS.get(name, MATMUL) if flops else OTHER
        self._kernels.append(Kernel(kind, flops, _moved_bytes(name, given, returned)))


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in nested arguments."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _is_view(func: Any, given: list[Tensor], returned: list[Tensor]) -> bool:
    """Whether all that an operator returns is a part of what it was given, unchanged."""
    if func._schema.is_mutable or not returned or any(map(_is_compound, (*given, *returned))):
        return False
    held = {tensor.untyped_storage().data_ptr() for tensor in given}
    return all(tensor.untyped_storage().data_ptr() in held for tensor in returned)


def _moved_bytes(name: str, given: list[Tensor], returned: list[Tensor]) -> int:
    """Bytes that an operator reads and writes; a tensor that it returns as given was changed in place."""
    written = sum(map(_bytes, returned))
    distinct = list({id(tensor): tensor for tensor in given}.values())
    if name in _OVERWRITING:
        distinct = [one for one in distinct if not any(one is other for other in returned)]
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
    """Whether a tensor is made of others, as sparse ones are, or has a layout of a library."""
    return tensor.layout is not torch.strided
