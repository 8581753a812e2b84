"""Limits the simulated time of a plan to what int64 holds, before the run starts.

The estimate is an upper bound for a run without loss: every worker's dense gradient passes the slowest link
twice, one after the other. A run that takes longer, because packets are lost or wait, ends at the same limit
with a verdict (`sim.network.fabric`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.errors import ScenarioError
from netfold.sim.engine.interface import BACKLOG_MAX_PS, NEVER_PS, TIME_MAX_PS
from netfold.sim.keys.location import Location
from netfold.sim.plan.idle_network import packet_rate_bps
from netfold.sim.plan.plan import FaultPlan, JobPlan, LinksSlower
from netfold.sim.resolve.faults import ErrorAt
from netfold.sim.workload import FileSpec, SyntheticSpec, TrainingSpec
from netfold.sim.workload.device_model import StepCost
from netfold.topologies.graph import LINK_RANGES
from netfold.topologies.network import Network
from netfold.units import PS_PER_S, RATE, TIME, transmit_time_ps

LIMIT = "26 days of simulated time"  # TIME_MAX_PS
BACKLOG_LIMIT = "6 days of simulated time"  # BACKLOG_MAX_PS
_TIMES = 2  # a gradient passes a link up and down
_FRAME_SHARE = 2  # headers are no more than what they carry
_PASSES = 16  # over a gradient in memory, to encode and to decode it


class Estimate(NamedTuple):
    """Upper estimate of the time of one step."""

    compute_ps: int
    memory_ps: int
    network_ps: int

    @property
    def step_ps(self) -> int:
        """The sum of all parts."""
        return sum(self)


def check_duration(
    job: JobPlan, location: Location, network: Network, faults: FaultPlan, index: int, rate_key: str
) -> None:
    """Check the estimated time of job number `index`; `rate_key` is the key of the links' rate.

    Raises
    ------
    ScenarioError
        Timeouts, a step, or all steps together exceed the time that can be simulated.
    """
    rate_bps = slowest_bps(network, faults)
    if (host_bps := _host_bps(network, job)) < rate_bps:
        rate_bps, rate_key = host_bps, "hosts"
    if job.collective.timeout_max_ps > TIME_MAX_PS:
        raise location.error(
            rate_key,
            f"at {RATE.format(rate_bps)} a full window waits for more than {LIMIT}",
            f"use {'faster hosts' if rate_key == 'hosts' else 'a higher rate'}, or a smaller window",
        )
    estimate = _estimate(job, rate_bps, faults, index)
    if estimate.step_ps > TIME_MAX_PS:
        raise _too_long(estimate, location, rate_bps, rate_key)
    if job.start_ps + job.steps * estimate.step_ps > TIME_MAX_PS:
        most = (TIME_MAX_PS - job.start_ps) // estimate.step_ps
        raise location.job_error(
            "workload.steps",
            f"{job.steps} steps of up to {TIME.rough(estimate.step_ps)} each are more than {LIMIT}",
            f"use {most} steps at most",
        )


def check_slowed(jobs: Sequence[JobPlan], network: Network, faults: FaultPlan, error: ErrorAt) -> None:
    """Check that full windows wait for slowed links no longer than the engine's clock allows.

    Raises
    ------
    ScenarioError
        A fault's rate is too low, however short the fault is.
    """
    for index, fault in enumerate(faults.faults):
        if not isinstance(fault.effect, LinksSlower):
            continue
        link = max(fault.effect.links, key=lambda one: _waiting_bytes(jobs, network, one))
        size_bytes, rate_bps = _waiting_bytes(jobs, network, link), fault.effect.rate_bps
        if transmit_time_ps(size_bytes, rate_bps) > BACKLOG_MAX_PS:
            least = RATE.rough(-(-size_bytes * 8 * PS_PER_S // BACKLOG_MAX_PS))
            name, rate = network.link_names[link], RATE.format(rate_bps)
            raise error(
                f"faults.{index}.rate",
                f"at {rate} a full window waits for link {name} for more than {BACKLOG_LIMIT}",
                f"use {least} or more, or a smaller window",
            )


def _waiting_bytes(jobs: Sequence[JobPlan], network: Network, link: int) -> int:
    """Most bytes that full windows put on a link at once, without copies and retransmissions."""
    source = int(network.link_source[link])
    size_bytes = 0
    for job in jobs:
        plan = job.collective
        senders = sum(host == source for host in job.hosts) if network.is_host[source] else len(job.hosts)
        size_bytes += (
            senders * plan.window * plan.frame.wire_bytes(plan.frame.elements, first=True, last=True)
        )
    buffer_bytes = int(network.buffer_bytes[link])
    is_limited = buffer_bytes > 0 and not network.is_host[source]
    return min(size_bytes, buffer_bytes) if is_limited else size_bytes


def slowest_bps(network: Network, faults: FaultPlan) -> int:
    """Rate of the slowest link for bytes, faults that never end included."""
    slowed = (fault.effect for fault in faults.faults)
    rates = [one.rate_bps for one in slowed if isinstance(one, LinksSlower) and one.until_ps == NEVER_PS]
    return min([int(network.rate_bps[~_is_inside(network)].min()), *rates])


def _is_inside(network: Network) -> NDArray[np.bool_]:
    """(L,) links inside hosts."""
    inside: NDArray[np.bool_] = network.link_source == network.link_target
    return inside & network.is_host[network.link_source]


def _host_bps(network: Network, job: JobPlan) -> int:
    """Rate at which the slowest host works on packets of a job; very high where that takes no time."""
    frame = job.collective.frame
    size_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
    inside = np.flatnonzero(_is_inside(network)).tolist()
    rates_bps = [packet_rate_bps(network, link, size_bytes, 1) for link in inside]
    return min(rates_bps, default=LINK_RANGES["rate_bps"][1])


def _estimate(job: JobPlan, rate_bps: int, faults: FaultPlan, index: int) -> Estimate:
    """The estimate of one job; gradients of training fit into memory and so are not counted."""
    factor = max((one.factor for one in faults.conditions(index, len(job.hosts))), default=1)
    elements = job.workload.elements if isinstance(job.workload, SyntheticSpec | FileSpec) else 0
    passes = job.device.passes(StepCost())  # what counts operations is not known yet, and takes less
    compute_ps = passes.forward_ps + passes.backward_ps
    if isinstance(job.workload, TrainingSpec):
        compute_ps *= job.workload.recipe.local_steps
    else:
        compute_ps = job.workload.longest_ps or compute_ps
    compute_ps += job.device.update_ps(StepCost())
    memory_ps = job.device.work_ps(4 * elements * _PASSES, 0)
    size_bytes = 4 * elements * _TIMES * _FRAME_SHARE * len(job.hosts)
    return Estimate(
        compute_ps=-(-compute_ps * factor // 1),
        memory_ps=-(-memory_ps * factor // 1),
        network_ps=transmit_time_ps(size_bytes, rate_bps),
    )


def _too_long(estimate: Estimate, location: Location, rate_bps: int, rate_key: str) -> ScenarioError:
    """The error for a step that exceeds the limit, at the key of its longest part."""
    seconds = f"a step takes up to {estimate.step_ps // PS_PER_S} s, which is more than {LIMIT}"
    if estimate.network_ps == max(estimate):
        needed = RATE.rough(-(-rate_bps * estimate.network_ps // TIME_MAX_PS))
        hint = f"use fewer elements, or {'hosts' if rate_key == 'hosts' else 'links'} of {needed} or more"
        return location.error(rate_key, f"at {RATE.format(rate_bps)} {seconds}", hint)
    if estimate.memory_ps == max(estimate):
        return location.job_error("device", seconds, "use fewer elements, or a higher memory_rate")
    return location.job_error("device", seconds, "use shorter times, or a smaller factor of slow_host")
