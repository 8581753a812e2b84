"""Devices, which say how long compute takes: no time, fixed times, a roofline, a recording, this machine.

Here are the keys: a class for each kind of device that a scenario can name. `device_rooflines.py` has the
contract of a device, the table of hardware with its sources (peaks of an A100, and what is reached of
them), and the times by it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from netfold.errors import OptionError, names_hint, shown
from netfold.homomorphic.message import Tensor
from netfold.kinds import family, register
from netfold.sim.files import UnreadableError, read_text
from netfold.sim.keys import NO_KEY, OneOf, Option, Rate, Share, Time
from netfold.sim.workload.device_rooflines import (
    HARDWARE,
    LINKS,
    STEADY,
    Device,
    HardwareLink,
    Jitter,
    Passes,
    Place,
    Precision,
    RooflineDevice,
    StepCost,
    Timed,
    TimedPasses,
    Variation,
    peak_device,
    read_device,
    roofline_device,
)
from netfold.units import PS_PER_MS, PS_PER_S

# A device whose codec runs on its host: gradients and sums are copied between the two.


@dataclass(frozen=True)
class HostCodec(Device):
    """Passes and updates on a device; encoding, decoding and merging on its host, at the host's rates.

    What is on the wire leaves from the host, and arrives there. A copy takes the codec's time on the
    host: the two do not overlap.
    """

    device: Device
    host: Device
    link: HardwareLink

    @property
    def launch_ps(self) -> int:  # type: ignore[override]  # read-only
        return self.host.launch_ps

    @property
    def is_reproducible(self) -> bool:  # type: ignore[override]  # of an instance
        return self.device.is_reproducible and self.host.is_reproducible

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.device.notes, *self.host.notes)

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        return self.host.compute_ps(flops, size_bytes)

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        return self.host.work_ps(read_bytes, written_bytes)

    def passes(self, cost: StepCost) -> Passes:
        return self.device.passes(cost)

    def update_ps(self, cost: StepCost) -> int:
        return self.device.update_ps(cost)

    def copy_ps(self, size_bytes: int) -> int:
        """One copy of pinned memory over the link."""
        rate = round(self.link.bytes_per_s * self.link.share)
        return self.link.start_ps - (-size_bytes * PS_PER_S // rate)

    def on(self, workload: Any) -> Device:
        return replace(self, device=self.device.on(workload), host=self.host.on(workload))


# What all devices that a scenario can name have in common: jitter and stragglers.


@family("devices")
@dataclass(frozen=True, kw_only=True)
class DeviceOption(Option, ABC):
    """A device in a scenario."""

    kind: ClassVar[str]
    computes: ClassVar[bool] = False  # whether compute takes time

    @abstractmethod
    def device(self, place: Place) -> Device:
        """The device with these options.

        Raises
        ------
        OptionError
            It does not exist, its file cannot be read, or it does not fit the workload.
        """

    @property
    def variation(self) -> Variation:
        return STEADY

    @property
    def files(self) -> tuple[str, ...]:
        # What the device names, relative to the scenario.
        return ()


@dataclass(frozen=True)
class SlowWorker(Option):
    """A straggler."""

    worker: Annotated[int, Field(ge=0)]
    """Its number, from 0."""
    factor: Annotated[float, Field(ge=1, le=1000)]
    """Its device takes so many times as long as the others'."""


@dataclass(frozen=True, kw_only=True)
class VariedDevice(DeviceOption):
    """The keys of all devices that take time."""

    computes: ClassVar[bool] = True
    jitter: Jitter | None = None
    """Random differences of compute times between workers and steps; by default there are none."""
    slow: tuple[SlowWorker, ...] = ()
    """Workers whose devices are slower: passes, updates, encoding and decoding."""

    def __post_init__(self) -> None:
        workers = [slowed.worker for slowed in self.slow]
        if twice := next((worker for worker in workers if workers.count(worker) > 1), None):
            raise ValueError(f"slow names worker {twice} twice\ngive each slow worker once")

    @property
    def variation(self) -> Variation:
        return Variation(self.jitter, tuple((slowed.worker, slowed.factor) for slowed in self.slow))


# Devices without a model of the hardware: no time, or times that the scenario gives.


