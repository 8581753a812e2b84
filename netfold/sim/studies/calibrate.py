"""Measures this machine, and writes a device file that scenarios can name: `netfold calibrate`.

That is what a call of PyTorch costs, its rates of arithmetic and of memory by size, and the time of encoding
and decoding for the work that codecs count. Real steps then stand beside predicted ones.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from netfold.errors import NetfoldError
from netfold.sim import files
from netfold.sim.scenario.sweep_keys import DEVICE_SUFFIX
from netfold.sim.studies.codec_study import run_study
from netfold.sim.studies.codec_study_inputs import read_codecs, synthetic_source
from netfold.sim.workload.device_rooflines import (
    CONVOLUTION,
    CONVOLUTION_BACKWARD,
    FORMAT,
    MATMUL,
    Curve,
    KernelCost,
    RooflineDevice,
    read_device,
)
from netfold.sim.workload.model_probe import probe
from netfold.units import PS_PER_US

# The least time of a call over repeats: what else the machine does only adds to it.
#
# With one thread it is CPU time, in which waiting for a busy core does not count; with several it is wall
# time.


_BATCH_NS = 200_000  # calls are timed together until they take so long
_BATCHES_MIN, _BATCHES_MAX = 5, 60
_BUDGET_NS = 60_000_000
"""The time of all batches of a call together, after the first few."""


def least_ns(call: Callable[[], object]) -> float:
    """Least time of a call, nanoseconds, of several batches of calls."""
    call()
    count, least = 1, _batch_ns(call, 1)
    while least < _BATCH_NS and count < 1 << 16:
        count *= 2
        least = _batch_ns(call, count)
    times_ns, spent_ns = [least / count], 0.0
    while len(times_ns) < _BATCHES_MIN or (spent_ns < _BUDGET_NS and len(times_ns) < _BATCHES_MAX):
        took_ns = _batch_ns(call, count)
        times_ns.append(took_ns / count)
        spent_ns += took_ns
    return min(times_ns)


def _batch_ns(call: Callable[[], object], count: int) -> int:
    clock = time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns
    start_ns = clock()
    for _ in range(count):
        call()
    return clock() - start_ns


# Real steps of small models beside what a calibrated device predicts for them.


@dataclass(frozen=True)
class Checked:
    """A step of a model: forward and backward."""

    model: str
    predicted_us: float
    measured_us: float  # the least of several

    @property
    def ratio(self) -> float:
        return self.predicted_us / self.measured_us


class _Sample(NamedTuple):
    name: str
    model: nn.Module
    inputs: Tensor
    targets: Tensor


def check_predictions(device: RooflineDevice) -> list[Checked]:
    # PyTorch keeps its number of threads.
    return [_check(device, sample) for sample in _samples()]


def _samples() -> list[_Sample]:
    """Models of the sizes that are trained here, with inputs that do not matter."""
    perceptron = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    network = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return [
        _Sample("MLP 784-512-10, 16 samples", perceptron, torch.ones(16, 784), torch.zeros(16).long()),
        _Sample("MLP 784-512-10, 128 samples", perceptron, torch.ones(128, 784), torch.zeros(128).long()),
        _Sample("CNN of 2 layers, 16 images", network, torch.ones(16, 1, 28, 28), torch.zeros(16).long()),
    ]


def _check(device: RooflineDevice, sample: _Sample) -> Checked:
    def loss() -> Tensor:
        return functional.cross_entropy(sample.model(sample.inputs), sample.targets)

    def step() -> None:
        loss().backward()  # type: ignore[no-untyped-call]
        sample.model.zero_grad(set_to_none=True)

    passes = device.passes(probe(sample.model, loss).cost)
    predicted_us = (passes.forward_ps + passes.backward_ps) / PS_PER_US
    return Checked(sample.name, predicted_us, least_ns(step) / 1000)


# How fast this machine encodes and decodes, for the work that codecs count.


CODECS = ("fixed_point", "packed", "lossless", "topk", "fp16")  # what is encoded in common
_ELEMENTS, _ROUNDS, _WORKERS, _SEED = "1000000", 3, 2, 1
_DENSITIES = "1%,100%"
_NS_PER_S = 1e9


class CodecRate(NamedTuple):
    """What a codec counts for a gradient, and the time that it takes: the fastest round's."""

    codec: str
    density: float
    counted_bytes: int  # read and written
    time_ns: float

    @property
    def bytes_per_ns(self) -> float:
        return self.counted_bytes / self.time_ns


