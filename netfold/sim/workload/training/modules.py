"""Layers of a model, found from the order in which its modules run.

A layer is a module with parameters of its own, such as a convolution, a linear map or an embedding. A norm
that runs after it, before the next layer, belongs to it: its gradients are ready at the same time, and
methods that prune or compress by layer treat both as one. So do other modules that have nothing but vectors
(learned scales, PReLU). Layers that share a parameter are one layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

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
        self._ran: list[nn.Module] = []  # in the order of their first run
        self._last: nn.Module | None = None  # the last layer that ran
        self._follows: dict[nn.Module, nn.Module | None] = {}  # of norms: the layer before
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

    def found(self) -> dict[str, str]:
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
