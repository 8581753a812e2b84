"""Where a variant or a job stands in its scenario: what errors about it point to."""

from __future__ import annotations

from dataclasses import dataclass

from netfold.sim.errors import ScenarioError
from netfold.sim.scenario import Scenario


@dataclass(frozen=True)
class Place:
    """A variant, or one of its jobs where it has several."""

    scenario: Scenario
    variant: str
    job: str = ""

    @property
    def label(self) -> str:
        """Its name in results."""
        return f"{self.variant}/{self.job}" if self.job else self.variant

    @property
    def called(self) -> str:
        """How errors about other jobs call it."""
        return f"job {self.job!r}"

    def error(self, path: str, message: str, hint: str = "") -> ScenarioError:
        """An error about the value at a path of the variant."""
        return self.scenario.error(path, message, hint, self.variant)

    def job_error(self, path: str, message: str, hint: str = "") -> ScenarioError:
        """An error about the value at a path of the job."""
        return self.error(f"jobs.{self.job}.{path}" if self.job else path, message, hint)
