"""What a model keeps beside its weights and changes as it runs: running statistics of batch norms.

They are worker 0's, as in PyTorch's DistributedDataParallel (`broadcast_buffers=True`, its default): at every
step all workers begin with those that worker 0 had after the step before, and what the passes of the others
change is dropped. Tests use them as they are after the step. The normalisation itself, in training, is by the
statistics of each worker's own batch, which are never exchanged: a model with SyncBatchNorm is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from netfold.homomorphic.codec import State

Copied = dict[str, Tensor]

_PREFIX = "buffers."


class Buffers:
    """The buffers of a model that all workers share."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.has_any = next(model.buffers(), None) is not None
        self._before: Copied = self._copied()  # at the beginning of the step
        self._after: Copied = {}  # those of worker 0

    @contextmanager
    def of(self, worker: int) -> Iterator[None]:
        """The passes of a worker in a step; worker 0 comes first."""
        if not self.has_any:
            yield
            return
        if worker == 0:
            self._before = self._copied()
        else:
            self._write(self._before)
        yield
        if worker == 0:
            self._after = self._copied()
        else:
            self._write(self._after)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Passes of this step whose changes are dropped; they begin as all of the step's do."""
        if not self.has_any:
            yield
            return
        now = self._copied()
        self._write(self._before)
        try:
            yield
        finally:
            self._write(now)

    def restart(self, fresh: nn.Module) -> None:
        """Take those of a model that was just built."""
        self._write(dict(fresh.named_buffers()))

    def state(self) -> State:
        """A copy, by name."""
        return {_PREFIX + name: one.numpy() for name, one in self._copied().items()}

    def is_own(self, name: str) -> bool:
        """Whether a name of a state is that of a buffer."""
        return name.startswith(_PREFIX)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state, which may have other names too.

        Raises
        ------
        ValueError
            The state is of another model.
        """
        found = {name.removeprefix(_PREFIX): one for name, one in state.items() if self.is_own(name)}
        own = dict(self._model.named_buffers())
        for name in {**own, **found}:
            held = found[name].shape if name in found else None
            needed = tuple(own[name].shape) if name in own else None
            if held != needed:
                raise ValueError(
                    f"the state is of another model: {_PREFIX}{name} has shape {held}, must be {needed}"
                )
        self._write({name: torch.from_numpy(one.copy()) for name, one in found.items()})

    def _copied(self) -> Copied:
        return {name: one.detach().clone() for name, one in self._model.named_buffers()}

    def _write(self, values: Copied) -> None:
        with torch.no_grad():
            for name, value in values.items():
                self._model.get_buffer(name).copy_(value)
