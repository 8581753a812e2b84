"""What the user's function returns: a module, data, a loss, and a score if it likes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from netfold.errors import UserModelError

_RETURN = "return module, data, loss"
_NAMES = ("module", "data", "loss", "score")
_DATA = "data are a dataset with a length whose items are (input, target), or a pair of tensors"


class Parts(NamedTuple):
    """What the user's function returned, checked."""

    module: nn.Module
    data: Any  # items by number, with a length
    loss: Callable[[Any, Any], Any]
    score: Callable[[nn.Module], Any] | None

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that are trained, by name."""
        return {name: one for name, one in self.module.named_parameters() if one.requires_grad}


def read_parts(returned: Any, make: str) -> Parts:
    """Check what the function `make` returned.

    Raises
    ------
    UserModelError
        Something is missing, or of a kind that cannot be used.
    """
    module, data, loss, score = _values(returned, make)
    if not isinstance(module, nn.Module):
        raise UserModelError(
            f"{make}: the module must be a torch.nn.Module, found {kind_of(module)}", _RETURN
        )
    if loss is None:
        raise UserModelError(f"{make} returned no loss", f"{_RETURN}, such as torch.nn.CrossEntropyLoss()")
    if not callable(loss):
        raise UserModelError(
            f"{make}: the loss must be a function of outputs and targets, found {kind_of(loss)}",
            f"{_RETURN}, such as torch.nn.CrossEntropyLoss()",
        )
    if score is not None and not callable(score):
        raise UserModelError(
            f"{make}: the score must be a function of the module, found {kind_of(score)}",
            "it returns a number that is larger for better models",
        )
    found = Parts(module, _dataset(data, make), loss, score)
    _require_trainable(found, make)
    return found


def _values(returned: Any, make: str) -> tuple[Any, Any, Any, Any]:
    """Module, data, loss and score, those that are missing as None."""
    if returned is None:
        raise UserModelError(f"{make} returned nothing", _RETURN)
    if isinstance(returned, Mapping):
        if unknown := [str(key) for key in returned if key not in _NAMES]:
            raise UserModelError(
                f"{make} returned the unknown part {unknown[0]!r}", f"use {', '.join(_NAMES)}"
            )
        values = [returned.get(name) for name in _NAMES]
    elif isinstance(returned, tuple | list):
        if not 1 <= len(returned) <= len(_NAMES):
            raise UserModelError(f"{make} returned {len(returned)} values", f"{_RETURN}, or with a score")
        values = [*returned, *[None] * (len(_NAMES) - len(returned))]
    else:
        raise UserModelError(f"{make} returned {kind_of(returned)}, without data and loss", _RETURN)
    if values[1] is None:
        raise UserModelError(f"{make} returned no data", _DATA)
    module, data, loss, score = values
    return module, data, loss, score


def _dataset(data: Any, make: str) -> Any:
    """The data as items by number."""
    if isinstance(data, DataLoader):
        raise UserModelError(
            f"{make}: the data are a DataLoader", "give its dataset: netfold makes the batches"
        )
    if isinstance(data, tuple | list) and data and all(isinstance(one, Tensor) for one in data):
        if len({len(one) for one in data}) > 1:
            counts = ", ".join(str(len(one)) for one in data)
            raise UserModelError(f"{make}: the tensors of the data have different lengths: {counts}", _DATA)
        data = TensorDataset(*data)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise UserModelError(f"{make}: the data are {kind_of(data)}", _DATA)
    if len(data) == 0:
        raise UserModelError(f"{make}: the data are empty", _DATA)
    return data


def _require_trainable(parts: Parts, make: str) -> None:
    """Require parameters that netfold can train: float32, on the CPU."""
    _require_plain(parts.module, make)
    if not parts.trained:
        raise UserModelError(f"{make}: the module has no parameters to train", "give it layers with weights")
    for name, parameter in parts.trained.items():
        if parameter.device.type != "cpu":
            raise UserModelError(
                f"{make}: the parameter {name!r} is on {parameter.device}", "leave the module on the CPU"
            )
        if parameter.dtype != torch.float32:
            found = str(parameter.dtype).removeprefix("torch.")
            raise UserModelError(
                f"{make}: the parameter {name!r} is {found}, must be float32",
                "call module.float() before it is returned",
            )


def _require_plain(module: nn.Module, make: str) -> None:
    """Refuse modules that cannot be watched, those that would train otherwise, and lazy ones."""
    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
        what = "torch.jit" if isinstance(module, torch.jit.ScriptModule) else "torch.compile"
        raise UserModelError(
            f"{make}: the module was compiled with {what}", "return the module as it was before that"
        )
    for name, part in module.named_modules():
        if isinstance(part, nn.SyncBatchNorm):
            raise UserModelError(
                f"{make}: {name!r} is a SyncBatchNorm, which normalises by the batches of all workers; in "
                "netfold each worker's batch is normalised by itself",
                "leave out convert_sync_batchnorm, or use GroupNorm, which does not depend on the batch",
            )
    for name, parameter in module.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise UserModelError(
                f"{make}: the parameter {name!r} of a lazy layer has no shape yet",
                "pass a batch through the module before it is returned, or use a layer of a known size",
            )


def require_same(first: Parts, second: Parts, batches: Sequence[Any], make: str) -> None:
    """Require that two calls of the function returned the same weights and data.

    Raises
    ------
    UserModelError
        They differ, in what.
    """
    hint = "netfold seeds torch, numpy and random: draw from these, and use no clock and no set of objects"
    own, other = first.module.state_dict(), second.module.state_dict()
    if shapes := [name for name in own if name not in other or own[name].shape != other[name].shape]:
        raise UserModelError(f"{make} is not deterministic: two calls differ in {shapes[0]!r}", hint)
    for name, value in own.items():
        if not torch.equal(torch.nan_to_num(value), torch.nan_to_num(other[name])):
            raise UserModelError(f"{make} is not deterministic: two calls differ in {name!r}", hint)
    if len(first.data) != len(second.data):
        counts = f"{len(first.data)} and {len(second.data)}"
        raise UserModelError(f"{make} is not deterministic: two calls have {counts} samples", hint)
    if not _is_equal(*batches):
        raise UserModelError(f"{make} is not deterministic: two calls have different samples", hint)


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two batches hold the same tensors."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
    if isinstance(one, Mapping):
        return all(_is_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, tuple | list):
        return all(_is_equal(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def kind_of(value: Any) -> str:
    """A value's type in words."""
    name = type(value).__name__
    return "nothing" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
