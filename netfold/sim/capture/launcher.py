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
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from netfold.errors import DataError
from netfold.sim.capture.capture import VARIABLE, CaptureSettings, from_environment
from netfold.sim.capture.recording_files import RecordingParts, TraceFile, read_trace

HOME = "NETFOLD_CAPTURE_HOME"
SITE = Path(__file__).parent / "site"
NOTHING = (
    "no process of the command wrapped a model in DistributedDataParallel; processes that ignore PYTHONPATH "
    "(python -I, -E, -S) cannot be recorded, and FSDP is not",
)


class Launched(NamedTuple):
    """What became of a launched training."""

    status: int
    """The command's exit status, as a shell has it."""
    trace: TraceFile | None
    lines: tuple[str, ...]  # why there is no trace


def launch(command: Sequence[str], settings: CaptureSettings) -> Launched:
    """Run a command, and wait for its recording; signals reach the command as usual.

    Raises
    ------
    DataError
        The command cannot be run.
    """
    settings = replace(settings, run=uuid.uuid4().hex[:12])
    parts = RecordingParts(Path(settings.folder), settings.run)
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


def _environment(settings: CaptureSettings) -> dict[str, str]:
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


# What a launched training runs in each of its processes: records the first model that DDP wraps.
#
# The script is not changed: the constructor of `DistributedDataParallel` is wrapped when its module is
# imported. A process that never imports it pays nothing.


_MODULE = "torch.nn.parallel.distributed"


def install() -> None:
    """Wait for the import of DDP, if a launcher wants a recording."""
    settings = from_environment()
    if settings is not None:
        sys.meta_path.insert(0, _Finder(settings))


class _Finder(MetaPathFinder):
    """Finds DDP's module as usual, with a loader that wraps the constructor."""

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module, once."""
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Wrapped(spec.loader, self._settings)
        return spec


class _Wrapped(Loader):
    """Loads DDP's module, and wraps its constructor."""

    def __init__(self, loader: Loader, settings: CaptureSettings) -> None:
        self._loader, self._settings = loader, settings

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As usual, then wrap."""
        self._loader.exec_module(module)
        wrap(module.DistributedDataParallel, self._settings)


def wrap(ddp: Any, settings: CaptureSettings) -> None:
    """Let the constructor of DDP begin a recording of the first model."""
    constructor = ddp.__init__
    begun: list[Any] = []

    def recorded(self: Any, *arguments: Any, **options: Any) -> None:
        constructor(self, *arguments, **options)
        if begun:
            if len(begun) == 1:
                _say("the training wraps several models in DistributedDataParallel: the first is recorded")
            begun.append(None)
            return
        begun.append(None)
        _begin(self, settings)

    recorded.__wrapped__ = constructor  # type: ignore[attr-defined]  # for inspect.signature
    ddp.__init__ = recorded


def _begin(model: Any, settings: CaptureSettings) -> None:
    """Begin the recording, and end it with the process; what goes wrong does not stop the training."""
    from multiprocessing.util import Finalize  # also called where a child of multiprocessing ends

    from netfold.errors import NetfoldError
    from netfold.sim.capture.capture import begin

    try:
        recorder = begin(model, settings)
    except NetfoldError as error:
        _say(str(error))
        return

    def end() -> None:
        if (kind := getattr(sys, "last_type", None)) is not None:  # an exception that nobody caught
            recorder.fail(f"the training ended with {kind.__name__}: {sys.last_value}")
        try:
            recorder.finish()
        except NetfoldError as error:
            _say(str(error))

    Finalize(None, end, exitpriority=10)


def _say(text: str) -> None:
    print(f"netfold capture: {text}", file=sys.stderr, flush=True)
