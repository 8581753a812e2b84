"""What the inside of switches adds to a network, and what the idle network takes for a round trip."""

from __future__ import annotations

import dataclasses

import numpy as np

from sim.engine.model import Frame, Job
from sim.results.summary import Reference
from sim.units import transmit_time_ps
from switch.profiles import Profile
from topologies.routing import Network, path


def with_pass_latency(network: Network, profiles: dict[str, Profile]) -> Network:
    """Add to the delay of every link into a switch what a pass through it takes."""
    latency = [profiles[name].pass_latency_ps if name in profiles else 0 for name in network.nodes]
    delay_ps = network.delay_ps + np.array(latency, np.int64)[network.link_target]
    return dataclasses.replace(network, delay_ps=delay_ps)


def with_loopback(network: Network, name: str, kind: Profile, passes: int) -> tuple[Network, int]:
    """Append a link from a switch to itself for what needs further passes; (the same, −1) if nothing does."""
    if passes == 0:
        return network, -1
    node = np.int32(network.nodes.index(name))
    extended = dataclasses.replace(
        network,
        link_names=(*network.link_names, f"{name}->{name}"),
        link_source=np.append(network.link_source, node),
        link_target=np.append(network.link_target, node),
        rate_bps=np.append(network.rate_bps, np.int64(kind.loopback_rate_bps)),
        delay_ps=np.append(network.delay_ps, np.int64(passes * kind.pass_latency_ps)),
        buffer_bytes=np.append(network.buffer_bytes, network.buffer_bytes.max()),
    )
    return extended, len(network.link_names)


def round_trip_ps(network: Network, ends: tuple[int, int], frame: Frame, window: int) -> int:
    """Time until the last of a window of packets, sent at once on an idle network, is answered in kind."""
    size_bytes = frame.wire_bytes(frame.elements, first=True, last=True)
    trip_ps = 0
    for source, target in (ends, ends[::-1]):
        links = path(network, source, target, 0)
        times_ps = [transmit_time_ps(size_bytes, int(network.rate_bps[link])) for link in links]
        trip_ps += sum(times_ps) + int(network.delay_ps[links].sum())
        if source == ends[0]:
            trip_ps += (window - 1) * max(times_ps, default=0)
    return trip_ps


def wire_bound(network: Network, job: Job) -> Reference:
    """Dense elements per second on the slowest worker link: rate · words / wire bits of a middle packet."""
    rate_bps = min(int(network.rate_bps[network.link_source == host].min()) for host in job.hosts)
    words = job.frame.elements
    size_bytes = job.frame.wire_bytes(words, first=False, last=False)
    source = f"{words} words per {size_bytes} B on the slowest worker link"
    return Reference("wire bound, dense", rate_bps * words / (8 * size_bytes), source)
