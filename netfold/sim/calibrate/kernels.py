"""What kernels take on this machine, by size, in passes of real layers.

A kernel takes longer in training than by itself: its results are kept, and memory is allocated anew in every
step. So each rate is that of forward and backward passes of a layer, from which what is known already is
taken off: calls, then memory traffic, then arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from netfold.sim.calibrate.timing import least_ns
from netfold.sim.workload.device_model import CONVOLUTION, CONVOLUTION_BACKWARD, MATMUL, Kernel
from netfold.sim.workload.hardware import Curve
from netfold.sim.workload.model_probe import probe

Point = tuple[int, float]  # operations or bytes, nanoseconds
PS_PER_NS = 1000

_PRODUCTS = (  # rows, inner size, columns
    (4, 32, 32),
    (16, 64, 64),
    (16, 128, 128),
    (16, 256, 256),
    (16, 512, 512),
    (32, 784, 512),
    (128, 784, 512),
    (256, 1024, 1024),
)
_CONVOLUTIONS = (  # images, channels in, pixels of a side, channels out; windows of 3 by 3
    (1, 1, 14, 8),
    (4, 1, 28, 16),
    (4, 16, 14, 32),
    (16, 16, 28, 16),
    (16, 32, 14, 64),
    (16, 64, 28, 64),
)
_STREAMED = tuple(1 << power for power in range(8, 23, 2))  # elements
_DEPTH = 12  # layers of a model whose kernels are short
_STREAMS = 4  # layers of one that does nothing but pass over memory


def curve(points: Sequence[Point]) -> Curve:
    """The curve through points."""
    return Curve(tuple((size, round(time_ns * PS_PER_NS)) for size, time_ns in points))


def call_ns() -> float:
    """Time of a kernel that has almost nothing to compute: modules, operators, autograd."""
    layers = [one for _ in range(_DEPTH) for one in (nn.Linear(8, 8), nn.ReLU())]
    passes = _Passes(nn.Sequential(*layers), torch.ones(2, 8))
    return passes.step_ns() / len(passes.kernels)


def memory(call: float) -> list[Point]:
    """Times of kernels that pass over memory, by the bytes that they read and write."""
    found = []
    for elements in _STREAMED:
        passes = _Passes(nn.Sequential(*[nn.ReLU() for _ in range(_STREAMS)]), torch.ones(elements))
        kernels = passes.kernels
        size_bytes = sum(one.size_bytes for one in kernels) // len(kernels)
        found.append((size_bytes, max(0.0, passes.step_ns() / len(kernels) - call)))
    return rising(found)


def arithmetic(call: float, stream: Curve) -> dict[str, list[Point]]:
    """Times of products of matrices, of convolutions, and of the gradients of these, by operations."""
    products, forward, backward = [], [], []
    for rows, inner, columns in _PRODUCTS:
        passes = _Passes(nn.Linear(inner, columns, bias=False), torch.ones(rows, inner))
        took = passes.step_ns() - known_ns(passes.kernels, call, stream)
        products.append((2 * rows * inner * columns, took / len(passes.of(MATMUL))))
    for images, inputs, side, outputs in _CONVOLUTIONS:
        layer = nn.Conv2d(inputs, outputs, 3, padding=1)
        passes = _Passes(layer, torch.ones(images, inputs, side, side))
        (own,), (gradients,) = passes.of(CONVOLUTION), passes.of(CONVOLUTION_BACKWARD)
        forward_ns = passes.forward_ns()
        backward_ns = passes.step_ns() - forward_ns
        forward.append((own.flops, forward_ns - known_ns(passes.forward, call, stream)))
        backward.append((gradients.flops, backward_ns - known_ns(passes.backward, call, stream)))
    return {
        MATMUL: rising(products),
        CONVOLUTION: rising(forward),
        CONVOLUTION_BACKWARD: rising(backward),
    }


def known_ns(kernels: Sequence[Kernel], call: float, stream: Curve) -> float:
    """What kernels take but for their arithmetic."""
    return sum(call + stream.ps(one.size_bytes) / PS_PER_NS for one in kernels)


def rising(points: Sequence[Point]) -> list[Point]:
    """Points by size, without those that take no longer than a smaller one, or no time."""
    found: list[Point] = []
    for size, time_ns in sorted(points):
        if time_ns > (found[-1][1] if found else 0) and (not found or size > found[-1][0]):
            found.append((size, time_ns))
    return found


class _Passes:
    """Forward and backward passes of a layer, to the gradients of its inputs and weights."""

    def __init__(self, model: nn.Module, inputs: Tensor) -> None:
        self._model, self._inputs = model, inputs.requires_grad_()
        cost = probe(_Fed(model, self._inputs), self._loss).cost
        self.forward: tuple[Kernel, ...] = cost.forward
        self.backward = tuple(one for stage in cost.backward for one in stage.kernels)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Those of both passes."""
        return (*self.forward, *self.backward)

    def of(self, kind: str) -> list[Kernel]:
        """The kernels of a kind."""
        return [one for one in self.kernels if one.kind == kind]

    def step_ns(self) -> float:
        """Time of both passes."""

        def step() -> None:
            self._loss().backward()  # type: ignore[no-untyped-call]
            self._model.zero_grad(set_to_none=True)
            self._inputs.grad = None

        return least_ns(step)

    def forward_ns(self) -> float:
        """Time of the forward pass."""
        return least_ns(self._loss)

    def _loss(self) -> Tensor:
        found: Tensor = self._model(self._inputs).sum()
        return found


class _Fed(nn.Module):
    """A model whose inputs count as parameters, so that it has at least one."""

    def __init__(self, model: nn.Module, inputs: Tensor) -> None:
        super().__init__()
        self.model, self.inputs = model, nn.Parameter(inputs)