@register
@dataclass(frozen=True)
class NoDevice(DeviceOption, Device):
    """Compute takes no time."""

    kind: ClassVar[str] = "none"
    launch_ps: ClassVar[int] = 0  # type: ignore[misc]  # read-only there, too

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        return 0

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        return 0

    def passes(self, cost: StepCost) -> Passes:
        return Passes()

    def device(self, place: Place) -> Device:
        return self


@dataclass(frozen=True, kw_only=True)
class TimedDevice(VariedDevice, TimedPasses):
    """The keys of all devices whose passes take times that are given or measured."""

    memory_bps: Annotated[Rate | None, Field(alias="memory_rate")] = None
    """Memory bandwidth for encoding and decoding; by default it takes no time to move their bytes."""
    launch_ps: Time = 0
    """Time to start one kernel of an encoding, a decoding or a merge on a host."""


@register
@dataclass(frozen=True, kw_only=True)
class FixedDevice(TimedDevice):
    """Compute takes fixed times."""

    kind: ClassVar[str] = "fixed"
    forward_ps: Time
    """Forward pass of one step."""
    backward_ps: Time
    """Backward pass of one step."""
    optimizer_ps: Time = 0
    """Update of the weights, after the last bucket is decoded."""

    def passes(self, cost: StepCost) -> Passes:
        return Passes(self.forward_ps, self.backward_ps)

    def device(self, place: Place) -> Device:
        return self


# Devices by the roofline of their hardware: of the table, or calibrated.


FILE_BYTES_MAX = 2**20
_HOST = "cpu_socket"

PositiveShare = Annotated[Share, Field(gt=0)]


@register
@dataclass(frozen=True, kw_only=True)
class Roofline(VariedDevice):
    """Compute takes as long as a device needs for the operations and bytes of each kernel (roofline model).

    The device is one of the table (`name`), one that `netfold calibrate` has measured (`file`), or, as in
    earlier versions, the peak of one (`model`).
    """

    kind: ClassVar[str] = "roofline"
    name: Annotated[str, OneOf(lambda: HARDWARE)] | None = None
    """A device of the table, with the rates that programs reach on it."""
    file: str | None = None
    """A device file, relative to the scenario file: `netfold calibrate` writes one of this machine."""
    model: Literal["v100", "a100", "h100", "p100", "t4"] | None = None
    """An accelerator at its peak rates in float32, for passes as wholes: a lower bound. Backward produces
    gradient bytes at an even rate, and the optimizer takes no time. Prefer name."""
    precision: Literal["fp32", "tf32", "bf16", "fp16"] | None = None
    """With name: how matrix products and convolutions are computed; by default fp32. With bf16 and fp16 the
    tensors of the passes take half the bytes; gradients are sent, and weights updated, in float32."""
    efficiency: PositiveShare | None = None
    """With name: share of the peak arithmetic rate that is reached; by default that of the table."""
    memory_efficiency: PositiveShare | None = None
    """With name: share of the peak memory bandwidth that is reached; by default that of the table."""
    launch_ps: Time | None = None
    """Time to start one kernel: of the passes, an encoding, a decoding or a merge on a host. By default that
    of the table or the file; with model 0, and for encoding, decoding and merging alone."""
    codec: Literal["device", "host"] = "device"
    """Where encoding, decoding and merging run. On the host they take the host's time, beside the device, and
    gradients and sums are copied over the link between the two."""
    host: str | None = None
    """With codec: host: a processor of the table, or a device file; by default cpu_socket."""
    link: Annotated[str, OneOf(lambda: LINKS)] | None = None
    """With codec: host: the link between device and host; by default that of the table."""

    def __post_init__(self) -> None:
        super().__post_init__()
        keys = [key for key in ("name", "file", "model") if getattr(self, key) is not None]
        if len(keys) != 1:
            mistake = f"{' and '.join(keys)} are given" if keys else "the key 'name' is missing"
            raise ValueError(
                f"{mistake}\ngive one of: name, a device of the table ({', '.join(HARDWARE)}); file, a "
                "calibrated one; model, the peak of one"
            )
        if self.name is None:
            for key in ("precision", "efficiency", "memory_efficiency"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key} is given with {keys[0]}\nit belongs to name: leave it out")
        if self.codec == "device":
            for key in ("host", "link"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key} is given, but the codec runs on the device\nadd codec: host")

    @property
    def files(self) -> tuple[str, ...]:
        """The device files that it names, relative to the scenario."""
        host = self.host if self.host is not None and self.host not in HARDWARE else None
        return tuple(path for path in (self.file, host) if path is not None)

    def device(self, place: Place) -> Device:
        device = self._own(place)
        return device if self.codec == "device" else self._beside(device, place)

    def _own(self, place: Place) -> Device:
        if self.model is not None:
            return peak_device(HARDWARE[self.model], self.launch_ps or 0)
        if self.file is not None:
            device = _read(self.file, place, "file")
            launch_ps = device.launch_ps if self.launch_ps is None else self.launch_ps
            operator_ps = device.operator_ps if self.launch_ps is None else self.launch_ps
            return replace(device, launch_ps=launch_ps, operator_ps=operator_ps)
        hardware = HARDWARE[self.name or ""]
        precision: Precision = self.precision or "fp32"
        if precision not in hardware.arithmetic:
            raise OptionError(
                "precision",
                f"{hardware.title} has no rate for {precision}",
                f"use {' or '.join(hardware.arithmetic)}",
            )
        return roofline_device(hardware, precision, self.efficiency, self.memory_efficiency, self.launch_ps)

    def _beside(self, device: Device, place: Place) -> Device:
        """The device with its codec on the host."""
        hardware = HARDWARE.get(self.name or self.model or "")
        link = self.link or (hardware.link if hardware else None)
        if link is None:
            raise OptionError(
                "codec",
                "the device is a processor, so its codec runs on the host already",
                "leave out codec, or give the link of a device file that was measured elsewhere",
            )
        name = self.host or _HOST
        if name not in HARDWARE:
            return HostCodec(device, _read(name, place, "host"), LINKS[link])
        if HARDWARE[name].link is not None:
            processors = [chip.name for chip in HARDWARE.values() if chip.link is None]
            raise OptionError(
                "host",
                f"{HARDWARE[name].title} is no host",
                f"use {' or '.join(processors)}, or a device file",
            )
        return HostCodec(device, roofline_device(HARDWARE[name], "fp32"), LINKS[link])


