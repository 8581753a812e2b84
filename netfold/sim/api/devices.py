"""This machine as a device."""

from __future__ import annotations

from pathlib import Path

from netfold.sim.studies.calibrate import calibrate as measured
from netfold.sim.studies.calibrate import device_path, write_device


def calibrate(file: str | Path = "cpu.json", threads: int = 1) -> Path:
    """Measure this machine's processor, and write a device file that scenarios can name; returns its path.

    Parameters
    ----------
    file
        Ends in .json.
    threads
        That PyTorch computes with, 1 or more.

    Raises
    ------
    NetfoldError
        The file's name does not end in .json, or it cannot be written.
    """
    path = device_path(Path(file))
    write_device(path, measured(threads, lambda what: None))
    return path
