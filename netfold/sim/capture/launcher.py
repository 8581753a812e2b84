"""`netfold capture -- COMMAND`: runs a training, and records it without a change to its script."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from netfold.errors import DataError
from netfold.sim.capture.layout import TraceFile, read_trace
from netfold.sim.capture.parts import Parts
from netfold.sim.capture.settings import VARIABLE, Settings

HOME = "NETFOLD_CAPTURE_HOME"
SITE = Path(__file__).parent / "site"
NOTHING = (
    "no process of the command wrapped a model in DistributedDataParallel; processes that ignore PYTHONPATH "
    "(python -I, -E, -S) cannot be recorded, and FSDP is not",
)


class Launched(NamedTuple):
    """What became of a launched training."""

    status: int  # of the command, as a shell has it
    trace: TraceFile | None
    lines: tuple[str, ...]  # why there is no trace


def launch(command: Sequence[str], settings: Settings) -> Launched:
    """Run a command, and wait for its recording; signals reach the command as usual.

    Raises
    ------
    DataError
        The command cannot be run.
    """
    settings = replace(settings, run=uuid.uuid4().hex[:12])
    parts = Parts(Path(settings.folder), settings.run)
    try:
        process = subprocess.Popen(list(command), env=_environment(settings))
    except OSError as error:
        raise DataError(
            f"{command[0]}: cannot be run: {error.strerror or error}",
            "netfold capture -- torchrun … train.py",
        ) from None
    status = _status(process)
    folder = Path(settings.folder)
    if folder.is_dir():
        return Launched(status, read_trace(folder), ())
    return Launched(status, None, parts.report() or NOTHING)


def _environment(settings: Settings) -> dict[str, str]:
    paths = [str(SITE), os.environ.get("PYTHONPATH", "")]
    spec = find_spec("netfold")
    homes = spec.submodule_search_locations if spec else None
    home = Path(next(iter(homes or ["."]))).absolute().parent
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        VARIABLE: settings.as_text(),
        HOME: str(home),
    }


def _status(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end; the command decides what to do with Ctrl-C, which it gets too, and with SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    try:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                status = process.wait()
                return status if status >= 0 else 128 - status
    finally:
        signal.signal(signal.SIGTERM, before)


def summary(trace: TraceFile) -> tuple[str, ...]:
    """What a recording holds, in words."""
    size_bytes = sum(one.bytes for step in trace.steps for one in step.ranks)
    ranks = [one for step in trace.steps for one in step.ranks]
    time_ns = sum(one.before_ns + one.synced_ns for one in ranks)
    share = sum(one.recording_ns for one in ranks) / max(1, time_ns)
    text = (
        f"{trace.model}: {len(trace.steps)} steps of {trace.world_size} ranks, {trace.elements:,} elements "
        f"in {len(trace.tensors)} tensors and {len(trace.buckets)} buckets, {size_bytes:,} bytes"
    )
    return (
        text,
        f"recording took {share:.2f} × the time of these steps, which is in none of the recorded times",
        *trace.notes,
    )


def print_error(lines: Sequence[str], folder: str) -> None:
    """Say on stderr why there is no trace."""
    print(f"netfold capture: {folder} was not written", file=sys.stderr)
    for line in lines:
        print(f"  {line}", file=sys.stderr)
