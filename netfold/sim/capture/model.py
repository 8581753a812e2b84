"""What a recording asks of a model: how its gradients are kept, and where its outputs are."""

from __future__ import annotations

from typing import Any

from netfold.errors import DataError
from netfold.sim.capture.buckets import Reduced
from netfold.sim.capture.layout import DTYPES, TENSORS_MAX, TensorRow

OUTPUTS_MAX = 1000  # of a model's forward pass that are looked at


def row_of(one: Reduced) -> TensorRow:
    """How a parameter's gradients are kept."""
    parameter = one.parameter
    has_rows = one.is_sparse and parameter.dim() > 1
    return TensorRow.model_construct(
        name=one.name,
        shape=list(parameter.shape) or [1],
        dtype=str(parameter.dtype).removeprefix("torch."),
        layout="rows" if has_rows else "dense",
    )


def require_floats(reduced: list[Reduced]) -> None:
    """Refuse models whose gradients cannot be kept, or are too many."""
    if not 0 < len(reduced) <= TENSORS_MAX:
        raise DataError(
            f"the model has {len(reduced)} parameters with gradients, 1 to {TENSORS_MAX} can be recorded"
        )
    for one in reduced:
        dtype = str(one.parameter.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise DataError(
                f"{one.name}: its gradients are {dtype}, must be {', '.join(DTYPES)}", "use model.float()"
            )
        if one.parameter.numel() == 0:
            raise DataError(f"{one.name}: has no elements", "freeze it, with requires_grad_(False)")


def tensors_in(found: Any, most: int = OUTPUTS_MAX) -> list[Any]:
    """The tensors in what a forward pass returned."""
    import torch
    from torch.utils import _pytree as pytree

    if isinstance(found, torch.Tensor):
        return [found]
    if hasattr(found, "__dataclass_fields__"):
        found = dict(vars(found))
    if isinstance(found, dict):  # also those of subclasses, which pytree takes for leaves
        found = list(found.values())
    leaves = pytree.tree_leaves(found)
    return [leaf for leaf in leaves[:most] if isinstance(leaf, torch.Tensor)]
