"""Runs a function in real processes with a process group over gloo, forked from one that has PyTorch."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

_LIMIT_S = 240.0  # machines may be slow


def in_processes(ranks: int, folder: Path, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work(rank, *arguments)` returned in every process, or its error as text."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "torch.nn.parallel", "safetensors.torch"])
    meeting = folder / f"meeting-{uuid4().hex}"
    answers: Any = context.Queue()
    processes = [
        context.Process(target=_child, args=(rank, ranks, meeting, answers, work, arguments))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    try:
        found = dict(answers.get(timeout=_LIMIT_S) for _ in processes)
        for process in processes:
            process.join(_LIMIT_S)
    finally:
        for process in processes:
            process.kill()
    return [found[rank] for rank in range(ranks)]


def _child(
    rank: int, ranks: int, meeting: Path, answers: Any, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    try:
        found = work(rank, *arguments)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    answers.put((rank, found))
    if not isinstance(found, str):
        dist.barrier()  # nobody closes its sockets while another still uses them
    dist.destroy_process_group()
