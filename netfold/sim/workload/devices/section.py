"""What the sections of all devices have in common: jitter and stragglers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from netfold.sim.keys.fields import Share
from netfold.sim.keys.section import Section
from netfold.sim.workload.devices.device import Device, Place
from netfold.sim.workload.devices.variation import STEADY, Jitter, Variation


class DeviceSection(Section, ABC):
    """The keys of a device in a scenario; the first is `kind`, a literal."""

    kind: str
    computes: ClassVar[bool] = False  # whether compute takes time

    @abstractmethod
    def device(self, place: Place) -> Device:
        """The device with these options.

        Raises
        ------
        DeviceError
            It does not exist, its file cannot be read, or it does not fit the workload.
        """

    @property
    def variation(self) -> Variation:
        """How its times differ between workers and steps."""
        return STEADY

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names, relative to the scenario."""
        return ()


class JitterSection(Section):
    """Random differences of compute times: each worker draws a factor of mean 1 in every step."""

    kind: Literal["lognormal", "gamma"] = "lognormal"
    """Distribution of the factor. Gamma has the lighter tail."""
    spread: Share
    """Its standard deviation, as a share of the mean."""


class SlowWorker(Section):
    """A straggler."""

    worker: Annotated[int, Field(ge=0)]
    """Its number, from 0."""
    factor: Annotated[float, Field(ge=1, le=1000)]
    """Its device takes so many times as long as the others'."""


class VariedSection(DeviceSection):
    """The keys of all devices that take time."""

    computes: ClassVar[bool] = True
    jitter: JitterSection | None = None
    """Random differences of compute times between workers and steps; by default there are none."""
    slow: tuple[SlowWorker, ...] = ()
    """Workers whose devices are slower: passes, updates, encoding and decoding."""

    @model_validator(mode="after")
    def _slow_workers_differ(self) -> VariedSection:
        workers = [one.worker for one in self.slow]
        if twice := next((one for one in workers if workers.count(one) > 1), None):
            raise ValueError(f"slow names worker {twice} twice\ngive each slow worker once")
        return self

    @property
    def variation(self) -> Variation:
        """How its times differ between workers and steps."""
        jitter = Jitter(self.jitter.kind, self.jitter.spread) if self.jitter else None
        return Variation(jitter, tuple((one.worker, one.factor) for one in self.slow))
