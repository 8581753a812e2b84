"""Devices by a recording of one backward pass: when each tensor's gradient was ready.

    {"res": {"fwd_ms": 2.6, "bwd_ms": 3.5, …}, "order": [["fc.bias", 0.13, 10], ["fc.weight", 0.14, 1280], …]}

`order` has each tensor's name, the milliseconds from the start of the backward pass until its gradient was
ready, and its elements, in that order. Of `res`, whose other keys are not read, `fwd_ms` is the time of the
forward pass and `bwd_ms` that of the whole backward pass; without it backward ends with the last tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from netfold.errors import shown
from netfold.homomorphic.round import Tensor
from netfold.sim.files.foreign import UnreadableError, read_text
from netfold.sim.keys.fields import Rate, Time
from netfold.sim.workload.devices.cost import StepCost
from netfold.sim.workload.devices.device import Device, DeviceError, Passes, Place, TimedPasses
from netfold.sim.workload.devices.section import VariedSection
from netfold.units import PS_PER_MS

FILE_BYTES_MAX = 2**24
_MS_MAX = 10**9  # 11 days
_EXAMPLE = 'a tensor is written ["fc.weight", 0.14, 1280]: name, milliseconds until it was ready, elements'


class Recorded(NamedTuple):
    """A recorded backward pass."""

    forward_ps: int | None
    backward_ps: int
    ready: tuple[tuple[str, int, int], ...]  # name, picoseconds, elements


def read_recorded(text: str) -> Recorded:
    """Read a recording.

    Raises
    ------
    ValueError
        The text is none; a hint is on the second line.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"is not JSON\n{_EXAMPLE}") from None
    rows = found.get("order") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"has no list 'order' of tensors\n{_EXAMPLE}")
    ready: dict[str, tuple[int, int]] = {}
    before_ps = 0
    for index, row in enumerate(rows):
        name, ready_ps, elements = _tensor(index, row)
        if name in ready:
            raise ValueError(f"tensor {index}: the name {name!r} appears twice\nlist each tensor once")
        if ready_ps < before_ps:
            raise ValueError(
                f"tensor {index}: {name!r} is ready before the tensor before it\n"
                "list tensors in the order in which they are ready"
            )
        ready[name], before_ps = (ready_ps, elements), ready_ps
    facts = found.get("res")
    named: Mapping[str, Any] = facts if isinstance(facts, dict) else {}
    forward_ps, backward_ps = (_time_ps(named, key) for key in ("fwd_ms", "bwd_ms"))
    return Recorded(
        forward_ps, max(before_ps, backward_ps or 0), tuple((name, *own) for name, own in ready.items())
    )


def _tensor(index: int, row: Any) -> tuple[str, int, int]:
    """Name, picoseconds and elements of a tensor of the file."""
    is_row = isinstance(row, list) and len(row) == 3 and not any(isinstance(one, bool) for one in row)
    if is_row:
        name, ready_ms, elements = row
        is_row = isinstance(name, str) and name != "" and isinstance(elements, int) and elements > 0
        is_row = is_row and isinstance(ready_ms, int | float) and 0 <= ready_ms <= _MS_MAX
    if not is_row:
        raise ValueError(f"tensor {index}: cannot read {json.dumps(row)[:60]}\n{_EXAMPLE}")
    return name, round(ready_ms * PS_PER_MS), elements


def _time_ps(facts: Mapping[str, Any], key: str) -> int | None:
    """A time of the facts; None if it is not there."""
    value = facts.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MS_MAX:
        raise ValueError(
            f"res.{key}: must be milliseconds, 0 to {_MS_MAX:g}, found {json.dumps(value)[:60]}\n{_EXAMPLE}"
        )
    return round(value * PS_PER_MS)


@dataclass(frozen=True)
class TraceDevice(TimedPasses):
    """Times of a recording."""

    forward_ps: int
    backward_ps: int
    ready: tuple[tuple[str, int], ...]  # tensor and picoseconds
    memory_bps: int | None = None
    launch_ps: int = 0
    optimizer_ps: int = 0

    def passes(self, cost: StepCost) -> Passes:
        """The recorded times."""
        return Passes(self.forward_ps, self.backward_ps, dict(self.ready))


class TraceDeviceSection(VariedSection):
    """Compute takes as long as in a recording of one step, which says when each tensor was ready."""

    kind: Literal["trace"]
    path: str
    """A JSON file, relative to the scenario file, with the workload's tensors and when each was ready."""
    forward: Time | None = None
    """Forward pass of one step; by default that of the recording."""
    optimizer: Time = 0
    """Update of the weights, after the last bucket is decoded."""
    memory_rate: Rate | None = None
    """Memory bandwidth for encoding and decoding; by default it takes no time to move their bytes."""
    launch: Time = 0
    """Time to start one kernel of an encoding, a decoding or a merge on a host."""

    @property
    def files(self) -> tuple[str, ...]:
        """The recording."""
        return (self.path,)

    def device(self, place: Place) -> Device:
        """The device with the recorded times.

        Raises
        ------
        DeviceError
            The file cannot be read, lacks the time of the forward pass, or is of other tensors.
        """
        try:
            found = read_recorded(read_text(place.folder / self.path, FILE_BYTES_MAX))
        except UnreadableError as error:
            hint = "give the path of a JSON file of tensors, relative to the scenario file"
            raise DeviceError("path", f"cannot read {shown(self.path)}: {error.message}", hint) from None
        except ValueError as error:
            message, _, hint = str(error).partition("\n")
            raise DeviceError("path", f"{self.path}: {message}", hint) from None
        forward_ps = found.forward_ps if self.forward is None else self.forward
        if forward_ps is None:
            raise DeviceError(
                "path", f"{self.path}: has no time of the forward pass", "give it with the key forward"
            )
        _require_same(self.path, found, place.tensors)
        ready = tuple((name, ready_ps) for name, ready_ps, _ in found.ready)
        return TraceDevice(
            forward_ps, found.backward_ps, ready, self.memory_rate, self.launch, self.optimizer
        )


def _require_same(path: str, found: Recorded, tensors: tuple[Tensor, ...]) -> None:
    """Require that the recording has every tensor of the workload, as large as there."""
    elements = {name: count for name, _, count in found.ready}
    for tensor in tensors:
        if tensor.name not in elements:
            raise DeviceError(
                "path",
                f"{path}: has no tensor {tensor.name!r}, which the workload has",
                "use the recording of the same model; a workload without named tensors has none to compare",
            )
        if elements[tensor.name] != tensor.elements:
            raise DeviceError(
                "path",
                f"{path}: {tensor.name} has {elements[tensor.name]} elements, in the workload "
                f"{tensor.elements}",
                "use the recording of the same model",
            )
