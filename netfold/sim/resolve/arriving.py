"""The jobs of a variant's list, with templates written out, and what jobs that come and go cannot have."""

from __future__ import annotations

from typing import NamedTuple

from netfold.sim.keys.location import Location
from netfold.sim.plan.plan import FIFO
from netfold.sim.scenario import Scenario, models

JOBS_MAX = 2000  # of a variant


class Arriving(NamedTuple):
    """One job: its keys, whose `start` is when it arrives."""

    section: models.JobSection
    location: Location
    place: int  # of its template in the scenario's list


def jobs_of(scenario: Scenario, variant: models.Variant) -> list[Arriving]:
    """All jobs of a variant, template by template, those of a template in the order in which they arrive.

    Raises
    ------
    ScenarioError
        Two jobs have the same name, or there are too many.
    """
    found: list[Arriving] = []
    for place, section in enumerate(variant.jobs):
        for number, start_ps in enumerate(section.starts_ps(scenario.seed, place), start=1):
            location = Location(scenario, variant.name, section.name, number if section.is_template else 0)
            found.append(Arriving(section.model_copy(update={"start": start_ps}), location, place))
    names: dict[str, Location] = {}
    for one in found:
        if other := names.get(one.location.name):
            raise one.location.job_error(
                "name",
                f"the name {one.location.name!r} is that of a job of {other.job!r} too",
                "use another name: jobs of a template are named NAME-1, NAME-2 and so on",
            )
        names[one.location.name] = one.location
    if len(found) > JOBS_MAX:
        raise Location(scenario, variant.name).error(
            "jobs", f"{len(found):,} jobs are too many", f"use {JOBS_MAX:,} at most"
        )
    return found


def check_admission(variant: models.Variant, location: Location) -> None:
    """Refuse what jobs without hosts of their own cannot have, and keys that only such jobs need.

    Raises
    ------
    ScenarioError
        The first mistake.
    """
    if variant.admission != FIFO:
        for job in variant.jobs:
            if job.fallback is not None:
                raise _at(location, job).job_error(
                    "fallback", "every job has slots of its own, so none falls back", "add admission: fifo"
                )
        return
    if not variant.jobs:
        raise location.error(
            "admission", "there is one job, which has nothing to wait for", "add jobs, or leave out admission"
        )
    for job in variant.jobs:
        if job.hosts != variant.hosts:
            raise _at(location, job).job_error(
                "hosts",
                "with admission: fifo any job may come to any host, so all have the same profile",
                "move hosts out of the job",
            )
    for index, fault in enumerate(variant.faults):
        if "worker" in type(fault).model_fields:
            raise location.error(
                f"faults.{index}",
                f"with admission: fifo workers have no hosts of their own that {fault.kind} could strike",
                "use a fault on links or switches, or admission: reserved",
            )


def _at(location: Location, job: models.JobSection) -> Location:
    return Location(location.scenario, location.variant, job.name)
