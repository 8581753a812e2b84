"""Devices by the roofline of their hardware: of the table, or calibrated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from netfold.errors import shown
from netfold.sim.files.foreign import UnreadableError, read_text
from netfold.sim.keys.fields import OneOf, Share, Time
from netfold.sim.workload.devices.calibrated import read_device
from netfold.sim.workload.devices.device import Device, DeviceError, Place
from netfold.sim.workload.devices.hardware import HARDWARE, LINKS, Precision
from netfold.sim.workload.devices.host_codec import HostCodec
from netfold.sim.workload.devices.roofline import RooflineDevice, peak_device, roofline_device
from netfold.sim.workload.devices.section import VariedSection
from netfold.spelling import names_hint

FILE_BYTES_MAX = 2**20
_HOST = "cpu_socket"

PositiveShare = Annotated[Share, Field(gt=0)]


class RooflineDeviceSection(VariedSection):
    """Compute takes as long as a device needs for the operations and bytes of each kernel (roofline model).

    The device is one of the table (`name`), one that `netfold calibrate` has measured (`file`), or, as in
    earlier versions, the peak of one (`model`).
    """

    kind: Literal["roofline"]
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
    launch: Time | None = None
    """Time to start one kernel: of the passes, an encoding, a decoding or a merge on a host. By default that
    of the table or the file; with model 0, and for encoding, decoding and merging alone."""
    codec: Literal["device", "host"] = "device"
    """Where encoding, decoding and merging run. On the host they take the host's time, beside the device, and
    gradients and sums are copied over the link between the two."""
    host: str | None = None
    """With codec: host: a processor of the table, or a device file; by default cpu_socket."""
    link: Annotated[str, OneOf(lambda: LINKS)] | None = None
    """With codec: host: the link between device and host; by default that of the table."""

    @model_validator(mode="after")
    def _one_device(self) -> RooflineDeviceSection:
        given = [key for key in ("name", "file", "model") if getattr(self, key) is not None]
        if len(given) != 1:
            found = f"{' and '.join(given)} are given" if given else "the key 'name' is missing"
            raise ValueError(
                f"{found}\ngive one of: name, a device of the table ({', '.join(HARDWARE)}); file, a "
                "calibrated one; model, the peak of one"
            )
        if self.name is None:
            for key in ("precision", "efficiency", "memory_efficiency"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key} is given with {given[0]}\nit belongs to name: leave it out")
        if self.codec == "device":
            for key in ("host", "link"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key} is given, but the codec runs on the device\nadd codec: host")
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """The device files that it names, relative to the scenario."""
        host = self.host if self.host is not None and self.host not in HARDWARE else None
        return tuple(one for one in (self.file, host) if one is not None)

    def device(self, place: Place) -> Device:
        """The device.

        Raises
        ------
        DeviceError
            A file is no device file, the device has no such precision, or it is the host itself.
        """
        found = self._own(place)
        return found if self.codec == "device" else self._beside(found, place)

    def _own(self, place: Place) -> Device:
        if self.model is not None:
            return peak_device(HARDWARE[self.model], self.launch or 0)
        if self.file is not None:
            found = _read(self.file, place, "file")
            launch_ps = found.launch_ps if self.launch is None else self.launch
            operator_ps = found.operator_ps if self.launch is None else self.launch
            return replace(found, launch_ps=launch_ps, operator_ps=operator_ps)
        hardware = HARDWARE[self.name or ""]
        precision: Precision = self.precision or "fp32"
        if precision not in hardware.arithmetic:
            raise DeviceError(
                "precision",
                f"{hardware.title} has no rate for {precision}",
                f"use {' or '.join(hardware.arithmetic)}",
            )
        return roofline_device(hardware, precision, self.efficiency, self.memory_efficiency, self.launch)

    def _beside(self, device: Device, place: Place) -> Device:
        """The device with its codec on the host."""
        hardware = HARDWARE.get(self.name or self.model or "")
        link = self.link or (hardware.link if hardware else None)
        if link is None:
            raise DeviceError(
                "codec",
                "the device is a processor, so its codec runs on the host already",
                "leave out codec, or give the link of a device file that was measured elsewhere",
            )
        name = self.host or _HOST
        if name not in HARDWARE:
            return HostCodec(device, _read(name, place, "host"), LINKS[link])
        if HARDWARE[name].link is not None:
            processors = [one.name for one in HARDWARE.values() if one.link is None]
            raise DeviceError(
                "host",
                f"{HARDWARE[name].title} is no host",
                f"use {' or '.join(processors)}, or a device file",
            )
        return HostCodec(device, roofline_device(HARDWARE[name], "fp32"), LINKS[link])


def _read(given: str, place: Place, key: str) -> RooflineDevice:
    """A device file, relative to the scenario."""
    try:
        return read_device(read_text(place.folder / Path(given), FILE_BYTES_MAX))
    except UnreadableError as error:
        hint = names_hint(given, HARDWARE) if key == "host" else "netfold calibrate writes a device file"
        raise DeviceError(key, f"cannot read {shown(given)}: {error.message}", hint) from None
    except ValueError as error:
        message, _, hint = str(error).partition("\n")
        raise DeviceError(key, f"{given}: {message}", hint) from None
