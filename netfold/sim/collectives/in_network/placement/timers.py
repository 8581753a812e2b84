"""The retransmission timers of a job on switches."""

from __future__ import annotations

import dataclasses

from netfold.sim.collectives.in_network.section import InNetworkSection
from netfold.sim.collectives.timeouts import AUTO, auto_timeout_ps, check_timeout
from netfold.sim.engine.interface import BACKOFF_MAX, Job
from netfold.sim.keys.location import Location
from netfold.sim.plan.idle_network import Window, full_window_trip_ps, job_traffic
from netfold.topologies.network import Network
from netfold.units import TIME


def with_timeouts(
    section: InNetworkSection, location: Location, network: Network, jobs: tuple[Job, ...]
) -> tuple[Job, ...]:
    """The trees with their timeouts, checked against the round trip of full windows.

    Raises
    ------
    ScenarioError
        A timeout is too short, or longer than the longest.
    """
    job = jobs[0]
    if job.program.timeouts is None:
        return tuple(dataclasses.replace(one, timeout_max_ps=0) for one in jobs)
    size_bytes = job.frame.wire_bytes(job.lanes * job.frame.elements, first=True, last=True)
    window = Window(job.frame, job.slots_count, size_bytes)
    trip_ps = full_window_trip_ps(network, job_traffic(network, *jobs), window)
    is_auto, first_timeout_ps = section.timeout == AUTO, section.first_timeout
    if isinstance(section.timeout, int):
        timeout_ps = section.timeout
    elif is_auto:
        timeout_ps = job.slot_timer_ps + auto_timeout_ps(trip_ps)
    else:
        timeout_ps = max(job.program.timeouts.usual_ps, 2 * trip_ps)
    if first_timeout_ps is None:
        first_timeout_ps = timeout_ps if is_auto else max(timeout_ps, job.program.timeouts.first_ps)
    longest_ps = section.timeout_max
    if is_auto and "timeout_max" not in section.model_fields_set:
        longest_ps = timeout_ps << (BACKOFF_MAX if job.program.timeouts.doubles else 0)
    check_timeout(location, "timeout", timeout_ps, trip_ps)
    check_timeout(location, "first_timeout", first_timeout_ps, trip_ps)
    _check_timeout_max(section, location, timeout_ps)
    return tuple(
        dataclasses.replace(
            one,
            timeout_ps=timeout_ps,
            first_timeout_ps=first_timeout_ps,
            timeout_max_ps=max(timeout_ps, longest_ps),
            waits_for_loss=is_auto,
        )
        for one in jobs
    )


def _check_timeout_max(section: InNetworkSection, location: Location, timeout_ps: int) -> None:
    """Reject an explicit timeout_max below the timeout; the default is raised instead."""
    if "timeout_max" not in section.model_fields_set or section.timeout_max >= timeout_ps:
        return
    found, timeout = TIME.format(section.timeout_max), TIME.format(timeout_ps)
    origin = f" ({section.timeout})" if isinstance(section.timeout, str) else ""
    raise location.job_error(
        "collective.timeout_max",
        f"{found} is less than timeout, {timeout}{origin}",
        f"use {timeout} or more, or a timeout of {found} at most",
    )
