"""The location of a variant or job in its scenario, which errors point to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from netfold.errors import ScenarioError
from netfold.switch.profiles import Profile


class ScenarioInfo(Protocol):
    """The parts of a scenario that resolving needs besides its sections."""

    @property
    def file(self) -> str:
        """Its path, as given."""
        ...

    @property
    def seed(self) -> int:
        """Seed of all random draws."""
        ...

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Its custom switch profiles, by name."""
        ...

    def error(self, path: str, message: str, hint: str = "", variant: str | None = None) -> ScenarioError:
        """The error to raise when the value at a path is unusable."""
        ...


@dataclass(frozen=True)
class Location:
    """A variant, or one of its jobs if it has several."""

    scenario: ScenarioInfo
    variant: str
    job: str = ""
    number: int = 0  # of a job among those of its template, from 1; 0: it is the only one

    @property
    def name(self) -> str:
        """The job's own name; empty if the variant has one job."""
        return f"{self.job}-{self.number}" if self.number else self.job

    @property
    def label(self) -> str:
        """Its name in results."""
        return f"{self.variant}/{self.name}" if self.job else self.variant

    @property
    def name_in_errors(self) -> str:
        """What errors about other jobs call it."""
        return f"job {self.name!r}"

    def error(self, path: str, message: str, hint: str = "") -> ScenarioError:
        """An error about the value at a path of the variant."""
        return self.scenario.error(path, message, hint, self.variant)

    def job_error(self, path: str, message: str, hint: str = "") -> ScenarioError:
        """An error about the value at a path of the job."""
        return self.error(f"jobs.{self.job}.{path}" if self.job else path, message, hint)
