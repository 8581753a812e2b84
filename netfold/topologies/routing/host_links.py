"""Links inside hosts: a host's work on packets, before its wire on the way out, behind it on the way in.

A host with work has two links of its own. A packet that it sends passes the first, then the host's wire; one
that it receives passes the wire, then the second. Both lead from the host to itself, come after all links of
the graph, and change no route: paths between hosts have them at their ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from netfold.topologies.routing.network import Network

NO_LINK = -1


class Work(NamedTuple):
    """What one direction of a host takes: a packet of B bytes occupies it `packet_ps` + 8·B / `rate_bps`."""

    name: str  # of the link
    rate_bps: int
    packet_ps: int = 0  # for each packet
    message_ps: int = 0  # sending: more for the first packet of a message
    delay_ps: int = 0  # until the packet goes on; others may be worked on meanwhile


@dataclass(frozen=True, eq=False)
class HostLinks:
    """The links inside the hosts of a network, with H hosts and L links, these among them."""

    send: NDArray[np.int32]  # (H,) link; −1 of a host whose work takes no time
    receive: NDArray[np.int32]  # (H,)
    packet_ps: NDArray[np.int64]  # (L,) 0 of all other links
    message_ps: NDArray[np.int64]  # (L,)


def with_host_links(network: Network, work: Mapping[int, tuple[Work, Work]]) -> Network:
    """The network with links inside some hosts, by node: what sending takes, and what receiving takes.

    Raises
    ------
    ValueError
        The network has links inside hosts already, one of the nodes is no host, or receiving has a time for
        messages.
    """
    if network.inside is not None:
        raise ValueError("this network has links inside hosts already")
    if not work:
        return network
    nodes = sorted(work)
    if not all(network.is_host[node] for node in nodes):
        raise ValueError(f"nodes {nodes} must be hosts")
    if any(receiving.message_ps for _, receiving in work.values()):
        raise ValueError("a message takes time where it is sent, not where it is received")
    each = [(node, one) for node in nodes for one in work[node]]
    owners = np.array([node for node, _ in each], np.int32)
    before, hosts = len(network.link_names), int(network.is_host.sum())
    rows = before + np.arange(len(each), dtype=np.int32)
    send, receive = np.full(hosts, NO_LINK, np.int32), np.full(hosts, NO_LINK, np.int32)
    send[nodes], receive[nodes] = rows[0::2], rows[1::2]
    nothing = np.zeros(before, np.int64)
    return replace(
        network,
        link_names=(*network.link_names, *(one.name for _, one in each)),
        link_source=np.append(network.link_source, owners),
        link_target=np.append(network.link_target, owners),
        rate_bps=np.append(network.rate_bps, np.array([one.rate_bps for _, one in each], np.int64)),
        delay_ps=np.append(network.delay_ps, np.array([one.delay_ps for _, one in each], np.int64)),
        buffer_bytes=np.append(network.buffer_bytes, np.zeros(len(each), np.int64)),
        inside=HostLinks(
            send,
            receive,
            np.append(nothing, np.array([one.packet_ps for _, one in each], np.int64)),
            np.append(nothing, np.array([one.message_ps for _, one in each], np.int64)),
        ),
    )