def codec_rates() -> list[CodecRate]:
    """Encoding and decoding together, on gradients with few and with many non-zeros: CPU time."""
    source = synthetic_source({"elements": _ELEMENTS, "density": _DENSITIES}, _WORKERS, _SEED)
    study = run_study(read_codecs(list(CODECS)), source, _ROUNDS, _SEED, lambda *_: None)
    return [
        CodecRate(
            speed.codec,
            speed.density,
            speed.encode_bytes + speed.decode_bytes,
            (speed.encode_s + speed.decode_s) * _NS_PER_S,
        )
        for speed in study.timed
    ]


def mean_bytes_per_ns(rates: list[CodecRate]) -> float:
    return sum(rate.counted_bytes for rate in rates) / sum(rate.time_ns for rate in rates)


# What kernels take on this machine, by size, in passes of real layers.
#
# A kernel takes longer in training than by itself: its results are kept, and memory is allocated anew in
# every step. So each rate is that of forward and backward passes of a layer, from which what is known
# already is taken off: calls, then memory traffic, then arithmetic.


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
    return Curve(tuple((size, round(time_ns * PS_PER_NS)) for size, time_ns in points))


def call_ns() -> float:
    """Time of a kernel that has almost nothing to compute: modules, operators, autograd."""
    layers = [layer for _ in range(_DEPTH) for layer in (nn.Linear(8, 8), nn.ReLU())]
    passes = _Passes(nn.Sequential(*layers), torch.ones(2, 8))
    return passes.step_ns() / len(passes.kernels)


def memory(call: float) -> list[Point]:
    """Times of kernels that pass over memory, by the bytes that they read and write."""
    points = []
    for elements in _STREAMED:
        passes = _Passes(nn.Sequential(*[nn.ReLU() for _ in range(_STREAMS)]), torch.ones(elements))
        kernels = passes.kernels
        size_bytes = sum(kernel.size_bytes for kernel in kernels) // len(kernels)
        points.append((size_bytes, max(0.0, passes.step_ns() / len(kernels) - call)))
    return rising(points)


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
        (convolution,), (gradients,) = passes.of(CONVOLUTION), passes.of(CONVOLUTION_BACKWARD)
        forward_ns = passes.forward_ns()
        backward_ns = passes.step_ns() - forward_ns
        forward.append((convolution.flops, forward_ns - known_ns(passes.forward, call, stream)))
        backward.append((gradients.flops, backward_ns - known_ns(passes.backward, call, stream)))
    return {
        MATMUL: rising(products),
        CONVOLUTION: rising(forward),
        CONVOLUTION_BACKWARD: rising(backward),
    }


def known_ns(kernels: Sequence[KernelCost], call: float, stream: Curve) -> float:
    # Everything but arithmetic.
    return sum(call + stream.ps(kernel.size_bytes) / PS_PER_NS for kernel in kernels)


def rising(points: Sequence[Point]) -> list[Point]:
    """Points by size, without those that take no longer than a smaller one, or no time.

    Raises
    ------
    NetfoldError
        No point is left.
    """
    rising_points: list[Point] = []
    for size, time_ns in sorted(points):
        if time_ns > (rising_points[-1][1] if rising_points else 0) and (
            not rising_points or size > rising_points[-1][0]
        ):
            rising_points.append((size, time_ns))
    if not rising_points:
        raise NetfoldError(
            "this machine cannot be measured now: no work takes longer than the call that begins it",
            "calibrate while nothing else runs",
        )
    return rising_points


