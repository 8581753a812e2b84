"""Ring all-reduce: what a scenario says of it, checked and in integers."""

from __future__ import annotations

from typing import NamedTuple

from netfold.homomorphic.codec import MERGEABLE, Codec
from netfold.sim.collectives.ring_carrier import ring_carrier
from netfold.sim.collectives.ring_rules import ring_route
from netfold.sim.plan.frames import frame_of
from netfold.sim.plan.idle_network import Window, full_window_trip_ps, ring_traffic
from netfold.sim.plan.plan import RingPlan
from netfold.sim.resolve.codec import check_workers, fitted
from netfold.sim.resolve.place import Place
from netfold.sim.resolve.sections import device_of
from netfold.sim.resolve.timeouts import check_timeout
from netfold.sim.scenario import collectives as written
from netfold.sim.scenario.models import JobSections
from netfold.sim.units import TIME
from netfold.topologies.routing import Network

TIMEOUT_PS = TIME.parse("1ms")


class ResolvedRing(NamedTuple):
    """A ring, and the codec with what it takes from the network."""

    plan: RingPlan
    codec: Codec


def resolve_ring(
    section: written.Ring,
    job: JobSections,
    place: Place,
    network: Network,
    hosts: tuple[int, ...],
    index: int,
) -> ResolvedRing:
    """The ring of job number `index`, whose workers run on the nodes `hosts`.

    Raises
    ------
    ScenarioError
        Messages that cannot be merged, an index that does not count so many workers, a window that is never
        acknowledged, a timeout that is too short.
    """
    refused = sorted(merge.value for merge in job.codec.merges - MERGEABLE)
    if refused:
        raise place.job_error(
            "codec",
            f"codec {job.codec.kind!r} needs {', '.join(refused)}, which a ring cannot do",
            "a ring merges at every hop: use a codec whose messages can be merged",
        )
    check_workers(place, job.codec, len(hosts), "wrap")
    if section.window < section.ack_every:
        raise place.job_error(
            "collective.window",
            f"a window of {section.window} packets is smaller than ack_every, {section.ack_every}: "
            "it would be full before there is enough to acknowledge",
            f"use at least {section.ack_every}",
        )
    frame = frame_of(section.frame)
    routes = [ring_route(place.scenario.seed, index, worker) for worker in range(len(hosts))]
    window, traffic = Window(frame, section.window, frame.ack_bytes), ring_traffic(network, hosts, routes)
    trip_ps = full_window_trip_ps(network, traffic, window)
    timeout_ps = max(TIMEOUT_PS, 2 * trip_ps) if section.timeout is None else section.timeout
    check_timeout(place, "timeout", timeout_ps, trip_ps, "window")
    carrier = ring_carrier(network, traffic, frame, device_of(job.device))
    return ResolvedRing(
        RingPlan(frame, section.window, timeout_ps, section.ack_every), fitted(job.codec, carrier)
    )
