"""`netfold.capture`: records a training loop from inside a script."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from netfold.errors import DataError
from netfold.sim.capture.parts import Parts
from netfold.sim.capture.recorder import Recorder
from netfold.sim.capture.settings import SKIP, STEPS, Settings, checked
from netfold.sim.files.packages import package_version


@contextmanager
def capture(model: Any, folder: str | Path, steps: int = STEPS, *, skip: int = SKIP) -> Iterator[None]:
    """Record the gradients and times of a training loop, on every rank around the same loop.

        with netfold.capture(model, "folder", steps=10):
            for batch in loader: ...

    The folder is written when all ranks have recorded their steps, and not at all if one of them fails. All
    ranks must see the same file system.

    Parameters
    ----------
    model
        A `DistributedDataParallel`.
    folder
        What is written; there must be nothing of this name.
    steps
        Optimizer steps that are recorded; where the loop ends earlier, those up to there.
    skip
        Steps that are not recorded before these, at least 1: DDP makes new buckets after its first step.

    Raises
    ------
    DataError
        The model is no DDP model or has gradients that are not float32, float16 or bfloat16; a number is
        beyond its limits; there is such a folder; the disk has no room; or nothing was recorded.
    RunError
        What ranks have recorded does not fit together.
    """
    from torch.nn.parallel import DistributedDataParallel

    if not isinstance(model, DistributedDataParallel):
        raise DataError(
            f"a {type(model).__name__} cannot be recorded, the model must be a DistributedDataParallel",
            "model = torch.nn.parallel.DistributedDataParallel(model); FSDP's gradients cannot be recorded",
        )
    recorder = begin(model, checked(folder, steps, skip))
    try:
        yield
    except BaseException as error:
        recorder.fail(f"the training ended with {type(error).__name__}: {error}")
        raise
    recorder.finish()


def begin(model: Any, settings: Settings) -> Recorder:
    """Begin to record on this rank; all ranks must call it.

    Raises
    ------
    DataError
        As `capture`.
    """
    parts = Parts(Path(settings.folder), _run_of_all(model, settings.run), is_watched=bool(settings.run))
    return Recorder(model, settings, parts, _facts(model))


def _run_of_all(model: Any, given: str) -> str:
    """A name of this recording that all ranks agree on: that of rank 0."""
    import torch.distributed as dist

    names = [given or uuid.uuid4().hex[:12]]
    group = model.process_group
    dist.broadcast_object_list(names, src=dist.get_global_rank(group, 0), group=group)
    return str(names[0])


def _facts(model: Any) -> dict[str, Any]:
    """How a recording is made."""
    import torch
    import torch.distributed as dist

    return {
        "recorded_from": "DistributedDataParallel",
        "netfold": package_version("netfold"),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "backend": dist.get_backend(model.process_group),
        "device": next(model.parameters()).device.type,
        "threads": torch.get_num_threads(),
        "command": sys.argv,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
    }
