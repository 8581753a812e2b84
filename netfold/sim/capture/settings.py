"""What is to be recorded, and how a launcher tells it to the processes of a training."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from netfold.errors import DataError
from netfold.sim.capture.layout import STEPS_MAX

VARIABLE = "NETFOLD_CAPTURE"
STEPS = 10
SKIP = 1


@dataclass(frozen=True)
class Settings:
    """What is to be recorded."""

    folder: str  # an absolute path
    steps: int = STEPS
    skip: int = SKIP  # first steps that are not recorded: DDP makes new buckets after the first
    run: str = ""  # of the launcher; empty: rank 0 makes one up

    def as_text(self) -> str:
        """The value of the environment variable."""
        return json.dumps(asdict(self))


def checked(folder: str | Path, steps: int, skip: int) -> Settings:
    """Settings with their limits checked.

    Raises
    ------
    DataError
        A number is beyond its limits, or there is such a folder already.
    """
    for name, value, least, most in (("steps", steps, 1, STEPS_MAX), ("skip", skip, 1, 10**9)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            why = ": DDP makes new buckets after its first step" if name == "skip" else ""
            raise DataError(f"{name} must be a whole number from {least} to {most:,}{why}, found {value!r}")
    path = Path(folder).absolute()
    if os.path.lexists(path):
        raise DataError(f"{folder}: is there already", "name another folder, or remove it")
    return Settings(str(path), steps, skip)


def from_environment() -> Settings | None:
    """What a launcher wants; None without one."""
    text = os.environ.get(VARIABLE)
    return Settings(**json.loads(text)) if text else None
