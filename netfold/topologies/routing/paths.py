"""Paths of flows, for all who need to know them without sending packets."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from netfold.topologies.routing.flows import way_of_plain
from netfold.topologies.routing.network import Network
from netfold.topologies.routing.valiant import detour


def next_links(network: Network, node: int, target: int) -> list[int]:
    """Links out of a node on the ways to a target, in order of index; none where they are the same."""
    tables, fabric = network.tables, network.tables.fabric
    if node == target:
        return []
    switch = node - fabric.hosts_count
    if switch < 0:
        return [node]  # a host's only link has its number
    home = int(fabric.home[target])
    if home == switch:
        return [int(fabric.down_link[target])]
    first, number = int(fabric.first_link[switch]), int(tables.choice[switch, home])
    several = number - int(fabric.degrees[switch])
    if several < 0:
        return [first + number]
    begin, count = tables.sets[int(tables.first_set[switch]) + several].tolist()
    return [first + port for port in tables.ports[begin : begin + count].tolist()]


def path(network: Network, source: int, target: int, key: int) -> list[int]:
    """Links that a flow takes from one node to another; empty if they are the same.

    Each node hashes the key anew (`flows.way_of`), so choices in a row do not depend on each other: among
    switches that share one hash function they would, and leave most links unused ("hash polarisation").
    The key of a sprayed packet is its entropy. See `policies.py` for the other policies. Links inside the
    two hosts are its first and its last.
    """
    out, into = _ends(network, source, target)
    return [*out, *_between(network, source, target, key), *into]


def nodes_of(network: Network, links: Sequence[int]) -> list[int]:
    """Nodes that the links of a path lead to, in order; links inside hosts lead nowhere."""
    return [int(network.link_target[link]) for link in links if not network.is_inside(link)]


def _ends(network: Network, source: int, target: int) -> tuple[list[int], list[int]]:
    """The links of a path inside its source, and inside its target, where these are hosts with some."""
    if source == target or network.inside is None:
        return [], []
    send, receive = network.inside.send, network.inside.receive
    out = [int(send[source])] if network.is_host[source] and send[source] >= 0 else []
    return out, [int(receive[target])] if network.is_host[target] and receive[target] >= 0 else []


def _between(network: Network, source: int, target: int, key: int) -> list[int]:
    """The links of a path outside hosts."""
    between = detour_of(network, source, target, key)
    if between < 0:
        return _walk(network, source, target, key)
    return [*_walk(network, source, between, key), *_walk(network, between, target, key)]


def shares(network: Network, source: int, target: int, key: int) -> dict[int, float]:
    """How often each link carries a packet of a flow, in the mean: 1 for each link of its path if it has one.

    Sprayed packets divide evenly at every node, in expectation.
    """
    if not (network.policy.is_sprayed and _is_steered(network, source, target)):
        return dict(Counter(path(network, source, target, key)))
    return equal_shares(network, source, target)


def equal_shares(network: Network, source: int, target: int) -> dict[int, float]:
    """The share of packets on each link of all equal paths, if they divide evenly at every node."""
    found: dict[int, float] = {}
    here: dict[int, float] = {source: 1}
    while target not in here:  # all paths are equally long
        following: defaultdict[int, float] = defaultdict(float)
        for node, share in here.items():
            links = next_links(network, node, target)
            for link in links:
                found[link] = share / len(links)
                following[int(network.link_target[link])] += share / len(links)
        here = following
    out, into = _ends(network, source, target)
    return found | dict.fromkeys((*out, *into), 1.0)


def detour_of(network: Network, source: int, target: int, key: int) -> int:
    """The intermediate switch that a flow's policy sends it to; -1 if there is none."""
    if network.detours is None or not _is_steered(network, source, target):
        return -1
    return detour(network.detours, network.tables.fabric, source, target, key)


def _is_steered(network: Network, source: int, target: int) -> bool:
    """Whether the policy applies: it is for traffic between hosts."""
    return bool(network.is_host[source] and network.is_host[target])


def _walk(network: Network, source: int, target: int, key: int) -> list[int]:
    links: list[int] = []
    node = source
    while node != target:
        choices = next_links(network, node, target)
        is_sent_here = len(links) == 1 and network.is_host[source] and node in network.server_ports
        ways = -len(choices) if is_sent_here else len(choices)
        links.append(choices[way_of_plain(key, node, ways)])
        node = int(network.link_target[links[-1]])
    return links
