"""Runs a function in several real processes that share a process group over gloo.

The processes are forked from a server that has imported what they need, so they start at once.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import socket
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import torch
import torch.distributed as dist

_LIMIT_S = 240.0  # of all processes together; machines may be slow

Work = Callable[..., Any]  # takes the rank first


class Ended(NamedTuple):
    """How one process ended."""

    returned: Any  # what the function returned
    error: str  # its type and text; empty if it returned
    status: int | None  # of the process


def run(workers: int, folder: Path, work: Work, *arguments: Any) -> list[Ended]:
    """Call `work(rank, *arguments)` in every process; the function is importable."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.torch.preloaded"])
    meeting = folder / f"meeting-{uuid4().hex}"
    pipes = [context.Pipe(duplex=False) for _ in range(workers)]
    processes = [
        context.Process(target=_child, args=(rank, workers, meeting, pipes[rank][1], work, arguments))
        for rank in range(workers)
    ]
    for process, (_, given) in zip(processes, pipes, strict=True):
        process.start()
        given.close()
    try:
        found = _received([taken for taken, _ in pipes])
        for process in processes:
            process.join(_LIMIT_S)
        return [Ended(*found[rank], process.exitcode) for rank, process in enumerate(processes)]
    finally:
        for process in processes:
            process.kill()


def returned(workers: int, folder: Path, work: Work, *arguments: Any) -> list[Any]:
    """What `work` returned in every process; it must have."""
    ended = run(workers, folder, work, *arguments)
    assert [(one.error, one.status) for one in ended] == [("", 0)] * workers
    return [one.returned for one in ended]


def run_script(rank: int, file: Path, port: int) -> str:
    """What a script prints that makes its own process group, as a process of `torchrun` would run it."""
    workers = dist.get_world_size()
    dist.barrier()
    dist.destroy_process_group()
    place = {"RANK": rank, "WORLD_SIZE": workers, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    with redirect_stdout(StringIO()) as printed:
        runpy.run_path(str(file), run_name="__main__")
    dist.init_process_group("gloo", init_method=f"file://{file}-end", rank=rank, world_size=workers)
    return printed.getvalue()


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _received(pipes: list[Connection]) -> list[tuple[Any, str]]:
    """What the processes send; one that ends without a word has an error that says so."""
    found: dict[int, tuple[Any, str]] = {}
    until = time.monotonic() + _LIMIT_S
    while len(found) < len(pipes) and time.monotonic() < until:
        open_pipes = [pipe for rank, pipe in enumerate(pipes) if rank not in found]
        for ready in wait(open_pipes, timeout=1.0):
            assert isinstance(ready, Connection)
            try:
                found[pipes.index(ready)] = ready.recv()
            except EOFError:
                found[pipes.index(ready)] = (None, "it ended without a word")
    return [found.get(rank, (None, "it did not end")) for rank in range(len(pipes))]


def _child(
    rank: int, workers: int, meeting: Path, pipe: Connection, work: Work, arguments: tuple[Any, ...]
) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=workers)
    try:
        found = work(rank, *arguments)
    except BaseException as error:
        pipe.send((None, f"{type(error).__name__}: {error}"))
        raise
    pipe.send((found, ""))
    dist.barrier()  # nobody closes its sockets while another still uses them
    dist.destroy_process_group()