def _read(file: str, place: Place, key: str) -> RooflineDevice:
    """A device file, relative to the scenario."""
    try:
        return read_device(read_text(place.folder / Path(file), FILE_BYTES_MAX))
    except UnreadableError as error:
        hint = names_hint(file, HARDWARE) if key == "host" else "netfold calibrate writes a device file"
        raise OptionError(key, f"cannot read {shown(file)}: {error.message}", hint) from None
    except ValueError as error:
        message, _, hint = str(error).partition("\n")
        raise OptionError(key, f"{file}: {message}", hint) from None


# Devices by a recording of one backward pass: when each tensor's gradient was ready.
#
#     {"res": {"fwd_ms": 2.6, "bwd_ms": 3.5, …}, "order": [["fc.bias", 0.13, 10], ["fc.weight", 0.14, 1280],
#     …]}
#
# `order` has each tensor's name, the milliseconds from the start of the backward pass until its gradient was
# ready, and its elements, in that order. Of `res`, whose other keys are not read, `fwd_ms` is the time of the
# forward pass and `bwd_ms` that of the whole backward pass; without it backward ends with the last tensor.


TRACE_FILE_BYTES_MAX = 2**24
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
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"is not JSON\n{_EXAMPLE}") from None
    rows = parsed.get("order") if isinstance(parsed, dict) else None
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
    facts = parsed.get("res")
    named: Mapping[str, Any] = facts if isinstance(facts, dict) else {}
    forward_ps, backward_ps = (_time_ps(named, key) for key in ("fwd_ms", "bwd_ms"))
    return Recorded(
        forward_ps, max(before_ps, backward_ps or 0), tuple((name, *pair) for name, pair in ready.items())
    )


def _tensor(index: int, row: Any) -> tuple[str, int, int]:
    """Name, picoseconds and elements of a tensor of the file."""
    is_row = isinstance(row, list) and len(row) == 3 and not any(isinstance(cell, bool) for cell in row)
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


