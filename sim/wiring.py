"""What the inside of switches adds to a network, and what the idle network takes for a round trip."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.engine.model import Frame, Job
from sim.results.summary import Reference
from sim.units import transmit_time_ps
from switch.profiles import Profile
from topologies.routing import Network, path


class Trip(NamedTuple):
    """A way there and back."""

    source: int
    target: int
    route: int


class Window(NamedTuple):
    """What is sent at once on every trip."""

    frame: Frame
    packets: int
    has_results: bool  # answered by results of its own size; else by acknowledgements
    loopback_link: int = -1


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


def full_window_trip_ps(network: Network, trips: Sequence[Trip], window: Window) -> int:
    """Longest time until a window of packets per trip, all sent at once on an idle network, is answered.

    A packet waits for all others on the busiest link of its way. Answers wait too where they are results;
    acknowledgements do not.
    """
    size_bytes = window.frame.wire_bytes(window.frame.elements, first=True, last=True)
    answer_bytes = size_bytes if window.has_results else window.frame.ack_bytes
    extra = [(window.loopback_link, size_bytes)] if window.loopback_link >= 0 else []
    load: Counter[int] = Counter()
    ways = []
    for trip in trips:
        there = path(network, trip.source, trip.target, trip.route)
        back = path(network, trip.target, trip.source, trip.route)
        ways.append([(link, size_bytes) for link in there] + extra + [(link, answer_bytes) for link in back])
        load.update(there + back if window.has_results else there)
    load[window.loopback_link] = 1  # a result of all workers passes once
    longest_ps = 0
    for way in ways:
        times_ps = {link: transmit_time_ps(size, int(network.rate_bps[link])) for link, size in way}
        delay_ps = sum(int(network.delay_ps[link]) for link, _ in way)
        waits_ps = [(window.packets * load[link] - 1) * times_ps[link] for link, _ in way if load[link]]
        longest_ps = max(longest_ps, sum(times_ps.values()) + delay_ps + max(waits_ps, default=0))
    return longest_ps


def wire_bound(network: Network, job: Job) -> Reference:
    """Dense elements per second that the busiest link of a job can carry: its rate over what shares it."""
    load = Counter([job.loopback_link] if job.loopback_link >= 0 else [])
    for host, route in zip(job.hosts, job.routes, strict=True):
        load.update(path(network, host, job.switch, route))
        load.update(path(network, job.switch, host, route))
    busiest = min(load, key=lambda link: int(network.rate_bps[link]) / load[link])
    words = job.frame.elements
    size_bytes = job.frame.wire_bytes(words, first=False, last=False)
    shared = f", {load[busiest]} workers on {network.link_names[busiest]}" if load[busiest] > 1 else ""
    bound = int(network.rate_bps[busiest]) * words / (8 * size_bytes * load[busiest])
    return Reference("wire bound, dense", bound, f"{words} words per {size_bytes} B{shared}")