class _Passes:
    """Forward and backward passes of a layer, to the gradients of its inputs and weights."""

    def __init__(self, model: nn.Module, inputs: Tensor) -> None:
        self._model, self._inputs = model, inputs.requires_grad_()
        cost = probe(_Fed(model, self._inputs), self._loss).cost
        self.forward: tuple[KernelCost, ...] = cost.forward
        self.backward = tuple(kernel for stage in cost.backward for kernel in stage.kernels)

    @property
    def kernels(self) -> tuple[KernelCost, ...]:
        return (*self.forward, *self.backward)

    def of(self, kind: str) -> list[KernelCost]:
        return [kernel for kernel in self.kernels if kernel.kind == kind]

    def step_ns(self) -> float:
        """Time of both passes."""

        def step() -> None:
            self._loss().backward()  # type: ignore[no-untyped-call]
            self._model.zero_grad(set_to_none=True)
            self._inputs.grad = None

        return least_ns(step)

    def forward_ns(self) -> float:
        return least_ns(self._loss)

    def _loss(self) -> Tensor:
        loss: Tensor = self._model(self._inputs).sum()
        return loss


class _Fed(nn.Module):
    """A model whose inputs count as parameters, so that it has at least one."""

    def __init__(self, model: nn.Module, inputs: Tensor) -> None:
        super().__init__()
        self.model, self.inputs = model, nn.Parameter(inputs)


# Calibrates this machine: a device file, and how well it predicts real steps.


AGREES = 0.35  # predictions of real steps are within this share of them, on a machine that does nothing else
_FLOATS = 12  # bytes of a sum of two floats: an operation
_CODEC_BYTES = 10**6


@dataclass(frozen=True)
class Calibration:
    """A device file, and real steps beside what it predicts."""

    text: str
    codecs: list[CodecRate]
    checks: list[Checked]


def calibrate(threads: int, report: Callable[[str], None]) -> Calibration:
    # This takes about half a minute. `threads` are PyTorch's; codecs have as many as in a run.
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _measure(threads, report)
    finally:
        torch.set_num_threads(threads_before)


def _measure(threads: int, report: Callable[[str], None]) -> Calibration:
    report("what a call takes")
    call = call_ns()
    report("memory")
    streamed = memory(call)
    report("products of matrices, and convolutions")
    computed = arithmetic(call, curve(streamed))
    report("codecs")
    codecs = codec_rates()
    content: dict[str, Any] = {
        "format": FORMAT,
        "name": platform.processor() or platform.machine(),
        "threads": threads,
        "torch": torch.__version__,
        "launch_ns": round(call, 1),
        "arithmetic": {kind: _round(points) for kind, points in computed.items()},
        "memory": _round(streamed),
        "codec": {
            "launch_ns": round(call, 1),
            "arithmetic": _round([(max(1, size // _FLOATS), time_ns) for size, time_ns in streamed]),
            "memory": [[_CODEC_BYTES, round(_CODEC_BYTES / mean_bytes_per_ns(codecs), 1)]],
        },
        "codecs": {
            f"{rate.codec}, {rate.density:g}": {"counted_bytes_per_ns": round(rate.bytes_per_ns, 3)}
            for rate in codecs
        },
    }
    report("real steps")
    checks = check_predictions(read_device(json.dumps(content)))
    content["steps"] = {
        step.model: {"predicted_us": round(step.predicted_us, 1), "measured_us": round(step.measured_us, 1)}
        for step in checks
    }
    return Calibration(json.dumps(content, indent=2) + "\n", codecs, checks)


def device_path(path: Path) -> Path:
    if path.suffix != DEVICE_SUFFIX:
        fixed = path.with_suffix(DEVICE_SUFFIX).name
        raise NetfoldError(f"{path}: device files end in {DEVICE_SUFFIX}", f"use {fixed}")
    return path


def write_device(path: Path, calibration: Calibration) -> None:
    with files.writing(path, "name a file that can be written"):
        files.write_file(path, calibration.text.encode())


def _round(points: list[Point]) -> list[list[float]]:
    return [[size, round(time_ns, 1)] for size, time_ns in points]
