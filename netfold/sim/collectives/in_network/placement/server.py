"""Resolves the parameter server of a job: its host, and the entries of its switch."""

from __future__ import annotations

from netfold.sim.collectives.in_network.section import InNetworkSection
from netfold.sim.engine.interface import Server
from netfold.sim.keys.location import Location
from netfold.sim.plan.plan import HostAllocation
from netfold.spelling import did_you_mean
from netfold.topologies.network import Network


def resolve_server(
    section: InNetworkSection, location: Location, network: Network, occupied: HostAllocation, route: int
) -> Server:
    """A job's server; a window that is not known yet is one packet.

    Raises
    ------
    ScenarioError
        A window larger than the entries, or a host that is unknown or runs a worker.
    """
    entries, wanted = section.option("entries"), section.option("server")
    window = section.slots if isinstance(section.slots, int) else 1
    if entries < window:
        raise location.job_error(
            "collective.entries",
            f"a window of {window} packets needs at least {window} entries, found {entries}",
            f"use {window} entries or more, or {entries} slots or fewer",
        )
    name = occupied.first_free() if wanted == "auto" else wanted
    if name is None:
        raise location.job_error(
            "collective.server",
            "every host runs a worker, so none is free for the parameter server",
            "use a larger topology or fewer workers",
        )
    names = [node for node, is_host in zip(network.nodes, network.is_host, strict=True) if is_host]
    if name not in names:
        hint = did_you_mean(name, names)
        raise location.job_error(
            "collective.server",
            f"there is no host {name!r}",
            f"{hint}there are {len(names)} hosts, from {names[0]!r} to {names[-1]!r}",
        )
    if occupied.owner(name) is not None:
        raise location.job_error(
            "collective.server", f"host {name!r} runs a worker", "name a host without one, or use auto"
        )
    return Server(
        network.nodes.index(name),
        entries,
        window,
        section.option("ecn_threshold"),
        section.option("adaptive"),
        route,
    )
