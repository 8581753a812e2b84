"""Warnings about flows whose hashes have put them on few of the links that they could take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from netfold.topologies.network import Network, equal_shares, nodes_of

Tiers = tuple[int, int]  # of the switches at the ends of a link


def crowding_warnings(network: Network, ways: Iterable[Sequence[int]]) -> tuple[str, ...]:
    """A warning for each tier where flows use fewer than half of the links that they could fill.

    `ways` are the links of each flow. So many flows can fill as many links, of those that are on any of
    their shortest paths.
    """
    flows, used = defaultdict[Tiers, list[Sequence[int]]](list), defaultdict[Tiers, set[int]](set)
    for way in ways:
        for tiers, links in _by_tiers(network, way).items():
            flows[tiers].append(way)
            used[tiers] |= links
    told = []
    for tiers, crowd in sorted(flows.items()):
        count = len(used[tiers])
        if 2 * count >= min(len(crowd), _links_between(network, tiers)):
            continue  # whatever their shortest paths are
        inner = [[node for node in nodes_of(network, way) if network.tiers[node]] for way in crowd]
        racks = {(nodes[0], nodes[-1]) for nodes in inner}
        equal = [_by_tiers(network, equal_shares(network, *ends))[tiers] for ends in racks]
        links_count = len(used[tiers].union(*equal))
        if 2 * count < min(len(crowd), links_count):
            told.append(
                f"hashes put {len(crowd)} flows on {count} of the {links_count} links from tier {tiers[0]} "
                f"to tier {tiers[1]} that their shortest paths have: other seeds spread them better; compare "
                "several, or use routing: spray"
            )
    return tuple(told)


def _by_tiers(network: Network, links: Iterable[int]) -> defaultdict[Tiers, set[int]]:
    """Links between switches by the tiers of their ends."""
    found = defaultdict[Tiers, set[int]](set)
    for link in links:
        below, above = network.tiers[network.link_source[link]], network.tiers[network.link_target[link]]
        if below and above:  # that of a host is 0
            found[below, above].add(link)
    return found


def _links_between(network: Network, tiers: Tiers) -> int:
    """Links of a tier."""
    tier = np.array(network.tiers)
    return int(np.sum((tier[network.link_source] == tiers[0]) & (tier[network.link_target] == tiers[1])))
