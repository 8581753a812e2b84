"""Parameter servers (Li et al., OSDI 2014): their keys, where they run, and the numbers of their schedule.

With n workers and N servers, a server's link receives 1/N of the words of all workers (push) and sends each
of them 1/N of the result (pull). Both directions are busy at the same time, chunk by chunk. So on an idle
network with one switch and equal links, messages of P packets in chunks of K need about

    max(n, N) / N · P + n · K / min(n, N) packets on the busiest link, and the way of a packet up and down

if servers have hosts of their own. With N = n servers beside the workers a link carries both, 2 (n − 1) / n
of a message in each direction: the bound of ring all-reduce (Patarasuk and Yuan, JPDC 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from netfold.errors import shown
from netfold.homomorphic.message import Merge
from netfold.sim.collectives.between_hosts import ChunkedSection, HostSection, Schedule
from netfold.sim.collectives.closed_form import Estimate, Steps, estimate_of
from netfold.sim.collectives.collective import CollectiveSpec, JobContext, Resolved
from netfold.sim.collectives.parameter_server.plan import ServerPlan
from netfold.sim.collectives.parameter_server.run import ParameterServer
from netfold.sim.keys.fields import Count
from netfold.sim.plan.plan import Placed
from netfold.topologies.network import Network

KIND = "parameter_server"
_POLICIES = ("pack", "spread", "beside_workers")
_SERVERS = Placed(
    "server", "collective.servers", "collective.placement", "collective.placement: beside_workers"
)


def _check_placement(value: object) -> object:
    is_list = isinstance(value, tuple) and len(value) > 0 and all(isinstance(host, str) for host in value)
    if not is_list and value not in _POLICIES:
        listed = ", ".join(map(repr, _POLICIES))
        raise ValueError(f"must be one of {listed}, or a list of host names, found {shown(value)}")
    return value


class ParameterServerSection(ChunkedSection):
    """Workers push their messages to servers, which merge them and send every worker the result."""

    recorded_always: ClassVar[tuple[str, ...]] = (*HostSection.recorded_always, "servers", "placement")

    kind: Literal["parameter_server"]
    servers: Count = 1
    """Number of servers; each merges an equal range of the words."""
    placement: Annotated[
        Literal["pack", "spread", "beside_workers"] | tuple[str, ...], BeforeValidator(_check_placement)
    ] = "pack"
    """Where servers run. pack, spread, or names: on hosts of their own, chosen as those of workers are;
    beside_workers: on hosts of workers, whose links they share."""


def steps_of(workers: int, servers: int) -> Steps:
    """Workers and servers send to each other at the same time; the nodes of servers follow the workers'."""
    pairs = [(worker, workers + server) for worker in range(workers) for server in range(servers)]
    pairs += [(server, worker) for worker, server in pairs]
    return Steps(pairs, hops=1, chunks=servers, merges=workers - 1, trips=2)


def _resolve(section: ParameterServerSection, job: JobContext) -> Resolved:
    owners, nodes = _places(section, job)
    schedule = Schedule(KIND, partial(steps_of, servers=section.servers))
    make_plan = partial(ServerPlan, chunk_words=section.chunk_words, servers=nodes, owners=owners)
    found = schedule.resolve_on(section, job, (*job.nodes, *nodes), make_plan)
    return found._replace(warnings=(*section.warnings, *found.warnings))


def _places(section: ParameterServerSection, job: JobContext) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The workers that servers run beside, if they do, and the nodes of servers."""
    workers, count = len(job.hosts), section.servers
    if section.placement == "beside_workers":
        if count > workers:
            raise job.location.job_error(
                "collective.servers",
                f"cannot place {count} servers beside {workers} workers, one a host",
                f"use at most {workers} servers, or collective.placement: pack",
            )
        owners = tuple(server * workers // count for server in range(count))
        return owners, tuple(job.nodes[owner] for owner in owners)
    placement = section.placement
    names = job.site.occupied.place(count, placement, job.location, _SERVERS)
    return (), tuple(job.site.network.nodes.index(name) for name in names)


def _estimate(section: Any, network: Network, nodes: Sequence[int], words: int, seed: int) -> Estimate:
    """With its servers beside workers, evenly spread, wherever the keys place them."""
    servers = min(section.servers, len(nodes))
    beside = [nodes[server * len(nodes) // servers] for server in range(servers)]
    return estimate_of(network, [*nodes, *beside], steps_of(len(nodes), servers), words, seed)


PARAMETER_SERVER = CollectiveSpec(
    KIND,
    frozenset(Merge),
    ParameterServerSection,
    _resolve,
    ParameterServer,
    carries_absence=True,
    estimate=_estimate,
)
