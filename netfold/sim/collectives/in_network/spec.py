"""The specification of aggregation in switches."""

from __future__ import annotations

from netfold.homomorphic.message import MERGEABLE
from netfold.sim.collectives.collective import Collective, CollectiveSpec, JobContext, Resolved, RunContext
from netfold.sim.collectives.in_network.estimate import estimate_in_network
from netfold.sim.collectives.in_network.placement.resolve import InNetworkResolver, PlacedJob
from netfold.sim.collectives.in_network.placement.switches import Switches
from netfold.sim.collectives.in_network.program_keys import program_choices
from netfold.sim.collectives.in_network.run import InNetwork
from netfold.sim.collectives.in_network.section import InNetworkSection
from netfold.sim.collectives.timeouts import AUTO
from netfold.sim.plan.idle_network import host_bound, wire_bound
from netfold.sim.plan.plan import CollectivePlan
from netfold.switch.program import names_of
from netfold.topologies.network import Network
from netfold.units import TIME

KIND = "in_network"
SERVER_BYTES = 8  # of memory per element: a parameter server's state


def _resolve(section: InNetworkSection, job: JobContext) -> Resolved:
    """The plan of one job, which reserves its slots on the shared switches."""
    site = job.site
    switches = site.shared_state.setdefault(
        KIND, Switches(site.network, site.profiles, site.profile_key, site.sharing)
    )
    assert isinstance(switches, Switches)
    switches.network = site.network
    found = InNetworkResolver(
        site.graph,
        switches,
        site.occupied,
        section,
        job.codec,
        job.device,
        job.location,
        job.index,
        job.hosts,
        job.elements,
    ).resolve()
    site.network = switches.network
    bounds = (wire_bound(site.network, *found.jobs), host_bound(site.network, *found.jobs))
    return Resolved(
        _plan(found, section, site.network),
        found.codec,
        tuple(one for one in bounds if one is not None),
        found.warnings,
    )


def _as_part(section: InNetworkSection, job: JobContext) -> InNetworkSection:
    """The section of a part of another collective, whose hosts add up what switches have: sums wrap.

    Raises
    ------
    ScenarioError
        The program may deliver sums of only some workers, or needs a host of its own.
    """
    if not section.spec.is_all_or_nothing:
        able = names_of(lambda program: program.is_all_or_nothing)
        raise job.location.job_error(
            "collective.program",
            f"program {section.program} may deliver the sum of only some workers, which the rest of the "
            "hierarchy would take for that of all",
            f"use {' or '.join(able)}",
        )
    is_open = section.overflow == "auto" and section.spec.overflow is None
    return section.model_copy(update={"overflow": "wrap"}) if is_open else section


def _plan(found: PlacedJob, section: InNetworkSection, network: Network) -> CollectivePlan:
    job, program = found.jobs[0], found.jobs[0].program
    window = sum(one.slots_count for one in found.jobs)
    roots = {network.nodes[one.switch] for one in found.jobs}  # of several, none has the key `switch`
    return CollectivePlan(
        kind=KIND,
        frame=job.frame,
        window=window,
        timeout_ps=job.timeout_ps,
        timeout_max_ps=job.timeout_max_ps,
        is_timeout_released=section.timeout == "released",
        waits_for_loss=job.waits_for_loss,
        held_bytes=-(-found.codec.lane_bits // 8) + (SERVER_BYTES if program.has_server else 0),  # results
        settled={
            **({"switch": min(roots)} if len(roots) == 1 else {}),
            **({"slots": window} if section.slots == AUTO else {}),
            **({"timeout": TIME.format(job.timeout_ps)} if job.timeout_ps else {}),
        },
        aggregations=found.jobs,
        passes=found.passes,
        has_exponents_ahead=program.has_exponents_ahead,
        needs_lossless=program.needs_lossless,
    )


def _start(plan: CollectivePlan, context: RunContext) -> Collective:
    assert plan.aggregations
    return InNetwork(context.fabric, plan.aggregations, context.job, context.ranks)


IN_NETWORK = CollectiveSpec(
    KIND,
    MERGEABLE,
    InNetworkSection,
    _resolve,
    _start,
    works_anywhere=False,
    carries_absence=True,  # not with all programs
    as_part=_as_part,
    estimate=estimate_in_network,
    choices=program_choices,
)
