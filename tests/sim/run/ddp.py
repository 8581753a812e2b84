"""One of two real processes that train with PyTorch's DistributedDataParallel over gloo, and are timed.

    python -m tests.sim.run.ddp RANK FOLDER

Both measure at the same time: the device by calibration, all-reduces of several sizes by themselves, then
whole steps. Process 0 writes what it found to FOLDER/found.json.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from netfold.sim.studies import calibrate as kernels
from netfold.sim.workload.device_rooflines import FORMAT

# Steps long beside the milliseconds for which gloo's threads wait for a core that backward keeps busy.
BATCH, BUCKET_MB, STEPS, REPEATS = 1024, 1.0, 60, 100
SIZES = (1 << 12, 1 << 15, 1 << 18)  # elements of an all-reduce


def build() -> nn.Module:
    """A multilayer perceptron, the same at every process."""
    torch.manual_seed(3)
    widths = (784, 512, 512, 512, 10)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def loss_of(model: nn.Module) -> Tensor:
    """The loss of a batch that does not matter."""
    inputs = torch.linspace(-1, 1, BATCH * 784).reshape(BATCH, 784)
    return nn.functional.cross_entropy(model(inputs), torch.arange(BATCH) % 10)


def least_s(call: Callable[[], Any], repeats: int) -> float:
    """Least wall time of a call that both processes begin together."""
    found = []
    for _ in range(repeats):
        dist.barrier()
        start_s = time.perf_counter()
        call()
        found.append(time.perf_counter() - start_s)
    return min(found)


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    dist.barrier()
    call = kernels.call_ns()
    streamed = kernels.memory(call)
    computed = kernels.arithmetic(call, kernels.curve(streamed))
    reduced = {}
    for size in SIZES:
        buffer = torch.ones(size)
        reduced[size] = least_s(lambda buffer=buffer: dist.all_reduce(buffer), REPEATS)

    model = DistributedDataParallel(build(), bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    for _ in range(5):  # the buckets are those of gradient-ready order from the second step on
        step()
    step_s = least_s(step, STEPS)
    own = build()
    alone_s = least_s(lambda: loss_of(own).backward(), STEPS)  # type: ignore[no-untyped-call]
    if rank == 0:
        flat = [[1, 1.0]]
        device = {
            "format": FORMAT,
            "name": "this process",
            "launch_ns": call,
            "arithmetic": computed,
            "memory": streamed,
            "codec": {"launch_ns": 0, "arithmetic": flat, "memory": flat},
        }
        sizes = model._get_ddp_logging_data()["rebuilt_bucket_sizes"]
        found = {
            "device": device,
            "reduced_s": list(reduced.items()),
            "step_s": step_s,
            "alone_s": alone_s,
            "buckets": [int(size) // 4 for size in sizes.split(",")],
        }
        (folder / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
