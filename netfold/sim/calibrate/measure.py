"""Calibrates this machine: a device file, and how well it predicts real steps."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from netfold.errors import NetfoldError, UnwrittenError
from netfold.sim.calibrate.check import Checked, checked
from netfold.sim.calibrate.codecs import CodecRate, codec_rates, mean_bytes_per_ns
from netfold.sim.calibrate.kernels import Point, arithmetic, call_ns, curve, memory
from netfold.sim.files.durable import write_file
from netfold.sim.scenario.merge import DEVICE_SUFFIX
from netfold.sim.workload.hardware import FORMAT, read_device

AGREES = 0.35  # predictions of real steps are within this share of them, on a machine that does nothing else
_FLOATS = 12  # bytes of a sum of two floats: an operation
_CODEC_BYTES = 10**6


@dataclass(frozen=True)
class Calibration:
    """A device file, and real steps beside what it predicts."""

    text: str
    codecs: list[CodecRate]
    checks: list[Checked]


def calibrate(threads: int, report: Callable[[str], None]) -> Calibration:
    """Measure this machine, in about half a minute.

    Parameters
    ----------
    threads
        That PyTorch computes with; encoding and decoding have as many as in a run.
    report
        Is told what is measured next.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _measured(threads, report)
    finally:
        torch.set_num_threads(before)


def _measured(threads: int, report: Callable[[str], None]) -> Calibration:
    report("what a call takes")
    call = call_ns()
    report("memory")
    streamed = memory(call)
    report("products of matrices, and convolutions")
    computed = arithmetic(call, curve(streamed))
    report("codecs")
    codecs = codec_rates()
    found: dict[str, Any] = {
        "format": FORMAT,
        "name": platform.processor() or platform.machine(),
        "threads": threads,
        "torch": torch.__version__,
        "launch_ns": round(call, 1),
        "arithmetic": {kind: _rounded(points) for kind, points in computed.items()},
        "memory": _rounded(streamed),
        "codec": {
            "launch_ns": round(call, 1),
            "arithmetic": _rounded([(max(1, size // _FLOATS), time_ns) for size, time_ns in streamed]),
            "memory": [[_CODEC_BYTES, round(_CODEC_BYTES / mean_bytes_per_ns(codecs), 1)]],
        },
        "codecs": {
            f"{one.codec}, {one.density:g}": {"counted_bytes_per_ns": round(one.bytes_per_ns, 3)}
            for one in codecs
        },
    }
    report("real steps")
    checks = checked(read_device(json.dumps(found)))
    found["steps"] = {
        one.model: {"predicted_us": round(one.predicted_us, 1), "measured_us": round(one.measured_us, 1)}
        for one in checks
    }
    return Calibration(json.dumps(found, indent=2) + "\n", codecs, checks)


def device_path(path: Path) -> Path:
    """The path, if it can be that of a device file.

    Raises
    ------
    NetfoldError
        Its name does not end as those of device files do.
    """
    if path.suffix != DEVICE_SUFFIX:
        fixed = path.with_suffix(DEVICE_SUFFIX).name
        raise NetfoldError(f"{path}: device files end in {DEVICE_SUFFIX}", f"use {fixed}")
    return path


def write_device(path: Path, calibration: Calibration) -> None:
    """Write the device file.

    Raises
    ------
    UnwrittenError
        It cannot be written.
    """
    try:
        write_file(path, calibration.text.encode())
    except OSError as error:
        raise UnwrittenError(
            f"cannot write {path}: {error.strerror or error}", "name a file that can be written"
        ) from error


def _rounded(points: list[Point]) -> list[list[float]]:
    return [[size, round(time_ns, 1)] for size, time_ns in points]
