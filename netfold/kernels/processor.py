"""Which instructions a process computes with: a run pins them, because PyTorch's results depend on them.

PyTorch, oneDNN and MKL choose their kernels by the processor, and read these variables before their first
operation. MKL has one mode that gives the same products on processors of all makers, "COMPATIBLE". Nothing
else depends on the processor: kernels compiled by Numba keep the order of every operation, exponentials and
logarithms are those of `kernels/exp_log.py`, and no result uses NumPy's, or BLAS.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

PINNED = "x86-64-v3"  # the level of x86-64 that has AVX2
UNREPRODUCIBLE = "not reproducible on other processors"
_VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
_LEVELS = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    PINNED: ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
}
_PROBE = 2.0**-12  # (1 + it)² has one bit more than a float32
_PROBE_SIZE = 16  # rows and columns of a product that MKL computes
_LOGGER = logging.getLogger(__name__)


class Instructions(NamedTuple):
    """What a process computes with; `run.json` has both."""

    isa: str  # a level of x86-64, or another processor's name
    pinned: bool  # whether results are those of every processor with AVX2

    @property
    def note(self) -> str:
        # What readers of results must know; empty if there is nothing.
        return "" if self.pinned else f"{UNREPRODUCIBLE}: computed with what this one has ({self.isa})"


@cache
def host_isa() -> str:
    """The highest known level of this processor; the processor's name if it is not an x86-64."""
    from llvmlite import binding  # late: it takes as long to import as a command that only reads

    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64"):
        return f"{machine}-{binding.get_host_cpu_name()}"
    features = binding.get_host_cpu_features()
    levels = (level for level, needed in _LEVELS.items() if all(features.get(name) for name in needed))
    return next(levels, "x86-64")


def pinned_isa() -> str:
    # What runs of this processor compute with, unless they are not pinned.
    return PINNED if host_isa() in _LEVELS else host_isa()


def variables() -> dict[str, str]:
    # Empty where there is no AVX2: nothing is pinned.
    return dict(_VARIABLES) if pinned_isa() == PINNED else {}


def pin() -> None:
    """Compute with AVX2 from now on, in this process and those that it starts; say so if it is too late.

    Processors without AVX2 compute with what they have.
    """
    os.environ.update(variables())
    if instructions() != expected():
        _LOGGER.warning(
            "%s: PyTorch has computed in this process before, and not with AVX2 alone; "
            "run netfold before it, or in a process of its own",
            UNREPRODUCIBLE,
        )


def expected() -> Instructions:
    # What a pinned process of this processor computes with.
    return Instructions(pinned_isa(), pinned_isa() == PINNED)


def instructions() -> Instructions:
    """What this process computes with."""
    is_set = all(os.environ.get(name) == value for name, value in _VARIABLES.items())
    pinned = is_set and pinned_isa() == PINNED and _took_effect()
    return Instructions(PINNED if pinned else host_isa(), pinned)


def note_of(circumstances: Mapping[str, Any]) -> list[str]:
    """What readers of a run must know of its `run.json`, at most one note."""
    instruction_set = recorded(circumstances)
    return [instruction_set.note] if instruction_set is not None and instruction_set.note else []


def recorded(circumstances: Mapping[str, Any]) -> Instructions | None:
    """What a `run.json` says; None if an earlier version wrote it."""
    if "isa" not in circumstances:
        return None
    return Instructions(str(circumstances["isa"]), circumstances.get("pinned") is True)


def _took_effect() -> bool:
    """Whether PyTorch obeys the variables: it does if it has computed nothing before they were set."""
    torch = sys.modules.get("torch")
    if torch is None:
        return True
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        return False
    # MKL's other modes multiply and add in one instruction, which keeps the bit that a product rounds off.
    probe = torch.tensor([[1.0, 1 + _PROBE]], dtype=torch.float32, device="cpu").repeat(_PROBE_SIZE, 1)
    right = torch.tensor([[-1 - 2 * _PROBE], [1 + _PROBE]], dtype=torch.float32, device="cpu")
    return not (probe @ right.repeat(1, _PROBE_SIZE)).any().item()
