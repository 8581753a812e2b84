"""How long a training step takes with a codec's hook, beside plain DDP: `python -m tests.torch.overhead`.

Two processes over gloo on this machine, one bucket of 25 MiB of float32 (6,553,600 elements), backward that
does next to nothing: what is measured is the hook. Gradients are normal numbers, of which a share is not
zero. Options: --workers 2 --steps 7 --share 1.0 CODEC …
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.torch.processes import returned
from tests.torch.trainings import with_codec

ELEMENTS = 25 * 2**20 // 4
CODECS = (
    "none", "fp16", "fixed_point:factor=1e6", "dense", "packed", "exact", "packed:values=exact", "lossless",
    "block_sparse", "topk:share=0.01", "random_k:share=0.01", "count_sketch", "majority", "cascaded_sign",
)  # fmt: skip


class Weighted(nn.Module):
    """Its gradient is what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(ELEMENTS // 512, 512))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.weight * gradient).sum()


def step_ms(rank: int, codecs: list[str], steps: int, share: float) -> list[tuple[str, float, float, float]]:
    """Name, median and fastest time of a step, and compression, of plain DDP and every codec."""
    random = torch.Generator().manual_seed(rank)
    gradient = torch.randn(ELEMENTS // 512, 512, generator=random)
    gradient *= torch.rand(ELEMENTS // 512, 512, generator=random) < share
    found = []
    for codec in ("", *codecs):
        model, state = with_codec(Weighted(), codec) if codec else (DistributedDataParallel(Weighted()), None)
        times = []
        for step in range(steps + 2):
            model.zero_grad()
            dist.barrier()
            start_s = time.perf_counter()
            model(gradient).backward()
            if step > 1:  # kernels are ready, and DDP has its buckets
                times.append(1e3 * (time.perf_counter() - start_s))
        compression = state.report().compression if state else 1.0
        found.append((codec or "plain DDP", statistics.median(times), min(times), compression))
        if state:
            state.close()
    return found


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("codecs", nargs="*", default=CODECS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--share", type=float, default=1.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        every = returned(given.workers, Path(folder), step_ms, list(given.codecs), given.steps, given.share)
    print("| codec | median ms | fastest ms | compression |\n|---|---|---|---|")
    for name, median, fastest, compression in every[0]:
        print(f"| `{name}` | {median:.0f} | {fastest:.0f} | {compression:.3g} |")


if __name__ == "__main__":
    main()
