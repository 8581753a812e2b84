"""What an optimizer remembers, tensor by tensor, as arrays that can be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from netfold.homomorphic.codec import State
from netfold.homomorphic.message import Gradient
from netfold.sim.workload.optimizers import Optimizer

if TYPE_CHECKING:
    from netfold.sim.workload.optimizers import TensorState

_SEPARATOR = "/"  # between a name in PyTorch and the tensor's


class OptimizerMemory:
    """The steps of one optimizer, and its state of every tensor.

    Parameters
    ----------
    optimizer
        What makes the steps.
    shapes
        Of all tensors, by name.
    prefix
        What the names of its state begin with.
    """

    def __init__(self, optimizer: Optimizer, shapes: Mapping[str, tuple[int, ...]], prefix: str) -> None:
        self._optimizer, self._shapes, self._prefix = optimizer, shapes, prefix + _SEPARATOR
        self._states: dict[str, TensorState] = {}

    def step(self, name: str, weights: Gradient, gradient: Gradient, rate: float) -> None:
        """Move a tensor's weights in place; both are flat, and the gradient may be overwritten."""
        state = self._states.setdefault(name, {})
        # PyTorch adds in vectors, and the rest one by one with other roundings: in one piece, by one thread.
        self._optimizer.step(torch.from_numpy(weights), torch.from_numpy(gradient), rate, state)

    @property
    def has_state(self) -> bool:
        """Whether the optimizer remembers anything."""
        return self._optimizer.state_floats > 0

    def restart(self) -> None:
        """Forget everything."""
        self._states = {}

    def is_own(self, name: str) -> bool:
        """Whether a name of a state is one of this optimizer's."""
        return name.startswith(self._prefix)

    def state(self) -> State:
        """A copy, by names `prefix/key/tensor`; what is as large as the tensor has its shape."""
        return {
            f"{self._prefix}{key}{_SEPARATOR}{name}": self._shaped(name, value.numpy()).copy()
            for name, own in self._states.items()
            for key, value in own.items()
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state, which may have other names too.

        Raises
        ------
        ValueError
            The state is of another model or optimizer.
        """
        known = self._keys()
        found: dict[str, TensorState] = {}
        for full, array in self._own(state):
            key, _, name = full.partition(_SEPARATOR)
            if name not in self._shapes or key not in known:
                raise ValueError(f"the state is of another model or optimizer: it has {self._prefix}{full}")
            wanted = self._shapes[name] if known[key] else ()
            if array.shape != wanted:
                raise ValueError(
                    f"the state is of another model: {self._prefix}{full} has shape {array.shape}, "
                    f"must be {wanted}"
                )
            flat = np.array(array, np.float32).reshape(-1) if known[key] else np.array(array, np.float32)
            found.setdefault(name, {})[key] = torch.from_numpy(flat)
        for name, own in found.items():
            if missing := known.keys() - own.keys():
                raise ValueError(f"the state has no {self._prefix}{min(missing)}{_SEPARATOR}{name}")
        self._states = found

    def _own(self, state: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, NDArray[Any]]]:
        return ((name.removeprefix(self._prefix), one) for name, one in state.items() if self.is_own(name))

    def _keys(self) -> dict[str, bool]:
        """The keys of its state of a tensor after a step, and whether each is as large as the tensor."""
        one: TensorState = {}
        self._optimizer.step(torch.zeros(2), torch.zeros(2), 0.0, one)
        return {key: value.dim() > 0 for key, value in one.items()}

    def _shaped(self, name: str, value: NDArray[Any]) -> NDArray[Any]:
        return value.reshape(self._shapes[name]) if value.ndim else value
