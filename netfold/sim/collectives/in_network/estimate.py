"""An estimate of the time of aggregation in switches: a tree in which every switch that can adds up.

Every link of the tree carries what the switches below it could not add up: one message of each worker or of
each switch that adds up, and as many results back. On an idle network that is

    streams · M words at the rate of the busiest link, and the delays of the longest way up and down.

With a switch that adds up in every rack, each link has one stream, so the time does not grow with the
workers (Sapio et al., NSDI 2021, section 3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from netfold.errors import NetfoldError
from netfold.kernels import purposes
from netfold.kernels.keyed import mix_plain
from netfold.sim.collectives.closed_form import WORD_BITS, Estimate, usable_bps
from netfold.switch.fit import can_run
from netfold.switch.profiles import PROFILES
from netfold.topologies.network import Network, path, planned_key
from netfold.units import PS_PER_S

ROOTS_MAX = 64  # that are compared
_SAMPLE = 16  # racks whose distance from a root counts
_JOB = 0


class _Workers(NamedTuple):
    """Workers by the switch that they are on."""

    own_links: tuple[int, ...]  # of each worker, to its switch
    racks: Counter[int]  # workers on each switch
    route: int  # the key that selects their paths to a root
    pairs: tuple[tuple[int, int], ...]  # links inside hosts that take time: to send, and to receive

    @classmethod
    def of(cls, network: Network, nodes: Sequence[int], route: int) -> _Workers:
        links = tuple(nodes)  # a host's link has its number
        pairs = ((network.first_link(node), network.last_link(node)) for node in nodes)
        return cls(
            links,
            Counter(int(network.link_target[link]) for link in links),
            route,
            tuple(pair for pair in pairs if network.is_inside(pair[0])),
        )

    @property
    def inside(self) -> tuple[int, ...]:
        """All links inside hosts."""
        return tuple(link for pair in self.pairs for link in pair)


def estimate_in_network(
    section: Any, network: Network, nodes: Sequence[int], words: int, seed: int
) -> Estimate:
    """The least time over the nearest switches that can be the root of a tree.

    It assumes what `sim/collectives/estimate.py` does. Of the keys, only the program counts; a switch whose
    profile is not netfold's own adds nothing up.

    Raises
    ------
    NetfoldError
        No switch can run the program.
    """
    if len(nodes) < 2:
        return Estimate(0.0, "", 0.0, 0.0)
    profiles = {*network.profiles}
    able = {name for name, kind in PROFILES.items() if name in profiles and can_run(kind, section.program)}
    roots = [node for node, profile in enumerate(network.profiles) if profile in able]
    if not roots:
        found = ", ".join(sorted(profiles - {""}))
        raise NetfoldError(f"no switch can run {section.program}; profiles found: {found}")
    key = planned_key(mix_plain(seed, purposes.SWITCH_ROUTE, _JOB) >> 33)
    workers = _Workers.of(network, nodes, key)
    slowest_bps = min(usable_bps(network, link) for link in (*workers.own_links, *workers.inside))
    fastest: Estimate | None = None
    for root in _nearest(network, workers, roots)[:ROOTS_MAX]:
        streams, farthest = _streams(network, workers, root, set(roots))
        link = max(streams, key=lambda one: streams[one] / usable_bps(network, one))
        stream_bps = usable_bps(network, link) / streams[link]
        busy_s = words * WORD_BITS / stream_bps
        ways_ps = 2 * sum(int(network.delay_ps[one]) for one in farthest)
        ways_ps += max((int(network.delay_ps[[*pair]].sum()) for pair in workers.pairs), default=0)
        latency_s = ways_ps / PS_PER_S
        if fastest is None or busy_s + latency_s < fastest.seconds:
            fastest = Estimate(busy_s + latency_s, network.link_names[link], busy_s, latency_s)
        if stream_bps >= slowest_bps:
            break  # no tree is faster than the workers' own links, and this root is nearest
    assert fastest is not None
    return fastest


def _nearest(network: Network, workers: _Workers, roots: Sequence[int]) -> list[int]:
    """Roots by their hops from some of the racks; ties keep their order."""
    racks = list(workers.racks)
    sample = racks[:: -(-len(racks) // _SAMPLE)]
    return sorted(
        roots, key=lambda root: sum(len(path(network, rack, root, workers.route)) for rack in sample)
    )


def _streams(
    network: Network, workers: _Workers, root: int, able: set[int]
) -> tuple[Counter[int], tuple[int, ...]]:
    """Streams on every link towards a root, and the links of the longest way of a worker.

    The same key at every switch makes the union of the ways a tree. A switch that can add up sends one
    stream, any other as many as it receives.
    """
    ways = {rack: path(network, rack, root, workers.route) for rack in workers.racks}
    into = Counter(workers.racks)
    above = {
        int(network.link_source[link]): (link, len(way) - at)
        for way in ways.values()
        for at, link in enumerate(way)
    }
    streams = Counter(dict.fromkeys((*workers.own_links, *workers.inside), 1))
    for node, (link, _) in sorted(above.items(), key=lambda one: -one[1][1]):  # the farthest first
        sent = min(into[node], 1) if node in able else into[node]
        streams[link] += sent
        into[int(network.link_target[link])] += sent
    far = max(workers.own_links, key=lambda link: len(ways[int(network.link_target[link])]))
    return streams, (far, *ways[int(network.link_target[far])])
