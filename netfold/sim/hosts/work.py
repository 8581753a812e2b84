"""A network whose hosts take time for packets."""

from __future__ import annotations

from collections.abc import Mapping

from netfold.sim.hosts.profile import HostProfile
from netfold.topologies.network import Network, with_host_links


def with_work(network: Network, profiles: Mapping[int, HostProfile]) -> Network:
    """The network with links inside hosts, by node, whose profiles take time."""
    return with_host_links(
        network,
        {node: one.works(network.nodes[node]) for node, one in profiles.items() if one.takes_time},
    )
