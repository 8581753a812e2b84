"""The command `netfold capture`: record the gradients of a real training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netfold.sim.commands.terminal import folder, print_line

EXIT_NOT_WRITTEN = 1


def capture(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="The training, such as torchrun … train.py.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", parser=folder, help="Folder to write; it must not be there.")
    ] = Path("trace"),
    steps: Annotated[int, typer.Option(min=1, max=100_000, help="Optimizer steps to record.")] = 10,
    skip: Annotated[
        int,
        typer.Option(min=1, max=10**9, help="First steps to skip: DDP makes new buckets after its first."),
    ] = 1,
) -> None:
    """Record the gradients, buckets and times of a training with PyTorch's DistributedDataParallel.

    \b
    netfold capture --out trace --steps 10 -- torchrun --nproc-per-node 2 train.py

    The script is not changed: the first model that it wraps in DistributedDataParallel is recorded. Replay
    the folder with `workload: {kind: trace, path: trace}`, or study codecs on it with `netfold codecs study
    --input trace`. The exit status is that of the command; 1 if the command ends well but nothing could be
    recorded.
    """
    from netfold.sim.capture.launcher import launch, print_error, summary
    from netfold.sim.capture.settings import checked

    found = launch(command, checked(out, steps, skip))
    if found.trace is None:
        print_error(found.lines, str(out))
        raise typer.Exit(found.status or EXIT_NOT_WRITTEN)
    for line in (*summary(found.trace), str(out)):
        print_line(line)
    if found.status:
        raise typer.Exit(found.status)
