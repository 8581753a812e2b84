"""The best possible time of an all-reduce on a network, by a collective's closed form, without simulation.

What it assumes: words travel without headers and acknowledgements; hosts that take time work on packets of
1024 B; links are idle and full duplex; each pair
of workers uses one path, as in a run with the same seed; hosts and switches merge in no time, and no window
limits what is sent; a way takes the delays of the longest path between two workers that send at the same
time, and packets take no time on the wire besides that of the words on the busiest link. Stages that follow
one another begin together at all workers; those of a collective that cuts a message into blocks overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from netfold.sim.collectives.between_hosts import Steps, host_route, traffic_of
from netfold.sim.plan.idle_network import packet_rate_bps
from netfold.sim.units import PS_PER_S
from netfold.topologies.routing import Network

WORD_BITS = 32
PACKET_BYTES = 1024


class Best(NamedTuple):
    """The best possible time of one all-reduce, and what bounds it for long messages."""

    seconds: float
    link: str  # that bounds it: the one that is busy longest; empty for one worker
    busy_s: float  # how long that link is busy
    ways_s: float  # delays of paths that follow one another


def best_of(network: Network, nodes: Sequence[int], steps: Steps, words: int, seed: int = 0) -> Best:
    """The best possible time of `words` words of 32 bits on the nodes that the pairs of `steps` index."""
    if len(nodes) < 2:
        return Best(0.0, "", 0.0, 0.0)
    ways_ps, wire_s = 0, list[float]()
    busy = dict[int, float]()  # seconds, by link
    for stage in steps.stages:
        traffic = traffic_of(network, nodes, stage.pairs, partial(host_route, seed, 0))
        ways_ps += (stage.trips or stage.hops) * max(
            sum(int(network.delay_ps[link]) for link in one.there) for one in traffic.paths
        )
        bits = words * WORD_BITS * stage.share
        times = {link: bits * count / best_bps(network, link) for link, count in traffic.load.items()}
        for link, time_s in times.items():
            busy[link] = busy.get(link, 0.0) + time_s
        wire_s.append(max(times.values(), default=0.0))
    link, busy_s = max(busy.items(), key=lambda item: item[1])
    ways_s = ways_ps / PS_PER_S
    wire = busy_s if steps.overlaps else sum(wire_s)
    return Best(wire + ways_s, network.link_names[link], busy_s, ways_s)


def best_bps(network: Network, link: int) -> int:
    """The rate of a link, or at which a host works on packets."""
    return packet_rate_bps(network, link, PACKET_BYTES)


def best_by(steps_of: Callable[[Any, int], Steps]) -> Callable[[Any, Network, Sequence[int], int], Best]:
    """The function of a collective's specification, of the closed form for its section and some workers."""

    def best(section: Any, network: Network, nodes: Sequence[int], words: int) -> Best:
        return best_of(network, nodes, steps_of(section, len(nodes)), words)

    return best