@register
@dataclass(frozen=True, kw_only=True)
class TraceDevice(TimedDevice):
    """Compute takes as long as in a recording of one step, which says when each tensor was ready."""

    kind: ClassVar[str] = "trace"
    path: str
    """A JSON file, relative to the scenario file, with the workload's tensors and when each was ready."""
    forward_ps: Time | None = None
    """Forward pass of one step; by default that of the recording."""
    optimizer_ps: Time = 0
    """Update of the weights, after the last bucket is decoded."""
    # Those of the recording are known once it is read (`device`).
    backward_ps: int = field(default=0, metadata=NO_KEY)
    ready: tuple[tuple[str, int], ...] = field(default=(), metadata=NO_KEY)  # tensor and picoseconds

    def passes(self, cost: StepCost) -> Passes:
        return Passes(self.forward_ps or 0, self.backward_ps, dict(self.ready))

    @property
    def files(self) -> tuple[str, ...]:
        return (self.path,)

    def device(self, place: Place) -> Device:
        """The device with the recorded times.

        Raises
        ------
        OptionError
            The file cannot be read, lacks the time of the forward pass, or is of other tensors.
        """
        try:
            recorded = read_recorded(read_text(place.folder / self.path, TRACE_FILE_BYTES_MAX))
        except UnreadableError as error:
            hint = "give the path of a JSON file of tensors, relative to the scenario file"
            raise OptionError("path", f"cannot read {shown(self.path)}: {error.message}", hint) from None
        except ValueError as error:
            message, _, hint = str(error).partition("\n")
            raise OptionError("path", f"{self.path}: {message}", hint) from None
        forward_ps = recorded.forward_ps if self.forward_ps is None else self.forward_ps
        if forward_ps is None:
            raise OptionError(
                "path", f"{self.path}: has no time of the forward pass", "give it with the key forward"
            )
        _require_same(self.path, recorded, place.tensors)
        ready = tuple((name, ready_ps) for name, ready_ps, _ in recorded.ready)
        return replace(self, forward_ps=forward_ps, backward_ps=recorded.backward_ps, ready=ready)


def _require_same(path: str, recorded: Recorded, tensors: tuple[Tensor, ...]) -> None:
    """Require that the recording has every tensor of the workload, as large as there."""
    elements = {name: count for name, _, count in recorded.ready}
    for tensor in tensors:
        if tensor.name not in elements:
            raise OptionError(
                "path",
                f"{path}: has no tensor {tensor.name!r}, which the workload has",
                "use the recording of the same model; a workload without named tensors has none to compare",
            )
        if elements[tensor.name] != tensor.elements:
            raise OptionError(
                "path",
                f"{path}: {tensor.name} has {elements[tensor.name]} elements, in the workload "
                f"{tensor.elements}",
                "use the recording of the same model",
            )


# The device is this machine: wall times of real passes of the workload's model.


NOTE = "compute times are wall times of this machine: they, and all times, differ from run to run"


@register
@dataclass(frozen=True, kw_only=True)
class MeasuredDevice(TimedDevice):
    """Compute takes as long as real passes of the model on this machine, in one thread.

    They are timed before the first step: the median of several. Results differ from run to run.
    """

    kind: ClassVar[str] = "measured"
    is_reproducible: ClassVar[bool] = False
    # Those of a workload are known once it is built (`on`).
    timed: Passes | None = field(default=None, metadata=NO_KEY)
    optimizer_ps: int = field(default=0, metadata=NO_KEY)

    def passes(self, cost: StepCost) -> Passes:
        return self.timed or Passes()

    def on(self, workload: Timed) -> Device:
        timed, optimizer_ps = workload.timed_passes()
        return replace(self, timed=timed, optimizer_ps=optimizer_ps)

    @property
    def notes(self) -> tuple[str, ...]:
        return (NOTE,)

    def device(self, place: Place) -> Device:
        if not place.is_trained:
            raise OptionError(
                "kind",
                "nothing is trained, so there are no passes to measure",
                "use a workload of the kind training, or a device of the kind fixed or trace",
            )
        return self
