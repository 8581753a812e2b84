"""What one step of one worker costs: kernels with arithmetic and memory traffic, counted on the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MATMUL, CONVOLUTION, CONVOLUTION_BACKWARD, OTHER = "matmul", "convolution", "convolution_backward", "other"
KINDS = (MATMUL, CONVOLUTION, CONVOLUTION_BACKWARD)  # of kernels whose arithmetic is counted


class Kernel(NamedTuple):
    """One operator of PyTorch that computes something; a GPU starts a kernel for it."""

    kind: str  # one of KINDS, or OTHER: no arithmetic is counted
    flops: int
    size_bytes: int  # read and written


class Stage(NamedTuple):
    """A part of the backward pass, up to the instant at which a tensor's gradient is ready."""

    tensor: str  # empty: what follows the last gradient
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class StepCost:
    """Arithmetic and memory traffic of one step of one worker, which a device turns into time.

    The totals estimate bytes from what autograd saves; `forward` and `backward` have those of every kernel.
    """

    forward_flops: int = 0
    backward_flops: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0
    forward: tuple[Kernel, ...] = ()
    backward: tuple[Stage, ...] = ()  # in the order in which gradients are ready
    update_bytes: int = 0  # that the optimizer reads and writes: weights, gradients and its state
    passes: int = 1  # forward and backward passes, each of this work, before gradients are exchanged
