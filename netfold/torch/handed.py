"""Buckets as DDP hands them in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

from netfold.errors import RunError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket as GradBucket
else:
    from torch.distributed import GradBucket as GradBucket

_CARRIED = (torch.float32, torch.bfloat16, torch.float16)


class Handed:
    """One bucket of DDP in one backward pass.

    Attributes
    ----------
    step
        Backward passes with a synchronisation before this one.
    parameters, gradients
        Of the model, and views of the bucket in their shapes.
    left
        Parameters whose mean has not been written yet.
    future
        What the hook returns.
    """

    def __init__(self, step: int, bucket: GradBucket) -> None:
        self._buffer = bucket.buffer()
        self.index, self.step, self.is_last = bucket.index(), step, bucket.is_last()
        self.parameters: Sequence[torch.Tensor] = bucket.parameters()
        self.gradients: Sequence[torch.Tensor] = bucket.gradients()
        self.left = len(self.parameters)
        self._stream: torch.cuda.Stream | None = None
        devices: list[int | str | torch.device] = []
        if self._buffer.is_cuda:  # another thread goes on after what this one has queued on the device
            devices = [self._buffer.device]
            self._stream = torch.cuda.Stream(self._buffer.device)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(self._buffer.device))
        self.future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)

    def check(self) -> None:
        """Refuse gradients that cannot be carried, as `check_tensor`."""
        check_tensor(self._buffer, f"bucket {self.index}")

    def on_stream(self) -> AbstractContextManager[object]:
        """Where its gradients may be read and written."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def finish(self) -> None:
        """Give DDP the bucket back, with what was written to it."""
        with self.on_stream():
            self.future.set_result(self._buffer)


def check_tensor(tensor: torch.Tensor, name: str) -> None:
    """Refuse gradients that cannot be carried.

    Raises
    ------
    RunError
        They are sparse tensors, or of another type than float32, bfloat16 and float16.
    """
    if tensor.is_sparse:
        raise RunError(
            f"{name} is a sparse tensor: netfold carries dense ones, in which zeros cost little",
            "use torch.nn.Embedding(…, sparse=False)",
        )
    if tensor.dtype not in _CARRIED:
        names = ", ".join(str(one).removeprefix("torch.") for one in _CARRIED)
        raise RunError(
            f"{name} has gradients of {str(tensor.dtype).removeprefix('torch.')}: netfold carries {names}",
            "use a model of one of these types, for example model.float()",
        )
