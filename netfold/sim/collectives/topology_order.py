"""Orders of workers that follow the topology: one for each channel of a ring, or each tree.

Workers of an island, or of a rack, follow one another. As NCCL builds its rings, the last GPU of an island
and the first of the next one are on the same rail, which is another one for each channel: with as many
channels as rails, every network card sends and receives one channel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from netfold.topologies.network import Network

Orders = tuple[tuple[int, ...], ...]
"""For each channel the ranks of all workers, each once."""


def ring_orders(network: Network, nodes: Sequence[int], channels: int) -> Orders:
    """The order of each ring of workers on these nodes; of islands, all rings go the same way round.

    Odd channels of a ring go backward, so these orders are reversed: a network card then has one channel
    each way, and not two of one way.
    """
    groups, rails = _groups(network, nodes)
    if not rails:
        turned = [[_turned(group, channel) for group in groups] for channel in range(channels)]
        return tuple(tuple(rank for group in order for rank in group) for order in turned)
    exits = [2 * (number % 2) for number in range(len(groups))]
    if len(groups) % 2 and len(groups) > 1:
        exits[-1] = 4  # of an odd number, the last one leaves on a third rail
    orders = []
    for channel in range(channels):
        order = [
            rank
            for number, group in enumerate(groups)
            for rank in _between(group, rails, channel + exits[number - 1], channel + exits[number])
        ]
        orders.append(tuple(order[::-1] if channel % 2 else order))
    return tuple(orders)


def tree_orders(network: Network, nodes: Sequence[int], trees: int) -> Orders:
    """The order of the workers of each tree, which begins with another rail in every island."""
    groups, rails = _groups(network, nodes)
    return tuple(
        tuple(rank for group in groups for rank in (_turned(group, tree) if rails else group))
        for tree in range(trees)
    )


def _groups(network: Network, nodes: Sequence[int]) -> tuple[list[list[int]], dict[int, int]]:
    """Ranks by island, in the order of the network, and the rail of each; or by rack, and no rails."""
    hosts = np.asarray(nodes)
    has_islands = bool((network.island[hosts] >= 0).all())
    homes = network.island[hosts] if has_islands else network.link_target[hosts]
    groups = defaultdict[int, list[int]](list)
    for rank in np.argsort(hosts, kind="stable").tolist():
        groups[int(homes[rank])].append(rank)
    if not has_islands:
        return [groups[home] for home in sorted(groups)], {}
    all_hosts = np.flatnonzero(network.is_host)
    members = {island: all_hosts[network.island[all_hosts] == island].tolist() for island in groups}
    rails = {rank: members[int(homes[rank])].index(int(host)) for rank, host in enumerate(hosts)}
    return [groups[island] for island in sorted(groups)], rails


def _turned(group: Sequence[int], places: int) -> list[int]:
    places %= len(group)
    return [*group[places:], *group[:places]]


def _between(group: Sequence[int], rails: dict[int, int], first: int, last: int) -> list[int]:
    """An island's workers, from that on the first rail to that on the last one, as far as they are there."""
    count = max(rails.values()) + 1
    by_rail = sorted(group, key=lambda rank: (rails[rank] - first) % count)
    ends = [rank for rank in by_rail[1:] if rails[rank] == last % count]
    return [rank for rank in by_rail if rank not in ends] + ends
