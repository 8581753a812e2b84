"""The best possible time of aggregation in switches, if every switch on the way merges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from netfold.sim.collectives.best import WORD_BITS, Best
from netfold.sim.units import PS_PER_S
from netfold.topologies.routing import Network, path


def best_in_network(section: Any, network: Network, nodes: Sequence[int], words: int) -> Best:
    """One copy of the words up and one down every link of a tree, at the root where that is fastest.

    It assumes what `sim/collectives/best.py` does; that switches merge at the rate of any link, whatever
    their profile; and, whatever the keys say, that all switches of the workers' paths to the root aggregate.
    """
    if len(nodes) < 2:
        return Best(0.0, "", 0.0, 0.0)
    roots = np.flatnonzero(~network.is_host).tolist()
    return min((_at(root, network, nodes, words) for root in roots), key=lambda best: best.seconds)


def _at(root: int, network: Network, nodes: Sequence[int], words: int) -> Best:
    ups = [list(path(network, node, root, 0)) for node in nodes]
    downs = [list(path(network, root, node, 0)) for node in nodes]
    links = {link for one in (*ups, *downs) for link in one}
    slowest = min(links, key=lambda link: int(network.rate_bps[link]))
    busy_s = words * WORD_BITS / int(network.rate_bps[slowest])
    ways = (max(sum(int(network.delay_ps[link]) for link in one) for one in way) for way in (ups, downs))
    ways_s = sum(ways) / PS_PER_S
    return Best(busy_s + ways_s, network.link_names[slowest], busy_s, ways_s)
